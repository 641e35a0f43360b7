// The same as the picture, in tables. No formula here.
import { short } from "../common/format.js";
import { table } from "../common/table.js";
import { FIELDS } from "./state.js";
import * as say from "./text.js";

export function tables(state, found, record) {
  return [
    slotTable(state, found, record),
    tokenTable(state, found, record),
    ...(record.measured.length > 0 ? [measuredTable(record)] : []),
    table(
      "All settings",
      ["Setting", "Value"],
      FIELDS.map(({ trait, name }) => [trait, say.count(state[name])]),
    ),
  ];
}

function slotTable(state, found, record) {
  return table(`Slots after the token at position ${found.newest}`, ["Slot", "Of", "Position", "Token"], slotRows(state, found, record));
}

export function slotRows({ sinks }, { slots }, { tokens }) {
  const filled = slots.flatMap((position, slot) => (position === null ? [] : [[slot, position]]));
  return filled.map(([slot, position]) => [String(slot), slot < sinks ? "sinks" : "ring", String(position), short(tokens[position], 20)]);
}

function tokenTable(state, found, record) {
  return table(
    `Bytes against tokens, window ${say.count(state.window)}, ${say.sinksOf(state.sinks)}`,
    ["Tokens", "Rows kept", "With the window", "Full cache"],
    tokenRows(found, record),
  );
}

export function tokenRows({ room }, { tokens, bytesPerToken }) {
  const lengths = [...new Set([1, Math.ceil(room / 2), room, room + 1, 2 * room, 4 * room, tokens.length])].sort((a, b) => a - b);
  return lengths.map((n) => {
    const rows = Math.min(n, room);
    return [say.count(n), say.count(rows), say.bytes(rows * bytesPerToken), say.bytes(n * bytesPerToken)];
  });
}

function measuredTable({ measured, baseline, measuredTokens }) {
  const rows = measured.map(({ window, sinks, nbytes, perplexity, change, error }) => [
    ...[say.count(window), String(sinks), say.bytes(nbytes), say.perplexity(perplexity)],
    ...[say.percent(change), (100 * error).toFixed(1)],
  ]);
  return table(
    `Measured over ${say.tokensOf(measuredTokens)}`,
    ["Window", "Sinks", "Cache", "Perplexity", "Change", "± %"],
    [["full cache", "–", "–", say.perplexity(baseline), "–", "–"], ...rows],
  );
}
