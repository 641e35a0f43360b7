// The token stepper: which K and V rows each step of a generation computes, without a cache and with one.
import { button, enable, slider } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { bytes, count, quoted, short } from "./common/format.js";
import { save, watch } from "./common/model.js";
import { fold, table } from "./common/table.js";
import { at, cacheProduct, clampStep, headline as answer, record, rows, sum } from "./stepper/model.js";
import { player } from "./stepper/play.js";
import { lane, meter } from "./stepper/marks.js";

const RECORD = ["tokens", "prompt_len", "without_cache", "with_cache", "bytes_per_token"];
const PERIOD = 333; // ms a step

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: a generation step by step, without and with a cache");
  root.classList.add("kvbook-stepper");
  let rec, here; // what is on the screen
  let drawn; // the tokens that the text and the lanes were built for
  let words = [];

  const step = () => clampStep(rec, model.get("step"));
  const go = (to) => save(model, { step: clampStep(rec, to) });
  const goByHand = (to) => {
    clock.pause();
    go(to);
  };
  const tick = () => {
    if (!root.isConnected || step() >= rec.steps) return false;
    go(step() + 1);
    return step() < rec.steps;
  };
  const clock = player(
    tick,
    (playing) => {
      setText(play, playing ? "Pause" : "Play");
      headline.setAttribute("aria-live", playing ? "off" : "polite"); // not spoken at every tick
      queueMicrotask(() => {
        if (!playing) headline.replaceChildren(answer(here)); // spoken once, where it came to a stop
        showButtons();
      });
    },
    PERIOD,
  );

  const text = h("p", { class: "kv-said" });
  const lanes = { without: lane("kv-rows"), cached: lane("kv-rows"), mask: lane("kv-mask") };
  const position = slider("Step", goByHand, 1);
  const previous = button("Previous", () => goByHand(step() - 1));
  const next = button("Next", () => goByHand(step() + 1));
  const play = button("Play", () => {
    if (clock.isPlaying()) return clock.pause();
    if (step() >= rec.steps) go(1);
    clock.play();
  });
  play.classList.add("kv-play");
  const reset = button("Reset", () => goByHand(model.get("start")));
  const work = { without: meter("Without a cache"), cached: meter("With a cache") };
  const held = meter("The cache holds", "kv-memory");
  const formula = h("p", { class: "kv-formula" });
  const details = fold("The same as tables", () => tables(rec, here));

  const meters = h(
    "div",
    { class: "kv-meters" },
    h("p", { class: "kv-meters-title" }, "Tokens processed so far, in each layer"),
    ...[work.without, work.cached, held].map(({ element }) => element),
  );
  const body = h(
    "div",
    { class: "kv-stepper" },
    h("div", { class: "kv-text-box" }, textLegend(), text),
    h("div", { class: "kv-lanes" }, ...Object.values(lanes).map(({ element }) => element), legend()),
    h(
      "div",
      { class: "kv-steer" },
      h("div", { class: "kv-buttons", role: "group", "aria-label": "Step" }, previous, play, next, reset),
      h("div", { class: "kv-sliders" }, position.element),
    ),
    h("div", { class: "kv-sums" }, meters, formula),
  );
  root.append(body, details.element);

  const build = () => {
    words = rec.tokens.map((token) => h("bdi", {}, short(token, 20)));
    text.replaceChildren(...words.flatMap((word) => [word, h("wbr")]));
    for (const { build } of Object.values(lanes)) build(rec.tokens.length);
  };
  const showButtons = () => {
    enable(previous, here.step > 1);
    enable(next, here.step < rec.steps);
    enable(reset, here.step !== clampStep(rec, model.get("start")) || clock.isPlaying());
  };

  const update = () => {
    rec = record(Object.fromEntries(RECORD.map((name) => [name, model.get(name)]))) ?? rec;
    if (!rec) return;
    if (drawn !== rec.tokens) build();
    drawn = rec.tokens;
    here = at(rec, step());
    setText(headline, answer(here));
    words.forEach((word, i) => {
      const fed = i < here.held && i >= here.read;
      word.className = fed ? "kv-fed" : i === here.next ? "kv-next" : i > here.next ? "kv-unsaid" : "";
    });
    paintLanes(lanes, rec, here);
    position.show({ value: here.step, max: rec.steps, text: `${here.step} of ${rec.steps}` });
    showButtons();
    const most = rec.withoutSums.at(-1);
    work.without.show(count(here.withoutSum), here.withoutSum / most);
    work.cached.show(count(here.cachedSum), here.cachedSum / most);
    const end = at(rec, rec.steps).bytes;
    held.show(`${bytes(here.bytes)} of ${bytes(end)}`, here.bytes / end);
    formula.replaceChildren(...formulaLines(rec, here));
    details.refresh();
  };

  const stopWatching = watch(model, [...RECORD, "step", "start"], update);
  return () => {
    clock.pause();
    stopWatching();
  };
}

function paintLanes(lanes, rec, { step, held, without, again, cached, read, query }) {
  const later = rec.tokens.length - held;
  const notThere = `${later} not there yet`;
  const whole = `: ${without} computed${again > 0 ? `, ${again} of them again` : ""}`;
  lanes.without.paint(["Without a cache", whole], `K and V rows without a cache${whole}, ${notThere}.`, rows(rec, { held }, without));
  const part = `: ${cached} computed, ${read} read from the cache`;
  lanes.cached.paint(["With a cache", part], `K and V rows with a cache${part}, ${notThere}.`, rows(rec, { held }, cached));
  const keys = held === 1 ? "1 key, its own" : `all ${held} keys`;
  const mask = ` of the newest query, ${quoted(rec.tokens, query)}: it sees ${keys}`;
  const seen = rec.tokens.map((_, i) => (i < held ? "seen" : "later"));
  lanes.mask.paint(["Mask row", mask], `Mask row${mask} at step ${step}; ${later} are not there yet.`, seen);
}

function formulaLines(rec, here) {
  const line = (label, value) => h("span", {}, `${label}: `, h("span", { class: "kv-sum" }, value));
  return [
    line("without", sum(rec.without, here.step)),
    line("with", sum(rec.cached, here.step)),
    line("cache", cacheProduct(rec, here)),
  ];
}

function key(kind, state, words) {
  const swatch = h("span", { class: `kv-columns ${kind} kv-sample`, "aria-hidden": "true" }, h("span", { class: `kv-${state}` }));
  return h("span", { class: "kv-key-item" }, swatch, words);
}

function legend() {
  return h(
    "p",
    { class: "kv-legend kv-keys" },
    h("span", {}, "A column is a token: its K row above, its V row below."),
    key("kv-rows", "computed", "computed in this step"),
    key("kv-rows", "read", "read from the cache"),
    key("kv-mask", "seen", "visible key"),
    key("kv-rows", "later", "not there yet"),
  );
}

function textLegend() {
  const sample = (kind, words) => h("span", { class: "kv-key-item" }, h("bdi", { class: kind, "aria-hidden": "true" }, "token"), words);
  const parts = [sample("kv-fed", "new to the model in this step"), sample("kv-next", "what it predicts")];
  return h("p", { class: "kv-legend kv-keys" }, ...parts, h("span", {}, "A dot before a token is its space."));
}

function tables(rec, here) {
  const rest = [String(here.held), String(rec.tokens.length - here.held)];
  const states = [
    ["Without a cache", String(here.without), "0", ...rest],
    ["With a cache", String(here.cached), String(here.read), ...rest],
  ];
  const steps = rec.without.map((_, i) => {
    const { step, next, without, withoutSum, cached, cachedSum, bytes: total } = at(rec, i + 1);
    const predicts = short(rec.tokens[next], 20);
    return [String(step), predicts, count(without), count(withoutSum), count(cached), count(cachedSum), bytes(total)];
  });
  const head = ["Step", "Predicts", "Without", "Without, so far", "With", "With, so far", "Cache"];
  return [
    table(`Step ${here.step}: K and V rows`, ["Run", "Computed", "Read", "Visible keys", "Not there yet"], states),
    table("All steps: tokens processed, and the cache", head, steps),
  ];
}

export default { render };
