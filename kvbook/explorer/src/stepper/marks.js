import { h, setText } from "../common/dom.js";

const COLUMNS = { wide: 72, middle: 44, narrow: 24 }; // the most in a line; stepper.css chooses by width

/** A line of columns, one per token position, under a caption. paint([name, words], label, states) fills it. */
export function lane(kind) {
  const caption = h("p", { class: "kv-lane-caption" });
  const cells = h("div", { class: `kv-columns ${kind}`, role: "img" });
  const element = h("div", { class: "kv-lane" }, caption, cells);

  const build = (n) => {
    cells.replaceChildren(...Array.from({ length: n }, () => h("span")));
    for (const [width, most] of Object.entries(COLUMNS)) {
      cells.style.setProperty(`--kv-${width}`, Math.ceil(n / Math.ceil(n / most))); // lines of equal length
    }
  };
  const paint = (parts, label, states) => {
    caption.replaceChildren(h("strong", {}, parts[0]), parts[1]);
    cells.setAttribute("aria-label", label);
    states.forEach((state, i) => (cells.children[i].className = `kv-${state}`));
  };
  return { element, build, paint };
}

/** A labelled bar. show(text, part) takes a part of the whole, 0..1. */
export function meter(label, kind = "") {
  const value = h("span", { class: "kv-meter-value" });
  const fill = h("span", { class: "kv-fill" });
  const track = h("span", { class: `kv-track ${kind}`, "aria-hidden": "true" }, fill);
  const element = h("p", { class: "kv-meter" }, h("span", {}, label), " ", value, track);
  const show = (text, part) => {
    setText(value, text);
    fill.style.setProperty("--kv-part", part);
  };
  return { element, show };
}
