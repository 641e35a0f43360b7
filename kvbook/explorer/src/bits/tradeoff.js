// What was measured: change of perplexity, with its standard error, against bits a value.
import { scaleLinear, scaleSymlog } from "d3-scale";
import { axes as axesOf } from "../common/axes.js";
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { formatOf, HALVES, PART_NAMES } from "./formats.js";
import { change, nameOf, tradeoffFinding } from "./text.js";

const HEIGHT = 330; // px
const MARGIN = { top: 14, right: 16, bottom: 46, left: 74 };
const bottom = HEIGHT - MARGIN.bottom;
const STEPS = [0, 1, 10, 100, 1000, 10_000, 1e5, 1e6]; // percent
const NAME_ROOM = 15; // px between two names
const LETTER = 7.2; // px, about
const GAP = 13; // px from a point to its name

/** The ends of the vertical axis, in percent, and its ticks. */
export function span(rows) {
  const tops = rows.map(({ change: c, error: e }) => 100 * (c + e));
  const lows = rows.map(({ change: c, error: e }) => 100 * (c - e));
  const high = STEPS.find((n) => n >= Math.max(1, ...tops)) ?? Math.max(...tops);
  const least = Math.min(0, ...lows);
  const low = least < -0.5 ? Math.floor(least) : least < 0 ? -0.5 : 0;
  const ticks = [...(low <= -1 ? [-1] : []), ...STEPS.filter((n) => n <= high)];
  return { low, high, ticks };
}

export function tradeoff() {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const axes = svg("g");
  const zero = svg("line", { class: "kv-zero" });
  const marks = svg("g", { class: "kv-marks" });
  const names = svg("g");
  const ring = svg("circle", { class: "kv-chosen-ring", r: 11 });
  const attributes = { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT };
  const picture = svg("svg", attributes, axes, zero, marks, ring, names);
  const legend = h("p", { class: "kv-legend kv-keys" }, ...[null, ...HALVES].map(key), h("span", {}, "Bars: ± one standard error."));
  const element = h("figure", { class: "kv-chart-figure kv-tradeoff" }, title, picture, legend);

  const paint = ({ width, found, measuredOn }) => {
    setText(title, tradeoffFinding(found, measuredOn));
    if (width === 0) return;
    const { measured, chosen } = found;
    const right = width - MARGIN.right;
    const { low, high, ticks } = span(measured);
    const x = scaleLinear([0, 17], [MARGIN.left, right]);
    const y = scaleSymlog([low, high], [bottom, MARGIN.top]).constant(1);
    set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const drawn = axesOf(
      { scale: x, ticks: [0, 2, 4, 6, 8, 10, 12, 14, 16], format: String },
      { scale: y, ticks, format: (n) => `${n > 0 ? "+" : n < 0 ? "−" : ""}${Math.abs(n).toLocaleString("en-US")} %` },
      { left: MARGIN.left, right, bottom },
    );
    const words = svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 8, "text-anchor": "end" }, "bits a value, scales counted →");
    axes.replaceChildren(...drawn, words);
    set(zero, { x1: MARGIN.left, x2: right, y1: y(0), y2: y(0) });
    const points = measured.map((row) => ({ row, at: [x(row.bits_per_value), y(100 * row.change)] }));
    marks.replaceChildren(...points.map(({ row, at }) => mark(row, at, y)));
    const here = points.find(({ row }) => row === chosen.row);
    set(ring, here ? { cx: here.at[0], cy: here.at[1], visibility: null } : { visibility: "hidden" });
    names.replaceChildren(...labels(points, here, right));
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

function key(only) {
  const shape = svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, symbol(only, [7, 7]));
  return h("span", { class: "kv-key-item" }, shape, PART_NAMES[only]);
}

/** Keys and values: a disc; keys alone: a triangle; values alone: a square. */
function symbol(only, [x, y]) {
  if (only === "keys") return svg("path", { class: "kv-of-key", d: `M${x},${y - 6}l6,11h-12z` });
  if (only === "values") return svg("rect", { class: "kv-of-value", x: x - 5, y: y - 5, width: 10, height: 10 });
  return svg("circle", { class: "kv-of-cache", cx: x, cy: y, r: 5.5 });
}

function mark(row, [x, y0], y) {
  const [top, low] = [1, -1].map((side) => y(100 * (row.change + side * row.error)));
  const bar = svg("path", { class: "kv-error-bar", d: `M${x},${top}V${low}M${x - 4},${top}h8M${x - 4},${low}h8` });
  const name = `${nameOf({ format: formatOf(row.format), only: row.only })}: ${change(row)}`;
  return svg("g", {}, bar, symbol(row.only, [x, y0]), svg("title", {}, name));
}

/** Names of the ringed point and of those where both keys and values are coded; they give way to each other. */
function labels(points, here, right) {
  const named = points.filter((point) => point === here || point.row.only === null);
  const placed = [];
  const first = [...named].sort((a, b) => (b === here) - (a === here));
  for (const point of first) {
    const format = formatOf(point.row.format);
    const text = format.short;
    const long = LETTER * text.length;
    const steps = point === here ? [0, -14, 14, -26, 26] : [0, -14, 14]; // further off it would name another point
    const places = steps.flatMap((step) =>
      [false, true].map((isEnd) => {
        const edge = point.at[0] + (isEnd ? -GAP : GAP);
        const left = isEnd ? edge - long : edge;
        return { left, right: left + long, middle: point.at[1] + step, edge, isEnd };
      }),
    );
    const isFree = (box) =>
      box.left > MARGIN.left && box.right < right && box.middle > MARGIN.top && box.middle < bottom - 6 &&
      !placed.some((p) => p.left < box.right && box.left < p.right && Math.abs(p.middle - box.middle) < NAME_ROOM) &&
      !points.some(({ at }) => at[0] + 7 > box.left && at[0] - 7 < box.right && Math.abs(at[1] - box.middle) < 12);
    const left = Math.max(MARGIN.left, Math.min(point.at[0] - long / 2, right - long)); // over whatever is there
    const forced = [point.at[1] - 22, point.at[1] + 22].map((y) => {
      return { left, right: left + long, middle: Math.max(MARGIN.top, y), edge: left, isEnd: false };
    });
    const place = places.find(isFree) ?? (point === here ? forced.find(isFree) ?? forced[0] : null);
    if (place) placed.push({ ...place, text, isHere: point === here });
  }
  return placed.map(({ edge, middle, text, isEnd, isHere }) =>
    svg("text", { class: `kv-mark-text${isHere ? "" : " kv-quiet"}`, x: edge, y: middle + 4, "text-anchor": isEnd ? "end" : "start" }, text),
  );
}
