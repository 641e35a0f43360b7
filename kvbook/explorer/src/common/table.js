import { h } from "./dom.js";

/** A table from arrays of texts; the first cell of each row is its header. */
export function table(caption, head, rows) {
  const line = (cells, scopeOf, tag) =>
    h("tr", {}, ...cells.map((text, i) => (tag === "th" || i === 0 ? h("th", { scope: scopeOf }, text) : h("td", {}, text))));
  const parts = [h("thead", {}, line(head, "col", "th")), h("tbody", {}, ...rows.map((row) => line(row, "row", "td")))];
  const scroller = { class: "kv-scroll", role: "region", tabindex: 0, "aria-label": caption };
  return h("div", scroller, h("table", {}, h("caption", {}, caption), ...parts));
}

/** A fold. fill() gives its content, and is asked only while the fold is open; call refresh() after a change. */
export function fold(summary, fill) {
  const content = h("div");
  const element = h("details", { class: "kv-fold", ontoggle: () => refresh() }, h("summary", {}, summary), content);
  const refresh = () => {
    if (!element.open) return;
    const places = [...content.children].map((child) => [child.scrollLeft, child.scrollTop]);
    content.replaceChildren(...fill());
    [...content.children].forEach((child, i) => child.scrollTo(...(places[i] ?? [0, 0])));
  };
  return { element, refresh };
}
