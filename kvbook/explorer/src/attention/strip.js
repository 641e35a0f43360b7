import { h, setText } from "../common/dom.js";
import { percent, visible } from "../common/format.js";
import { evenCode } from "./model.js";

/** The text as a strip of tokens, each under a bar as high as its share; the dashed line is the even share. */
export function strip(onSelect) {
  const element = h("ol", { class: "kv-strip", "aria-label": "The text; press a token to make it the query" });
  let parts = [];

  const build = (tokens) => {
    parts = tokens.map((token, i) => {
      const bar = h("span", { class: "kv-bar" });
      const share = h("span", { class: "kv-share" });
      const column = h("span", { class: "kv-column" }, bar);
      const name = h("bdi", { class: "kv-token" }, visible(token));
      const button = h("button", { type: "button", tabindex: -1, onclick: () => onSelect(i) }, column, share, name);
      return { item: h("li", {}, button), button, bar, share };
    });
    element.replaceChildren(...parts.map(({ item }) => item));
  };

  const paint = (query, shares) => {
    element.style.setProperty("--kv-even", evenCode(shares.length) / 255);
    parts.forEach(({ button, bar, share }, i) => {
      const seen = i <= query;
      const text = seen ? percent(shares[i]) : "later";
      button.setAttribute("aria-pressed", String(i === query));
      button.classList.toggle("kv-later", !seen);
      bar.style.setProperty("--kv-part", seen ? shares[i] / 255 : 0);
      setText(share, text);
    });
  };
  return { element, build, paint };
}
