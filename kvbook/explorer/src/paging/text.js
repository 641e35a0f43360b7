// What the explorer says. No DOM here.
import { bytes } from "../common/format.js";
import { count, decimal } from "../common/units.js";

const NB = "\u00a0"; // a number is not torn from its unit

export const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`);
export const blocks = (n) => (n === 1 ? "1 block" : `${count(n)} blocks`);

/** A share in whole percent; a little is not none, nearly all not all. */
export function percent(share) {
  if (share > 0 && share < 0.01) return `<1${NB}%`;
  if (share < 1 && share > 0.99) return `>99${NB}%`;
  return `${Math.round(100 * share)}${NB}%`;
}

/** Whether less is reserved than the requests hold: what is reserved for each is too short. */
const isShort = ({ waste }) => waste < 0;

/** The answer: what blocks hold and what reserving would; what of it is waste; what has just happened. */
export function headline({ ways, here, step, states, bytesPerToken: each }) {
  const aside = `Event ${step} of ${states.length - 1}. ${eventLine(here)}`;
  if (here.requests.length === 0) return ["No request is live: nothing is held.", "", aside];
  const { maximum, exact, paged } = ways;
  return [
    `Blocks hold ${bytes(paged.held * each)}; longest lengths would hold ${bytes(maximum.held * each)}.`,
    `Waste: ${percent(paged.share)} of the blocks’ room, ${isShort(maximum) ? "none" : percent(maximum.share)} of the longest lengths’, ${percent(exact.share)} of the requests’ own final lengths’.` +
      (isShort(maximum) ? " The longest length is too short for these requests." : ""),
    aside,
  ];
}

/** What the last event did, in a sentence or two. */
export function eventLine({ last }) {
  if (!last) return "Nothing has arrived yet.";
  const { event, report, moves } = last;
  const [what, who] = event;
  if (report.isLeftOut) return what === "arrive" ? `${who} is there already.` : `${who} was not let in, so nothing happens.`;
  if (report.refused) return `${who} ${what === "grow" ? "cannot grow" : "waits"}: ${report.refused}`;
  const lost = [...moves].filter(([, { isEvicted }]) => isEvicted).map(([block]) => block);
  return SENTENCES[what](event, report, [...moves.values()]) + evictions(lost);
}

const SENTENCES = {
  arrive([, who], { found, asked }) {
    const rest = found === 0 ? "all computed" : `${count(found)} found in blocks that are there, ${count(asked - found)} computed`;
    return `${who} arrives with ${tokens(asked)}: ${rest}.`;
  },
  grow([, who], { copies, grown }) {
    const copied = copies.map(([from, to]) => ` Block ${from} has another owner, so it is copied to block ${to}.`);
    return `${who} grows by ${tokens(grown)}.${copied.join("")}`;
  },
  fork([, who, into], report, moves) {
    const shared = moves.filter(({ move }) => move === "shared").length;
    return shared > 0
      ? `${who} forks: ${into} shares its ${blocks(shared)}.`
      : `${who} forks: ${into} takes blocks of its own for ${tokens(report.tokens)}.`;
  },
  finish([, who], report, moves) {
    const of = (name) => moves.filter(({ move }) => move === name).length;
    const kept = of("kept") > 0 ? `, ${count(of("kept"))} kept for who begins alike` : "";
    return `${who} finishes: ${blocks(of("freed") + of("kept"))} free${kept}.`;
  },
};

function evictions(lost) {
  if (lost.length === 0) return "";
  if (lost.length === 1) return ` Block ${lost[0]}, unused for longest, loses what it kept.`;
  return ` Blocks ${lost.join(", ")}, unused for longest, lose what they kept.`;
}

/** The finding of the chart of all events. */
export function courseFinding({ states, bytesPerToken }) {
  const most = (name) => Math.max(...states.map(({ tokens: t }) => t[name]));
  const [maximum, exact, paged] = ["maximum", "exact", "paged"].map((name) => decimal(most(name) * bytesPerToken));
  return `At the most, the longest lengths take ${maximum}, the final ones ${exact}, blocks ${paged}.`;
}

export const WAYS = {
  maximum: "Longest length",
  exact: "Final length",
  paged: "Paged",
};

/** What a way holds, in bytes, and the share that is waste. */
export function wayLine(way, bytesPerToken) {
  const { held, waste, share } = way;
  const size = decimal(held * bytesPerToken);
  return isShort(way) ? `${size}, too short for these requests` : `${size}, ${waste === 0 ? "no" : percent(share)} waste`;
}

/** Blocks as runs: [0, 1, 2, 5] -> "0–2, 5". */
export function runs(list) {
  const found = [];
  for (const block of list) {
    const last = found.at(-1);
    if (last && block === last[1] + 1) last[1] = block;
    else found.push([block, block]);
  }
  return found.map(([a, b]) => (a === b ? String(a) : `${a}–${b}`)).join(", ");
}

/** The formula's lines: held, filled, wasted, by blocks; and what reserving would take. */
export function formulaLines({ here, ways, blockSize, bytesPerToken, numBlocks }, { maxLen }) {
  const { maximum, exact, paged } = ways;
  const each = `${count(bytesPerToken)}${NB}B`;
  const n = here.requests.length;
  const size = (held) => decimal(held * bytesPerToken);
  return {
    paged: `${blocks(here.inUse)} × ${tokens(blockSize)} × ${each} = ${size(paged.held)}`,
    "its rows": `${tokens(paged.rows)} × ${each} = ${size(paged.rows)}`,
    "final lengths": `${tokens(exact.held)} × ${each} = ${size(exact.held)}`,
    "longest lengths": `${count(n)} × ${tokens(maxLen)} × ${each} = ${size(maximum.held)}`,
    pool: `${blocks(numBlocks)} × ${tokens(blockSize)} × ${each} = ${size(numBlocks * blockSize)}`,
  };
}

/** What a reader should know about these settings. */
export function notes({ here, sharing, poolTokens, ways, timeline, blockSize }, { maxLen }) {
  const said = [
    "The bars are for the same requests. Who reserves lengths needs them in one piece and shares nothing; gaps between pieces are not counted.",
  ];
  if (sharing) said.push("Rows that several requests share lie there once. Blocks without an owner that keep their rows are free: whoever needs one takes it.");
  if (here.sums.refused > 0) said.push(`${count(here.sums.refused)} ${here.sums.refused === 1 ? "event" : "events"} so far found too few free blocks.`);
  if (ways.maximum.held > poolTokens) said.push("The longest lengths together do not fit into this pool.");
  if (timeline.longest > maxLen) said.push(`A request of this timeline grows to ${tokens(timeline.longest)}, beyond the longest length.`);
  if (blockSize === 1) said.push("A block of one token wastes nothing, but its table is as long as the text.");
  return said;
}

export { count, decimal };
