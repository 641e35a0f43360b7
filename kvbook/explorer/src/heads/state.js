// The state: everything that the explorer shows follows from it. No DOM here.
import { cacheSpec } from "../accounting/reader.js";
import { kvHeadChoices } from "../accounting/whatif.js";
import { GPUS, MODELS } from "../common/facts.js";
import { carriedBy, field, initialOf, oneOf, whole } from "../common/fields.js";
import { hashOf } from "../common/hash.js";

export const MAX_CONTEXT = 2 ** 20;
export const WIDEST = 2 ** 16; // values of a latent, or of its part with positions
export const KINDS = ["heads", "latent"];

/** Whether all layers keep K and V of the whole context, with the same heads of the same widths. */
export function isPlain(spec) {
  const [first] = spec.layers;
  const alike = ({ kind, window, nKvHeads, kDim, vDim }) =>
    kind === "full" &&
    window === null &&
    [nKvHeads, kDim, vDim].join() === [first.nKvHeads, first.kDim, first.vDim].join();
  return spec.layers.every(alike) && kvHeadChoices(spec).length > 0;
}

export const PLAIN = MODELS.filter(({ config }) => isPlain(cacheSpec(config)));

const models = new Map();

/** A model of models.json with its spec and the KV heads that it could have. */
export function modelFor(id) {
  if (!models.has(id)) {
    const found = PLAIN.find((model) => model.id === id);
    const spec = cacheSpec(found.config);
    const { kDim, vDim, nKvHeads: publishedHeads } = spec.layers[0];
    models.set(id, { ...found, spec, kDim, vDim, publishedHeads, choices: kvHeadChoices(spec) });
  }
  return models.get(id);
}

export const FIELDS = [
  field("model", "model", "model", "llama-2-7b", oneOf(PLAIN.map(({ id }) => id))),
  field("gpu", "gpu", "gpu", "A100 80GB", oneOf(GPUS.map(({ name }) => name))),
  field("context", "context", "context", 4096, whole(1, MAX_CONTEXT)),
  field("kind", "kind", "kind", "heads", oneOf(KINDS)),
  field("nKvHeads", "n_kv_heads", "heads", 8, whole(1, 1024)),
  field("latentWidth", "latent_width", "latent", 512, whole(1, WIDEST)),
  field("ropeWidth", "rope_width", "rope", 64, whole(1, WIDEST)),
];

export const INITIAL = initialOf(FIELDS);
export const { fromTraits, toTraits, same } = carriedBy(FIELDS);
export const hash = hashOf(FIELDS, "#heads:");

/** Changes to a state with what follows from them: another model divides its heads otherwise. */
export function settle(state, changes) {
  const next = { ...state, ...changes };
  const { choices } = modelFor(next.model);
  if (choices.includes(next.nKvHeads)) return changes;
  return { ...changes, nKvHeads: choices.filter((n) => n <= next.nKvHeads).at(-1) ?? 1 };
}
