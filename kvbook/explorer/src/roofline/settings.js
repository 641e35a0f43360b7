// The controls. Each shows the state and asks for a change of it.
import { h } from "../common/dom.js";
import { OWN } from "../common/facts.js";
import { number, octaves, select, steps } from "../common/inputs.js";
import { CACHE_NAMES } from "../common/units.js";
import { CACHE_DTYPES, DENSE, FIELDS, MAX_BATCH, MAX_CONTEXT, RATED, WEIGHTS } from "./state.js";
import { sequences, tokens } from "./text.js";

const LENGTHS = octaves(1, MAX_CONTEXT, 4);
const BATCHES = octaves(1, 4096, 4);

const limits = (name) => FIELDS.find((field) => field.name === name);

export function settings(go) {
  const set = (name) => (value) => go({ [name]: value });
  const typed = (label, name, unit) => {
    const { low, high } = limits(name);
    return number(label, { low, high, step: "any", unit }, set(name));
  };
  const of = {
    batch: steps("Batch", BATCHES, { high: MAX_BATCH }, set("batch")),
    prompt: steps("Prompt, tokens", LENGTHS, { high: MAX_CONTEXT }, set("prompt")),
    context: steps("Context, tokens", LENGTHS, { high: MAX_CONTEXT }, set("context")),
    model: select("Model", set("model")),
    gpu: select("Device", set("gpu")),
    nKvHeads: select("KV heads", (text) => go({ nKvHeads: text === "" ? null : Number(text) })),
    weights: select("Weights", set("weights")),
    cacheDtype: select("Cache", set("cacheDtype")),
    ownGbPerS: typed("Your machine reads", "ownGbPerS", "GB/s"),
    ownTflops: typed("Your machine computes", "ownTflops", "TFLOP/s"),
  };
  const elements = (...names) => names.map((name) => of[name].element);
  const ownCard = h("div", { class: "kv-fields kv-own-card" }, ...elements("ownGbPerS", "ownTflops"));
  const element = h(
    "div",
    { class: "kv-main" },
    h("div", { class: "kv-fields kv-drags" }, ...elements("batch", "prompt", "context")),
    h(
      "div",
      { class: "kv-fields kv-choices" },
      ...elements("model", "gpu", "nKvHeads", "weights", "cacheDtype"),
    ),
    ownCard,
  );

  const show = (state, { model }) => {
    const list = (name, value, options) => of[name].show({ value, options });
    of.batch.show({ value: state.batch, words: sequences(state.batch) });
    of.prompt.show({ value: state.prompt, words: tokens(state.prompt) });
    of.context.show({ value: state.context, words: tokens(state.context) });
    list(
      "model",
      state.model,
      DENSE.map(({ id, name }) => [id, name]),
    );
    list("gpu", state.gpu, [...RATED.map(({ name }) => [name, name]), [OWN, "Your machine"]]);
    const published = model.publishedHeads === null ? "as published" : `${model.publishedHeads}, published`;
    const heads = model.headChoices.includes(state.nKvHeads) ? String(state.nKvHeads) : "";
    list("nKvHeads", heads, [["", published], ...model.headChoices.map((n) => [String(n), String(n)])]);
    list(
      "weights",
      state.weights,
      WEIGHTS.map((bits) => [bits, `${bits} bits`]),
    );
    list(
      "cacheDtype",
      state.cacheDtype,
      CACHE_DTYPES.map((dtype) => [dtype, CACHE_NAMES[dtype]]),
    );
    ownCard.hidden = state.gpu !== OWN;
    of.ownGbPerS.show({ value: state.ownGbPerS });
    of.ownTflops.show({ value: state.ownTflops });
  };
  return { element, show };
}
