// Every figure that the explorer shows, from the state alone. No DOM here.
import { denseWeights, withCache } from "../accounting/dense.js";
import { cacheSpec } from "../accounting/reader.js";
import * as roof from "../accounting/roofline.js";
import { nbytes } from "../accounting/spec.js";
import { kvHeadChoices, whatIf } from "../accounting/whatif.js";
import { gpuOf, modelOf, OWN } from "../common/facts.js";

const models = new Map();

/** A model of models.json with its spec, its weights and the KV heads that it could have. */
export function modelFor(id) {
  if (!models.has(id)) {
    const { name, config, parameters, max_context: maxContext, source, ...facts } = modelOf(id);
    const spec = cacheSpec(config);
    const own = new Set(spec.layers.map(({ nKvHeads }) => nKvHeads));
    const publishedHeads = own.size === 1 ? [...own][0] : null;
    models.set(id, {
      ...{ id, name, parameters, maxContext, source, spec, publishedHeads },
      notes: [facts.parameters_note, facts.weights_note, facts.max_context_note].filter(Boolean),
      weights: denseWeights(modelOf(id)),
      headChoices: kvHeadChoices(spec).filter((n) => n !== publishedHeads),
    });
  }
  return models.get(id);
}

/** The device: its peak rates, and its memory where it is known. */
export function cardFor({ gpu: name, ownGbPerS, ownTflops }) {
  if (name === OWN) {
    const device = roof.deviceOf(ownTflops * 1e12, ownGbPerS * 1e9, "your machine");
    return { device, memory: null, source: "as given", isOwn: true };
  }
  const gpu = gpuOf(name);
  const device = roof.deviceOf(gpu.fp16_flops_dense, gpu.bandwidth_bytes_per_s, name);
  return { device, memory: gpu.memory_bytes_nominal, source: gpu.source, note: gpu.note, isOwn: false };
}

export const bytesOf = ({ weights }) => Number(weights) / 8;

/** All figures of a state. Throws an Error with one sentence where its settings do not go together. */
export function figures(state) {
  const model = modelFor(state.model);
  const card = cardFor(state);
  const { device } = card;
  const isPublished = state.nKvHeads === null || state.nKvHeads === model.publishedHeads;
  const spec = isPublished ? model.spec : whatIf(model.spec, { nKvHeads: state.nKvHeads });
  const weights = withCache(model.weights, model.spec, spec);
  const of = (qLen, kvLen, batch) => {
    const work = roof.phaseOfSums(qLen, batch, {
      ...weights,
      attentionFlops: roof.attentionFlops(spec, qLen, kvLen, batch),
      cacheBytes: nbytes(spec, { context: kvLen, batch, cacheDtype: state.cacheDtype }),
      weightBytesPerValue: bytesOf(state),
    });
    return { ...work, ...roof.boundsOf(work, device), at: roof.attainable(device, work.intensity) };
  };
  const decode = of(1, state.context, state.batch);
  const one = state.batch === 1 ? decode : of(1, state.context, 1);
  const part = (flops, bytes) => ({ intensity: flops / bytes, at: roof.attainable(device, flops / bytes) });
  return {
    model,
    card,
    device,
    spec,
    prefill: of(state.prompt, state.prompt, state.batch),
    decode,
    decodeAt: (batch) => of(1, state.context, batch),
    parts: {
      weights: part(decode.weightFlops, decode.weightBytes),
      cache: part(decode.attentionFlops, decode.cacheBytes),
    },
    knees: { weights: roof.weightKnee(device, bytesOf(state)), step: roof.decodeKnee(one, device) },
    ceiling: roof.decodeCeiling(one, device),
    held: heldBytes(state, model, spec, weights),
  };
}

/** Bytes that have to be in memory: all weights, embedding too, and the cache at its longest. */
function heldBytes({ prompt, context, batch, cacheDtype, weights: bits }, model, spec, weights) {
  const parameters = model.parameters + weights.layerWeights - model.weights.layerWeights;
  return {
    weights: Math.ceil((parameters * Number(bits)) / 8),
    cache: nbytes(spec, { context: Math.max(prompt, context), batch, cacheDtype }),
  };
}

/** A point that the reader measured, as the chart and the table show it; null where it is not one. */
export function pointOf({ label, phase, tokens, flops, nbytes, seconds }, device) {
  const isPlain = [tokens, flops, nbytes, seconds].every((n) => Number.isFinite(n) && n > 0);
  if (!isPlain || typeof label !== "string" || !["prefill", "decode"].includes(phase)) return null;
  const [intensity, rate] = [flops / nbytes, flops / seconds];
  const share = rate / roof.attainable(device, intensity);
  return { label, phase, intensity, rate, share, tokensPerS: tokens / seconds, seconds };
}
