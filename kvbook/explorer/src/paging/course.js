// All events of a timeline: what each way to reserve holds after each of them.
import { scaleLinear } from "d3-scale";
import { axes as axesOf } from "../common/axes.js";
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { courseFinding, decimal, WAYS } from "./text.js";

const HEIGHT = 220; // px
const MARGIN = { top: 12, right: 14, bottom: 44, left: 72 };
const bottom = HEIGHT - MARGIN.bottom;
const LINES = ["maximum", "exact", "paged", "filled"];

export function course(onStep) {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const axes = svg("g");
  const paths = Object.fromEntries(LINES.map((name) => [name, svg("path", { class: `kv-course kv-course-${name}` })]));
  const here = svg("line", { class: "kv-here", y1: MARGIN.top, y2: bottom });
  const attributes = { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT };
  const picture = svg("svg", attributes, axes, paths.filled, paths.maximum, paths.exact, paths.paged, here);
  const key = (name, words) => h("span", { class: "kv-key-item" }, h("span", { class: `kv-line-key kv-key-${name}`, "aria-hidden": "true" }), words);
  const words = { ...WAYS, filled: "rows in the blocks" };
  const legend = h("p", { class: "kv-legend kv-keys" }, ...LINES.map((name) => key(name, words[name])));
  const element = h("figure", { class: "kv-chart-figure" }, title, picture, legend);
  let x = null;
  picture.addEventListener("click", (event) => {
    if (x) onStep(Math.round(x.invert(event.clientX - picture.getBoundingClientRect().left)));
  });

  const paint = ({ width, found }) => {
    const { states, step, bytesPerToken } = found;
    setText(title, courseFinding(found));
    if (width === 0) return;
    const right = width - MARGIN.right;
    x = scaleLinear([0, states.length - 1], [MARGIN.left, right]).clamp(true);
    const most = Math.max(1, ...states.flatMap(({ tokens }) => [tokens.maximum, tokens.exact, tokens.paged]));
    const y = scaleLinear([0, most * bytesPerToken], [bottom, MARGIN.top]);
    set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const ticks = x.ticks(width < 480 ? 5 : 10).filter(Number.isInteger);
    axes.replaceChildren(
      ...axesOf({ scale: x, ticks, format: String }, { scale: y, ticks: y.ticks(4), format: short }, { left: MARGIN.left, right, bottom }),
      svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 8, "text-anchor": "end" }, "events →"),
    );
    for (const name of LINES) {
      const line = stairs(states.map(({ tokens }) => y(tokens[name] * bytesPerToken)), x);
      set(paths[name], { d: name === "filled" ? `${line}V${bottom}H${x(0)}Z` : line });
    }
    set(here, { x1: x(step), x2: x(step) });
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

/** A line that changes at each event and stays until the next. */
function stairs(heights, x) {
  return `M${x(0)},${heights[0]}${heights.slice(1).map((y, i) => `H${x(i + 1)}V${y}`).join("")}`;
}

const short = (n) => (n === 0 ? "0" : decimal(n).replace(/(\.\d*[1-9])0+(?=\D)|\.0+(?=\D)/, "$1"));
