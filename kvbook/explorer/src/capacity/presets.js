// Settings worth a look, by a button. No DOM here.
import { figures } from "./figures.js";

export const PRESETS = [
  { label: "GQA: Llama 3.1 8B", changes: { model: "llama-3.1-8b", context: 4096 } },
  { label: "128K tokens", changes: { model: "llama-3.1-8b", context: 131_072 } },
  { label: "Windows: Gemma 3 27B", changes: { model: "gemma-3-27b", context: 32_768 } },
  {
    label: "Latent: DeepSeek-V3",
    changes: { model: "deepseek-v3", weights: "released", gpu: "H200", tensorParallel: 8, context: 32_768 },
  },
];

/** A state whose batch is as many users as fit, and at least one. */
export function withBatch(state) {
  return { ...state, batch: Math.max(1, figures(state).users ?? 1) };
}
