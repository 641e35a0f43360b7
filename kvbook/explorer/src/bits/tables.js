// The same as the pictures, in tables. No formula here.
import { table } from "../common/table.js";
import { formatOf } from "./formats.js";
import { FIELDS } from "./state.js";
import * as say from "./text.js";

export function tables(state, found, measuredOn) {
  return [
    formatTable(state, found),
    ...(found.measured.length > 0 ? [measuredTable(found, measuredOn)] : []),
    ...(found.sample ? [errorTable(found), channelTable(found)] : []),
    settingTable(state),
    sourceTable(found),
  ];
}

function formatTable(state, { all, model, card }) {
  const rows = all.map((one) => [
    say.nameOf(one),
    say.plainBits(one.bits),
    `${say.count(one.token.all)} B`,
    say.decimal(one.sequence.all),
    say.users(one.users),
  ]);
  const caption = `${model.name} on one ${card.name}, ${say.tokens(state.context)} a user`;
  return table(caption, ["Format", "Bits a value", "A token", "A user", "Users"], rows);
}

function measuredTable({ measured }, measuredOn) {
  const rows = measured.map((row) => [
    say.nameOf({ format: formatOf(row.format), only: row.only }),
    row.perplexity === undefined ? "–" : say.three(row.perplexity),
    say.change(row),
  ]);
  return table(`Perplexity, measured on ${measuredOn}`, ["Format", "Perplexity", "Change ± standard error"], rows);
}

function errorTable({ sample, chosen, compared }) {
  const { sizes, errors } = { sizes: sample.sizes, errors: [sample.chosen.errors, sample.compared.errors] };
  const rows = sizes.map((size, c) => [String(c), say.three(size), ...errors.map((list) => say.three(list[c]))]);
  const head = ["Channel", "Largest key", ...[chosen, compared].map(say.labelOf)];
  return table("Error of each channel, root mean square", head, rows);
}

function channelTable({ sample, chosen, compared }) {
  const { channel, channels } = sample;
  const rows = channels.map((row, t) => [
    String(t),
    ...[row, sample.chosen.back[t], sample.compared.back[t]].map((values) => String(Number(values[channel].toPrecision(5)))),
  ]);
  return table(`Channel ${channel}`, ["Token", "Key", ...[chosen, compared].map((one) => `Read back: ${say.labelOf(one)}`)], rows);
}

function settingTable(state) {
  const value = (v) => (v === null ? "–" : typeof v === "number" ? say.count(v) : v);
  return table("All settings", ["Setting", "Value"], FIELDS.map(({ trait, name }) => [trait, value(state[name])]));
}

function sourceTable({ model, card }) {
  const element = table("Where the facts come from", ["Of", "Source"], [["Model", model.source], ["GPU", card.source]]);
  element.classList.add("kv-sources");
  return element;
}
