// The state: everything that the explorer shows follows from it. One table says, for each setting, its name, the
// trait and the key in the address that carry it, where it starts and what it may be. No DOM here.
import { GPUS, MODELS, OWN } from "./facts.js";

export const MAX_CONTEXT = 2 ** 20;
export const MAX_CONFIG = 1_000_000; // characters of a pasted file
export const CACHE_DTYPES = ["float16", "bfloat16", "fp8", "int8", "int4", "q8_0", "q4_0", "float32"];
export const WEIGHTS = ["released", "32", "16", "8", "4"]; // as published, or bits a parameter
export const POLICIES = ["exact", "reserve", "paged", "all_layers_full"];
export const PARALLEL = [1, 2, 4, 8, 16];

const count = (n) => n.toLocaleString("en-US");
const oneOf = (choices) => ({
  check: (value) => (choices.includes(value) ? null : `must be one of ${choices.join(", ")}`),
  read: (text) => choices.find((choice) => String(choice) === text),
});
const whole = (low, high) => ({
  check: (v) =>
    Number.isInteger(v) && v >= low && v <= high
      ? null
      : `must be a whole number from ${count(low)} to ${count(high)}`,
  read: (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined),
  low,
  high,
});
const decimal = (low, high) => ({
  check: (v) =>
    Number.isFinite(v) && v >= low && v <= high
      ? null
      : `must be a number from ${count(low)} to ${count(high)}`,
  read: (text) => (/^\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : undefined),
  low,
  high,
});
const text = (longest) => ({
  check: (v) =>
    typeof v === "string" && v.length <= longest
      ? null
      : `must be a text of at most ${count(longest)} characters`,
  read: (v) => v,
});
const optional = (kind) => ({ ...kind, check: (v) => (v === null ? null : kind.check(v)), optional: true });

const field = (name, trait, key, initial, kind) => ({ name, trait, key, initial, ...kind });

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

export const INITIAL = Object.freeze(Object.fromEntries(FIELDS.map(({ name, initial }) => [name, initial])));

/** The sentence that says what is wrong with a setting's value, or null. */
export function fault({ trait, check }, value) {
  const wrong = check(value);
  return wrong === null ? null : `${trait} is ${shown(value)}; it ${wrong}.`;
}

function shown(value) {
  const written = JSON.stringify(value) ?? String(value);
  return written.length <= 40 ? written : `${written.slice(0, 37)}...`;
}

/** The state that a widget's traits hold; a value that is not allowed stays where it starts. */
export function fromTraits(get) {
  const value = (f) => get(f.trait);
  return Object.fromEntries(FIELDS.map((f) => [f.name, f.check(value(f)) === null ? value(f) : f.initial]));
}

/** Some settings as a widget's traits. */
export function toTraits(changes) {
  return Object.fromEntries(
    FIELDS.filter(({ name }) => name in changes).map(({ name, trait }) => [trait, changes[name]]),
  );
}

export const same = (a, b) => FIELDS.every(({ name }) => a[name] === b[name]);

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
