// What is published about models and GPUs: the files that Python reads too.
import gpuList from "../../../accounting/gpus.json" with { type: "json" };
import modelList from "../../../accounting/models.json" with { type: "json" };

export const OWN = "own"; // the model that was pasted, the GPU that was typed in

export const MODELS = modelList;
export const GPUS = gpuList;

const modelsById = new Map(modelList.map((model) => [model.id, model]));
const gpusByName = new Map(gpuList.map((gpu) => [gpu.name, gpu]));

export const modelOf = (id) => modelsById.get(id);
export const gpuOf = (name) => gpusByName.get(name);

/** Whether a config is of a mixture of experts: it names a number of experts, here or in a part. */
export function hasExperts(config) {
  const known = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
  return [config, config?.text_config, config?.llm_config, config?.ffn_config].some(
    (part) =>
      part !== null &&
      typeof part === "object" &&
      known.some((key) => Object.hasOwn(part, key) && part[key] > 1),
  );
}
