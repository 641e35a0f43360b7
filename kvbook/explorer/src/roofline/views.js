// What stands beside the roofline: the two times of each phase as bars, the figures, the formula.
import { h, setText } from "../common/dom.js";
import * as say from "./text.js";

/** For each phase the time of its operations and of its bytes; the longer one is the bound. */
export function phaseBars() {
  const of = Object.fromEntries(["prefill", "decode"].map((name) => [name, barsOf(name)]));
  const keys = h(
    "p",
    { class: "kv-legend kv-keys" },
    swatch("operations", "operations"),
    swatch("weights", "weights"),
    swatch("cache", "cache"),
  );
  const element = h("figure", { class: "kv-phases" }, of.prefill.element, of.decode.element, keys);
  /** The figures, and those of the start, for the change against it. */
  const show = (found, start) => {
    for (const [name, { show: one }] of Object.entries(of)) one(found[name], start[name], found.device);
  };
  return { element, show };
}

function swatch(part, words) {
  const mark = h("span", { class: `kv-swatch kv-fill-${part}`, "aria-hidden": "true" });
  return h("span", { class: "kv-key-item" }, mark, words);
}

function barsOf(name) {
  const title = h("p", { class: "kv-phase-title" });
  const line = h("p", { class: "kv-legend kv-rate" });
  const fill = (part) => h("span", { class: `kv-fill kv-fill-${part}` });
  const fills = { operations: fill("operations"), weights: fill("weights"), cache: fill("cache") };
  const values = { compute: h("span", { class: "kv-time" }), memory: h("span", { class: "kv-time" }) };
  const row = (what, ...parts) =>
    h("div", { class: "kv-bar-row" }, h("span", {}, what), h("span", { class: "kv-bar-track" }, ...parts), values[what]);
  const rows = h(
    "div",
    { class: "kv-bars", role: "img" },
    row("compute", fills.operations),
    row("memory", fills.weights, fills.cache),
  );
  const element = h("div", { class: "kv-phase" }, title, rows, line);
  const show = (phase, start, device) => {
    const size = (part, seconds) => fills[part].style.setProperty("--kv-size", seconds / phase.seconds);
    size("operations", phase.computeSeconds);
    size("weights", phase.weightBytes / device.bytesPerS);
    size("cache", phase.cacheBytes / device.bytesPerS);
    const what = name === "prefill" ? "Prefill" : "Decode step";
    setText(title, `${what}: at least ${say.time(phase.seconds)}`);
    const change = say.against(phase.tokensPerS, start.tokensPerS);
    setText(line, `At most ${say.rate(phase.tokensPerS)} tokens/s${change && ` (${change})`}`);
    setText(values.compute, say.time(phase.computeSeconds));
    setText(values.memory, say.time(phase.memorySeconds));
    for (const [side, value] of Object.entries(values)) value.classList.toggle("kv-longer", side === phase.boundBy);
    const words = `${what}: the operations take ${say.time(phase.computeSeconds)}, the bytes ${say.time(phase.memorySeconds)}.`;
    rows.setAttribute("aria-label", words);
  };
  return { element, show };
}

/** From which batch decode turns compute-bound: its weights, and the whole step. */
export function kneeList() {
  const part = (term) => ({ term, value: h("dd"), rest: h("dd", { class: "kv-legend" }) });
  const weights = part("Decode’s weights are compute-bound");
  const step = part("Its whole step is compute-bound");
  const rows = [weights, step].map(({ term, value, rest }) =>
    h("div", { class: "kv-fact" }, h("dt", {}, term), value, rest),
  );
  const element = h("dl", { class: "kv-facts" }, ...rows);
  const put = ({ value, rest }, words, more) => {
    setText(value, words);
    setText(rest, more);
  };
  const show = ({ knees, ceiling }) => {
    put(weights, say.fromBatch(knees.weights), "whatever the model");
    const most = `At this context no batch gives more than ${say.rate(ceiling)} tokens/s.`;
    put(step, say.fromBatch(knees.step), most);
  };
  return { element, show };
}

const LINES = {
  ridge: ({ device }) => say.ridgeLine(device),
  prefill: ({ prefill, device }) => say.intensityLine(prefill, device),
  "prefill’s bound": ({ prefill, device }) => say.boundLine(prefill, device),
  decode: ({ decode, device }) => say.intensityLine(decode, device),
  "decode’s bound": ({ decode, device }) => say.boundLine(decode, device),
};

/** The formula with the live numbers in; then what to know about them. */
export function formulaBlock() {
  const sums = Object.values(LINES).map(() => h("span", { class: "kv-sum" }));
  const lines = Object.keys(LINES).map((label, i) => h("p", {}, `${label}: `, sums[i]));
  const remarks = h("ul", { class: "kv-remarks kv-legend" });
  const element = h("div", { class: "kv-sums" }, h("div", { class: "kv-formula" }, ...lines), remarks);
  let said = "";
  const show = (state, found, hidden) => {
    Object.values(LINES).forEach((line, i) => setText(sums[i], line(found)));
    const notes = say.notes(state, found, hidden);
    if (notes.join() === said) return;
    said = notes.join();
    remarks.replaceChildren(...notes.map((text) => h("li", {}, text)));
  };
  return { element, show };
}
