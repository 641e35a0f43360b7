// Floats of 8 and 16 bits, as numbers rounded to what those formats hold. No DOM here.

/** A format: bits of its fraction, its least exponent, its largest value. */
const KINDS = {
  float16: { fraction: 10, least: -14, most: 65_504 },
  bfloat16: { fraction: 7, least: -126, most: (2 - 2 ** -7) * 2 ** 127 },
  float8_e4m3fn: { fraction: 3, least: -6, most: 448 },
  float8_e5m2: { fraction: 2, least: -14, most: 57_344 },
};

/** Round half to even. */
export function even(x) {
  const down = Math.floor(x);
  const rest = x - down;
  if (rest !== 0.5) return rest < 0.5 ? down : down + 1;
  return down % 2 === 0 ? down : down + 1;
}

/** The nearest value of the format, ties to even; beyond its largest, that one. */
export function rounded(x, kind) {
  const { fraction, least, most } = KINDS[kind];
  if (x === 0 || Number.isNaN(x)) return x;
  const size = Math.abs(x);
  const exponent = Math.max(least, Math.floor(Math.log2(size)));
  // log2 may miss a power of two by one; a step too small or too large is put right here
  const step = 2 ** (stepped(size, exponent, least) - fraction);
  const near = even(size / step) * step;
  return Math.sign(x) * Math.min(near, most);
}

function stepped(size, exponent, least) {
  if (size >= 2 ** (exponent + 1)) return exponent + 1;
  if (exponent > least && size < 2 ** exponent) return exponent - 1;
  return exponent;
}
