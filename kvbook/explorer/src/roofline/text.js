// What the explorer says. No DOM here.
import { CACHE_NAMES, count, decimal } from "../common/units.js";

const NB = "\u00a0"; // a number is not torn from its unit
const STEPS = ["", "k", "M", "G", "T", "P", "E", "Z"];

/** A number in three digits and no exponent: 0.0375, 1.04, 153, 22,900. */
export function three(n) {
  if (n >= 100) return count(Number(n.toPrecision(3)));
  const rounded = Number(n.toPrecision(3));
  return rounded.toFixed(Math.max(0, 2 - Math.floor(Math.log10(rounded))));
}

function scaled(n, unit) {
  let power = 0;
  let value = n;
  while (power < STEPS.length - 1 && Number(value.toPrecision(3)) >= 1000) value = n / 1000 ** ++power;
  return `${three(value)}${NB}${STEPS[power]}${unit}`;
}

export const flops = (n) => scaled(n, "FLOP");
export const flopsPerS = (n) => scaled(n, "FLOP/s");
export const gbPerS = ({ bytesPerS: n }) => `${n >= 1e11 ? count(Math.round(n / 1e9)) : three(n / 1e9)}${NB}GB/s`;
export const perByte = (n) => `${three(n)}${NB}FLOP/B`;

const TIMES = [
  ["µs", 1e-6, 1e-3],
  ["ms", 1e-3, 1],
  ["s", 1, 120],
  ["min", 60, 7200],
  ["h", 3600, 172_800],
  ["days", 86_400, 7.3e7],
  ["years", 31_557_600, Infinity],
];

/** Seconds in the unit that fits: 38.2 µs, 6.75 ms, 1.20 s, 2.50 min. */
export function time(seconds) {
  const [unit, size] = TIMES.find(([, , below]) => seconds < below);
  return `${three(seconds / size)}${NB}${unit}`;
}

/** Tokens a second, rounded to the nearest as in the lessons. */
export function rate(n) {
  return count(Number(n.toFixed(n >= 100 ? 0 : n >= 10 ? 1 : 2)));
}

export const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`);
export const sequences = (n) => (n === 1 ? "1 sequence" : `${count(n)} sequences`);
export const machine = ({ card, device }) => (card.isOwn ? "your machine" : `one ${device.name}`);

/** The answer: [which bounds decode, and by how much; the same of prefill, and of what]. */
export function headline(state, found) {
  const { prefill, decode, model, card, held } = found;
  const isTooMuch = card.memory !== null && held.weights + held.cache > card.memory;
  const also = prefill.boundBy === decode.boundBy ? " too" : "";
  const of = `${model.name} on ${machine(found)}, ${sequences(state.batch)}`;
  return [
    `Decode is bound by ${decode.boundBy}: at most ${rate(decode.tokensPerS)} tokens/s.`,
    `Prefill is bound by ${prefill.boundBy}${also}: at most ${rate(prefill.tokensPerS)} tokens/s.` +
      ` ${isTooMuch ? "Only bounds: this does not fit" : "Both are bounds, not forecasts"}: ${of}.`, // of one length
  ];
}

/** The chart's finding. */
export function finding({ prefill, decode, device }) {
  return (
    `For each byte it moves, prefill computes ${three(prefill.intensity)} operations and decode` +
    ` ${three(decode.intensity)}; the ridge is at ${three(device.ridge)}.`
  );
}

/** A batch from which something holds, as a whole number of sequences. */
export const fromBatch = (knee) => (knee === null ? "at no batch" : `from batch ${count(Math.ceil(knee))}`);

/** Against the start, in words; "" where nothing changed. */
export function against(now, before) {
  const ratio = now / before;
  if (Math.abs(ratio - 1) < 5e-3) return "";
  return ratio < 0.001 ? `1/${three(1 / ratio)} of the start` : `${three(ratio)} × the start`;
}

/** Intensity: operations over bytes, each with its two parts. */
export function intensityLine({ weightFlops, attentionFlops, weightBytes, cacheBytes, intensity }, { ridge }) {
  const side = intensity >= ridge ? "above" : "below";
  return (
    `(${flops(weightFlops)} with weights + ${flops(attentionFlops)} of attention)` +
    ` ÷ (${decimal(weightBytes)} of weights + ${decimal(cacheBytes)} of cache)` +
    ` = ${perByte(intensity)}, ${side} the ridge`
  );
}

/** The bound: tokens over the longer of the two times. */
export function boundLine(phase, device) {
  const slow =
    phase.boundBy === "compute"
      ? `${flops(phase.flops)} ÷ ${flopsPerS(device.flopsPerS)}`
      : `${decimal(phase.nbytes)} ÷ ${gbPerS(device)}`;
  return `${tokens(phase.tokens)} ÷ (${slow} = ${time(phase.seconds)}) = ${rate(phase.tokensPerS)} tokens/s`;
}

export const ridgeLine = (device) =>
  `${flopsPerS(device.flopsPerS)} ÷ ${gbPerS(device)} = ${perByte(device.ridge)}`;

/** What a reader should know about these settings. */
export function notes(state, found, hidden) {
  const { held, card, model } = found;
  const said = [
    "Bounds, not a forecast: peak rates all the time; each weight and each row of the cache moved once; nothing else" +
      " counted, no softmax, no activations.",
  ];
  if (!card.isOwn) said.push("The device’s rates are published peaks: products in fp16, summed in fp32, without sparsity.");
  if (Number(state.weights) < 16)
    said.push(`Weights of ${state.weights} bits are read as such but multiplied at the rate that is drawn.`);
  if (state.weights === "32" && !card.isOwn)
    said.push("Products in fp32 are slower than the fp16 rate that is drawn.");
  if (card.memory !== null && held.weights + held.cache > card.memory) {
    said.push(
      `This does not fit: ${decimal(held.weights)} of weights and ${decimal(held.cache)} of cache, on a card of` +
        ` ${decimal(card.memory)}.`,
    );
  }
  const longest = Math.max(state.prompt, state.context);
  if (longest > model.maxContext) said.push(`${model.name} is made for at most ${tokens(model.maxContext)}.`);
  if (state.context < state.prompt)
    said.push("The decode step is of a context shorter than the prompt: of other, shorter conversations.");
  if (hidden > 0)
    said.push(
      `${count(hidden)} measured ${hidden === 1 ? "point is" : "points are"} of your machine; choose it to see them.`,
    );
  return said;
}

export { CACHE_NAMES, count, decimal };
