// The figures beside the chart, each with that of the format that is compared.
import { h, setText } from "../common/dom.js";
import * as say from "./text.js";

const FACTS = {
  "Bits a value": ({ bits }) => say.plainBits(bits),
  "A token takes": ({ token }) => say.decimal(token.all),
  "Users that fit": ({ users }) => say.users(users),
  "Change of perplexity": ({ row }) => (row ? say.change(row) : "not measured"),
};

export function factList() {
  const rows = Object.keys(FACTS).map((term) => ({ term, value: h("dd"), rest: h("dd", { class: "kv-legend" }) }));
  const error = { term: "Error on the sample’s keys", value: h("dd"), rest: h("dd", { class: "kv-legend" }) };
  const boxes = [...rows, error].map(({ term, value, rest }) => h("div", { class: "kv-fact" }, h("dt", {}, term), value, rest));
  const element = h("dl", { class: "kv-facts" }, ...boxes);
  const show = ({ chosen, compared, sample }) => {
    const against = (words) => `${say.nameOf(compared)}: ${words}`;
    Object.values(FACTS).forEach((fact, i) => {
      setText(rows[i].value, fact(chosen));
      setText(rows[i].rest, against(fact(compared)));
    });
    boxes.at(-1).hidden = sample === null;
    if (!sample) return;
    setText(error.value, say.percent(sample.chosen.relative));
    setText(error.rest, against(say.percent(sample.compared.relative)));
  };
  return { element, show };
}

/** The formula with the live numbers in; then what to know about them. */
export function formulaBlock() {
  const sums = ["a key", "a value", "a token", "users"].map((label) => ({ label, value: h("span", { class: "kv-sum" }) }));
  const lines = sums.map(({ label, value }) => h("p", {}, `${label}: `, value));
  const remarks = h("ul", { class: "kv-remarks kv-legend" });
  const element = h("div", { class: "kv-sums" }, h("div", { class: "kv-formula" }, ...lines), remarks);
  const show = (state, found, weights, measuredOn) => {
    const { chosen, model, card } = found;
    const words = [
      say.rowLine(chosen.coding.keys, model.layer.kDim),
      say.rowLine(chosen.coding.values, model.layer.vDim),
      say.tokenLine(chosen, model),
      say.usersLine(chosen, { card, weights }),
    ];
    sums.forEach(({ value }, i) => setText(value, words[i]));
    remarks.replaceChildren(...say.notes(state, found, measuredOn).map((text) => h("li", {}, text)));
  };
  return { element, show };
}
