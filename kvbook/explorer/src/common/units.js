// Sizes and precisions as the calculating explorers write them. No DOM here.

export const count = (n) => n.toLocaleString("en-US");
const NB = "\u00a0"; // a number is not torn from its unit

/** Bytes in decimal units, to a thousandth: 2.147 GB, 33.9 MB, 512 B. */
export function decimal(n) {
  return scaled(n, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

/** The same in binary units: 2.000 GiB. */
export function binary(n) {
  return scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

function scaled(n, step, units) {
  let power = 0;
  let value = n;
  while (power < units.length - 1 && Math.abs(value) >= step) value = n / step ** ++power;
  if (power === 0) return `${count(Math.round(value))}${NB}B`;
  const digits = Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
  return `${value.toFixed(digits)}${NB}${units[power]}`;
}

export const CACHE_NAMES = {
  float16: "fp16",
  bfloat16: "bf16",
  fp8: "fp8",
  int8: "int8 with scales",
  int4: "int4 with scales",
  q8_0: "q8_0",
  q4_0: "q4_0",
  float32: "fp32",
};
