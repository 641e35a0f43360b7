// The roofline explorer: whether compute or memory bounds prefill and decode on a device, and by how much.
import { answerIn } from "./common/answer.js";
import { button } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { link as linkOf } from "./common/link.js";
import { save, watch } from "./common/model.js";
import { openForPrint } from "./common/print.js";
import { resetButton } from "./common/reset.js";
import { fold } from "./common/table.js";
import { chart as chartOf } from "./roofline/chart.js";
import { figures, modelFor, pointOf } from "./roofline/figures.js";
import { presetsFor } from "./roofline/presets.js";
import { settings } from "./roofline/settings.js";
import { FIELDS, fromTraits, hash, same, settle, toTraits } from "./roofline/state.js";
import { tables } from "./roofline/tables.js";
import { finding, headline as answer } from "./roofline/text.js";
import { formulaBlock, kneeList, phaseBars } from "./roofline/views.js";

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: the roofline of prefill and decode");
  root.classList.add("kv-calculator", "kvbook-roofline");
  const said = answerIn(headline);
  const status = h("p", { class: "kv-status kv-message", role: "status", hidden: true });
  let state, found, baseline; // what was asked for, the last figures that there are, those of the start
  let measured = []; // the reader's points, on the chosen device's roofline
  let shown = null; // the presets that are drawn
  let width = 0; // of the chart; asking for it at each change would have the page laid out twice

  const start = () => fromTraits((trait) => model.get("start")?.[trait]);
  const say = (text) => {
    setText(status, text);
    status.hidden = text === "";
  };
  const go = (changes) => {
    say("");
    save(model, toTraits(settle(state, changes)));
  };

  const chart = chartOf();
  const bars = phaseBars();
  const controls = settings(go);
  const reset = resetButton(root, () => go(start()));
  const presets = h("div", { class: "kv-buttons", role: "group", "aria-label": "Presets and reset" });
  const knees = kneeList();
  const formula = formulaBlock();
  const details = fold("The same as tables", () => tables(state, found, measured));
  root.append(
    status,
    h(
      "div",
      { class: "kv-body" }, // nothing in the last part takes the focus, so it may stand beside the first
      chart.element,
      h("div", { class: "kv-hands" }, controls.element, presets),
      h("div", { class: "kv-side-by" }, bars.element, knees.element),
    ),
    formula.element,
    details.element,
  );

  const readAddress = (changes) => {
    const next = { ...start(), ...changes };
    figures(next); // or a sentence
    say("");
    save(model, toTraits(next));
  };
  const link =
    model.get("link") === false ? null : linkOf(root, hash, { start, onRead: readAddress, onFault: say });

  const drawChart = () => {
    if (!found) return;
    const { prefill, decode, parts, device } = found;
    chart.paint({ width, words: finding(found), device, points: [prefill, decode], parts, measured });
  };

  const showPresets = () => {
    const from = start();
    const key = JSON.stringify([from, model.get("measured")?.length]);
    if (shown?.key !== key) {
      const under = model.get("measured_with") ?? {};
      const asMeasured = FIELDS.filter(({ trait }) => trait in under).map((f) => [f.name, under[f.trait]]);
      const heads = modelFor(from.model).headChoices;
      const list = presetsFor(from, heads, model.get("measured") ?? [], Object.fromEntries(asMeasured));
      const buttons = list.map(({ label, changes }) => button(label, () => go({ ...from, ...changes })));
      presets.replaceChildren(...buttons, reset.element);
      shown = { key, list, buttons };
      baseline = figures(from);
    }
    shown.list.forEach(({ changes }, i) => {
      shown.buttons[i].setAttribute("aria-pressed", String(same(state, { ...from, ...changes })));
    });
    reset.show(!same(state, from));
  };

  const update = () => {
    state = fromTraits((trait) => model.get(trait));
    let wrong = null;
    try {
      found = figures(state);
    } catch (error) {
      wrong = error.message;
    }
    root.classList.toggle("kv-stale", wrong !== null);
    said.show(...(wrong === null ? answer(state, found) : ["These settings do not go together.", wrong]));
    showPresets();
    if (!found) return;
    controls.show(state, found);
    if (wrong !== null) return;
    const given = model.get("measured") ?? [];
    measured = found.card.isOwn ? given.map((one) => pointOf(one, found.device)).filter(Boolean) : [];
    drawChart();
    bars.show(found, baseline);
    knees.show(found);
    formula.show(state, found, found.card.isOwn ? 0 : given.length);
    details.refresh();
    link?.follow(state);
  };

  const stopWatching = watch(model, [...FIELDS.map(({ trait }) => trait), "start", "measured"], update);
  link?.take();
  const resized = new ResizeObserver(() => {
    width = chart.width();
    drawChart();
  });
  resized.observe(chart.element);
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
