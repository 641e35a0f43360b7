import { axisBottom, axisLeft } from "d3-axis";
import { scaleLog } from "d3-scale";
import { create } from "d3-selection";
import { h, setText, uid } from "../common/dom.js";
import { count, decimal } from "./text.js";

const LOW = 64; // tokens, at the left edge
const HIGH = 2 ** 20;
const HEIGHT = 300;
const WIDEST = 70; // px of a mark's number
const MARGIN = { top: 30, right: 16, bottom: 44, left: 62 };
const TICKS = [64, 256, 1024, 4096, 16384, 65536, 262144, 1048576];

/** Contexts at which the chart asks: every half octave, and around each window, where a line bends. */
export function samples(windows) {
  const even = Array.from({ length: 29 }, (_, i) => Math.round(LOW * 2 ** (i / 2)));
  const bends = windows.flatMap((w) => [w, Math.round(w * 1.2)]).filter((n) => n > LOW && n < HIGH);
  return [...new Set([...even, ...bends])].sort((a, b) => a - b);
}

/** Cache against context, both logarithmic, with the weights and the free memory as lines. */
export function chart() {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const svg = create("svg").attr("class", "kv-chart").attr("role", "img").attr("aria-labelledby", title.id);
  const key = (kind, words) =>
    h(
      "span",
      { class: "kv-key-item" },
      h("span", { class: `kv-line-key ${kind}`, "aria-hidden": "true" }),
      words,
    );
  const batchKey = h("span");
  const legend = h(
    "p",
    { class: "kv-legend kv-keys" },
    key("kv-of-batch", batchKey),
    key("kv-of-one", "cache of one sequence"),
    key("kv-of-weights", "weights"),
    key("kv-of-free", "free for the cache"),
  );
  const element = h("figure", { class: "kv-chart-figure" }, title, svg.node(), legend);
  const grid = svg.append("g").attr("class", "kv-grid");
  const xAxis = svg.append("g").attr("class", "kv-axis");
  const yAxis = svg.append("g").attr("class", "kv-axis");
  const xTitle = svg.append("text").attr("class", "kv-axis-title").text("Context, tokens");
  const yTitle = svg.append("text").attr("class", "kv-axis-title").text("Bytes on one GPU");
  const lines = Object.fromEntries(
    ["of-free", "of-weights", "of-one", "of-batch"].map((name) => [
      name,
      svg.append("path").attr("class", `kv-line kv-${name}`),
    ]),
  );
  const here = svg.append("line").attr("class", "kv-here");
  const marks = svg.append("g");
  const dot = svg.append("circle").attr("class", "kv-dot").attr("r", 5);

  const paint = ({ width, words, batchWords, points, weights, free, context, size, crossings, single }) => {
    if (width === 0) return;
    const [right, bottom] = [width - MARGIN.right, HEIGHT - MARGIN.bottom];
    const sizes = points.flatMap(({ one, batch }) => [one, batch]).filter((n) => n > 0);
    const levels = [weights, free].filter((n) => n > 0);
    const floor = 10 ** Math.floor(Math.log10(Math.min(...sizes, ...levels)));
    const ceiling = 10 ** Math.ceil(Math.log10(Math.max(...sizes, ...levels) * 1.01));
    const x = scaleLog([LOW, HIGH], [MARGIN.left, right]);
    const y = scaleLog([Math.max(1, floor), ceiling], [bottom, MARGIN.top]);
    svg.attr("viewBox", [0, 0, width, HEIGHT]).attr("width", width).attr("height", HEIGHT);
    const decades = y.ticks().filter((n) => Number.isInteger(Math.round(Math.log10(n) * 1e6) / 1e6));
    const every = width < 480 ? 2 : 1;
    xAxis.attr("transform", `translate(0,${bottom})`);
    xAxis.call(
      axisBottom(x)
        .tickValues(TICKS.filter((_, i) => i % every === (every - 1) % 2 || every === 1))
        .tickFormat(short)
        .tickSizeOuter(0),
    );
    yAxis.attr("transform", `translate(${MARGIN.left},0)`);
    yAxis.call(axisLeft(y).tickValues(decades).tickFormat(plain).tickSizeOuter(0));
    grid
      .selectAll("line")
      .data(decades)
      .join("line")
      .attr("x1", MARGIN.left)
      .attr("x2", right)
      .attr("y1", (d) => y(d))
      .attr("y2", (d) => y(d));
    xTitle
      .attr("x", right)
      .attr("y", HEIGHT - 6)
      .attr("text-anchor", "end");
    yTitle.attr("x", 0).attr("y", 14);

    const path = (value) => {
      const seen = points.filter((point) => value(point) > 0);
      return seen.length > 0
        ? `M${seen.map((p) => `${x(p.context).toFixed(1)},${y(value(p)).toFixed(1)}`).join("L")}`
        : null;
    };
    const level = (n) => (n > 0 ? `M${MARGIN.left},${y(n).toFixed(1)}H${right}` : null);
    lines["of-batch"].attr(
      "d",
      path(({ batch }) => batch),
    );
    lines["of-one"].attr("d", single ? null : path(({ one }) => one));
    lines["of-weights"].attr("d", level(weights));
    lines["of-free"].attr("d", level(free));

    const at = Math.max(LOW, context);
    here.attr("x1", x(at)).attr("x2", x(at)).attr("y1", MARGIN.top).attr("y2", bottom);
    dot
      .attr("cx", x(at))
      .attr("cy", size > 0 ? Math.min(bottom, y(size)) : bottom)
      .attr("visibility", size > 0 && context >= LOW ? null : "hidden");
    placeMarks(crossings, { x, y, right, bottom });
    setText(title, words);
    setText(batchKey, batchWords);
    legend.children[1].hidden = single;
  };

  /** A crossing: a ring and its token count, the upper one's to its left, the lower one's to its right. */
  const placeMarks = (crossings, { x, y, right, bottom }) => {
    const shown = crossings.filter(({ context, value }) => context !== null && context >= LOW && value > 0);
    const upper = Math.max(...shown.map(({ value }) => value));
    const toLeft = ({ context, value }) =>
      (x(context) > right - WIDEST || value === upper) && x(context) > MARGIN.left + WIDEST;
    const all = marks
      .selectAll("g")
      .data(shown)
      .join((enter) => {
        const g = enter.append("g").attr("class", "kv-mark");
        g.append("circle").attr("r", 5);
        g.append("text");
        return g;
      });
    all
      .select("circle")
      .attr("class", (d) => `kv-ring kv-${d.kind}`)
      .attr("cx", (d) => x(d.context))
      .attr("cy", (d) => y(d.value));
    const text = all
      .select("text")
      .attr("class", "kv-mark-text")
      .text((d) => count(d.context));
    text
      .attr("text-anchor", (d) => (toLeft(d) ? "end" : "start"))
      .attr("x", (d) => x(d.context) + (toLeft(d) ? -9 : 9));
    text.attr("y", (d) => Math.min(bottom - 4, y(d.value) + (toLeft(d) ? -7 : 18)));
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

const short = (n) => (n >= 2 ** 20 ? `${n / 2 ** 20}M` : n >= 1024 ? `${n / 1024}K` : String(n));
const plain = (n) => decimal(n).replace(/\.0+(?=\D)/, "");
