// What each layer caches, and the bytes that come to. Knows nothing of config files. No DOM here.
//
// A spec is { family, layers: [{ kind, nKvHeads, kDim, vDim, window, tokens }], maxContext, stateValues,
// notes, nHeads }; kvbook/accounting/spec.py says what each of these means. Sums are exact, and given as
// Number, which beyond 2**53 bytes (9 PB) is the nearest one; exactNbytes has the exact one.
import { ConfigError, shown } from "./errors.js";
import { ceilDiv, product, sum, times } from "./exact.js";
import { whole } from "./reading.js";
import { dtypes } from "./tables.js";

export const POLICIES = ["exact", "all_layers_full", "paged"];
export const CACHE_DTYPES = Object.keys(dtypes);
const LARGEST = 2 ** 40; // of a context, a batch, a block size; beyond any real one
const MOST_GPUS = 2 ** 16;

/** The options of all functions here, with what they are where they are not given. */
const DEFAULTS = {
  batch: 1,
  cacheDtype: "bfloat16",
  policy: "exact",
  tensorParallel: 1,
  blockSize: 16,
};

export const withDefaults = (options) => ({ ...DEFAULTS, ...options });

export function layerCache(kind, sizes = {}) {
  return { kind, nKvHeads: 0, kDim: 0, vDim: 0, window: null, tokens: null, ...sizes };
}

/** Values that one token takes, over all heads: keys and values, or the latent. */
export const valuesPerToken = ({ nKvHeads, kDim, vDim }) => nKvHeads * (kDim + vDim);

/** Tokens for which a layer holds, or under `paged` reserves, room. */
export function tokensHeld(layer, options) {
  const { context, policy, blockSize } = withDefaults(options);
  if (!valuesPerToken(layer)) return 0;
  let held = layer.tokens ?? context;
  if (layer.window !== null && policy !== "all_layers_full" && layer.window < held) held = layer.window;
  return policy === "paged" ? times(ceilDiv(held, blockSize), blockSize) : held;
}

/** KV heads on each of T GPUs: n/T, or one where there are fewer than T; a latent is whole on every GPU. */
export function headsOnGpu({ kind, nKvHeads }, tensorParallel) {
  if (kind === "latent" || nKvHeads <= tensorParallel) return Math.min(nKvHeads, 1);
  if (nKvHeads % tensorParallel) {
    throw new ConfigError(
      `tensor_parallel is ${tensorParallel}, which does not divide ${nKvHeads} KV heads.`,
    );
  }
  return nKvHeads / tensorParallel;
}

/** Bytes of `tokens` tokens in `heads` heads of a layer; dtypes.json says what is rounded. */
function valuesNbytes({ kDim, vDim }, tokens, heads, cacheDtype) {
  const { values, bytes, row_bytes: rowBytes = 0, whole_blocks: wholeBlocks } = dtypes[cacheDtype];
  const rows = times(tokens, heads);
  const extra = times(rows, rowBytes * ((kDim > 0) + (vDim > 0)));
  if (wholeBlocks) {
    return sum([product([rows, ceilDiv(kDim, values) + ceilDiv(vDim, values), bytes]), extra]);
  }
  return sum([ceilDiv(product([rows, kDim + vDim, bytes]), values), extra]);
}

/** Exact bytes, on one GPU, of `batch` sequences of `context` tokens each: beyond 2**53, a BigInt. */
export function exactNbytes(spec, options) {
  const all = withDefaults(options);
  checkCount("context", all.context, { low: 0 });
  checkCount("batch", all.batch);
  return times(all.batch, sum(groupNbytes(spec, all).map(({ count, nbytes }) => times(count, nbytes))));
}

/** The same as a Number. Options: context, batch, cacheDtype, policy, tensorParallel, blockSize. */
export function nbytes(spec, options) {
  return Number(exactNbytes(spec, options));
}

/** Bytes of one sequence on one GPU for each of the layers. */
export function layerNbytes(spec, options) {
  const all = withDefaults(options);
  const sizes = groupNbytes(spec, all);
  return groups(spec).ofLayer.map((group) => Number(sizes[group].nbytes));
}

/** Equal layers, in the order of their first: [{ layer, count, nbytes of one }]. */
export function groupNbytes(spec, options) {
  const all = withDefaults(options);
  checkCount("context", all.context, { low: 0 });
  checkCount("tensor_parallel", all.tensorParallel, { high: MOST_GPUS });
  checkCount("block_size", all.blockSize);
  checkChoice("cache_dtype", all.cacheDtype, CACHE_DTYPES);
  checkChoice("policy", all.policy, POLICIES);
  return groups(spec).list.map(({ layer, count }) => {
    const heads = headsOnGpu(layer, all.tensorParallel);
    return { layer, count, nbytes: valuesNbytes(layer, tokensHeld(layer, all), heads, all.cacheDtype) };
  });
}

/** The different windows of sliding and chunked layers, in rising order. */
export function windows(spec) {
  const found = new Set(spec.layers.map((layer) => layer.window).filter((window) => window !== null));
  return [...found].sort((a, b) => a - b);
}

/**
 * Bytes that one more token of one sequence takes on one GPU: below every window, where all layers grow, and
 * beyond the largest, where only those without a window do, or all under the policy all_layers_full. A cross
 * cache of fixed length never grows.
 */
export function bytesPerToken(spec, options) {
  const { cacheDtype, policy, tensorParallel } = withDefaults(options);
  checkCount("tensor_parallel", tensorParallel, { high: MOST_GPUS });
  checkChoice("cache_dtype", cacheDtype, CACHE_DTYPES);
  checkChoice("policy", policy, POLICIES);
  const grows = ({ layer }) => layer.tokens === null;
  const forever = ({ layer }) => layer.window === null || policy === "all_layers_full";
  const each = ({ layer, count }) =>
    times(count, valuesNbytes(layer, 1, headsOnGpu(layer, tensorParallel), cacheDtype));
  const growing = groups(spec).list.filter(grows);
  return { below: Number(sum(growing.map(each))), beyond: Number(sum(growing.filter(forever).map(each))) };
}

/** Bytes of recurrent states, whatever the context, beside `nbytes`; null where the config does not tell. */
export function stateBytes(spec, { batch = 1, bytesPerValue = 2 } = {}) {
  checkCount("batch", batch);
  checkCount("bytes_per_value", bytesPerValue);
  return spec.stateValues === null ? null : Number(product([batch, spec.stateValues, bytesPerValue]));
}

const known = new WeakMap(); // by the list of layers, which nothing changes

function groups({ layers }) {
  let found = known.get(layers);
  if (found) return found;
  const list = [];
  const numbers = new Map();
  const ofLayer = layers.map((layer) => {
    const key = [layer.kind, layer.nKvHeads, layer.kDim, layer.vDim, layer.window, layer.tokens].join();
    if (!numbers.has(key)) numbers.set(key, list.push({ layer, count: 0 }) - 1);
    list[numbers.get(key)].count += 1;
    return numbers.get(key);
  });
  found = { list, ofLayer };
  known.set(layers, found);
  return found;
}

/** Nothing if the value is a whole number in the range; otherwise a ConfigError that names it. */
export function checkCount(name, value, { low = 1, high = LARGEST } = {}) {
  whole(name, value, { low, high });
}

/** Nothing if the value is one of those allowed; otherwise a ConfigError that names it. */
export function checkChoice(name, value, allowed) {
  if (allowed.includes(value)) return;
  throw new ConfigError(`${name} is ${shown(value)}; it must be one of ${allowed.join(", ")}.`);
}
