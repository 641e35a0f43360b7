// Settings worth a look, by a button; each changes the start. No DOM here.
const PRESETS = [
  { label: "int8", changes: { format: "int8" } },
  { label: "fp8 e4m3", changes: { format: "fp8_e4m3" } },
  { label: "int4 per token", changes: { format: "int4_token", compare: "int4" } },
  { label: "int4 per channel", changes: { format: "int4", compare: "int4_token" } },
  { label: "Keys alone", changes: { only: "keys" } },
  { label: "Values alone", changes: { only: "values" } },
  { label: "int2", changes: { format: "int2" } },
];

/** The presets of a start: those that change it. */
export const presetsFor = () => PRESETS;
