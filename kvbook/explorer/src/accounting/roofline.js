// What one forward pass computes and moves, and what a device's peak rates make of it at best, as
// kvbook/accounting/roofline.py, which says what is counted and what is left out. No DOM here.
//
// Counts are exact whole numbers, and given as Number, which beyond 2**53 is the nearest one.
import { ConfigError, shown } from "./errors.js";
import { ceilDiv, plus, product, sum, times } from "./exact.js";
import { checkChoice, checkCount } from "./spec.js";

const LOGITS = ["last", "all"];
const MOST = 2n ** 60n; // of sums: parameters, bytes
const FAR = 2n ** 200n;
const SIZES = {
  nLayers: "n_layers",
  nHeads: "n_heads",
  nKvHeads: "n_kv_heads",
  headDim: "head_dim",
  dim: "dim",
  ffnDim: "ffn_dim",
  vocabSize: "vocab_size",
};

/** A decoder with grouped-query attention, SwiGLU and no biases: its sizes, and what follows from them. */
export function shapeOf(sizes) {
  for (const [key, name] of Object.entries(SIZES)) checkCount(name, sizes[key]);
  const { nLayers, nHeads, nKvHeads, headDim, dim, ffnDim, vocabSize } = sizes;
  if (nHeads % nKvHeads) {
    throw new ConfigError(`n_kv_heads is ${nKvHeads}, which does not divide ${nHeads} heads.`);
  }
  const attention = product([2, dim, headDim, nHeads + nKvHeads]);
  return {
    ...sizes,
    groupSize: nHeads / nKvHeads,
    layerWeights: times(nLayers, plus(attention, product([3, dim, ffnDim]))),
    unembedWeights: times(vocabSize, dim),
    cacheValuesPerToken: product([2, nLayers, nKvHeads, headDim]),
    attentionFlopsPerPair: product([4, nLayers, nHeads, headDim]),
  };
}

/** Peak rates, operations and bytes per second, and the ridge: flops per byte from which compute sets the bound. */
export function deviceOf(flopsPerS, bytesPerS, name = "") {
  checkPositive("flops_per_s", flopsPerS);
  checkPositive("bytes_per_s", bytesPerS);
  return { flopsPerS, bytesPerS, name, ridge: flopsPerS / bytesPerS };
}

/** The roofline: at most so many flops per second at so many flops per byte. */
export const attainable = ({ flopsPerS, bytesPerS }, intensity) => Math.min(flopsPerS, intensity * bytesPerS);

/** Pairs of a query and a key that it sees: the last qLen of kvLen tokens are the queries. Exact. */
export function pairs(qLen, kvLen, window = null, chunked = false) {
  checkCount("q_len", qLen);
  checkCount("kv_len", kvLen);
  if (qLen > kvLen) throw new ConfigError(`q_len is ${qLen}; it must be at most kv_len, ${kvLen}.`);
  if (window !== null) checkCount("window", window);
  const before = -BigInt(seen(kvLen - qLen, window, chunked));
  return small(BigInt(seen(kvLen, window, chunked)) + before);
}

function seen(tokens, window, chunked) {
  if (window === null || tokens <= window) return triangle(tokens);
  const rest = tokens % window;
  if (chunked) return plus(times((tokens - rest) / window, triangle(window)), triangle(rest));
  return plus(triangle(window), times(tokens - window, window));
}

const triangle = (n) => (n % 2 === 0 ? times(n / 2, n + 1) : times(n, (n + 1) / 2));
const small = (n) => (n <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(n) : n);

/** One forward pass of a shape that feeds qLen tokens to each of `batch` sequences, kvLen long after it. */
export function phase(shape, qLen, kvLen, batch = 1, options = {}) {
  const { weightBytesPerValue = 2, cacheBytesPerValue = 2, logits = "last" } = options;
  const all = pairs(qLen, kvLen);
  checkCount("batch", batch);
  const rows = product([batch, kvLen, shape.cacheValuesPerToken]);
  return phaseOfSums(qLen, batch, {
    layerWeights: shape.layerWeights,
    unembedWeights: shape.unembedWeights,
    attentionFlops: product([batch, all, shape.attentionFlopsPerPair]),
    cacheBytes: nbytesOf("cache_bytes_per_value", rows, cacheBytesPerValue),
    weightBytesPerValue,
    logits,
  });
}

/**
 * The same for a model of which only the sums are known, all for the whole batch:
 * { tokens, weightFlops, attentionFlops, flops, weightBytes, cacheBytes, nbytes, intensity }.
 */
export function phaseOfSums(qLen, batch, sums) {
  const { layerWeights, unembedWeights, attentionFlops, cacheBytes } = sums;
  const { weightBytesPerValue = 2, layerWeightsRead: read = layerWeights, logits = "last" } = sums;
  checkCount("q_len", qLen);
  checkCount("batch", batch);
  checkCount("layer_weights", layerWeights, { high: MOST });
  checkCount("unembed_weights", unembedWeights, { low: 0, high: MOST });
  checkCount("attention_flops", attentionFlops, { low: 0, high: FAR });
  checkCount("cache_bytes", cacheBytes, { low: 0, high: FAR });
  checkChoice("logits", logits, LOGITS);
  checkCount("layer_weights_read", read, { low: layerWeights, high: MOST });
  const tokens = times(batch, qLen);
  const unembedded = logits === "all" ? tokens : batch;
  const weightFlops = times(2, plus(times(tokens, layerWeights), times(unembedded, unembedWeights)));
  const weightBytes = nbytesOf("weight_bytes_per_value", plus(read, unembedWeights), weightBytesPerValue);
  const flops = Number(plus(weightFlops, attentionFlops));
  const nbytes = Number(plus(weightBytes, cacheBytes));
  return {
    tokens: Number(tokens),
    weightFlops: Number(weightFlops),
    attentionFlops: Number(attentionFlops),
    flops,
    weightBytes: Number(weightBytes),
    cacheBytes: Number(cacheBytes),
    nbytes,
    intensity: flops / nbytes,
  };
}

/** Operations of attention for a cache spec, exact; null where the config does not tell. */
export function attentionFlops({ layers, nHeads }, qLen, kvLen, batch = 1) {
  checkCount("batch", batch);
  const counted = layers.filter(({ kind }) => kind !== "state" && kind !== "none");
  const isKnown = ({ kind }) => ["full", "sliding", "chunked"].includes(kind);
  if (counted.length > 0 && (nHeads == null || !counted.every(isKnown))) return null;
  const found = new Map(); // by window: most models have few
  const pairsOf = ({ window, kind }) => {
    const key = `${window} ${kind}`;
    if (!found.has(key)) found.set(key, pairs(qLen, kvLen, window, kind === "chunked"));
    return found.get(key);
  };
  const each = counted.map((layer) => product([2, nHeads, layer.kDim + layer.vDim, pairsOf(layer)]));
  return times(batch, sum(each));
}

/** What a device makes of a pass at best: times in seconds, fed tokens per second, and which of the two sets them. */
export function boundsOf({ tokens, flops, nbytes, intensity }, device) {
  const computeSeconds = flops / device.flopsPerS;
  const memorySeconds = nbytes / device.bytesPerS;
  const seconds = Math.max(computeSeconds, memorySeconds);
  return {
    computeSeconds,
    memorySeconds,
    seconds,
    tokensPerS: tokens / seconds,
    boundBy: intensity >= device.ridge ? "compute" : "memory",
  };
}

/** The batch at which decode becomes compute-bound for the weights: ridge × bytes / 2. */
export function weightKnee({ ridge }, weightBytesPerValue = 2) {
  checkPositive("weight_bytes_per_value", weightBytesPerValue);
  return (ridge * weightBytesPerValue) / 2;
}

/** The batch at which a whole decode step becomes compute-bound, from the step at batch 1; null where none does. */
export function decodeKnee({ flops, cacheBytes, weightBytes }, { flopsPerS, bytesPerS }) {
  const spare = flops / flopsPerS - cacheBytes / bytesPerS;
  return spare > 0 ? weightBytes / bytesPerS / spare : null;
}

/** Tokens per second that decode never passes, however large the batch, from the step at batch 1. */
export function decodeCeiling({ flops, cacheBytes }, { flopsPerS, bytesPerS }) {
  return 1 / Math.max(flops / flopsPerS, cacheBytes / bytesPerS);
}

function checkPositive(name, value) {
  if (typeof value === "number" && Number.isFinite(value) && value > 0) return;
  throw new ConfigError(`${name} is ${shown(value)}; it must be a finite number above 0.`);
}

/** Whole bytes of so many values, rounded up once; the bytes of a value are a binary fraction, as every number is. */
function nbytesOf(name, values, bytesPerValue) {
  checkPositive(name, bytesPerValue);
  let [top, power] = [bytesPerValue, 0n];
  while (!Number.isInteger(top)) [top, power] = [top * 2, power + 1n];
  return ceilDiv(times(values, BigInt(top)), 2n ** power);
}
