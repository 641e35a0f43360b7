import { h } from "./dom.js";
import { setPalette } from "./palette.js";

/** The frame of an explorer in `el`: a headline that is read out when it changes, then what is appended. */
export function explorer(el, label) {
  const headline = h("p", { class: "kv-headline", "aria-live": "polite" });
  // JupyterLab would take arrow keys and letters as commands of the notebook.
  const attributes = { class: "kvbook-explorer", role: "group", "aria-label": label, "data-lm-suppress-shortcuts": "true" };
  const root = h("div", attributes, headline);
  setPalette(root);
  root.addEventListener("keydown", (event) => event.stopPropagation());
  el.replaceChildren(root);
  return { root, headline };
}
