// The same as the picture, in tables. No formula here.
import { table } from "../common/table.js";
import { FIELDS } from "./state.js";
import * as say from "./text.js";

const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

export function tables(state, found, measured) {
  return [
    phaseTable(found),
    partTable(found),
    batchTable(state, found),
    ...(measured.length > 0 ? [measuredTable(measured)] : []),
    settingTable(state),
    sourceTable(found),
  ];
}

function phaseTable({ prefill, decode, device }) {
  const row = (name, value) => [name, value(prefill), value(decode)];
  return table(
    `The two phases on ${device.name}: bounds`,
    ["", "Prefill", "Decode step"],
    [
      row("Tokens fed", (phase) => say.count(phase.tokens)),
      row("Operations with weights", (phase) => say.flops(phase.weightFlops)),
      row("Operations of attention", (phase) => say.flops(phase.attentionFlops)),
      row("Weights moved", (phase) => say.decimal(phase.weightBytes)),
      row("Cache moved", (phase) => say.decimal(phase.cacheBytes)),
      row("Operations per byte", (phase) => say.perByte(phase.intensity)),
      row("Operations per second, at most", (phase) => say.flopsPerS(phase.at)),
      row("Time for the operations", (phase) => say.time(phase.computeSeconds)),
      row("Time for the bytes", (phase) => say.time(phase.memorySeconds)),
      row("Bound by", (phase) => phase.boundBy),
      row("Tokens per second, at most", (phase) => say.rate(phase.tokensPerS)),
    ],
  );
}

function partTable({ parts, decode, device }) {
  const row = (name, intensity) => [name, say.perByte(intensity), intensity >= device.ridge ? "above" : "below"];
  return table(
    "The decode step and its parts",
    ["Part", "Operations per byte", `The ridge, ${say.perByte(device.ridge)}`],
    [
      row("weights alone", parts.weights.intensity),
      row("cache alone", parts.cache.intensity),
      row("the step", decode.intensity),
    ],
  );
}

function batchTable({ batch, context }, { decodeAt }) {
  const batches = [...new Set([...BATCHES, batch])].sort((a, b) => a - b);
  const rows = batches.map((n) => {
    const { intensity, boundBy, seconds, tokensPerS } = decodeAt(n);
    return [say.count(n), say.perByte(intensity), boundBy, say.time(seconds), say.rate(tokensPerS)];
  });
  const head = ["Batch", "Operations per byte", "Bound by", "Step, at least", "Tokens/s, at most"];
  return table(`Decode against batch, at a context of ${say.tokens(context)}: bounds`, head, rows);
}

function measuredTable(measured) {
  const head = ["Pass", "Phase", "Operations per byte", "Reached", "Of the bound", "Took", "Tokens/s"];
  const rows = measured.map(({ label, phase, intensity, rate, share, seconds, tokensPerS }) => [
    label,
    phase,
    say.perByte(intensity),
    say.flopsPerS(rate),
    `${say.three(100 * share)} %`,
    say.time(seconds),
    say.rate(tokensPerS),
  ]);
  return table("Measured on your machine", head, rows);
}

function settingTable(state) {
  const value = (v) => (v === null ? "–" : typeof v === "number" ? v.toLocaleString("en-US", { maximumFractionDigits: 9 }) : v);
  return table(
    "All settings",
    ["Setting", "Value"],
    FIELDS.map(({ trait, name }) => [trait, value(state[name])]),
  );
}

function sourceTable({ model, card }) {
  const rows = [
    ["Model", model.source],
    ...model.notes.map((note) => ["Model", note]),
    ["Model", "Multiplied by a token: all parameters but the embedding table; norms, which are few, counted among them."],
    ["Device", card.source],
    ...(card.note ? [["Device", card.note]] : []),
  ];
  const element = table("Where the facts come from", ["Of", "Source"], rows);
  element.classList.add("kv-sources");
  return element;
}
