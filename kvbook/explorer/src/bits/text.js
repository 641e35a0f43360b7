// What the explorer says. No DOM here.
import { count, decimal } from "../common/units.js";
import { PART_NAMES, PLAIN } from "./formats.js";

const NB = "\u00a0"; // a number is not torn from its unit

/** Three digits, no exponent: 0.034, 4.5, 12.3, 1,320. */
export function three(n) {
  if (n === 0) return "0";
  const size = Math.abs(n);
  if (size >= 100) return count(Number(n.toPrecision(3)));
  return size >= 0.001 ? String(Number(n.toPrecision(3))) : n.toExponential(0);
}

export const plainBits = (bits) => String(Number(bits.toFixed(3)));
export const percent = (share) => `${three(100 * share)}${NB}%`;
export const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`);
export const users = (n) => (n === null ? "no limit" : count(n));

/** A format's name with the half that takes it: "int8 per token, keys alone". */
export function nameOf({ format, only }) {
  return only === null || format.name === PLAIN ? format.label : `${format.label}, ${PART_NAMES[only]}`;
}

const signed = (n, digits) => `${n < 0 ? "−" : "+"}${Math.abs(n).toFixed(digits)}`;

/** A change with its standard error, both in percent, to the digit that the error still tells. */
export function change({ change: share, error }) {
  const [value, off] = [100 * share, 100 * error];
  if (value === 0 && off === 0) return `0${NB}%`;
  const digits = off === 0 ? 2 : Math.min(3, Math.max(0, 1 - Math.floor(Math.log10(off))));
  const written = Math.abs(value) >= 1000 ? `${value < 0 ? "−" : "+"}${count(Math.round(Math.abs(value)))}` : signed(value, digits);
  return `${written}${NB}% ± ${Math.abs(off) >= 1000 ? count(Math.round(off)) : off.toFixed(digits)}${NB}%`;
}

/** Whether a change is told apart from none: two standard errors. */
export const isTie = ({ change: share, error }) => Math.abs(share) <= 2 * error;

const fitting = (n, context) => (n === 1 ? `1 user of ${tokens(context)} fits` : `${users(n)} users of ${tokens(context)} fit`);

/** The answer: what it costs in quality; what it buys. */
export function headline(state, { chosen, plain, model, card }, measuredOn) {
  const buys = `${plainBits(chosen.bits)} bits a value, scales counted: ${fitting(chosen.users, state.context)}`;
  const than = chosen.format.name === PLAIN ? "" : ` where fp16 holds ${users(plain.users)}`;
  return [
    qualityOf(chosen),
    `${buys}${than} (${model.name} on one ${card.name}).`,
    chosen.row ? `The change of perplexity was measured on ${measuredOn}.` : "",
  ];
}

function qualityOf(one) {
  const name = nameOf(one);
  if (!one.row) return `Perplexity was not measured with ${name}.`;
  return `Perplexity ${change(one.row)}${isTie(one.row) ? ", a tie," : ""} with ${name}.`;
}

/** The finding of the error's picture. */
export function sampleFinding({ chosen, compared }, figures) {
  const say = (one, name) => `${percent(one.relative)} of their size with ${name}`;
  const first = `The sample’s keys are missed by ${say(chosen, labelOf(figures.chosen))}`;
  if (chosen === compared) return `${first}.`;
  return `${first}, by ${say(compared, labelOf(figures.compared))}.`;
}

/** The format that the keys have. */
export const labelOf = ({ format, only }) => (only === "values" ? "fp16, for only values are coded" : format.label);

/** The finding of one channel's picture. */
export function channelFinding({ channel, sizes, chosen, compared }, figures) {
  const off = (one, name) => `${three(one.errors[channel])} with ${name}`;
  const first = `Channel ${channel} has keys up to ${three(sizes[channel])} in size, off by ${off(chosen, labelOf(figures.chosen))}`;
  return chosen === compared ? `${first}.` : `${first}, by ${off(compared, labelOf(figures.compared))}.`;
}

/** The finding of the chart of all that was measured. */
export function tradeoffFinding({ chosen, compared, measured }, measuredOn) {
  if (measured.length === 0) return "Nothing was measured.";
  if (!chosen.row) return `With ${nameOf(chosen)} nothing was measured, so the chart has no ring.`;
  const say = ({ row }) => `${plainBits(row.bits_per_value)} bits a value`;
  const first = `On ${measuredOn}, ${say(chosen)} change perplexity by ${change(chosen.row)}`;
  if (!compared.row || compared.row === chosen.row) return `${first}.`;
  return `${first}; ${nameOf(compared)}, ${say(compared)}, by ${change(compared.row)}.`;
}

/** Bytes of a row of one head, written out. */
export function rowLine({ along, bits, group, extra }, dim) {
  const codes = `${dim} values × ${bits} bits`;
  if (along === "token") return `${codes} + ${extra}${NB}B = ${decimal((dim * bits) / 8 + extra)}`;
  if (along === "group") {
    const groups = Math.ceil(dim / group);
    return `${codes} + ${groups} × ${extra}${NB}B = ${decimal(groups * ((group * bits) / 8 + extra))}`;
  }
  if (along === "channel") {
    return `${codes} + ${dim} × ${extra}${NB}B ÷ ${group} tokens = ${decimal(dim * (bits / 8 + extra / group))}`;
  }
  return `${codes} = ${decimal((dim * bits) / 8)}`;
}

export function tokenLine({ token }, { nLayers, layer }) {
  return `(${decimal(token.keys)} + ${decimal(token.values)}) × ${layer.nKvHeads} KV heads × ${nLayers} layers = ${count(token.all)}${NB}B`;
}

export function usersLine({ sequence, users: n }, { card, weights }) {
  const room = card.memory_bytes_nominal - weights;
  return `(${decimal(card.memory_bytes_nominal)} − ${decimal(weights)} of weights = ${decimal(room)}) ÷ ${decimal(sequence.all)} = ${users(n)}`;
}

/** What a reader should know about these settings. */
export function notes(state, { chosen, model, sample }, measuredOn) {
  const said = [];
  if (measuredOn && model.name !== measuredOn) {
    said.push(`Bytes and users are of ${model.name}; perplexity is of ${measuredOn}, and may change otherwise on other models.`);
  }
  if (chosen.coding.keys.block > 1) {
    said.push(
      `Keys are coded in blocks of ${chosen.coding.keys.block} tokens. The newest, up to a block of them, wait uncoded in fp16: that room is counted for each user, not for a token.`,
    );
  }
  if (state.only !== null) said.push("What is not coded is held in fp16.");
  if (state.context > model.max_context) said.push(`${model.name} is made for at most ${tokens(model.max_context)}.`);
  if (chosen.users === 0) said.push("Not one fits.");
  if (sample) said.push(`The sample: keys of one head in one layer, ${tokens(sample.tokens)}, quantised here in the page.`);
  return said;
}

export { count, decimal };
