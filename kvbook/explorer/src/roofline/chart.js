// The roofline: operations per second that a device can reach, against operations per byte, both logarithmic.
import { scaleLog } from "d3-scale";
import { attainable } from "../accounting/roofline.js";
import { axes as axesOf, powers } from "../common/axes.js";
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { three } from "./text.js";

const HEIGHT = 380; // px
const MARGIN = { top: 34, right: 20, bottom: 46, left: 56 };
const bottom = HEIGHT - MARGIN.bottom;
const NEAR = 96; // px; labels closer than this get out of each other's way
const UNITS = ["", "k", "M", "G", "T", "P", "E"];

/** The powers of ten around some numbers: [lower, upper]. */
export function decades(values) {
  const logs = values.map(Math.log10);
  return [10 ** Math.floor(Math.min(...logs) + 1e-9), 10 ** Math.ceil(Math.max(...logs) - 1e-9)];
}

/** The axes' ends: wide enough for all that is drawn; on one device they seldom move. */
export function domains(device, intensities, rates) {
  const x = decades([0.1, 1e5, ...intensities]);
  const y = decades([attainable(device, x[0]), device.flopsPerS * 2, ...rates]);
  return { x, y };
}

export function chart() {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const region = svg("rect", { class: "kv-region", y: MARGIN.top });
  const axes = svg("g");
  const roof = svg("path", { class: "kv-roof" });
  const ridge = svg("line", { class: "kv-ridge", y2: bottom });
  const ridgeText = svg("text", { class: "kv-mark-text", y: bottom - 8 });
  const sides = ["memory-bound", "compute-bound"].map((words) => svg("text", { class: "kv-side" }, words));
  const drops = ["prefill", "decode"].map(() => svg("line", { class: "kv-drop", y2: bottom }));
  const parts = ["weights", "cache"].map((name) => ({
    name,
    ring: svg("circle", { class: `kv-part-ring kv-of-${name}`, r: 6 }),
    text: svg("text", { class: "kv-mark-text kv-part-text" }, name),
  }));
  const seen = svg("g", { class: "kv-measured" });
  const prefill = svg("rect", { class: "kv-point", width: 13, height: 13 });
  const decode = svg("circle", { class: "kv-point", r: 6 });
  const texts = ["prefill", "decode"].map((name) => svg("text", { class: "kv-mark-text" }, name));
  const picture = svg(
    "svg",
    { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT },
    ...[region, axes, ...sides, ridge, ...drops, roof, ridgeText],
    ...parts.map(({ ring }) => ring),
    ...[prefill, decode],
    ...[...parts.map(({ text }) => text), ...texts],
    seen, // what was measured is never hidden by a name
  );
  const measuredKeys = ["prefill", "decode"].map((phase) => key(phase, `${phase}, measured`, true));
  const legend = h(
    "p",
    { class: "kv-legend kv-keys" },
    key("prefill", "prefill"),
    key("decode", "decode"),
    key("weights", "decode, its weights alone"),
    key("cache", "decode, its cache alone"),
    ...measuredKeys,
  );
  const element = h("figure", { class: "kv-chart-figure" }, title, picture, legend);
  let drawn = "";

  const paint = ({ width, words, device, points, parts: places, measured }) => {
    setText(title, words);
    measuredKeys.forEach((one, i) => {
      one.hidden = !measured.some(({ phase }) => phase === ["prefill", "decode"][i]);
    });
    if (width === 0) return;
    const right = width - MARGIN.right;
    const all = [...points, ...Object.values(places), ...measured];
    const rates = [...points.map(({ at }) => at), ...measured.map(({ rate }) => rate)];
    const ends = domains(device, all.map(({ intensity }) => intensity), rates);
    const x = scaleLog(ends.x, [MARGIN.left, right]);
    const y = scaleLog(ends.y, [bottom, MARGIN.top]);
    const corner = [x(device.ridge), y(device.flopsPerS)];
    const asked = JSON.stringify([width, ends, device]);
    if (drawn !== asked) {
      drawn = asked;
      set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
      drawAxes(axes, x, y, ends, width);
      const start = [ends.x[0], attainable(device, ends.x[0])];
      set(roof, { d: `M${x(start[0])},${y(start[1])}L${corner}H${right}` });
      set(ridge, { x1: corner[0], x2: corner[0], y1: corner[1] });
      set(region, { x: corner[0], width: Math.max(0, right - corner[0]), height: bottom - MARGIN.top });
      const toLeft = corner[0] > right - 120;
      const gap = toLeft ? -6 : 6;
      set(ridgeText, { x: corner[0] + gap, "text-anchor": toLeft ? "end" : "start" });
      setText(ridgeText, width < 480 ? `ridge ${three(device.ridge)}` : `ridge: ${three(device.ridge)} FLOP/B`);
      set(sides[0], { x: corner[0] - 6, y: bottom - 28, "text-anchor": "end" });
      set(sides[1], { x: corner[0] + 6, y: bottom - 28, "text-anchor": "start" });
      sides[0].style.display = corner[0] - MARGIN.left < 110 ? "none" : "";
      sides[1].style.display = right - corner[0] < 110 ? "none" : "";
    }
    const placeOf = ({ intensity, at }) => [x(intensity), y(at)];
    const [p, d] = points.map(placeOf);
    set(prefill, { x: p[0] - 6.5, y: p[1] - 6.5 });
    set(decode, { cx: d[0], cy: d[1] });
    [p, d].forEach(([left, top], i) => set(drops[i], { x1: left, x2: left, y1: top }));
    const isFlat = ([left]) => left >= corner[0] - 1;
    write(texts[0], p, isFlat(p) ? "above" : "left", right);
    write(texts[1], d, "below", right);
    paintParts(places, placeOf, { p, d, right, isFlat });
    paintMeasured(measured, x, y);
  };

  /** The two parts of the decode step; where they lie on one place their names stand in one line. */
  const paintParts = (places, placeOf, { p, right, isFlat }) => {
    const at = parts.map(({ name }) => placeOf(places[name]));
    parts.forEach(({ ring }, i) => set(ring, { cx: at[i][0], cy: at[i][1], r: i === 0 ? 13.5 : 9 }));
    const together = Math.hypot(at[0][0] - at[1][0], at[0][1] - at[1][1]) < 24;
    setText(parts[0].text, together ? "weights, cache" : "weights");
    setText(parts[1].text, together ? "" : "cache");
    parts.forEach(({ text }, i) => {
      const crowded = isFlat(at[i]) && Math.abs(at[i][0] - p[0]) < NEAR;
      write(text, at[i], !isFlat(at[i]) ? "left" : crowded ? "high" : "above", right);
    });
  };

  const paintMeasured = (measured, x, y) => {
    const marks = measured.map(({ label, phase, intensity, rate }) => {
      const [left, top] = [x(intensity), y(rate)];
      const name = svg("title", {}, label);
      return phase === "prefill"
        ? svg("rect", { class: "kv-seen", x: left - 5, y: top - 5, width: 10, height: 10 }, name)
        : svg("circle", { class: "kv-seen", cx: left, cy: top, r: 5.5 }, name);
    });
    seen.replaceChildren(...marks);
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

const WHERE = {
  above: { dx: 0, dy: -20, anchor: "middle" },
  high: { dx: 0, dy: -34, anchor: "middle" },
  left: { dx: -16, dy: -10, anchor: "end" },
  below: { dx: 14, dy: 26, anchor: "start" },
  under: { dx: 14, dy: 43, anchor: "start" },
};

/** A name beside its mark, kept within the picture. */
function write(text, [x, y], where, right) {
  const room = 4 + 7.2 * text.textContent.length;
  const isSqueezed = where === "left" && x - room + WHERE.left.dx < MARGIN.left;
  const { dx, dy, anchor } = WHERE[isSqueezed ? "under" : where];
  let at = x + dx;
  let side = anchor;
  if (anchor === "middle" && x + room / 2 > right) [at, side] = [right, "end"];
  if (anchor === "start" && at + room > right) [at, side] = [x - dx, "end"];
  set(text, { x: at, y: Math.min(bottom - 42, Math.max(12, y + dy)), "text-anchor": side });
}

function drawAxes(group, x, y, ends, width) {
  const thin = (list, most) => list.filter((_, i) => i % Math.ceil(list.length / most) === 0);
  const [across, up] = [thin(powers(ends.x), width < 480 ? 6 : 12), thin(powers(ends.y), 8)];
  const right = width - MARGIN.right;
  const box = { left: MARGIN.left, right, bottom };
  group.replaceChildren(
    ...axesOf({ scale: x, ticks: across, format: short }, { scale: y, ticks: up, format: short }, box),
    svg("text", { class: "kv-axis-title", x: 0, y: 14 }, "Operations per second (FLOP/s)"),
    svg(
      "text",
      { class: "kv-axis-title", x: right, y: HEIGHT - 6, "text-anchor": "end" },
      width < 480 ? "Operations per byte moved" : "Operations per byte moved (arithmetic intensity, FLOP/B)",
    ),
  );
}

const plain = (n) => (n >= 1 ? Math.round(n).toLocaleString("en-US") : String(Number(n.toPrecision(1))));

/** A power of ten with its letter: 100 G, 1 T. */
function short(n) {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(n) / 3 + 1e-9)));
  return power === 0 ? plain(n) : `${plain(n / 1000 ** power)}\u00a0${UNITS[power]}`;
}

function key(kind, words, measured = false) {
  const shape = measured ? "kv-seen" : kind === "prefill" || kind === "decode" ? "kv-point" : "kv-part-ring";
  const mark =
    kind === "prefill"
      ? svg("rect", { class: shape, x: 2.5, y: 2.5, width: 11, height: 11 })
      : svg("circle", { class: `${shape} kv-of-${kind}`, cx: 8, cy: 8, r: 5.5 });
  const picture = svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark);
  return h("span", { class: "kv-key-item" }, picture, words);
}
