// Quantising and reading back, as kvbook/lessons/quantized.py does it, in float32. No DOM here.
import { even, rounded } from "./minifloat.js";

const f = Math.fround;
const half = (x) => rounded(x, "float16");

/** Rows of numbers [tokens][dim] -> the same as they are read back from a coding. */
export function readBack(rows, coding) {
  const { along, group, cast, block } = coding;
  if (along === "cast") return rows.map((row) => row.map((x) => rounded(f(x), cast)));
  const dim = rows[0]?.length ?? 0;
  const back = rows.map((row) => row.map(f));
  const put = (places) => {
    const codes = coded(places.map(([t, c]) => f(rows[t][c])), coding);
    codes.back.forEach((x, i) => (back[places[i][0]][places[i][1]] = x));
  };
  const tokens = range(rows.length - (rows.length % block)); // the tail waits as it is
  const channels = range(dim);
  if (along === "token") for (const t of tokens) put(channels.map((c) => [t, c]));
  if (along === "group") {
    for (const t of tokens) for (const part of chunks(channels, group)) put(part.map((c) => [t, c]));
  }
  if (along === "channel") {
    for (const part of chunks(tokens, group)) for (const c of channels) put(part.map((t) => [t, c]));
  }
  return back;
}

/** One group of numbers: { codes, scale, low, back }. */
export function coded(values, { bits, minimum }) {
  return minimum ? between(values, 2 ** bits - 1) : around(values, 2 ** (bits - 1) - 1);
}

function around(values, most) {
  const scale = half(f(Math.max(...values.map(Math.abs)) / most));
  const codes = values.map((x) => clamp(even(f(x / (scale || 1))), -most, most));
  return { codes, scale, low: 0, back: codes.map((code) => f(code * scale)) };
}

function between(values, most) {
  const low = half(Math.min(...values));
  const reach = Math.max(0, f(Math.max(...values) - low));
  const scale = half(f(reach / most));
  const codes = values.map((x) => clamp(even(f(f(x - low) / (scale || 1))), 0, most));
  return { codes, scale, low, back: codes.map((code) => f(f(code * scale) + low)) };
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const range = (n) => Array.from({ length: n }, (_, i) => i);
const chunks = (list, n) => range(Math.ceil(list.length / n)).map((i) => list.slice(i * n, (i + 1) * n));

/** Root of the mean square of the errors, for each channel. */
export function channelErrors(rows, back) {
  const dim = rows[0]?.length ?? 0;
  return range(dim).map((c) => Math.sqrt(rows.reduce((sum, row, t) => sum + (row[c] - back[t][c]) ** 2, 0) / rows.length));
}

/** Root of the mean square error over that of the numbers. */
export function relativeError(rows, back) {
  let [error, size] = [0, 0];
  rows.forEach((row, t) => row.forEach((x, c) => ((error += (x - back[t][c]) ** 2), (size += x * x))));
  return size === 0 ? 0 : Math.sqrt(error / size);
}
