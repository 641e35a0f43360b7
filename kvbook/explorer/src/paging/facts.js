// The figures beside the pool, each against the start's settings; the formula; what to know.
import { h, setText } from "../common/dom.js";
import * as say from "./text.js";

const FACTS = {
  "Blocks in use": ({ here, numBlocks }) => `${say.count(here.inUse)} of ${say.count(numBlocks)}`,
  "Held, paged": ({ ways, bytesPerToken }) => say.decimal(ways.paged.held * bytesPerToken),
  "Prompt tokens found again": ({ here }) => `${say.count(here.sums.found)} of ${say.count(here.sums.asked)}`,
  "Copies on write so far": ({ here }) => say.count(here.sums.copies),
  "Evicted so far": ({ here }) => say.count(here.sums.evicted),
  "Too few blocks, so far": ({ here }) => (here.sums.refused === 1 ? "1 event" : `${say.count(here.sums.refused)} events`),
};

export function factList() {
  const rows = Object.keys(FACTS).map((term) => ({ term, value: h("dd"), rest: h("dd", { class: "kv-legend" }) }));
  const element = h("dl", { class: "kv-facts" }, ...rows.map(({ term, value, rest }) => h("div", { class: "kv-fact" }, h("dt", {}, term), value, rest)));
  /** `before`: the figures with the start's settings at the same event; null on another timeline. */
  const show = (found, before) => {
    Object.values(FACTS).forEach((fact, i) => {
      const [now, then] = [fact(found), before ? fact(before) : null];
      setText(rows[i].value, now);
      setText(rows[i].rest, then === null || then === now ? "" : `start: ${then}`);
    });
  };
  return { element, show };
}

export function formulaBlock() {
  const lines = h("div", { class: "kv-formula" });
  const remarks = h("ul", { class: "kv-remarks kv-legend" });
  const element = h("div", { class: "kv-sums" }, lines, remarks);
  const show = (state, found) => {
    const sums = Object.entries(say.formulaLines(found, state));
    lines.replaceChildren(...sums.map(([label, sum]) => h("p", {}, `${label}: `, h("span", { class: "kv-sum" }, sum))));
    remarks.replaceChildren(...say.notes(found, state).map((text) => h("li", {}, text)));
  };
  return { element, show };
}
