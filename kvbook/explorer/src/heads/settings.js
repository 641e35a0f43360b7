// The controls. Each shows the state and asks for a change of it; those of the other kind of cache are away.
import { slider } from "../common/controls.js";
import { h } from "../common/dom.js";
import { GPUS } from "../common/facts.js";
import { octaves, select, steps } from "../common/inputs.js";
import { KINDS, MAX_CONTEXT, modelFor, PLAIN, WIDEST } from "./state.js";
import { kindOf, kvHeads, tokens, values } from "./text.js";

const LENGTHS = octaves(1, MAX_CONTEXT, 2);
const LATENTS = [32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096];
const ROPES = [8, 16, 32, 48, 64, 96, 128, 192, 256];
const KIND_NAMES = { heads: "K and V, by heads", latent: "One latent (MLA)" };

export function settings(go) {
  const set = (name) => (value) => go({ [name]: value });
  let choices = [1];
  const of = {
    heads: slider("KV heads", (i) => go({ nKvHeads: choices[i] })),
    latent: steps("Latent, values", LATENTS, { high: WIDEST }, set("latentWidth")),
    rope: steps("RoPE part, values", ROPES, { high: WIDEST }, set("ropeWidth")),
    context: steps("Context, tokens", LENGTHS, { high: MAX_CONTEXT }, set("context")),
    kind: select("Cached", set("kind")),
    model: select("Model", set("model")),
    gpu: select("GPU", set("gpu")),
  };
  const element = h(
    "div",
    { class: "kv-main" },
    h("div", { class: "kv-fields kv-drags" }, ...["heads", "latent", "rope", "context"].map((name) => of[name].element)),
    h("div", { class: "kv-fields kv-choices" }, ...["kind", "model", "gpu"].map((name) => of[name].element)),
  );

  const show = (state, { model, isLatent }) => {
    const { nHeads } = model.spec;
    choices = model.choices;
    of.heads.show({
      value: choices.indexOf(state.nKvHeads),
      max: choices.length - 1,
      text: `${state.nKvHeads} (${kindOf(state.nKvHeads, nHeads)})`,
    });
    of.latent.show({ value: state.latentWidth, words: values(state.latentWidth) });
    of.rope.show({ value: state.ropeWidth, words: values(state.ropeWidth) });
    of.context.show({ value: state.context, words: tokens(state.context) });
    of.heads.element.hidden = isLatent;
    of.latent.element.hidden = of.rope.element.hidden = !isLatent;
    of.kind.show({ value: state.kind, options: KINDS.map((kind) => [kind, KIND_NAMES[kind]]) });
    of.model.show({
      value: state.model,
      options: PLAIN.map(({ id, name }) => [id, `${name}: ${kvHeads(modelFor(id).publishedHeads)}`]),
    });
    of.gpu.show({ value: state.gpu, options: GPUS.map(({ name }) => [name, name]) });
  };
  return { element, show };
}
