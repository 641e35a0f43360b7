// The sample of keys: the error of each channel, and one channel's values, original and read back.
import { scaleLinear } from "d3-scale";
import { axes as axesOf } from "../common/axes.js";
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { channelFinding, labelOf, sampleFinding, three } from "./text.js";

const HEIGHT = 240; // px
const MARGIN = { top: 26, right: 12, bottom: 46, left: 52 };
const bottom = HEIGHT - MARGIN.bottom;

function frame(kind, legend) {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const axes = svg("g");
  const content = svg("g");
  const picture = svg("svg", { class: "kv-chart", role: "img", "aria-labelledby": title.id, height: HEIGHT }, axes, content);
  const element = h("figure", { class: `kv-chart-figure ${kind}` }, title, picture, h("p", { class: "kv-legend kv-keys" }, ...legend));
  const size = (width) => set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
  return { title, axes, content, picture, element, size };
}

const item = (kind, ...words) => h("span", { class: "kv-key-item" }, h("span", { class: `kv-swatch ${kind}`, "aria-hidden": "true" }), ...words);

/** Error of each channel, as bars; of the format that is compared, as lines across them. */
export function errorBars(onChannel) {
  const [now, other] = [h("span"), h("span")];
  const legend = [item("kv-swatch-bar", now), item("kv-swatch-tick", other), item("kv-swatch-here", "the channel below")];
  const { title, axes, content, picture, element, size } = frame("kv-errors", legend);
  let x = null;
  let dim = 0;
  picture.addEventListener("click", (event) => {
    const place = event.clientX - picture.getBoundingClientRect().left;
    const channel = Math.floor(x?.invert(place) ?? -1);
    if (channel >= 0 && channel < dim) onChannel(channel);
  });
  const paint = ({ width, sample, found }) => {
    setText(title, sampleFinding(sample, found));
    setText(now, labelOf(found.chosen));
    setText(other, labelOf(found.compared));
    if (width === 0) return;
    dim = sample.dim;
    const right = width - MARGIN.right;
    x = scaleLinear([0, dim], [MARGIN.left, right]);
    const most = Math.max(...sample.chosen.errors, ...sample.compared.errors, 1e-6);
    const y = scaleLinear([0, most], [bottom, MARGIN.top]).nice(4);
    size(width);
    const ticks = x.ticks(width < 480 ? 4 : 8).filter((n) => n < dim && Number.isInteger(n));
    const centred = scaleLinear([0, dim], [MARGIN.left, right].map((p) => p + (right - MARGIN.left) / dim / 2));
    axes.replaceChildren(
      ...axesOf({ scale: centred, ticks, format: String }, { scale: y, ticks: y.ticks(4), format: three }, { left: MARGIN.left, right, bottom }),
      svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 8, "text-anchor": "end" }, "channel of the key →"),
      svg("text", { class: "kv-axis-title", x: MARGIN.left - 40, y: 12 }, "error, root mean square"),
    );
    const step = (right - MARGIN.left) / dim;
    const bars = sample.chosen.errors.map((error, c) => {
      const kind = `kv-error-of-channel${c === sample.channel ? " kv-here" : ""}`;
      return svg("rect", { class: kind, x: x(c) + 0.1 * step, width: 0.8 * step, y: y(error), height: bottom - y(error) });
    });
    const tick = (kind) => (error, c) => svg("path", { class: kind, d: `M${x(c)},${y(error)}h${step}` });
    const { errors } = sample.compared;
    const lines = [...errors.map(tick("kv-error-halo")), ...errors.map(tick("kv-error-tick"))];
    const here = svg("path", { class: "kv-here-mark", d: `M${x(sample.channel + 0.5)},${bottom + 2}l5,9h-10z` });
    content.replaceChildren(...bars, ...(sample.chosen === sample.compared ? [] : lines), here);
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

/** One channel over the tokens: the keys as they are, and as they are read back. */
export function channelLine() {
  const [now, other] = [h("span"), h("span")];
  const legend = [item("kv-swatch-original", "the keys"), item("kv-swatch-back", now), item("kv-swatch-other", other)];
  const { title, axes, content, element, size } = frame("kv-channel", legend);
  const paint = ({ width, sample, found }) => {
    setText(title, channelFinding(sample, found));
    setText(now, `read back: ${labelOf(found.chosen)}`);
    setText(other, `read back: ${labelOf(found.compared)}`);
    if (width === 0) return;
    const { channel, channels, tokens } = sample;
    const column = (rows) => rows.map((row) => row[channel]);
    const [keys, back, compared] = [channels, sample.chosen.back, sample.compared.back].map(column);
    const right = width - MARGIN.right;
    const x = scaleLinear([0, Math.max(1, tokens - 1)], [MARGIN.left + 6, right - 6]);
    const all = [...keys, ...back, ...compared];
    const ends = [Math.min(...all), Math.max(...all)];
    const y = scaleLinear(ends[0] === ends[1] ? [ends[0] - 1, ends[1] + 1] : ends, [bottom, MARGIN.top]).nice(4);
    size(width);
    axes.replaceChildren(
      ...axesOf({ scale: x, ticks: x.ticks(6).filter(Number.isInteger), format: String }, { scale: y, ticks: y.ticks(5), format: signed }, { left: MARGIN.left, right, bottom }),
      svg("text", { class: "kv-axis-title", x: right, y: HEIGHT - 8, "text-anchor": "end" }, "token →"),
    );
    const line = `M${keys.map((key, t) => `${x(t)},${y(key)}`).join("L")}`;
    const marks = back.map((value, t) => svg("circle", { class: "kv-back", cx: x(t), cy: y(value), r: 3 }));
    const others = compared.map((value, t) => svg("path", { class: "kv-back-other", d: cross(x(t), y(value)) }));
    content.replaceChildren(
      ...(sample.chosen === sample.compared ? [] : others),
      svg("path", { class: "kv-original", d: line }),
      ...marks,
    );
  };
  return { element, paint };
}

const cross = (x, y) => `M${x - 3},${y - 3}l6,6m0,-6l-6,6`;
const signed = (n) => String(Number(n.toPrecision(6))).replace("-", "−");
