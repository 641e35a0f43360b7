// How many of a model's parameters a pass multiplies by, as kvbook/accounting/dense.py. No DOM here.
import weightsTable from "../../../accounting/weights.json" with { type: "json" };
import { ConfigError } from "./errors.js";
import { attentionFlops } from "./roofline.js";
import { cacheSpec } from "./reader.js";
import { valuesPerToken } from "./spec.js";
import { own } from "./tables.js";

const EXPERTS = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];
const KINDS = ["full", "sliding", "chunked"];

/** Whether `denseWeights` answers for a model of models.json. */
export function isDense({ config }) {
  const hasSizes = ["vocab_size", "hidden_size"].every((key) => Number.isInteger(config[key]));
  if (!hasSizes || EXPERTS.some((key) => config[key])) return false;
  const spec = cacheSpec(config);
  return spec.layers.every(({ kind }) => KINDS.includes(kind)) && attentionFlops(spec, 1, 1) !== null;
}

/**
 * { layerWeights, unembedWeights, dim } of a model of models.json: its parameters without the rows of its embedding,
 * which are looked up. Throws a ConfigError for one with experts, latents or constant states, or without the sizes.
 */
export function denseWeights(model) {
  const { id, config, parameters } = model;
  if (!isDense(model)) {
    throw new ConfigError(`${id} is not a dense model whose config gives all its sizes.`);
  }
  const unembedWeights = config.vocab_size * config.hidden_size;
  const family = own(weightsTable.families, config.model_type);
  const isTied = config.tie_word_embeddings ?? family?.tied ?? false;
  return {
    layerWeights: parameters - unembedWeights * (isTied ? 1 : 2),
    unembedWeights,
    dim: config.hidden_size,
  };
}

/** The same with other KV heads: dim weights for each value that a token leaves cached. */
export function withCache(weights, published, changed) {
  const values = ({ layers }) => layers.reduce((sum, layer) => sum + valuesPerToken(layer), 0);
  return {
    ...weights,
    layerWeights: weights.layerWeights + weights.dim * (values(changed) - values(published)),
  };
}
