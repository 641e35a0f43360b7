// The model and the card that a state names, as the accounting takes them. No DOM here.
import { cacheSpec, kvHeadChoices, nbytes, parseConfig, whatIf } from "./engine.js";
import { gpuOf, hasExperts, modelOf, OWN } from "../common/facts.js";

const LONGEST = 2 ** 40; // tokens; a file that says more says nothing
const FAR = { context: 2 ** 20 }; // where every window shows

let lastOwn = {}; // a pasted file is read once, not at every redraw
const presets = new Map();

/** The model: its name, config and spec as published. Throws where a pasted file is not understood. */
export function modelFor({ model: id, config: text, parameters }) {
  if (id !== OWN) {
    if (!presets.has(id)) presets.set(id, preset(modelOf(id)));
    return presets.get(id);
  }
  if (lastOwn.text !== text) lastOwn = { text, ...described(parseConfig(text)) };
  if (parameters === null)
    throw new Error("The file does not say how many parameters the model has; give their number.");
  return {
    ...lastOwn,
    id,
    name: "your model",
    parameters,
    released: null,
    notes: [],
    maxContext: lastOwn.spec.maxContext <= LONGEST ? Number(lastOwn.spec.maxContext) || null : null,
  };
}

function preset({ id, name, config, parameters, max_context, weights_bytes, ...facts }) {
  const notes = [facts.parameters_note, facts.weights_note, facts.max_context_note].filter(Boolean);
  const known = { id, name, parameters, released: weights_bytes ?? null, notes, maxContext: max_context };
  return { ...described(config), ...known, source: facts.source };
}

function described(config) {
  const spec = cacheSpec(config);
  return { config, spec, experts: hasExperts(config), ...effects(spec) };
}

/** What a change of KV heads or a window would do to this model: the choices that have an effect. */
function effects(spec) {
  const size = (changed) => {
    try {
      return nbytes(changed(), FAR);
    } catch {
      return null; // not for this model
    }
  };
  const before = nbytes(spec, FAR);
  const differs = (changed) => ![null, before].includes(size(changed));
  const own = new Set(
    spec.layers.filter(({ kind }) => ["full", "sliding", "chunked"].includes(kind)).map((l) => l.nKvHeads),
  );
  return {
    publishedHeads: own.size === 1 ? [...own][0] : null,
    headChoices: kvHeadChoices(spec).filter((n) => differs(() => whatIf(spec, { nKvHeads: n }))),
    takesWindow: differs(() => whatIf(spec, { window: 16 })),
    hasWindow: spec.layers.some(({ window }) => window !== null && window !== undefined),
  };
}

/** The card: its memory and bandwidth, one card's. */
export function cardFor({ gpu: name, memory, ownGb, ownGbPerS }) {
  if (name === OWN) {
    return {
      name: "your GPU",
      memoryBytes: Math.round(ownGb * 1e9),
      bandwidth: ownGbPerS * 1e9,
      nominal: null,
      reported: null,
    };
  }
  const gpu = gpuOf(name);
  const { memory_bytes_nominal: nominal, memory_bytes_reported: reported } = gpu;
  const memoryBytes = (memory === "reported" && reported) || nominal;
  return {
    name,
    memoryBytes,
    nominal,
    reported,
    bandwidth: gpu.bandwidth_bytes_per_s,
    source: gpu.source,
    seen: gpu.reported_source,
  };
}

/** Bytes of all weights: the published files', or so many bits a parameter. */
export function weightsFor({ released, parameters }, weights) {
  if (weights === "released" && released !== null) return released;
  return Math.ceil((parameters * bitsOf(weights)) / 8);
}

export const bitsOf = (weights) => (weights === "released" ? 16 : Number(weights));
