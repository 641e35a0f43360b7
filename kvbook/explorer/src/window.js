// The window explorer: which rows a cache with a window and sinks keeps over a text, and what that costs.
import { answerIn } from "./common/answer.js";
import { button, slider } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { nearest as nearestIn } from "./common/inputs.js";
import { link as linkOf } from "./common/link.js";
import { save, watch } from "./common/model.js";
import { pointChart } from "./common/points.js";
import { openForPrint } from "./common/print.js";
import { resetButton } from "./common/reset.js";
import { fold } from "./common/table.js";
import { chart as chartOf } from "./window/chart.js";
import { chartEnd, figures, points, record, states } from "./window/figures.js";
import { maskGrid, slotGrid, textStrip } from "./window/marks.js";
import { presetsFor } from "./window/presets.js";
import { FIELDS, fromTraits, hash, mostSinks, same, toTraits, windowChoices } from "./window/state.js";
import { tables } from "./window/tables.js";
import * as say from "./window/text.js";

const RECORD = ["tokens", "measured", "baseline", "bytes_per_token", "measured_tokens"];

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: a window and sinks over a text");
  root.classList.add("kv-calculator", "kvbook-window");
  const said = answerIn(headline);
  const status = h("p", { class: "kv-status kv-message", role: "status", hidden: true });
  let state, rec, found; // what was asked for, what was recorded, what follows
  let drawn = {}; // the record that text, sliders and presets were built for
  const widths = { mask: 0, bytes: 0, points: 0 };

  const start = () => fromTraits((trait) => model.get("start")?.[trait]);
  const tell = (text) => {
    setText(status, text);
    status.hidden = text === "";
  };
  const go = (changes) => {
    tell("");
    save(model, toTraits(changes));
  };

  const text = textStrip();
  const width = slider("Window", (i) => go({ window: drawn.windows[i] }));
  const sinks = slider("Sinks", (n) => go({ sinks: n }));
  const position = slider("Newest token", (n) => go({ position: n }));
  const reset = resetButton(root, () => go(start()));
  const presets = h("div", { class: "kv-buttons", role: "group", "aria-label": "Presets and reset" });
  const slots = slotGrid();
  const mask = maskGrid();
  const chart = chartOf();
  const quality = pointChart({ x: "Window, tokens", y: "Perplexity" }, { isLog: true, format: say.tick });
  const qualityNote = h("p", { class: "kv-legend kv-beside" });
  const measured = h("div", { class: "kv-measured-box" }, quality.element, qualityNote);
  const lines = {
    kept: () => say.keptLine(state, found),
    written: () => say.sum(state, found),
    bytes: () => say.bytesLine(found, rec),
  };
  const sums = Object.keys(lines).map(() => h("span", { class: "kv-sum" }));
  const remarks = h("ul", { class: "kv-remarks kv-legend" });
  const formula = h(
    "div",
    { class: "kv-sums" },
    h("div", { class: "kv-formula" }, ...Object.keys(lines).map((name, i) => h("p", {}, `${name}: `, sums[i]))),
    remarks,
  );
  const details = fold("The same as tables", () => tables(state, found, rec));
  root.append(
    status,
    text.element,
    h(
      "div",
      { class: "kv-hands" },
      h("div", { class: "kv-sliders kv-main" }, ...[width, sinks, position].map(({ element }) => element)),
      presets,
    ),
    h("div", { class: "kv-pair kv-rows" }, slots.element, mask.element),
    h("div", { class: "kv-pair" }, chart.element, measured),
    formula,
    details.element,
  );

  const readAddress = (changes) => {
    tell("");
    save(model, toTraits({ ...start(), ...changes }));
  };
  const link =
    model.get("link") === false ? null : linkOf(root, hash, { start, onRead: readAddress, onFault: tell });

  const build = () => {
    const from = start();
    if (drawn.tokens !== rec.tokens) text.build(rec.tokens);
    const list = presetsFor(rec.measured);
    const buttons = list.map(({ label, changes }) => button(label, () => go(changes)));
    const measuredFrom = list.findIndex(({ isMeasured }) => isMeasured);
    presets.replaceChildren(...buttons, reset.element);
    if (measuredFrom >= 0) buttons[measuredFrom].before(h("span", { class: "kv-legend kv-group-name" }, "Measured:"));
    const windows = windowChoices(rec.tokens.length, rec.measured, from.window);
    drawn = { key: keyOf(), tokens: rec.tokens, list, buttons, windows, sinks: mostSinks(rec.measured, from.sinks) };
  };
  const keyOf = () => [...RECORD, "start"].map((name) => model.get(name));

  const draw = () => {
    if (!found) return;
    mask.paint(state, found, rec, widths.mask);
    const end = chartEnd(rec.tokens.length, found.room);
    chart.paint({
      ...{ width: widths.bytes, end, room: found.room, n: found.n, bytesPerToken: rec.bytesPerToken },
      said: say.plateau(found, end, rec),
    });
    if (rec.measured.length === 0) return;
    quality.paint({
      width: widths.points,
      said: say.measuredTitle(state, found, rec),
      keys: "The number beside a point: its sinks. Bars: one standard error. Ringed: the chosen pair, where measured.",
      points: points(rec, found).map((point) => ({ ...point, words: say.pointWords(point.of) })),
      base: { y: rec.baseline, words: `full cache: ${say.perplexity(rec.baseline)}` },
    });
    setText(qualityNote, say.measuredList(rec));
  };

  const update = () => {
    state = fromTraits((trait) => model.get(trait));
    rec = record((name) => model.get(name)) ?? rec;
    if (!rec) return;
    const key = keyOf();
    if (!drawn.key || key.some((value, i) => value !== drawn.key[i])) build();
    measured.hidden = rec.measured.length === 0;
    found = figures(state, rec);
    said.show(...say.headline(state, found, rec));
    text.paint(states(found, state, rec.tokens));
    width.show({
      value: nearestIn(drawn.windows, state.window),
      max: drawn.windows.length - 1,
      text: say.tokensOf(state.window),
    });
    sinks.show({ value: state.sinks, max: drawn.sinks, text: say.sinksOf(state.sinks) });
    position.show({
      value: found.newest,
      max: rec.tokens.length - 1,
      text: say.positionOf(rec, found),
    });
    slots.paint(state, found, rec);
    Object.values(lines).forEach((line, i) => setText(sums[i], line()));
    const notes = say.notes(rec, state);
    if (remarks.textContent !== notes.join("")) remarks.replaceChildren(...notes.map((words) => h("li", {}, words)));
    drawn.list.forEach(({ changes }, i) => {
      const on = changes.window === state.window && changes.sinks === state.sinks;
      drawn.buttons[i].setAttribute("aria-pressed", String(on));
    });
    reset.show(!same(state, start()));
    draw();
    details.refresh();
    link?.follow(state);
  };

  const stopWatching = watch(model, [...FIELDS.map(({ trait }) => trait), "start", ...RECORD], update);
  link?.take();
  const resized = new ResizeObserver(() => {
    widths.mask = mask.width();
    widths.bytes = chart.width();
    widths.points = quality.width();
    draw();
  });
  for (const { element } of [mask, chart, quality]) resized.observe(element);
  const printing = openForPrint([details]);
  return () => {
    said.stop();
    resized.disconnect();
    printing.stop();
    stopWatching();
    link?.stop();
  };
}

export default { render };
