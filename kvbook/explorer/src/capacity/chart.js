import { scaleLog } from "d3-scale";
import { axes as axesOf, powers } from "../common/axes.js";
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { count, decimal } from "./text.js";

const LOW = 64; // tokens, at the left edge
const HIGH = 2 ** 20;
const HEIGHT = 300; // px
const MARGIN = { top: 30, right: 16, bottom: 44, left: 62 };
const WIDEST = 70; // px of a mark's number
const TICKS = [64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];
const LINES = ["of-free", "of-weights", "of-one", "of-batch"];
const MARKS = ["of-weights", "of-free"];
const bottom = HEIGHT - MARGIN.bottom;

/** Contexts at which the chart asks: every half octave, and around each window, where a line bends. */
export function samples(windows) {
  const even = Array.from({ length: 29 }, (_, i) => Math.round(LOW * 2 ** (i / 2)));
  const bends = windows.flatMap((w) => [w, Math.round(w * 1.2)]).filter((n) => n > LOW && n < HIGH);
  return [...new Set([...even, ...bends])].sort((a, b) => a - b);
}

/** The powers of ten around what is drawn: [lower, upper]. */
export function decades(sizes) {
  const drawn = sizes.filter((n) => n > 0);
  const floor = Math.max(0, Math.floor(Math.log10(Math.min(...drawn))));
  return [10 ** floor, 10 ** Math.max(floor + 1, Math.ceil(Math.log10(Math.max(...drawn) * 1.01)))];
}

/** Cache against context, both logarithmic, with the weights and the free memory as lines. */
export function chart() {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const grid = svg("g");
  const lines = Object.fromEntries(LINES.map((name) => [name, svg("path", { class: `kv-line kv-${name}` })]));
  const here = svg("line", { class: "kv-here", y1: MARGIN.top, y2: bottom });
  const marks = MARKS.map((name) => markOf(name));
  const dot = svg("circle", { class: "kv-dot", r: 5 });
  const parts = [grid, ...Object.values(lines), here, ...marks.map(({ element }) => element), dot];
  const picture = svg(
    "svg",
    { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT },
    ...parts,
  );
  const batchKey = h("span");
  const oneKey = lineKey("of-one", "cache of one sequence");
  const legend = h(
    "p",
    { class: "kv-legend kv-keys" },
    lineKey("of-batch", batchKey),
    oneKey,
    lineKey("of-weights", "weights"),
    lineKey("of-free", "free for the cache"),
  );
  const element = h("figure", { class: "kv-chart-figure" }, title, picture, legend);
  let drawn = "";

  /**
   * `points` are { context, one, batch } in bytes, `levels` and `crossings` bytes and contexts by the name of the line;
   * `words` the finding, `batchWords` what the batch is called; `alone` whether the batch is one sequence.
   */
  const paint = ({ width, words, batchWords, points, levels, crossings, context, size, alone }) => {
    setText(title, words);
    setText(batchKey, batchWords);
    oneKey.hidden = alone;
    if (width === 0) return;
    const right = width - MARGIN.right;
    const [floor, ceiling] = decades([
      ...points.flatMap(({ one, batch }) => [one, batch]),
      ...Object.values(levels),
    ]);
    const x = scaleLog([LOW, HIGH], [MARGIN.left, right]);
    const y = scaleLog([floor, ceiling], [bottom, MARGIN.top]);
    if (drawn !== [width, floor, ceiling].join()) {
      set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
      grid.replaceChildren(...axes(x, y, right, [floor, ceiling], width < 480));
      drawn = [width, floor, ceiling].join();
    }
    const path = (name) => {
      const seen = points.filter((point) => point[name] > 0);
      return seen.length > 0
        ? `M${seen.map((point) => `${x(point.context)},${y(point[name])}`).join("L")}`
        : null;
    };
    const level = (bytes) => (bytes > 0 ? `M${MARGIN.left},${y(bytes)}H${right}` : null);
    set(lines["of-batch"], { d: path("batch") });
    set(lines["of-one"], { d: alone ? null : path("one") });
    for (const name of MARKS) set(lines[name], { d: level(levels[name]) });

    const at = x(Math.max(LOW, context));
    set(here, { x1: at, x2: at });
    const isSeen = size > 0 && context >= LOW;
    set(dot, { cx: at, cy: isSeen ? y(size) : bottom, visibility: isSeen ? null : "hidden" });
    const upper = Math.max(...MARKS.map((name) => levels[name]));
    marks.forEach(({ show }, i) => {
      const [bytes, tokens] = [levels[MARKS[i]], crossings[MARKS[i]]];
      const place = bytes > 0 && tokens !== null && tokens >= LOW ? [x(tokens), y(bytes)] : null;
      show(place, tokens, bytes === upper, right);
    });
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

function lineKey(name, words) {
  return h(
    "span",
    { class: "kv-key-item" },
    h("span", { class: `kv-line-key kv-${name}`, "aria-hidden": "true" }),
    words,
  );
}

function axes(x, y, right, ends, narrow) {
  const ticks = narrow ? TICKS.filter((_, i) => i % 2 === 1) : TICKS;
  const box = { left: MARGIN.left, right, bottom };
  return [
    ...axesOf({ scale: x, ticks, format: short }, { scale: y, ticks: powers(ends), format: plain }, box),
    svg("text", { class: "kv-axis-title", x: 0, y: 14 }, "Bytes on one GPU"),
    svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 6, "text-anchor": "end" }, "Context, tokens"),
  ];
}

/** A crossing: a ring and its token count, the upper one's to its left, the lower one's to its right. */
function markOf(name) {
  const ring = svg("circle", { class: `kv-ring kv-${name}`, r: 5 });
  const text = svg("text", { class: "kv-mark-text" });
  const element = svg("g", { class: "kv-mark" }, ring, text);
  const show = (place, tokens, isUpper, right) => {
    set(element, { visibility: place ? null : "hidden" });
    setText(text, place ? count(tokens) : "");
    if (!place) return;
    const [x, y] = place;
    const toLeft = (isUpper || x > right - WIDEST) && x > MARGIN.left + WIDEST;
    set(ring, { cx: x, cy: y });
    set(text, {
      x: toLeft ? x - 9 : x + 9,
      y: Math.min(bottom - 4, toLeft ? y - 7 : y + 18),
      "text-anchor": toLeft ? "end" : "start",
    });
  };
  return { element, show };
}

const short = (n) => (n >= 2 ** 20 ? `${n / 2 ** 20}M` : n >= 1024 ? `${n / 1024}K` : String(n));
const plain = (n) => decimal(n).replace(/\.0+(?=\D)/, "");
