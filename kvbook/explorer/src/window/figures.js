// Every figure that the explorer shows, from the state and the record. No DOM here.
import { kept as keptOf, ring as ringOf, slotOf } from "../accounting/ring.js";

/** What the traits hold, as the page can show it; null while it does not fit. */
export function record(get) {
  const tokens = get("tokens");
  if (!Array.isArray(tokens) || tokens.length < 2 || !(get("bytes_per_token") > 0)) return null;
  const isPlain = ({ window, sinks, nbytes, perplexity, change, error }) =>
    [window, sinks, nbytes, perplexity, change, error].every(Number.isFinite) && window > 0 && perplexity > 0;
  const baseline = get("baseline");
  return {
    tokens,
    bytesPerToken: get("bytes_per_token"),
    measuredTokens: get("measured_tokens"),
    baseline,
    measured: baseline > 0 ? (get("measured") ?? []).filter(isPlain) : [],
  };
}

/** All figures of a state; its position may lie beyond a text that has become shorter. */
export function figures({ window, sinks, position }, { tokens, bytesPerToken, measured }) {
  const newest = Math.min(position, tokens.length - 1);
  const n = newest + 1;
  const kept = keptOf(n, window, sinks);
  const before = keptOf(newest, window, sinks);
  const gone = before.find((p) => !kept.includes(p));
  return {
    newest,
    n,
    kept,
    evicted: n - kept.length,
    slots: ringOf(n, window, sinks),
    slot: slotOf(newest, window, sinks),
    replaced: gone ?? null, // the position whose row the newest one took
    room: window + sinks,
    bytes: kept.length * bytesPerToken,
    fullBytes: n * bytesPerToken,
    mostBytes: (window + sinks) * bytesPerToken,
    exact: measured.find((one) => one.window === window && one.sinks === sinks) ?? null,
    nearest: nearest(measured, window, sinks),
  };
}

/** What each position is for the newest query: "sink", "kept", "newest", "evicted" or "later". */
export function states({ n, newest, kept }, { sinks }, tokens) {
  const held = new Set(kept);
  return tokens.map((_, i) => {
    if (i >= n) return "later";
    if (i === newest) return "newest";
    if (!held.has(i)) return "evicted";
    return i < sinks ? "sink" : "kept";
  });
}

/** The measured pair that is nearest: by the ratio of the windows, by whether there are sinks, then by their number; null: none. */
export function nearest(measured, window, sinks) {
  const far = (one) => [Math.abs(Math.log(one.window / window)), Number(one.sinks > 0 !== sinks > 0), Math.abs(one.sinks - sinks)];
  const [first] = [...measured].sort((a, b) => {
    const [x, y] = [far(a), far(b)];
    return x[0] - y[0] || x[1] - y[1] || x[2] - y[2];
  });
  return first ?? null;
}

/** The chart's end: a power of two that shows the plateau, and every token of the text. */
export const chartEnd = (tokens, room) => 2 ** Math.ceil(Math.log2(Math.max(tokens, 2 * room)));

/** The measured pairs as points of a chart. A change's error, times the baseline, is the perplexity's. */
export const points = ({ measured, baseline }, { exact }) =>
  measured.map((one) => ({
    of: one,
    at: one.window,
    y: one.perplexity,
    error: baseline * one.error,
    label: String(one.sinks),
    isChosen: one === exact,
    isHollow: one.sinks === 0,
  }));
