// A generation as it was counted: token positions processed at each step. No DOM here, and no formula for the
// counts: everything is summed from the record.
import { bytes, count } from "../common/format.js";

function runningSums(counts) {
  let sum = 0;
  return counts.map((n) => (sum += n));
}

/** What the traits hold, with running sums; null while they do not fit each other. */
export function record({ tokens, prompt_len, without_cache, with_cache, bytes_per_token }) {
  const steps = tokens.length - prompt_len;
  if (steps < 1 || without_cache.length !== steps || with_cache.length !== steps) return null;
  return {
    tokens,
    steps,
    without: without_cache,
    cached: with_cache,
    withoutSums: runningSums(without_cache),
    cachedSums: runningSums(with_cache),
    bytesPerToken: bytes_per_token,
  };
}

export function clampStep({ steps }, step) {
  return Math.min(Math.max(Math.trunc(step) || 1, 1), steps);
}

/** Step `step` (from 1) of a record. Positions count from 0; `held` rows are in the cache after the step. */
export function at(rec, step) {
  const i = step - 1;
  const held = rec.cachedSums[i];
  return {
    step,
    held,
    without: rec.without[i],
    cached: rec.cached[i],
    again: rec.without[i] - rec.cached[i], // the cached run feeds each token once, when it is new
    withoutSum: rec.withoutSums[i],
    cachedSum: held,
    read: held - rec.cached[i],
    query: held - 1, // the newest token that was fed
    next: held, // the token that the step predicts
    bytes: held * rec.bytesPerToken,
  };
}

/** Of the K and V rows at all positions: "computed" in this step, "read" from the cache, or "later". */
export function rows(rec, { held }, computed) {
  return rec.tokens.map((_, i) => (i >= held ? "later" : i >= held - computed ? "computed" : "read"));
}

/** The explorer's answer in one sentence. */
export function headline({ step, without, again, cached }) {
  if (again === 0) {
    const prompt = without === 1 ? "1 token is" : `${count(without)} tokens are`;
    return `Step ${step}, the prefill: with a cache or without, ${prompt} processed, none again.`;
  }
  const all = `${count(without)} tokens are processed, ${count(again)} of them again`;
  return `Step ${step}: without a cache ${all}; with a cache ${count(cached)}.`;
}

/** The sum of the first counts, written out: "5 + 6 + … + 16 = 126". */
export function sum(counts, step) {
  const shown = counts.slice(0, step);
  const total = shown.reduce((a, b) => a + b);
  const terms = shown.length <= 4 ? shown.map(count) : [count(shown[0]), count(shown[1]), "…", count(shown.at(-1))];
  return terms.length === 1 ? count(total) : `${terms.join(" + ")} = ${count(total)}`;
}

export function cacheProduct(rec, { held, bytes: total }) {
  const tokens = held === 1 ? "1 token" : `${count(held)} tokens`;
  return `${tokens} × ${count(rec.bytesPerToken)} B = ${bytes(total)}`;
}
