// The controls: six that matter most, the rest behind a fold. Each shows the state and asks for a change of it.
import { button, enable } from "../common/controls.js";
import { h } from "../common/dom.js";
import { number, octaves, roundNumbers, select, steps } from "../common/inputs.js";
import { GPUS, MODELS, OWN } from "../common/facts.js";
import { weightsFor } from "./model.js";
import { CACHE_DTYPES, FIELDS, MAX_CONTEXT, PARALLEL } from "./state.js";
import { binary, CACHE_NAMES, count, decimal, tokens, WEIGHT_NAMES } from "./text.js";

const CONTEXTS = roundNumbers(64, MAX_CONTEXT);
const BATCHES = octaves(1, 4096, 8);
const FULL_EVERY = [2, 3, 4, 5, 6, 8, 12];
const POLICY_NAMES = {
  exact: "exactly the tokens there are",
  reserve: "the most tokens there may be",
  paged: "in blocks (paged)",
  all_layers_full: "windows ignored: all layers in full",
};

const limits = (name) => FIELDS.find((field) => field.name === name);
const none = (value) => (value === null ? "" : String(value));
const orNull = (text) => (text === "" ? null : Number(text));

export function settings(go, { ownModel, fill }) {
  const of = {};
  const set = (name) => (value) => go({ [name]: value });
  const numeric = (label, name, extra = {}) => {
    const { low, high } = limits(name);
    of[name] = number(label, { low, high, ...extra }, set(name));
    return of[name].element;
  };
  const choice = (label, name, onChange = set(name)) => (of[name] = select(label, onChange)).element;

  const filling = button("Fill the card", () => filling.hasAttribute("aria-disabled") || fill());
  of.context = steps("Context, tokens", CONTEXTS, { high: MAX_CONTEXT }, set("context"));
  of.batch = steps("Batch", BATCHES, { high: limits("batch").high, beside: filling }, set("batch"));
  const ownCard = h(
    "div",
    { class: "kv-fields kv-own-card" },
    numeric("Your GPU’s memory", "ownGb", { step: "any", unit: "GB" }),
    numeric("Your GPU’s bandwidth", "ownGbPerS", { step: "any", unit: "GB/s" }),
  );
  const pickModel = (id) => {
    if (id !== OWN) return go({ model: id });
    of.model.restore();
    ownModel();
  };
  const main = h(
    "div",
    { class: "kv-main" },
    h("div", { class: "kv-fields kv-drags" }, of.context.element, of.batch.element),
    h(
      "div",
      { class: "kv-fields kv-choices" },
      choice("Model", "model", pickModel),
      choice("GPU", "gpu"),
      choice("Cache precision", "cacheDtype"),
      choice("KV heads", "nKvHeads", (text) => go({ nKvHeads: orNull(text) })),
    ),
    ownCard,
  );

  const group = (legend, ...fields) =>
    h("fieldset", {}, h("legend", {}, legend), h("div", { class: "kv-fields" }, ...fields));
  const more = h(
    "details",
    { class: "kv-fold kv-more" },
    h("summary", {}, "More settings"),
    group(
      "Window",
      numeric("Sliding window", "window", { unit: "tokens", empty: "none" }),
      numeric("Sink tokens also kept", "sinks", { unit: "tokens" }),
      choice("Layers that stay full", "fullEvery", (text) => go({ fullEvery: orNull(text) })),
    ),
    group(
      "Allocation",
      choice("What is reserved", "policy"),
      numeric("Most tokens", "reserve", { unit: "tokens", empty: "the model’s most" }),
      numeric("Block", "blockSize", { unit: "tokens" }),
    ),
    group(
      "Weights and memory",
      choice("Weights", "weights"),
      choice("Memory counted", "memory"),
      choice("GPUs that share the model", "tensorParallel", (text) => go({ tensorParallel: Number(text) })),
      numeric("Share of the memory used", "utilization", { step: "any" }),
      numeric("Overhead on each GPU", "overheadGb", { step: "any", unit: "GB" }),
    ),
  );

  const show = (state, { model, card, users }) => {
    const at = (name, value, options, why) => of[name].show({ value, options, why });
    const list = (name, why) => of[name].show({ value: state[name], why });
    of.context.show({ value: state.context, words: tokens(state.context) });
    of.batch.show({
      value: state.batch,
      words: state.batch === 1 ? "1 sequence" : `${count(state.batch)} sequences`,
    });
    enable(filling, users > 0 && users !== state.batch && users <= limits("batch").high);
    at("model", state.model, [
      ...MODELS.map(({ id, name }) => [id, name]),
      [OWN, "Your own: paste a config.json"],
    ]);
    at("gpu", state.gpu, [...GPUS.map(({ name }) => [name, name]), [OWN, "Your own"]]);
    at(
      "cacheDtype",
      state.cacheDtype,
      CACHE_DTYPES.map((dtype) => [dtype, CACHE_NAMES[dtype]]),
    );
    ownCard.hidden = state.gpu !== OWN;
    list("ownGb");
    list("ownGbPerS");
    showHeads(state, model);
    const windowWhy = model.takesWindow ? null : "No layer of this model attends to everything.";
    const noWindow = windowWhy ?? (state.window === null ? "Set a window first." : null);
    list("window", windowWhy);
    list("sinks", noWindow);
    const every = [...new Set([...FULL_EVERY, ...(state.fullEvery ? [state.fullEvery] : [])])].sort(
      (a, b) => a - b,
    );
    at(
      "fullEvery",
      none(state.fullEvery),
      [["", "none"], ...every.map((n) => [String(n), `1 in ${n}`])],
      noWindow,
    );
    const slides = model.hasWindow || (model.takesWindow && state.window !== null);
    const policies = Object.entries(POLICY_NAMES).map(([v, words]) => [
      v,
      words,
      v === "all_layers_full" && !slides && state.policy !== v,
    ]);
    at("policy", state.policy, policies);
    of.reserve.show({ value: state.reserve, ...reserveWords(state) });
    list("blockSize", state.policy === "paged" ? null : "Only where blocks are used.");
    showMemory(state, model, card, at);
    at(
      "tensorParallel",
      String(state.tensorParallel),
      PARALLEL.map((n) => [String(n), n === 1 ? "1" : `${n} (tensor parallel)`]),
    );
    list("utilization");
    list("overheadGb");
  };

  const reserveWords = ({ policy, reserve, context }) => {
    if (policy !== "reserve") return { why: "Only where the most is reserved." };
    if (reserve === null || reserve >= context) return {};
    return { note: `Less than the context: ${tokens(context)} are reserved.` };
  };

  const showHeads = ({ nKvHeads }, { headChoices, publishedHeads }) => {
    const published = publishedHeads === null ? "as published" : `${publishedHeads}, published`;
    const value = headChoices.includes(nKvHeads) ? String(nKvHeads) : "";
    const why = headChoices.length > 0 ? null : "Its layers keep no keys and values per head.";
    of.nKvHeads.show({
      value,
      why,
      options: [["", published], ...headChoices.map((n) => [String(n), String(n)])],
    });
  };

  const showMemory = (state, model, card, at) => {
    const size = (weights) => decimal(weightsFor(model, weights));
    const precisions = ["32", "16", "8", "4"].map((bits) => [bits, `${WEIGHT_NAMES[bits]} (${size(bits)})`]);
    const released = model.released === null ? [] : [["released", `as released (${size("released")})`]];
    at("weights", released.length === 0 && state.weights === "released" ? "16" : state.weights, [
      ...released,
      ...precisions,
    ]);
    const { nominal, reported } = card;
    const why =
      nominal === null
        ? "Your own GPU has what you give it."
        : reported === null
          ? "No report of its driver is known."
          : null;
    const ways = [["nominal", nominal === null ? "as given" : `nominal: ${decimal(nominal)}`]];
    if (reported !== null)
      ways.push(["reported", `the driver’s: ${decimal(reported)} (${binary(reported)})`]);
    at("memory", reported === null ? "nominal" : state.memory, ways, why);
  };
  return { main, more, show };
}
