// Measured points with their errors over categories. Nothing is drawn between them: nothing was measured there.
import { scaleLinear, scaleLog, scalePoint } from "d3-scale";
import { axes as axesOf } from "./axes.js";
import { h, setText, uid } from "./dom.js";
import { set, svg } from "./svg.js";

const HEIGHT = 250; // px
const MARGIN = { top: 34, right: 16, bottom: 44, left: 62 };
const bottom = HEIGHT - MARGIN.bottom;
const APART = 22; // px between points of one category, at most

/** `names` of the axes; `isLog` whether y is logarithmic; `format` writes a tick of y. */
export function pointChart(names, { isLog = false, format }) {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const grid = svg("g");
  const level = svg("line", { class: "kv-level" });
  const levelText = svg("text", { class: "kv-mark-text kv-level-text" });
  const marks = svg("g");
  const picture = svg(
    "svg",
    { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT },
    ...[grid, level, marks, levelText],
  );
  const legend = h("p", { class: "kv-legend kv-keys" });
  const element = h("figure", { class: "kv-chart-figure" }, title, picture, legend);

  /**
   * `points` are { at: category, y, error, label, words, isChosen, isHollow }; `base` a level { y, words } or null; `said` the finding,
   * `keys` what the legend says.
   */
  const paint = ({ width, said, keys, points, base }) => {
    setText(title, said);
    setText(legend, keys);
    if (width === 0 || points.length === 0) return;
    const right = width - MARGIN.right;
    const categories = [...new Set(points.map(({ at }) => at))];
    const x = scalePoint(categories, [MARGIN.left, right]).padding(0.5);
    const ends = domain([...points.flatMap(({ y, error }) => [y - error, y + error]), ...(base ? [base.y] : [])], isLog);
    const y = (isLog ? scaleLog : scaleLinear)(ends, [bottom, MARGIN.top]);
    const ticks = isLog ? logTicks(ends) : y.ticks(5);
    const box = { left: MARGIN.left, right, bottom };
    const write = format ?? y.tickFormat(5);
    set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    grid.replaceChildren(
      ...axesOf({ scale: x, ticks: categories, format: String }, { scale: y, ticks, format: write }, box),
      svg("text", { class: "kv-axis-title", x: 0, y: 14 }, names.y),
      svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 6, "text-anchor": "end" }, names.x),
    );
    set(level, { visibility: base ? null : "hidden", x1: MARGIN.left, x2: right, y1: base ? y(base.y) : 0, y2: base ? y(base.y) : 0 });
    set(levelText, { x: MARGIN.left + 6, y: base ? y(base.y) + 15 : 0 });
    setText(levelText, base?.words ?? "");
    const low = (value) => Math.min(bottom, y(isLog ? Math.max(value, ends[0]) : value));
    marks.replaceChildren(
      ...points.flatMap((point) => {
        const alike = points.filter(({ at }) => at === point.at);
        const step = Math.min(APART, x.step() / (alike.length + 1));
        const place = [x(point.at) + (alike.indexOf(point) - (alike.length - 1) / 2) * step, y(point.y)];
        return markOf(point, place, low(point.y - point.error), y(point.y + point.error));
      }),
    );
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

function markOf({ label, words, isChosen, isHollow }, [cx, cy], low, high) {
  const bar = `M${cx},${high}V${low}M${cx - 5},${high}h10M${cx - 5},${low}h10`;
  return [
    svg("path", { class: "kv-error-bar", d: bar }),
    ...(isChosen ? [svg("circle", { class: "kv-chosen", cx, cy, r: 10 })] : []),
    svg("circle", { class: `kv-measured-point${isHollow ? " kv-hollow" : ""}`, cx, cy, r: 5 }, svg("title", {}, words)),
    svg("text", { class: "kv-mark-text kv-point-text", x: cx, y: Math.min(high, cy - (isChosen ? 10 : 5)) - 5, "text-anchor": "middle" }, label),
  ];
}

/** The ends of an axis: a little room around what is drawn. */
export function domain(numbers, isLog) {
  const drawn = isLog ? numbers.filter((n) => n > 0) : numbers;
  const [low, high] = [Math.min(...drawn), Math.max(...drawn)];
  if (isLog) return [low / (high / low) ** 0.18, high * (high / low) ** 0.18]; // above, a label has to fit in
  const room = (high - low || Math.abs(high) || 1) * 0.12;
  return [low - room, high + 1.5 * room];
}

/** Few round numbers between the ends of a logarithmic axis. */
export function logTicks([low, high]) {
  const steps = high / low > 30 ? [1, 3] : high / low > 4 ? [1, 2, 3, 5, 7] : [1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9];
  const found = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    found.push(...steps.map((step) => Number((step * power).toPrecision(3))));
  }
  return found.filter((n) => n >= low && n <= high);
}
