// Three ways to reserve, side by side: what each holds for the same requests, and how much of it is empty.
import { h, setText } from "../common/dom.js";
import { decimal, wayLine, WAYS } from "./text.js";

export function wayBars() {
  const rows = Object.entries(WAYS).map(([name, words]) => barOf(name, words));
  const tracks = h("div", { class: "kv-ways", role: "img" }, ...rows.map(({ element }) => element));
  const legend = h(
    "p",
    { class: "kv-legend kv-keys" },
    swatch("kv-fill-rows", "rows of tokens"),
    swatch("kv-fill-shared", "of them shared"),
    swatch("kv-fill-waste", "waste: reserved, nothing in it"),
    h("span", { class: "kv-key-item" }, h("span", { class: "kv-swatch kv-swatch-pool", "aria-hidden": "true" }), "the pool’s end"),
  );
  const title = h("p", { class: "kv-chart-title" }, "What the same requests take");
  const element = h("figure", { class: "kv-ways-figure" }, title, tracks, legend);
  const show = ({ ways, here, blockSize, poolTokens, bytesPerToken }) => {
    const most = Math.max(poolTokens, ...Object.values(ways).map(({ held }) => held));
    const shared = here.fill.reduce((sum, n, block) => sum + (here.refCounts[block] > 1 ? n : 0), 0);
    for (const { name, show: one } of rows) {
      one(ways[name], name === "paged" ? shared : 0, { most, poolTokens, bytesPerToken });
    }
    const words = rows.map(({ name, words: way }) => `${way}: ${wayLine(ways[name], bytesPerToken)}`);
    tracks.setAttribute("aria-label", `${words.join(". ")}. The pool: ${decimal(poolTokens * bytesPerToken)}.`);
  };
  return { element, show };
}

function swatch(kind, words) {
  return h("span", { class: "kv-key-item" }, h("span", { class: `kv-swatch ${kind}`, "aria-hidden": "true" }), words);
}

function barOf(name, words) {
  const fills = Object.fromEntries(["rows", "shared", "waste"].map((part) => [part, h("span", { class: `kv-fill kv-fill-${part}` })]));
  const end = h("span", { class: "kv-pool-end" });
  const value = h("span", { class: "kv-way-value" });
  const line = h("p", { class: "kv-way-line" }, h("strong", {}, words), " ", value);
  const element = h("div", { class: "kv-way" }, line, h("span", { class: "kv-way-track" }, ...Object.values(fills), end));
  const show = (way, shared, { most, poolTokens, bytesPerToken }) => {
    end.style.setProperty("--kv-at", poolTokens / most);
    const size = (part, n) => {
      fills[part].style.setProperty("--kv-size", n / most);
      fills[part].hidden = n === 0;
    };
    size("rows", way.rows - shared);
    size("shared", shared);
    size("waste", Math.max(0, way.waste));
    setText(value, wayLine(way, bytesPerToken));
  };
  return { name, words, element, show };
}
