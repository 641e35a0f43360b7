// The heads explorer: what fewer KV heads, or one latent, save on a model, and what a trained series shows.
import { answerIn } from "./common/answer.js";
import { button } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { link as linkOf } from "./common/link.js";
import { save, watch } from "./common/model.js";
import { pointChart } from "./common/points.js";
import { openForPrint } from "./common/print.js";
import { resetButton } from "./common/reset.js";
import { fold } from "./common/table.js";
import { choiceList } from "./heads/choices_view.js";
import { figures, seriesOf, twin } from "./heads/figures.js";
import { headsView } from "./heads/heads_view.js";
import { presetsFor } from "./heads/presets.js";
import { settings } from "./heads/settings.js";
import { FIELDS, fromTraits, hash, modelFor, same, settle, toTraits } from "./heads/state.js";
import { tables } from "./heads/tables.js";
import * as say from "./heads/text.js";

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: KV heads, a latent, and what they save");
  root.classList.add("kv-calculator", "kvbook-heads");
  const said = answerIn(headline);
  const status = h("p", { class: "kv-status kv-message", role: "status", hidden: true });
  let state, found, series; // what was asked for, the last figures that there are, what was measured
  let drawn = null; // the presets that are shown
  const widths = { heads: 0, points: 0 };

  const start = () => fromTraits((trait) => model.get("start")?.[trait]);
  const tell = (text) => {
    setText(status, text);
    status.hidden = text === "";
  };
  const go = (changes) => {
    tell("");
    save(model, toTraits(settle(state, changes)));
  };

  const picture = headsView();
  const controls = settings(go);
  const reset = resetButton(root, () => go(start()));
  const presets = h("div", { class: "kv-buttons", role: "group", "aria-label": "Presets and reset" });
  const choices = choiceList();
  const quality = pointChart({ x: "KV heads of the trained decoder", y: "Held-out loss, nats" }, {});
  const qualityNote = h("p", { class: "kv-beside" });
  const trained = h("div", { class: "kv-trained" }, quality.element, qualityNote);
  const lines = { "bytes per token": say.tokenLine, users: say.userLine };
  const sums = Object.keys(lines).map(() => h("span", { class: "kv-sum" }));
  const remarks = h("ul", { class: "kv-remarks kv-legend" });
  const formula = h(
    "div",
    { class: "kv-sums" },
    h("div", { class: "kv-formula" }, ...Object.keys(lines).map((name, i) => h("p", {}, `${name}: `, sums[i]))),
    remarks,
  );
  const details = fold("The same as tables", () => tables(state, found, series));
  root.append(
    status,
    h(
      "div",
      { class: "kv-body" },
      picture.element,
      h("div", { class: "kv-hands" }, controls.element, presets),
      h("div", { class: "kv-side-by" }, choices.element, trained),
    ),
    formula,
    details.element,
  );

  const readAddress = (changes) => {
    const next = { ...start(), ...changes };
    figures(next); // or a sentence
    tell("");
    save(model, toTraits(next));
  };
  const link =
    model.get("link") === false ? null : linkOf(root, hash, { start, onRead: readAddress, onFault: tell });

  const showPresets = () => {
    if (drawn?.id !== state.model) {
      const list = presetsFor(modelFor(state.model));
      const buttons = list.map(({ label, changes }) => button(label, () => go(changes)));
      presets.replaceChildren(...buttons, reset.element);
      drawn = { id: state.model, list, buttons };
    }
    drawn.list.forEach(({ changes }, i) => {
      const on = Object.entries(changes).every(([name, value]) => state[name] === value);
      drawn.buttons[i].setAttribute("aria-pressed", String(on));
    });
    reset.show(!same(state, start()));
  };

  const draw = () => {
    if (!found) return;
    picture.show(state, found, widths.heads);
    if (series.points.length === 0) return;
    const same = twin(found, series);
    quality.paint({
      width: widths.points,
      said: say.trained(series),
      keys:
        "A point: the mean over seeds. Its bar: one standard deviation over seeds to each side." +
        " The ring: a decoder in which as many query heads share a KV head as in your setting.",
      points: series.points.map((point) => ({
        at: point.n_kv_heads,
        y: point.loss,
        error: say.spreadOf(point),
        label: say.loss(point.loss),
        words: say.pointWords(point),
        isChosen: point === same,
      })),
      base: null,
    });
    setText(qualityNote, say.beside(found, series, same));
  };

  const update = () => {
    state = fromTraits((trait) => model.get(trait));
    series = seriesOf(model.get("series"), model.get("series_heads"));
    trained.hidden = series.points.length === 0;
    let wrong = null;
    try {
      found = figures(state);
    } catch (error) {
      wrong = error.message;
    }
    root.classList.toggle("kv-stale", wrong !== null);
    said.show(...(wrong === null ? say.headline(state, found) : ["These settings do not go together.", wrong]));
    showPresets();
    if (!found) return;
    controls.show(state, found);
    if (wrong !== null) return;
    choices.show(state, found);
    Object.values(lines).forEach((line, i) => setText(sums[i], line(state, found)));
    const notes = say.notes(state, found);
    if (remarks.textContent !== notes.join("")) remarks.replaceChildren(...notes.map((text) => h("li", {}, text)));
    draw();
    details.refresh();
    link?.follow(state);
  };

  const stopWatching = watch(model, [...FIELDS.map(({ trait }) => trait), "start", "series", "series_heads"], update);
  link?.take();
  const resized = new ResizeObserver(() => {
    widths.heads = picture.width();
    widths.points = quality.width();
    draw();
  });
  for (const { element } of [picture, quality]) resized.observe(element);
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
