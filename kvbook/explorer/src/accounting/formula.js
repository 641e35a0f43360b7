// The sum in words and numbers. No DOM here.
import { count as thousands } from "../common/format.js";
import { dtypes } from "./tables.js";
import { exactNbytes, groupNbytes, headsOnGpu, tokensHeld, withDefaults } from "./spec.js";

const WITHOUT = {
  shared: "× a layer that reuses another layer's cache: ",
  state: "× a layer with a constant state and no keys or values: ",
  none: "× a layer without attention: ",
};

/** The sum in words, a line for each group of equal layers, then the notes: Python's `explain`, as lines. */
export function explain(spec, options) {
  const all = withDefaults(options);
  const total = exactNbytes(spec, all);
  let one = 0n;
  const lines = groupNbytes(spec, all).map(({ layer, count, nbytes }) => {
    one += BigInt(count) * nbytes;
    const line = `${count} ${layerWords(layer, all)}${thousands(nbytes)} B`;
    return nbytes ? `${line}, in all ${thousands(BigInt(count) * nbytes)} B` : line;
  });
  const each = all.tensorParallel > 1 ? " on each GPU" : "";
  const sizes = `(${thousandths(Number(total) / 1e9)} GB, ${thousandths(Number(total) / 2 ** 30)} GiB)`;
  return [
    ...lines,
    `${thousands(one)} B a sequence × ${thousands(all.batch)} = ${thousands(total)} B${each} ${sizes}`,
    ...spec.notes,
  ];
}

function layerWords(layer, options) {
  if (Object.hasOwn(WITHOUT, layer.kind)) return WITHOUT[layer.kind];
  const { kind, kDim, vDim, window } = layer;
  const code = dtypes[options.cacheDtype];
  const heads = headsOnGpu(layer, options.tensorParallel);
  const split = kDim === vDim ? `2 × ${heads} KV heads × ${kDim}` : `${heads} KV heads × (${kDim} + ${vDim})`;
  const rows = kind === "latent" ? `${kDim} latent values` : `${split} values`;
  const scale = code.row_bytes === undefined ? "" : ` (and ${code.row_bytes} B a row)`;
  const slides = window === null ? "" : ` (window ${thousands(window)})`;
  const held = thousands(tokensHeld(layer, options));
  return `× ${kind} layer${slides}: ${rows} × ${held} tokens × ${unitOf(code)}${scale} = `;
}

const unitOf = (code) => (code.values === 1 ? `${code.bytes} B` : `${code.bytes}/${code.values} B`);

/**
 * The product on one line, as parts { term, text } whose texts make the line when joined: 32 layers × 2 ×
 * 8 KV heads × 128 values × 2 B × 4,096 tokens × 1 sequence = 536,870,912 B. Terms: layers, pair, heads, dim,
 * bytes, tokens, batch, total; "" is what stands between. Kinds of layers that differ are summed; those that
 * hold nothing are left out.
 */
export function formula(spec, options) {
  const all = withDefaults(options);
  const total = exactNbytes(spec, all);
  const products = groupNbytes(spec, all)
    .filter(({ nbytes }) => nbytes > 0n)
    .map((group) => between(" × ", product(group, all)));
  const sum = products.length ? between(" + ", products) : [[part("tokens", "0 B")]];
  const brackets = products.length > 1 ? [[part("", "(")], ...sum, [part("", ")")]] : sum;
  const sequences = `${thousands(all.batch)} ${all.batch === 1 ? "sequence" : "sequences"}`;
  return [
    ...brackets.flat(),
    part("", " × "),
    part("batch", sequences),
    part("", " = "),
    part("total", `${thousands(total)} B`),
  ];
}

function product({ layer, count }, options) {
  const { kind, kDim, vDim } = layer;
  const tokens = tokensHeld(layer, options);
  const parts = [part("layers", counted(count, `${kind === "full" ? "" : `${kind} `}layer`))];
  if (kind === "latent") {
    parts.push(...rowParts(kDim, "latent values", options));
  } else {
    const heads = part("heads", counted(headsOnGpu(layer, options.tensorParallel), "KV head"));
    if (kDim === vDim) parts.push(part("pair", "2"), heads, ...rowParts(kDim, "values", options));
    else parts.push(heads, ...twoRows(kDim, vDim, options));
  }
  return [...parts, part("tokens", counted(tokens, "token"))];
}

/** The bytes of one row, the key or the value of one token and one head. */
function rowParts(dim, name, { cacheDtype }) {
  const code = dtypes[cacheDtype];
  if (code.whole_blocks) {
    return [part("dim", counted(Math.ceil(dim / code.values), "block")), part("bytes", `${code.bytes} B`)];
  }
  if (code.row_bytes !== undefined) {
    return [
      part("dim", `(${thousands(dim)} ${name}`),
      part("bytes", `${unitOf(code)} + ${code.row_bytes} B)`),
    ];
  }
  return [part("dim", `${thousands(dim)} ${name}`), part("bytes", unitOf(code))];
}

/** The same where keys and values differ in width. */
function twoRows(kDim, vDim, { cacheDtype }) {
  const code = dtypes[cacheDtype];
  if (code.whole_blocks) {
    const [k, v] = [kDim, vDim].map((dim) => Math.ceil(dim / code.values));
    return [part("dim", `(${thousands(k)} + ${thousands(v)}) blocks`), part("bytes", `${code.bytes} B`)];
  }
  const values = `(${thousands(kDim)} + ${thousands(vDim)}) values`;
  if (code.row_bytes === undefined) return [part("dim", values), part("bytes", unitOf(code))];
  return [part("dim", `(${values}`), part("bytes", `${unitOf(code)} + 2 × ${code.row_bytes} B)`)];
}

const part = (term, text) => ({ term, text });
const counted = (n, name) => `${thousands(n)} ${name}${Number(n) === 1 ? "" : "s"}`;

/** Lists of parts, or parts, with a sign between them. */
function between(sign, items) {
  return items.flatMap((item, i) =>
    i === 0 ? [item] : [Array.isArray(item) ? [part("", sign)] : part("", sign), item],
  );
}

/** Three decimals; a value that lies half way is rounded to an even one, as Python does. */
function thousandths(value) {
  const halfWay = Number.isInteger(value * 16) && Math.abs(value * 16) % 2 === 1;
  if (!halfWay) return value.toFixed(3);
  const below = Math.floor(value * 1000);
  return ((below % 2 === 0 ? below : below + 1) / 1000).toFixed(3);
}
