// The state: everything that the explorer shows follows from it. No DOM here.
import { isDense } from "../accounting/dense.js";
import { GPUS, MODELS, OWN } from "../common/facts.js";
import { carriedBy, decimal, field, initialOf, oneOf, optional, whole } from "../common/fields.js";
import { hashOf } from "../common/hash.js";

export const MAX_CONTEXT = 2 ** 20;
export const MAX_BATCH = 2 ** 16;
export const WEIGHTS = ["32", "16", "8", "4"]; // bits a parameter
export const CACHE_DTYPES = ["float32", "float16", "bfloat16", "fp8", "int8", "int4", "q8_0", "q4_0"];
export const DENSE = MODELS.filter(isDense); // what a token is multiplied by does not depend on the text
export const RATED = GPUS.filter(({ fp16_flops_dense: rate }) => rate !== null);

export const FIELDS = [
  field("model", "model", "model", "llama-2-7b", oneOf(DENSE.map(({ id }) => id))),
  field("gpu", "gpu", "gpu", "A100 80GB", oneOf([...RATED.map(({ name }) => name), OWN])),
  field("prompt", "prompt", "prompt", 512, whole(1, MAX_CONTEXT)),
  field("context", "context", "context", 1024, whole(1, MAX_CONTEXT)),
  field("batch", "batch", "batch", 1, whole(1, MAX_BATCH)),
  field("nKvHeads", "n_kv_heads", "heads", null, optional(whole(1, 1024))), // null: as published
  field("weights", "weights", "weights", "16", oneOf(WEIGHTS)),
  field("cacheDtype", "cache_dtype", "cache", "float16", oneOf(CACHE_DTYPES)),
  field("ownGbPerS", "own_gb_per_s", "gbps", 20, decimal(0.01, 1_000_000)), // of the reader's machine
  field("ownTflops", "own_tflops", "tflops", 0.1, decimal(0.0001, 1_000_000)),
];

export const INITIAL = initialOf(FIELDS);
export const { fromTraits, toTraits, same } = carriedBy(FIELDS);
export const hash = hashOf(FIELDS, "#roofline:");

/** Changes to a state with what follows from them: another model has its own heads. */
export function settle(state, changes) {
  const isOther = "model" in changes && changes.model !== state.model;
  return isOther ? { nKvHeads: null, ...changes } : changes;
}
