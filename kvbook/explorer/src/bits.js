// The bits explorer: what a format of the cache takes, what it costs in quality, and where its error sits.
import { answerIn } from "./common/answer.js";
import { button } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { link as linkOf } from "./common/link.js";
import { save, watch } from "./common/model.js";
import { openForPrint } from "./common/print.js";
import { resetButton } from "./common/reset.js";
import { fold } from "./common/table.js";
import { channelLine, errorBars } from "./bits/errors.js";
import { factList, formulaBlock } from "./bits/facts.js";
import { figures, weightsBytes } from "./bits/figures.js";
import { presetsFor } from "./bits/presets.js";
import { settings } from "./bits/settings.js";
import { FIELDS, fromTraits, hash, same, toTraits } from "./bits/state.js";
import { tables } from "./bits/tables.js";
import { headline as answer } from "./bits/text.js";
import { tradeoff } from "./bits/tradeoff.js";

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: the bits of a cache, and what they cost");
  root.classList.add("kv-calculator", "kvbook-bits");
  const said = answerIn(headline);
  const status = h("p", { class: "kv-status kv-message", role: "status", hidden: true });
  let state, found;
  let shown = null; // the presets that are drawn

  const start = () => fromTraits((trait) => model.get("start")?.[trait]);
  const given = () => ({ measured: model.get("measured") ?? [], channels: model.get("channels") ?? [] });
  const measuredOn = () => model.get("measured_on") ?? "";
  const say = (text) => {
    setText(status, text);
    status.hidden = text === "";
  };
  const go = (changes) => {
    say("");
    save(model, toTraits(changes));
  };

  const controls = settings(go);
  const chart = tradeoff();
  const facts = factList();
  const bars = errorBars((channel) => go({ channel }));
  const line = channelLine();
  const reset = resetButton(root, () => go(start()));
  const presets = h("div", { class: "kv-buttons", role: "group", "aria-label": "Presets and reset" });
  const formula = formulaBlock();
  const details = fold("The same as tables", () => tables(state, found, measuredOn()));
  const sample = h("div", { class: "kv-sample-box" }, bars.element, controls.channel, line.element);
  root.append(
    status,
    h("div", { class: "kv-split" }, chart.element, facts.element),
    h("div", { class: "kv-hands" }, presets, controls.element),
    sample,
    formula.element,
    details.element,
  );

  const readAddress = (changes) => {
    say("");
    save(model, toTraits({ ...start(), ...changes }));
  };
  const link =
    model.get("link") === false ? null : linkOf(root, hash, { start, onRead: readAddress, onFault: say });

  let widths = { chart: 0, sample: 0 };
  const draw = () => {
    if (!found) return;
    chart.paint({ width: widths.chart, found, measuredOn: measuredOn() });
    sample.hidden = found.sample === null;
    if (!found.sample) return;
    bars.paint({ width: widths.sample, sample: found.sample, found });
    line.paint({ width: widths.sample, sample: found.sample, found });
  };

  const showPresets = () => {
    const from = start();
    const key = JSON.stringify(from);
    if (shown?.key !== key) {
      const list = presetsFor(from);
      const buttons = list.map(({ label, changes }) => button(label, () => go({ ...from, ...changes })));
      presets.replaceChildren(...buttons, reset.element);
      shown = { key, list, buttons };
    }
    shown.list.forEach(({ changes }, i) => {
      shown.buttons[i].setAttribute("aria-pressed", String(same(state, { ...from, ...changes })));
    });
    reset.show(!same(state, from));
  };

  const update = () => {
    state = fromTraits((trait) => model.get(trait));
    found = figures(state, given());
    said.show(...answer(state, found, measuredOn()));
    showPresets();
    controls.show(state, found);
    facts.show(found);
    draw();
    formula.show(state, found, weightsBytes(found.model), measuredOn());
    details.refresh();
    link?.follow(state);
  };

  const traits = [...FIELDS.map(({ trait }) => trait), "start", "measured", "measured_on", "channels"];
  const stopWatching = watch(model, traits, update);
  link?.take();
  const resized = new ResizeObserver(() => {
    widths = { chart: chart.width(), sample: bars.width() };
    draw();
  });
  resized.observe(root);
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
