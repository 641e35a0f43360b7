// Settings worth a look, by a button. No DOM here.
import { figures } from "./figures.js";
import { FIELDS, settle } from "./state.js";

export const PRESETS = [
  { label: "Llama 3.1 8B at 4K (GQA)", changes: { model: "llama-3.1-8b", context: 4096 } },
  { label: "Llama 3.1 8B at 128K", changes: { model: "llama-3.1-8b", context: 131_072 } },
  { label: "Gemma 3 27B at 32K (windows)", changes: { model: "gemma-3-27b", context: 32_768 } },
  {
    label: "DeepSeek-V3 on 8 × H200 at 32K (latents)",
    changes: { model: "deepseek-v3", weights: "released", gpu: "H200", tensorParallel: 8, context: 32_768 },
  },
];

const CARD = ["gpu", "memory", "ownGb", "ownGbPerS"];
const MOST = FIELDS.find(({ name }) => name === "batch").high;
const picked = (state) => Object.fromEntries(CARD.map((name) => [name, state[name]]));

/** A state whose batch is as many users as fit, and at least one. */
export function withBatch(state) {
  return { ...state, batch: Math.min(MOST, Math.max(1, figures(state).users ?? 1)) };
}

/**
 * Presets that keep the reader's card, unless they need another; the next one gives it back. Returns
 * apply(preset, state, start): the state behind a preset.
 */
export function presetsThatKeepTheCard() {
  let lent = null; // { gpu, own }: a card that a preset brought, and the reader's before it
  return ({ changes }, state, start) => {
    const card = lent !== null && state.gpu === lent.gpu ? lent.own : picked(state);
    lent = "gpu" in changes ? { gpu: changes.gpu, own: card } : null;
    return withBatch({ ...start, ...card, ...settle(start, changes) });
  };
}
