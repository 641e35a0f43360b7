// The same as the picture, in tables. No formula here.
import { table } from "../common/table.js";
import { cut } from "./bar.js";
import { layerNbytes } from "./engine.js";
import { crossings, sizeAt } from "./figures.js";
import { FIELDS, MAX_CONTEXT } from "./state.js";
import { baseline, techniques } from "./techniques.js";
import { baselineName, binary, cards, count, decimal, fitting, gain, gainOfAll } from "./text.js";

const CONTEXTS = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288, MAX_CONTEXT];

export function tables(state, found) {
  return [
    memoryTable(state, found),
    contextTable(state, found),
    crossingTable(state, found),
    layerTable(found),
    gainTable(state, found),
    settingTable(state),
    sourceTable(found),
  ];
}

function memoryTable({ tensorParallel }, { room, cache, card, constant }) {
  const parts = cut(room, cache);
  const rows = [
    ["Weights", room.weights],
    ["Overhead", room.overhead],
    ["Cache", cache],
    ["Does not fit", parts["over-weights"] + parts["over-cache"]],
    ["Free", parts.free],
    ["Kept back", parts.kept],
    ["The card", room.card],
  ];
  return table(
    `Memory of ${cards(card, 1)}`,
    ["Part", "GB = 10⁹ B", "GiB = 2³⁰ B"],
    [...rows.map(([name, size]) => [name, decimal(size), binary(size)]), ...stateRows(constant, tensorParallel)],
  );
}

/** The constant state in bytes, which no other row counts; nothing where a sequence keeps none. */
function stateRows(constant, tensorParallel) {
  if (constant === 0) return [];
  const whole = tensorParallel > 1 ? ", on all GPUs together" : "";
  const size = constant === null ? ["not known", "not known"] : [decimal(constant), binary(constant)];
  return [[`Not counted: a sequence’s constant state${whole}`, ...size]];
}

function contextTable({ batch, context }, { plan, room }) {
  const contexts = [...new Set([...CONTEXTS, context])].sort((a, b) => a - b);
  const rows = contexts.map((n) => {
    const all = sizeAt(plan, n, batch);
    return [count(n), decimal(sizeAt(plan, n)), decimal(all), all > room.free ? "no" : "yes"];
  });
  return table(
    "Cache against context, on one GPU",
    ["Tokens", "One sequence", `Batch of ${count(batch)}`, "Batch fits"],
    rows,
  );
}

function crossingTable({ batch }, found) {
  const { weights, free, single } = crossings(found, batch);
  const from = (n) => (n === null ? "not up to 1,048,576" : count(n));
  return table(
    "Tokens from which the cache",
    ["Of", "is larger than the weights", "no longer fits"],
    [
      ["one sequence", from(single.weights), from(single.free)],
      [`the batch of ${count(batch)}`, from(weights), from(free)],
    ],
  );
}

function layerTable({ plan }) {
  const sizes = layerNbytes(plan.spec, { ...plan.options, context: plan.tokens });
  const kinds = new Map();
  plan.spec.layers.forEach(({ kind, nKvHeads, kDim, vDim, window }, i) => {
    const key = JSON.stringify([kind, nKvHeads, kDim, vDim, window, sizes[i]]);
    kinds.set(key, (kinds.get(key) ?? 0) + 1);
  });
  const rows = [...kinds].map(([key, n]) => {
    const [kind, heads, k, v, window, size] = JSON.parse(key);
    return [
      kind,
      count(n),
      heads === 0 ? "–" : count(heads),
      `${k} + ${v}`,
      window === null ? "–" : count(window),
      `${count(size)} B`,
    ];
  });
  return table(
    "The layers, and what one sequence takes in each",
    ["Kind", "Layers", "KV heads", "K + V width", "Window", "Each, on one GPU"],
    rows,
  );
}

function gainTable(state, found) {
  const base = baseline(state);
  const row = (label, one, words) =>
    one.why
      ? [label, "–", "–", one.why]
      : [label, decimal(one.sequence), fitting(one.users), words];
  const element = table(
    "Each technique alone",
    ["Technique", "One sequence", "Users", "Cache"],
    [
      row(baselineName(state), base, "the baseline"),
      ...techniques(state, found).map((one) => row(one.label, one, gain(one, base))),
      row("Your settings together", found, gainOfAll(found, base)),
    ],
  );
  element.classList.add("kv-reasons");
  return element;
}

function settingTable(state) {
  const value = (v) =>
    v === null
      ? "–"
      : typeof v === "number"
        ? v.toLocaleString("en-US", { maximumFractionDigits: 9 })
        : v.length > 60
          ? `${v.slice(0, 57)}…`
          : v;
  return table(
    "All settings",
    ["Setting", "Value"],
    FIELDS.filter(({ name }) => state[name] !== "").map(({ trait, name }) => [trait, value(state[name])]),
  );
}

function sourceTable({ model, card }) {
  const rows = [
    ["Model", model.source ?? "the config.json that was pasted"],
    ...model.notes.map((note) => ["Model", note]),
    ["GPU", card.source ?? "as given"],
  ];
  if (card.seen) rows.push(["Driver", card.seen]);
  const element = table("Where the facts come from", ["Of", "Source"], rows);
  element.classList.add("kv-sources");
  return element;
}
