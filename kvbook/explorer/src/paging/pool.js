// The pool, block by block: what lies in each, how many own it, and what the last event did to it.
import { h, setText } from "../common/dom.js";
import { blocks, count } from "./text.js";

const MARKS = { taken: "+", shared: "=", copied: "←", freed: "−", kept: "~", evicted: "!" };
const WORDS = {
  taken: "taken",
  shared: "shared or found again",
  copied: "a copy of the block named",
  freed: "freed",
  kept: "freed, rows kept",
  evicted: "taken; what it kept is lost",
};
const NARROW_FROM = 60; // blocks, from which there is no room for numbers
const WIDE_TO = 20; // blocks, up to which there is room for more

export function pool() {
  const caption = h("p", { class: "kv-chart-title" });
  const cells = h("div", { class: "kv-pool", role: "img" });
  const states = h("p", { class: "kv-legend kv-keys" }, ...legend());
  const marks = h("p", { class: "kv-legend kv-keys" }, h("span", {}, "In this event:"), ...markLegend());
  const element = h("figure", { class: "kv-pool-figure" }, caption, cells, states, marks);
  let drawn = 0;

  const build = (n) => {
    drawn = n;
    const cell = () =>
      h("span", { class: "kv-block" }, h("span", { class: "kv-block-name" }), h("span", { class: "kv-box" }, h("span", { class: "kv-rows" })));
    cells.replaceChildren(...Array.from({ length: n }, cell));
    cells.classList.toggle("kv-narrow", n >= NARROW_FROM);
    cells.classList.toggle("kv-wide", n <= WIDE_TO);
  };

  /** `picked` is the request whose blocks are marked, or null. */
  const show = ({ here, numBlocks, blockSize }, picked) => {
    if (drawn !== numBlocks) build(numBlocks);
    const own = new Set(here.requests.find(({ name }) => name === picked)?.table);
    for (let block = 0; block < numBlocks; block++) {
      const cell = cells.children[block];
      const [name, box] = cell.children;
      const owners = here.refCounts[block];
      const move = moveOf(here, block);
      cell.className = `kv-block kv-${stateOf(here, block)}${move ? ` kv-lit kv-was-${move}` : ""}${own.has(block) ? " kv-picked" : ""}`;
      box.style.setProperty("--kv-part", here.fill[block] / blockSize);
      setText(name, `${block}${owners > 1 ? `\u00a0×${owners}` : ""}${move ? `\u00a0${markOf(here, block, move)}` : ""}`);
    }
    setText(caption, captionOf(here, numBlocks));
    cells.setAttribute("aria-label", `The pool: ${captionOf(here, numBlocks)}`);
  };
  return { element, show };
}

/** What the last event did to a block, or "". */
export function moveOf({ last }, block) {
  const found = last?.moves?.get(block);
  if (!found) return "";
  return found.isEvicted ? "evicted" : found.move;
}

/** What a block is now: free, held by one request, shared by several, or free with its rows kept. */
export function stateOf({ refCounts, kept }, block) {
  if (refCounts[block] > 1) return "shared";
  if (refCounts[block] === 1) return "held";
  return kept.has(block) ? "kept" : "free";
}

/** A block's mark; a copy tells of which block. */
function markOf({ last }, block, move) {
  return move === "copied" ? `${MARKS.copied}${last.moves.get(block).from}` : MARKS[move];
}

function captionOf({ inUse, refCounts, kept }, numBlocks) {
  const shared = refCounts.filter((n) => n > 1).length;
  const sharing = shared === 0 ? "none" : count(shared);
  const keep = kept.size === 1 ? "keeps its" : "keep their";
  const rest = kept.size > 0 ? `; ${count(kept.size)} of the free ones ${keep} rows` : "";
  return `${count(inUse)} of ${blocks(numBlocks)} in use, ${sharing} shared${rest}.`;
}

function legend() {
  const item = (state, words) =>
    h("span", { class: "kv-key-item" }, h("span", { class: `kv-block kv-sample kv-${state}`, "aria-hidden": "true" }, h("span", { class: "kv-box" }, h("span", { class: "kv-rows" }))), words);
  return [item("held", "held by one"), item("shared", "shared, × owners"), item("kept", "free, rows kept"), item("free", "free")];
}

function markLegend() {
  return Object.entries(MARKS).map(([move, mark]) => h("span", { class: "kv-key-item" }, h("span", { class: "kv-key-value", "aria-hidden": "true" }, mark), WORDS[move]));
}
