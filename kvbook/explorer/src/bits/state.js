// The state: everything that the explorer shows follows from it and from what was measured. No DOM here.
import { cacheSpec } from "../accounting/reader.js";
import { GPUS, MODELS } from "../common/facts.js";
import { carriedBy, field, initialOf, oneOf, optional, whole } from "../common/fields.js";
import { hashOf } from "../common/hash.js";
import { FORMATS, HALVES } from "./formats.js";

export const MAX_CONTEXT = 2 ** 20;
export const MAX_CHANNELS = 256;

const names = FORMATS.map(({ name }) => name);

/** The one kind of layer that a model has; null where layers differ, or hold no keys and values of one width. */
function uniform(model) {
  const { layers } = cacheSpec(model.config);
  const [first] = layers;
  const same = layers.every((layer) => JSON.stringify(layer) === JSON.stringify(first));
  const isPlain = first.kind === "full" && first.tokens === null && first.nKvHeads > 0;
  return same && isPlain ? { ...model, layer: first, nLayers: layers.length } : null;
}

/** Models whose layers are all alike and hold every token: what a token takes is one product. */
export const UNIFORM = MODELS.map(uniform).filter(Boolean);
export const modelFor = (id) => UNIFORM.find((model) => model.id === id);

export const FIELDS = [
  field("format", "format", "format", "int4", oneOf(names)),
  field("only", "only", "only", null, optional(oneOf(HALVES))), // null: keys and values
  field("compare", "compare", "compare", "int4_token", oneOf(names)),
  field("channel", "channel", "channel", 0, whole(0, MAX_CHANNELS - 1)),
  field("model", "model", "model", "llama-2-7b", oneOf(UNIFORM.map(({ id }) => id))),
  field("gpu", "gpu", "gpu", "A100 80GB", oneOf(GPUS.map(({ name }) => name))),
  field("context", "context", "context", 4096, whole(1, MAX_CONTEXT)),
];

export const INITIAL = initialOf(FIELDS);
export const { fromTraits, toTraits, same } = carriedBy(FIELDS);
export const hash = hashOf(FIELDS, "#bits:");
