// Settings worth a look, by a button; each changes the start. No DOM here.
import { OWN } from "../common/facts.js";

const PRESETS = [
  { label: "Prompt of 16", changes: { prompt: 16 } },
  { label: "Batch 64", changes: { batch: 64 } },
  { label: "Batch 512", changes: { batch: 512 } },
  { label: "Batch 512 with one KV head", changes: { batch: 512, nKvHeads: 1 } },
  { label: "4-bit weights", changes: { weights: "4" } },
];

/** The presets for a start: only those whose settings it can have; the reader's machine where it has points. */
export function presetsFor(start, headChoices, measured, measuredWith = {}) {
  const possible = ({ changes: { nKvHeads } }) => nKvHeads === undefined || headChoices.includes(nKvHeads);
  const own = measured.length > 0 && start.gpu !== OWN;
  return [
    ...PRESETS.filter(possible),
    ...(own ? [{ label: "Your machine", changes: { ...measuredWith, gpu: OWN } }] : []),
  ];
}
