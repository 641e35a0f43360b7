// The same as the picture, in tables. No formula here.
import { table } from "../common/table.js";
import { FIELDS } from "./state.js";
import * as say from "./text.js";

export function tables(state, found, series) {
  return [
    choiceTable(state, found),
    ...(series.points.length > 0 ? [seriesTable(series)] : []),
    settingTable(state),
    sourceTable(found),
  ];
}

function choiceTable({ latentWidth, ropeWidth, context }, { model, rows, latent, gpu }) {
  const row = (name, kind, { perToken, sequence, users }) => [
    ...[name, kind, say.bytes(perToken), say.decimal(sequence), say.count(users)],
  ];
  const { nHeads } = model.spec;
  return table(
    `${model.name} on one ${gpu.name}, ${say.tokens(context)} each`,
    ["Cached", "Kind", "A token", "A user", "Users"],
    [
      ...rows.map((one) => row(say.kvHeads(one.nKvHeads), say.kindOf(one.nKvHeads, nHeads), one)),
      row(`latent, ${latentWidth} + ${ropeWidth}`, "MLA", latent),
    ],
  );
}

function seriesTable({ points, heads }) {
  return table(
    `Measured: decoders with ${heads} query heads, trained in the lesson`,
    ["KV heads", "Loss, nats", "Spread over seeds", "Seeds"],
    points.map((point) => [String(point.n_kv_heads), say.loss(point.loss), say.spreadWords(point), String(point.seeds)]),
  );
}

function settingTable(state) {
  const value = (v) => (typeof v === "number" ? say.count(v) : v);
  return table(
    "All settings",
    ["Setting", "Value"],
    FIELDS.map(({ trait, name }) => [trait, value(state[name])]),
  );
}

function sourceTable({ model, gpu }) {
  const rows = [
    ["Model", model.source],
    ...[model.parameters_note, model.weights_note].filter(Boolean).map((note) => ["Model", note]),
    ["GPU", gpu.source],
    ...(gpu.note ? [["GPU", gpu.note]] : []),
  ];
  const element = table("Where the facts come from", ["Of", "Source"], rows);
  element.classList.add("kv-sources");
  return element;
}
