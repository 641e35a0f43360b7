// The same model with fewer KV heads, or with a window: what a technique would save. No DOM here.
import { ConfigError } from "./errors.js";
import { isMissing } from "./reading.js";
import { checkCount } from "./spec.js";

/**
 * The cache that the model would have with other KV heads or windows. `nKvHeads` replaces the KV heads of
 * every layer that caches keys and values by heads; latents have none, cross caches keep theirs. `window`
 * lets every full layer, latents included, keep min(context, window + sinks) tokens; with `fullEvery` k, each
 * k-th of them stays full. null leaves things as they are. Raises ConfigError where nKvHeads does not divide
 * the attention heads, or sinks or fullEvery come without a window.
 */
export function whatIf(spec, { nKvHeads = null, window = null, sinks = 0, fullEvery = null } = {}) {
  let { layers } = spec;
  if (nKvHeads !== null) {
    checkCount("n_kv_heads", nKvHeads);
    if (spec.nHeads !== null && spec.nHeads % nKvHeads) {
      throw new ConfigError(
        `n_kv_heads is ${nKvHeads}, which does not divide ${spec.nHeads} attention heads.`,
      );
    }
    layers = layers.map((layer) => (hasKvHeads(layer) ? { ...layer, nKvHeads } : layer));
  }
  sinks ??= 0;
  checkCount("sinks", sinks, { low: 0 });
  if (fullEvery !== null) checkCount("full_every", fullEvery);
  if (window !== null) {
    checkCount("window", window);
    layers = sliding(layers, window + sinks, fullEvery);
  } else if (sinks) {
    throw new ConfigError(`sinks is ${sinks}, but there is no window that they would stay beside.`);
  } else if (fullEvery !== null) {
    throw new ConfigError(`full_every is ${fullEvery}, but no window makes the others slide.`);
  }
  return { ...spec, layers };
}

/** Whether nKvHeads applies to a layer: it attends to its own tokens, and by heads. */
export const hasKvHeads = ({ kind }) => ["full", "sliding", "chunked"].includes(kind);

/** Whether a window applies to a layer: it keeps every token of the context so far. */
export const isFull = ({ kind, window }) => ["full", "latent"].includes(kind) && window === null;

/** The divisors of the attention heads; none where the heads are not known or not cached. */
export function kvHeadChoices({ layers, nHeads }) {
  if (isMissing(nHeads) || !layers.some(hasKvHeads)) return [];
  return Array.from({ length: nHeads }, (_, i) => i + 1).filter((count) => nHeads % count === 0);
}

function sliding(layers, kept, fullEvery) {
  let seen = 0;
  return layers.map((layer) => {
    if (!isFull(layer)) return layer;
    seen += 1;
    if (fullEvery !== null && seen % fullEvery === 0) return layer;
    return { ...layer, kind: layer.kind === "latent" ? "latent" : "sliding", window: kept };
  });
}
