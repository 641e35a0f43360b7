// The capacity explorer: how many users fit on a card, and what each technique buys.
import { answerIn } from "./common/answer.js";
import { button } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { OWN } from "./common/facts.js";
import { link as linkOf } from "./common/link.js";
import { save, watch } from "./common/model.js";
import { openForPrint } from "./common/print.js";
import { resetButton } from "./common/reset.js";
import { fold } from "./common/table.js";
import { bar as barOf, cut } from "./capacity/bar.js";
import { chart as chartOf, samples } from "./capacity/chart.js";
import { codeFold } from "./capacity/code.js";
import { windows } from "./capacity/engine.js";
import { factList, formulaBlock } from "./capacity/facts_view.js";
import { crossings, figures, sizeAt } from "./capacity/figures.js";
import * as hash from "./capacity/hash.js";
import { pasteFold } from "./capacity/paste.js";
import { PRESETS, presetsThatKeepTheCard } from "./capacity/presets.js";
import { settings as settingsOf } from "./capacity/settings.js";
import { tables } from "./capacity/tables.js";
import { baseline, techniques } from "./capacity/techniques.js";
import { techniqueList } from "./capacity/techniques_view.js";
import { aside, cards, finding, headline as answer, sequences, verdict } from "./capacity/text.js";
import { FIELDS, fromTraits, MAX_CONTEXT, same, settle, toTraits } from "./capacity/state.js";

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: how many users fit on a GPU");
  root.classList.add("kv-calculator", "kvbook-capacity");
  const said = answerIn(headline);
  const status = h("p", { class: "kv-status kv-message", role: "status", hidden: true });
  let state, found; // what was asked for, and the last figures that there are

  const start = () => fromTraits((trait) => model.get("start")?.[trait]);
  const say = (text) => {
    setText(status, text);
    status.hidden = text === "";
  };
  const go = (changes) => {
    say("");
    save(model, toTraits(settle(state, changes)));
  };
  /** The same, but only where the figures exist; throws the sentence that says why not. */
  const goIfSound = (changes) => {
    figures({ ...state, ...settle(state, changes) });
    go(changes);
  };

  const bar = barOf();
  const paste = pasteFold(goIfSound);
  const controls = settingsOf(go, {
    ownModel: () => (state.config !== "" ? go({ model: OWN }) : paste.open()),
    fill: () => go({ batch: found.users }),
  });
  const reset = resetButton(root, () => go(start()));
  const applied = presetsThatKeepTheCard();
  const presetButtons = PRESETS.map((preset) =>
    button(preset.label, () => go(applied(preset, state, start()))),
  );
  const presets = h(
    "div",
    { class: "kv-buttons kv-presets", role: "group", "aria-label": "Presets and reset" },
    ...presetButtons,
    reset.element,
  );
  const facts = factList();
  const formula = formulaBlock();
  const chart = chartOf();
  const gains = techniqueList(go);
  const code = codeFold(() => ({ state, found, address: link?.address(state) ?? null }));
  const details = fold("The same as tables", () => tables(state, found));
  root.append(
    status,
    bar.element,
    controls.main,
    presets,
    h("div", { class: "kv-split" }, chart.element, facts.element),
    formula.element,
    gains.element,
    controls.more,
    paste.element,
    code.element,
    details.element,
  );

  const link =
    model.get("link") === false
      ? null
      : linkOf(root, hash, { start, onRead: (changes) => readAddress(changes), onFault: say });
  const readAddress = (changes) => {
    const next = { ...start(), ...changes };
    hash.check(changes, next);
    figures(next); // or a sentence
    say("");
    save(model, toTraits(next));
  };

  const curve = memo((plan, batch) =>
    samples(windows(plan.spec)).map((context) => ({
      context,
      one: sizeAt(plan, context),
      batch: sizeAt(plan, context, batch),
    })),
  );
  const drawChart = () => {
    if (!found) return;
    const { plan, room, cache } = found;
    const { batch, context } = state;
    const key = JSON.stringify([state.model, state.config, plan.change, plan.longest, plan.options, batch]);
    const at = crossings(found, batch);
    chart.paint({
      width: chart.width(),
      words: finding(batch, at, MAX_CONTEXT),
      batchWords: `cache of ${sequences(batch)}`,
      points: curve(key, plan, batch),
      levels: { "of-weights": room.weights, "of-free": room.free },
      crossings: { "of-weights": at.weights, "of-free": at.free },
      context,
      size: cache,
      alone: batch === 1,
    });
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
    said.show(
      ...(wrong === null
        ? [...answer(state, found), aside(state, found)]
        : ["These settings do not go together.", wrong]),
    );
    reset.show(!same(state, start()));
    PRESETS.forEach(({ changes }, i) => {
      const on = Object.entries(changes).every(([name, value]) => state[name] === value);
      presetButtons[i].setAttribute("aria-pressed", String(on));
    });
    if (!found) return;
    controls.show(state, found);
    if (wrong !== null) return;
    const { weights, overhead } = found.room;
    const asked = { weights, overhead, cache: found.cache };
    bar.show(asked, cut(found.room, found.cache), cards(found.card, 1), verdict(state, found));
    facts.show(state, found);
    formula.show(state, found);
    gains.show(state, techniques(state, found), baseline(state), found);
    drawChart();
    code.refresh();
    details.refresh();
    link?.follow(state);
  };

  const stopWatching = watch(model, [...FIELDS.map(({ trait }) => trait), "start"], update);
  link?.take();
  const resized = new ResizeObserver(drawChart);
  resized.observe(chart.element);
  const printing = openForPrint([code, details]);
  return () => {
    said.stop();
    resized.disconnect();
    printing.stop();
    stopWatching();
    link?.stop();
  };
}

/** The last result of a function, as long as its key stays the same. */
function memo(compute) {
  let last = {};
  return (key, ...args) => {
    if (last.key !== key) last = { key, value: compute(...args) };
    return last.value;
  };
}

export default { render };
