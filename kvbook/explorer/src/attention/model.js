// Attention weights as the explorer plays them: uint8 shares of a causal triangle. No DOM here.
import { percent, quoted, times } from "../common/format.js";

/** Base64 of uint8 [n_layers, n_heads, n (n + 1) / 2] -> the table, or null while text and weights do not fit. */
export function decode(base64, [nLayers, nHeads, n], tokens) {
  const codes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const fits = tokens.length === n && codes.length === (nLayers * nHeads * n * (n + 1)) / 2;
  return fits ? { codes, nLayers, nHeads, n, tokens } : null;
}

/** How a query shares its attention among the keys 0..query: [query + 1] codes. */
export function row({ codes, nHeads, n }, { layer, head, query }) {
  const triangle = (n * (n + 1)) / 2;
  const begin = (layer * nHeads + head) * triangle + (query * (query + 1)) / 2;
  return codes.subarray(begin, begin + query + 1);
}

/** The same place, moved into the table where it lies outside. */
export function clamp({ nLayers, nHeads, n }, { layer, head, query }) {
  const inside = (value, count) => Math.min(Math.max(Math.trunc(value) || 0, 0), count - 1);
  return { layer: inside(layer, nLayers), head: inside(head, nHeads), query: inside(query, n) };
}

/** The key that gets most, its share and how many even shares that is. An even share is 1 / visible keys. */
export function top(shares) {
  const code = Math.max(...shares);
  return { key: shares.indexOf(code), code, ratio: (code / 255) * shares.length };
}

export function evenCode(visibleKeys) {
  return 255 / visibleKeys;
}

/** The explorer's answer in one sentence. */
export function headline(table, place) {
  const { key, code, ratio } = top(row(table, place));
  const where = `Layer ${place.layer}, head ${place.head}: `;
  const from = quoted(table.tokens, place.query);
  if (place.query === 0) return `${where}${from} comes first, so it can only look at itself.`;
  const to = key === place.query ? "itself" : quoted(table.tokens, key);
  const than = ratio < 1.15 ? "about an even share" : `${times(ratio)} times an even share`;
  return `${where}${from} gives ${percent(code)} of its attention to ${to}, ${than}.`;
}

/** The numbers of the formula line. */
export function formula(place, shares, headDim) {
  const { code, ratio } = top(shares);
  const root = Math.sqrt(headDim);
  return {
    scale: `√${headDim}`,
    root: `√${headDim} = ${Number.isInteger(root) ? root : root.toFixed(2)}`,
    keys: place.query === 0 ? "1 visible key" : `${shares.length} visible keys`,
    even: `1/${shares.length} = ${percent(evenCode(shares.length))}`,
    most: `${percent(code)} = ${times(ratio)} × even`,
  };
}
