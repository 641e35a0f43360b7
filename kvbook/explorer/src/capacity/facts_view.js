import { h, setText } from "../common/dom.js";
import { formula } from "./engine.js";
import {
  binary,
  boundLine,
  boundNotes,
  count,
  decimal,
  notes,
  rate,
  sequences,
  tokens,
  usersLine,
} from "./text.js";

/** The figures beside the chart: a token, a sequence, the batch, the bound on speed. */
export function factList() {
  const names = ["token", "sequence", "batch", "speed"];
  const parts = Object.fromEntries(
    names.map((name) => [name, { term: h("dt"), value: h("dd"), rest: h("dd", { class: "kv-legend" }) }]),
  );
  const rows = Object.values(parts).map(({ term, value, rest }) =>
    h("div", { class: "kv-fact" }, term, value, rest),
  );
  const element = h("dl", { class: "kv-facts" }, ...rows);
  const put = (name, term, value, rest) => {
    setText(parts[name].term, term);
    setText(parts[name].value, value);
    setText(parts[name].rest, rest);
  };
  const show = (state, { plan, perToken, sequence, cache, bound, room }) => {
    const each = state.tensorParallel > 1 ? ", on each GPU" : "";
    const beyond =
      perToken.beyond === perToken.below
        ? binary(perToken.below)
        : `${count(perToken.beyond)} B beyond the largest window`;
    put("token", `One more token${each}`, `${count(perToken.below)} B`, beyond);
    const kept =
      plan.tokens > state.context ? `${count(plan.tokens)} tokens reserved; ` : `${tokens(plan.tokens)}; `;
    put("sequence", `One sequence${each}`, decimal(sequence), kept + binary(sequence));
    const share = room.free > 0 ? `${count(Math.round((100 * cache) / room.free))} % of the free memory; ` : "";
    put("batch", `The batch of ${count(state.batch)}${each}`, decimal(cache), share + binary(cache));
    const total =
      state.batch > 1
        ? `${rate(bound.perSequence)} for each of ${sequences(state.batch)}`
        : "for the one sequence";
    put("speed", "Decoding, at most (a bound)", `${rate(bound.total)} tokens/s`, total);
  };
  return { element, show };
}

/** The formula with the live numbers in: the cache, the users, the bound; then what to know about them. */
export function formulaBlock() {
  const lines = h("div", { class: "kv-formula" });
  const remarks = h("ul", { class: "kv-remarks kv-legend" });
  const element = h("div", { class: "kv-sums" }, lines, remarks);
  const line = (label, ...value) => h("p", {}, `${label}: `, h("span", { class: "kv-sum" }, ...value));
  const show = (state, found) => {
    const options = { ...found.plan.options, context: found.plan.tokens, batch: state.batch };
    lines.replaceChildren(
      line("cache", ...formula(found.plan.spec, options).map(termOf)),
      line("users", usersLine(state, found)),
      line("bound", boundLine(found.bound)),
    );
    remarks.replaceChildren(
      ...[...boundNotes(state, found), ...notes(state, found)].map((text) => h("li", {}, text)),
    );
  };
  return { element, show };
}

const termOf = ({ term, text: words }) => {
  const text = words.replace(/ B$/, "\u00a0B");
  return term === "" ? text : h("span", { class: `kv-term kv-term-${term}` }, text);
};
