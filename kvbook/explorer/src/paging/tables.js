// The same as the pictures, in tables. No formula here.
import { table } from "../common/table.js";
import { moveOf, stateOf } from "./pool.js";
import { FIELDS } from "./state.js";
import * as say from "./text.js";

const STATES = { free: "free", held: "held by one", shared: "shared", kept: "free, rows kept" };

export function tables(state, found) {
  return [wayTable(found), requestTable(found), blockTable(found), eventTable(found), settingTable(state)];
}

function wayTable({ ways, bytesPerToken, step }) {
  const bytes = (n) => say.decimal(n * bytesPerToken);
  const rows = Object.entries(say.WAYS).map(([name, words]) => {
    const { held, rows: filled, waste, share } = ways[name];
    const empty = waste < 0 ? ["too short", ""] : [bytes(waste), say.percent(share)];
    return [words, bytes(held), bytes(filled), ...empty];
  });
  return table(`After event ${step}: three ways to reserve`, ["Way", "Held", "Rows in it", "Waste", "Of what is held"], rows);
}

function requestTable({ here }) {
  const rows = here.requests.map(({ name, length, found, table: blocks }) => [name, say.count(length), say.count(found), blocks.join(", ")]);
  return table("Live requests", ["Request", "Tokens", "Found again", "Block table"], rows);
}

function blockTable({ here, numBlocks }) {
  const rows = Array.from({ length: numBlocks }, (_, block) => [
    String(block),
    STATES[stateOf(here, block)],
    say.count(here.refCounts[block]),
    say.count(here.fill[block]),
    moveOf(here, block) || "–",
  ]);
  return table("The pool", ["Block", "State", "Owners", "Tokens in use", "In this event"], rows);
}

function eventTable({ states, bytesPerToken }) {
  const bytes = (n) => say.decimal(n * bytesPerToken);
  const rows = states.map(({ tokens, ...rest }, step) => [
    String(step),
    bytes(tokens.maximum),
    bytes(tokens.exact),
    bytes(tokens.paged),
    bytes(tokens.filled),
    say.eventLine(rest),
  ]);
  const element = table("All events", ["Event", ...Object.values(say.WAYS), "Rows in blocks", "What happens"], rows);
  element.classList.add("kv-events");
  return element;
}

function settingTable(state) {
  const value = (v) => (typeof v === "number" ? say.count(v) : String(v));
  return table("All settings", ["Setting", "Value"], FIELDS.map(({ trait, name }) => [trait, value(state[name])]));
}
