// The controls. Each shows the state and asks for a change of it.
import { GPUS } from "../common/facts.js";
import { slider } from "../common/controls.js";
import { h } from "../common/dom.js";
import { octaves, select, steps } from "../common/inputs.js";
import { FORMATS, HALVES, PART_NAMES } from "./formats.js";
import { MAX_CONTEXT, UNIFORM } from "./state.js";
import { tokens } from "./text.js";

const CONTEXTS = octaves(128, MAX_CONTEXT, 2);

export function settings(go) {
  const set = (name) => (value) => go({ [name]: value });
  const of = {
    format: select("Format", set("format")),
    only: select("Coded", (half) => go({ only: half || null })),
    compare: select("Compare with", set("compare")),
    model: select("Model", set("model")),
    gpu: select("GPU", set("gpu")),
    context: steps("Context, tokens", CONTEXTS, { high: MAX_CONTEXT }, set("context")),
    channel: slider("Channel", set("channel")),
  };
  const fields = (kind, ...names) => h("div", { class: `kv-fields ${kind}` }, ...names.map((name) => of[name].element));
  const element = h("div", { class: "kv-main" }, fields("kv-choices", "format", "only", "compare", "context", "model", "gpu"));
  const channel = h("div", { class: "kv-sliders" }, of.channel.element);

  const show = (state, { sample }) => {
    const list = (name, options) => of[name].show({ value: state[name], options });
    const formats = FORMATS.map(({ name, label }) => [name, label]);
    list("format", formats);
    list("compare", formats);
    of.only.show({ value: state.only ?? "", options: [null, ...HALVES].map((only) => [only ?? "", PART_NAMES[only]]) });
    list("model", UNIFORM.map(({ id, name }) => [id, name]));
    list("gpu", GPUS.map(({ name }) => [name, name]));
    of.context.show({ value: state.context, words: tokens(state.context) });
    channel.hidden = sample === null;
    if (sample) of.channel.show({ value: sample.channel, max: sample.dim - 1, text: `${sample.channel} of 0 to ${sample.dim - 1}` });
  };
  return { element, channel, show };
}
