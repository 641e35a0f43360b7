// Bytes against tokens: the full cache grows for ever, the other one is flat once it is full.
import { scaleLinear } from "d3-scale";
import { axes as axesOf } from "../common/axes.js";
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { round } from "./text.js";

const HEIGHT = 250; // px
const MARGIN = { top: 34, right: 20, bottom: 44, left: 70 };
const bottom = HEIGHT - MARGIN.bottom;

export function chart() {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const grid = svg("g");
  const lines = ["full", "kept"].map((name) => svg("path", { class: `kv-line kv-of-${name}` }));
  const here = svg("line", { class: "kv-here", y1: MARGIN.top, y2: bottom });
  const dots = ["full", "kept"].map((name) => svg("circle", { class: `kv-dot kv-of-${name}`, r: 5 }));
  const picture = svg("svg", { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT }, grid, here, ...lines, ...dots);
  const key = (name, words) =>
    h("span", { class: "kv-key-item" }, h("span", { class: `kv-line-key kv-of-${name}`, "aria-hidden": "true" }), words);
  const legend = h("p", { class: "kv-legend kv-keys" }, key("kept", "with the window"), key("full", "full cache"));
  const element = h("figure", { class: "kv-chart-figure" }, title, picture, legend);

  const paint = ({ width, said, end, room, n, bytesPerToken }) => {
    setText(title, said);
    if (width === 0) return;
    const right = width - MARGIN.right;
    const x = scaleLinear([0, end], [MARGIN.left, right]);
    const y = scaleLinear([0, end * bytesPerToken], [bottom, MARGIN.top]);
    const box = { left: MARGIN.left, right, bottom };
    set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const parts = width < 480 ? 4 : 8;
    const across = Array.from({ length: parts + 1 }, (_, i) => (i * end) / parts).filter(Number.isInteger);
    grid.replaceChildren(
      ...axesOf(
        { scale: x, ticks: across, format: (v) => v.toLocaleString("en-US") },
        { scale: y, ticks: y.ticks(5), format: round },
        box,
      ),
      svg("text", { class: "kv-axis-title", x: 0, y: 14 }, "Bytes in the cache"),
      svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 6, "text-anchor": "end" }, "Tokens so far"),
    );
    const at = (tokens, rows) => `${x(tokens)},${y(rows * bytesPerToken)}`;
    set(lines[0], { d: `M${at(0, 0)}L${at(end, end)}` });
    set(lines[1], { d: `M${at(0, 0)}L${at(room, room)}L${at(end, room)}` });
    set(here, { x1: x(n), x2: x(n) });
    set(dots[0], { cx: x(n), cy: y(n * bytesPerToken) });
    set(dots[1], { cx: x(n), cy: y(Math.min(n, room) * bytesPerToken) });
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}
