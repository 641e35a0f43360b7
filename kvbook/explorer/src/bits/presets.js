// Settings worth a look, by a button; each changes the start. No DOM here.
const PRESETS = [
  { label: "int8", changes: { format: "int8" } },
  { label: "fp8 e4m3", changes: { format: "fp8_e4m3" } },
  { label: "int4 per token", changes: { format: "int4_token", compare: "int4" } },
  { label: "int4 per channel", changes: { format: "int4", compare: "int4_token" } },
  { label: "The tail alone", changes: { format: "int4_group_tail", compare: "int4_group" } },
  { label: "int4, keys alone", changes: { only: "keys" } },
  { label: "int2", changes: { format: "int2" } },
  { label: "int2, values alone", changes: { format: "int2", only: "values" } },
];

/** The presets of a start: those that change it. */
export const presetsFor = () => PRESETS;
