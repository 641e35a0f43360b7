// What the explorer says. No DOM here.
import { visible } from "../common/format.js";
import { count, decimal } from "../common/units.js";

export { count, decimal };
const NB = "\u00a0"; // a number is not torn from its unit

export const rows = (n) => (n === 1 ? "1 row" : `${count(n)} rows`);
export const tokensOf = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`);
export const bytes = (n) => `${count(n)}${NB}B`;
export const sinksOf = (n) => (n === 0 ? "no sinks" : n === 1 ? "1 sink" : `${n} sinks`);
const pair = ({ window, sinks }) => `a window of ${count(window)} and ${sinksOf(sinks)}`;
const capital = (text) => text[0].toUpperCase() + text.slice(1);

const named = (token) => `“${visible(token.trim() || token)}”`;

/** Bytes without zeros at the end of the number: 1.5 MB, 500 kB. */
export const round = (n) => decimal(n).replace(/\.(\d*?)0+(?=\s)/, (_, digits) => (digits === "" ? "" : `.${digits}`));

/** A share as a change in percent: +26.3 %, −1.2 %. */
export function percent(share) {
  const value = 100 * share;
  const text = Math.abs(value) >= 99.5 ? count(Math.round(Math.abs(value))) : Math.abs(value).toFixed(1);
  return `${value < 0 ? "−" : "+"}${text}${NB}%`;
}

/** A number of an axis: no zeros at its end. */
export const tick = (n) => Number(n.toPrecision(3)).toLocaleString("en-US");

export const perplexity = (n) => (n >= 1000 ? count(Math.round(n)) : n.toPrecision(4));

/** The answer, [what, of what]. */
export function headline({ window, sinks }, found, { tokens }) {
  const { kept, evicted, n, newest, bytes: held, fullBytes } = found;
  const what = evicted === 0 ? `All ${rows(n)} are kept.` : `${capital(rows(kept.length))} kept, ${count(evicted)} evicted.`;
  const whose = `With ${pair({ window, sinks })}, the query ${named(tokens[newest])} at position ${newest} sees`;
  const first = Math.min(sinks, n);
  const seen =
    evicted === 0
      ? `every token so far`
      : sinks === 0
        ? `the last ${tokensOf(window)}`
        : `the first ${tokensOf(first)} and the last ${count(window)}`;
  const size = evicted === 0 ? `The cache holds ${decimal(held)}` : `The cache holds ${decimal(held)}, not ${decimal(fullBytes)}`;
  return [n === 1 ? "The only row is kept." : what, `${whose} ${seen}, itself included. ${size}.`];
}

/** Where the newest token stands, and what it is. */
export const positionOf = ({ tokens }, { newest }) => `position ${newest}: ${named(tokens[newest])}`;

/** What was written where. */
export function writing({ sinks, window }, { newest, slot, replaced, n }) {
  if (newest < sinks) return `Position ${newest} is a sink: it went to slot ${slot} and stays there.`;
  const where = sinks === 0 ? `slot ${slot}` : `slot ${slot}, slot ${slot - sinks} of the ring`;
  if (replaced !== null) return `Position ${newest} went to ${where}, where position ${replaced} was: that row is gone.`;
  const empty = window + sinks - n;
  return `Position ${newest} went to ${where}, which was empty; ${empty === 0 ? "the next row takes an old one’s place" : `${count(empty)} more ${empty === 1 ? "is" : "are"}`}.`;
}

export const sum = ({ window, sinks }, { slot, newest }) =>
  newest < sinks ? `slot = ${newest}, a sink’s own` : `slot = ${sinks} + (${newest} − ${sinks}) mod ${count(window)} = ${slot}`;

export const keptLine = ({ window, sinks }, { n, kept }) =>
  `min(${count(n)}, ${count(window)} + ${sinks}) = ${rows(kept.length)}`;

export const bytesLine = ({ kept, bytes: held }, { bytesPerToken }) =>
  `${rows(kept.length)} × ${bytes(bytesPerToken)} = ${bytes(held)}`;

/** The chart's finding. */
export function plateau({ room, mostBytes }, end, { bytesPerToken }) {
  const times = end / room;
  return (
    `From ${tokensOf(room)} on the cache stays at ${decimal(mostBytes)}; at ${count(end)} the full one takes` +
    ` ${decimal(end * bytesPerToken)}, ${times >= 9.95 ? Math.round(times) : times.toFixed(1)} × as much.`
  );
}

export const pointWords = (one) =>
  `${capital(pair(one)).replace(/^A /, "")}: perplexity ${perplexity(one.perplexity)}, ${percent(one.change)} ± ${(100 * one.error).toFixed(1)}, ${decimal(one.nbytes)}`;

/** What was measured for the chosen pair, or that it was not. */
export function measuredTitle(state, { exact, nearest }, { baseline, measuredTokens }) {
  const of = `over ${tokensOf(measuredTokens)}`;
  if (exact) {
    const { perplexity: now, change, error } = exact;
    return (
      `Measured ${of}: ${pair(state)} changes perplexity by ${percent(change)} (± ${(100 * error).toFixed(1)}),` +
      ` from ${perplexity(baseline)} to ${perplexity(now)}.`
    );
  }
  return `${capital(pair(state))} was not measured. The nearest measured: ${pair(nearest)}, ${percent(nearest.change)} (± ${(100 * nearest.error).toFixed(1)}).`;
}

/** Which pairs were measured. */
export function measuredList({ measured }) {
  const by = new Map();
  for (const { window, sinks } of measured) by.set(sinks, [...(by.get(sinks) ?? []), count(window)]);
  const parts = [...by].map(([sinks, windows]) => `${windows.join(", ")} with ${sinksOf(sinks)}`);
  return `Measured windows: ${parts.join("; ")}. Nothing is drawn between them.`;
}

/** What a reader should know. */
export function notes({ measured, tokens, measuredTokens }, { window }) {
  const said = ["Fed one token at a time. A window counts the token itself; sinks stay beside it."];
  said.push("What is evicted cannot be seen again by any later query.");
  if (measured.length > 0)
    said.push(
      `Perplexity: one small model and one text of ${tokensOf(measuredTokens)}, in the lesson; ± is the standard error of the change.`,
    );
  if (window >= tokens.length)
    said.push(`The text here has ${tokensOf(tokens.length)}, so this window keeps them all; the chart goes on.`);
  return said;
}
