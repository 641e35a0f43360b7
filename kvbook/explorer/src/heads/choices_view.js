// All choices beside each other: a bar of bytes per token for each, and the users that fit.
import { h, setText } from "../common/dom.js";
import { decimal, falling, fitting, kindOf } from "./text.js";

export function choiceList() {
  const title = h("p", { class: "kv-chart-title" });
  const list = h("ul", { class: "kv-choices-list" });
  const element = h("figure", { class: "kv-choices-figure" }, title, list);
  let drawn = "";
  let rows = [];

  const build = ({ model }) => {
    const { nHeads } = model.spec;
    const row = (words, more) => {
      const fill = h("span", { class: "kv-fill" });
      const parts = { size: h("span", { class: "kv-size" }), users: h("span", { class: "kv-users" }) };
      const name = h("span", { class: "kv-choice-name" }, words, " ", h("span", { class: "kv-legend" }, more));
      const bar = h("span", { class: "kv-choice-bar", "aria-hidden": "true" }, fill);
      return { ...parts, fill, element: h("li", {}, name, bar, parts.size, " ", parts.users) };
    };
    const published = (n) => (n === model.publishedHeads ? ", published" : "");
    rows = model.choices.map((n) => row(String(n), `${kindOf(n, nHeads)}${published(n)}`)).reverse();
    rows.push(row("latent", "MLA"));
    list.replaceChildren(...rows.map((one) => one.element));
  };

  const show = (state, found) => {
    setText(title, falling(found));
    if (drawn !== state.model) build(found);
    drawn = state.model;
    const all = [...[...found.rows].reverse(), found.latent];
    const longest = Math.max(...all.map(({ perToken }) => perToken));
    all.forEach(({ nKvHeads, perToken, users }, i) => {
      const { fill, size, users: fit, element: line } = rows[i];
      fill.style.setProperty("--kv-part", perToken / longest);
      setText(size, `${decimal(perToken)} a token`);
      setText(fit, fitting(users));
      const isNow = found.isLatent ? nKvHeads === undefined : nKvHeads === state.nKvHeads;
      if (isNow) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    });
  };
  return { element, show };
}
