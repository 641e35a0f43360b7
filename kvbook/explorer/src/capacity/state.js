// The state: everything that the explorer shows follows from it. No DOM here.
import { GPUS, MODELS, OWN } from "../common/facts.js";
import { carriedBy, decimal, field, initialOf, oneOf, optional, text, whole } from "../common/fields.js";

export const MAX_CONTEXT = 2 ** 20;
export const MAX_CONFIG = 1_000_000; // characters of a pasted file
export const CACHE_DTYPES = ["float16", "bfloat16", "fp8", "int8", "int4", "q8_0", "q4_0", "float32"];
export const WEIGHTS = ["released", "32", "16", "8", "4"]; // as published, or bits a parameter
export const POLICIES = ["exact", "reserve", "paged", "all_layers_full"];
export const PARALLEL = [1, 2, 4, 8, 16];

export const FIELDS = [
  field("model", "model", "model", "llama-2-7b", oneOf([...MODELS.map(({ id }) => id), OWN])),
  field("config", "config", "config", "", text(MAX_CONFIG)), // of one's own model
  field("parameters", "parameters", "parameters", null, optional(whole(1, 1e14))), // of one's own model
  field("weights", "weights", "weights", "16", oneOf(WEIGHTS)),
  field("gpu", "gpu", "gpu", "A100 80GB", oneOf([...GPUS.map(({ name }) => name), OWN])),
  field("memory", "memory", "memory", "nominal", oneOf(["nominal", "reported"])),
  field("ownGb", "own_gb", "gb", 80, decimal(0.1, 100_000)), // of one's own GPU
  field("ownGbPerS", "own_gb_per_s", "gbps", 2000, decimal(1, 1_000_000)),
  field("context", "context", "context", 4096, whole(1, MAX_CONTEXT)),
  field("batch", "batch", "batch", 30, whole(1, 100_000)),
  field("cacheDtype", "cache_dtype", "cache", "float16", oneOf(CACHE_DTYPES)),
  field("nKvHeads", "n_kv_heads", "heads", null, optional(whole(1, 1024))), // null: as published
  field("window", "window", "window", null, optional(whole(1, MAX_CONTEXT))),
  field("sinks", "sinks", "sinks", 0, whole(0, 1024)),
  field("fullEvery", "full_every", "full", null, optional(whole(2, 128))), // null: no layer stays full
  field("policy", "policy", "policy", "exact", oneOf(POLICIES)),
  field("reserve", "reserve", "reserve", null, optional(whole(1, MAX_CONTEXT * 16))), // null: the model's most
  field("blockSize", "block_size", "block", 16, whole(1, 65_536)),
  field("tensorParallel", "tensor_parallel", "gpus", 1, oneOf(PARALLEL)),
  field("utilization", "utilization", "use", 1, decimal(0.01, 1)),
  field("overheadGb", "overhead_gb", "overhead", 0, decimal(0, 10_000)),
];

export const INITIAL = initialOf(FIELDS);
export const { fromTraits, toTraits, same } = carriedBy(FIELDS);

/** Changes to a state with what follows from them: a setting that lost its meaning goes back to its start. */
export function settle(state, changes) {
  const next = { ...changes };
  if ("model" in changes && changes.model !== state.model) {
    next.nKvHeads ??= null;
    next.reserve ??= null;
    const model = MODELS.find(({ id }) => id === changes.model);
    if (!("weights" in changes))
      next.weights = model?.weights_bytes ? "released" : state.weights === "released" ? "16" : state.weights;
  }
  if (changes.window === null) Object.assign(next, { sinks: 0, fullEvery: null });
  return next;
}
