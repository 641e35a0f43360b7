// Every figure that the explorer shows, from the state alone. No DOM here.
import { isDense, denseWeights, withCache } from "../accounting/dense.js";
import { users } from "../accounting/fit.js";
import { withLatent } from "../accounting/latent.js";
import { bytesPerToken, nbytes } from "../accounting/spec.js";
import { whatIf } from "../accounting/whatif.js";
import { gpuOf } from "../common/facts.js";
import { modelFor } from "./state.js";

const BYTES = 2; // a parameter, and a cached value
const cacheDtype = "float16";

/** All figures of a state. Throws an Error with one sentence where its settings do not go together. */
export function figures(state) {
  const model = modelFor(state.model);
  const gpu = gpuOf(state.gpu);
  const memory = gpu.memory_bytes_nominal;
  const weights = BYTES * model.parameters;
  const of = (spec) => {
    const sequence = nbytes(spec, { context: state.context, cacheDtype });
    const fit = { sequenceBytes: sequence, memoryBytes: memory, weightsBytes: weights };
    return { spec, sequence, perToken: bytesPerToken(spec, { cacheDtype }).below, users: users(fit) };
  };
  const byHeads = (nKvHeads) => ({ nKvHeads, ...of(whatIf(model.spec, { nKvHeads })) });
  const latent = of(withLatent(model.spec, state.latentWidth, state.ropeWidth));
  const rows = model.choices.map(byHeads);
  const isLatent = state.kind === "latent";
  const now = isLatent ? latent : byHeads(state.nKvHeads); // or a sentence
  const published = rows.find(({ nKvHeads }) => nKvHeads === model.publishedHeads);
  return {
    ...{ model, gpu, memory, weights, now, published, rows, latent, isLatent },
    free: memory - weights,
    groupSize: isLatent ? model.spec.nHeads : model.spec.nHeads / state.nKvHeads,
    moreWeights: isLatent ? null : moreWeights(model, now.spec),
  };
}

/** Bytes of weights that other KV heads add (below 0: save); null where the config does not tell. */
function moreWeights(model, spec) {
  if (!isDense(model)) return null;
  const before = denseWeights(model);
  return BYTES * (withCache(before, model.spec, spec).layerWeights - before.layerWeights);
}

/**
 * The trained decoder that shares its K and V as the chosen settings do: as many query heads a KV head. null: none was
 * trained so, or the settings have no heads.
 */
export function twin({ isLatent, groupSize }, { points, heads }) {
  if (isLatent) return null;
  return points.find(({ n_kv_heads: n }) => heads === n * groupSize) ?? null;
}

/** The trained series as the page can show it: { points, heads }. */
export function seriesOf(given, heads) {
  const isPlain = ({ n_kv_heads: n, loss, spread, seeds }) =>
    [n, loss, spread, seeds].every((v) => Number.isFinite(v) && v >= 0) && n > 0;
  return { points: (given ?? []).filter(isPlain), heads };
}
