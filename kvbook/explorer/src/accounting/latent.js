// A model's cache as multi-head latent attention would keep it, as kvbook/accounting/latent.py. No DOM here.
import { ConfigError } from "./errors.js";
import { checkCount } from "./spec.js";
import { hasKvHeads, isFull } from "./whatif.js";

const WIDEST = 2 ** 16; // values of a latent, or of its part with positions

/** latentWidth + ropeWidth values a token in each layer, which all heads share. */
export function withLatent(spec, latentWidth, ropeWidth) {
  checkCount("latent_width", latentWidth, { high: WIDEST });
  checkCount("rope_width", ropeWidth, { high: WIDEST });
  if (!spec.layers.every((layer) => hasKvHeads(layer) && isFull(layer))) {
    throw new ConfigError("Not every layer keeps K and V of the whole context by heads.");
  }
  const width = latentWidth + ropeWidth;
  const layers = spec.layers.map((layer) => ({ ...layer, kind: "latent", nKvHeads: 1, kDim: width, vDim: 0 }));
  return { ...spec, layers };
}
