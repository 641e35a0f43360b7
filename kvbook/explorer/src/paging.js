// The paging explorer: requests that arrive, grow, fork and finish, and the blocks that they take.
import { answerIn } from "./common/answer.js";
import { button, enable, slider } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { link as linkOf } from "./common/link.js";
import { save, watch } from "./common/model.js";
import { openForPrint } from "./common/print.js";
import { resetButton } from "./common/reset.js";
import { fold } from "./common/table.js";
import { course as courseOf } from "./paging/course.js";
import { factList, formulaBlock } from "./paging/facts.js";
import { figures } from "./paging/figures.js";
import { pool as poolOf } from "./paging/pool.js";
import { presetsFor } from "./paging/presets.js";
import { requestList } from "./paging/requests.js";
import { settings } from "./paging/settings.js";
import { FIELDS, fromTraits, hash, same, settle, toTraits } from "./paging/state.js";
import { tables } from "./paging/tables.js";
import { headline as answer } from "./paging/text.js";
import { wayBars } from "./paging/ways.js";
import { player } from "./stepper/play.js";

const PERIOD = 900; // ms an event: long enough to see what it does

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: the blocks of a paged cache");
  root.classList.add("kv-calculator", "kvbook-paging");
  const said = answerIn(headline);
  const status = h("p", { class: "kv-status kv-message", role: "status", hidden: true });
  let state, found;
  let picked = null; // the request whose blocks are marked
  let shown = null; // the presets that are drawn
  let width = 0;

  const timelines = () => model.get("timelines") ?? [];
  const start = () => fromTraits((trait) => model.get("start")?.[trait]);
  const given = () => ({ timelines: timelines(), bytesPerToken: model.get("bytes_per_token") });
  const say = (text) => {
    setText(status, text);
    status.hidden = text === "";
  };
  const go = (changes) => {
    say("");
    save(model, toTraits(settle(state, changes, timelines())));
  };
  const goByHand = (changes) => {
    clock.pause();
    go(changes);
  };
  const last = () => found.states.length - 1;
  const tick = () => {
    if (!root.isConnected || found.step >= last()) return false;
    go({ step: found.step + 1 });
    return found.step + 1 < last();
  };
  const clock = player(
    tick,
    (playing) => {
      setText(play, playing ? "Pause" : "Play");
      queueMicrotask(showButtons);
    },
    PERIOD,
  );

  const position = slider("Event", (step) => goByHand({ step }));
  const previous = button("Previous", () => goByHand({ step: Math.max(0, found.step - 1) }));
  const next = button("Next", () => goByHand({ step: Math.min(last(), found.step + 1) }));
  const play = button("Play", () => {
    if (clock.isPlaying()) return clock.pause();
    if (found.step >= last()) go({ step: 0 });
    clock.play();
  });
  play.classList.add("kv-play");
  const pool = poolOf();
  const requests = requestList((name) => {
    picked = picked === name ? null : name;
    showBlocks();
  });
  const ways = wayBars();
  const course = courseOf((step) => goByHand({ step }));
  const facts = factList();
  const controls = settings(goByHand);
  const reset = resetButton(root, () => goByHand(start()));
  const presets = h("div", { class: "kv-buttons", role: "group", "aria-label": "Presets and reset" });
  const formula = formulaBlock();
  const details = fold("The same as tables", () => tables(state, found));
  const steer = h(
    "div",
    { class: "kv-steer" },
    h("div", { class: "kv-buttons", role: "group", "aria-label": "Step through the events" }, previous, play, next),
    h("div", { class: "kv-sliders" }, position.element),
  );
  root.append(
    status,
    steer,
    h("div", { class: "kv-body" }, pool.element, ways.element, facts.element),
    h("div", { class: "kv-hands" }, presets, controls.element),
    course.element,
    requests.element,
    formula.element,
    details.element,
  );

  const readAddress = (changes) => {
    const from = start();
    if (changes.timeline >= timelines().length) throw new Error(`In the address, timeline is ${changes.timeline}; there are ${timelines().length}.`);
    say("");
    save(model, toTraits(settle(from, { ...from, ...changes }, timelines())));
  };
  const link =
    model.get("link") === false ? null : linkOf(root, hash, { start, onRead: readAddress, onFault: say });

  const showButtons = () => {
    enable(previous, found.step > 0);
    enable(next, found.step < last());
  };
  const showBlocks = () => {
    if (!found.here.requests.some(({ name }) => name === picked)) picked = null;
    pool.show(found, picked);
    requests.show(found, picked);
  };
  const showPresets = () => {
    const from = start();
    const key = JSON.stringify([from, timelines().map(({ name }) => name)]);
    if (shown?.key !== key) {
      const list = presetsFor(from, timelines());
      const buttons = list.map(({ label, changes }) => button(label, () => goByHand({ ...from, ...changes })));
      presets.replaceChildren(...buttons, reset.element);
      shown = { key, list, buttons };
    }
    const still = { ...state, step: 0 }; // another event is no other setting
    shown.list.forEach(({ changes }, i) => {
      shown.buttons[i].setAttribute("aria-pressed", String(same(still, { ...from, ...changes, step: 0 })));
    });
    reset.show(!same(state, from));
  };
  const draw = () => found && course.paint({ width, found });

  const update = () => {
    state = fromTraits((trait) => model.get(trait));
    if (timelines().length === 0) return;
    found = figures(state, given());
    said.show(...answer(found));
    position.show({ value: found.step, max: last(), text: `${found.step} of ${last()}` });
    showButtons();
    showBlocks();
    showPresets();
    const from = start();
    const sameRequests = from.timeline === state.timeline;
    facts.show(found, sameRequests ? figures({ ...from, step: state.step }, given()) : null);
    ways.show(found);
    controls.show(state, timelines());
    draw();
    formula.show(state, found);
    details.refresh();
    link?.follow(state);
  };

  const traits = [...FIELDS.map(({ trait }) => trait), "start", "timelines", "bytes_per_token"];
  const stopWatching = watch(model, traits, update);
  link?.take();
  const resized = new ResizeObserver(() => {
    width = course.width();
    draw();
  });
  resized.observe(root);
  const printing = openForPrint([details]);
  return () => {
    clock.pause();
    said.stop();
    resized.disconnect();
    printing.stop();
    stopWatching();
    link?.stop();
  };
}

export default { render };
