// The picture of heads: which query heads read which K and V, and what a token leaves in a layer, to scale.
import { h, setText, uid } from "../common/dom.js";
import { set, svg } from "../common/svg.js";
import { rowLine, sharing } from "./text.js";

const HEIGHT = 136; // px
const QUERY = { top: 20, height: 26 };
const KEY = { top: 84, height: 15 };
const VALUE = { top: 101, height: 15 };
const LABEL = 14; // px from a label's line to what it names

export function headsView() {
  const title = h("p", { class: "kv-chart-title", id: uid() });
  const marks = svg("g");
  const picture = svg("svg", { class: "kv-chart kv-heads", role: "img", "aria-labelledby": title.id, height: HEIGHT }, marks);
  const parts = ["key", "value", "latent", "rope"].map((name) => h("span", { class: `kv-part kv-fill-${name}` }));
  const track = h("div", { class: "kv-row-track", "aria-hidden": "true" }, ...parts);
  const line = h("p", { class: "kv-row-line" });
  const keys = {
    heads: [swatch("query", "query head"), swatch("key", "K"), swatch("value", "V")],
    latent: [swatch("query", "query head"), swatch("latent", "latent"), swatch("rope", "RoPE part of K")],
  };
  const legend = h("p", { class: "kv-legend kv-keys" }, ...keys.heads, ...keys.latent);
  const element = h("figure", { class: "kv-heads-figure kv-chart-figure" }, title, picture, line, track, legend);

  const show = (state, found, width) => {
    const { model, isLatent } = found;
    setText(title, sharing(state, found));
    setText(line, rowLine(state, found));
    for (const [kind, list] of Object.entries(keys)) {
      for (const item of list) item.hidden = (kind === "latent") !== isLatent;
    }
    const most = model.publishedHeads * (model.kDim + model.vDim);
    const sizes = isLatent
      ? { latent: state.latentWidth, rope: state.ropeWidth, key: 0, value: 0 }
      : { key: state.nKvHeads * model.kDim, value: state.nKvHeads * model.vDim, latent: 0, rope: 0 };
    const all = Object.values(sizes).reduce((a, b) => a + b);
    ["key", "value", "latent", "rope"].forEach((name, i) => {
      parts[i].style.setProperty("--kv-size", sizes[name] / Math.max(most, all));
      parts[i].hidden = sizes[name] === 0;
    });
    track.style.setProperty("--kv-published", most / Math.max(most, all));
    if (width > 0) draw(state, found, width);
  };

  const draw = ({ nKvHeads, latentWidth, ropeWidth }, { model, isLatent, groupSize }, width) => {
    const { nHeads } = model.spec;
    set(picture, { width, viewBox: `0 0 ${width} ${HEIGHT}` });
    const pitch = Math.min(width / nHeads, 40);
    const left = (width - pitch * nHeads) / 2;
    const bar = Math.max(1, Math.min(pitch * 0.7, 18));
    const centre = (head) => left + (head + 0.5) * pitch;
    const groups = isLatent ? 1 : nKvHeads;
    const middle = (group) => left + (group + 0.5) * groupSize * pitch;
    const wide = isLatent ? Math.min(width * 0.5, 220) : Math.max(1, Math.min(groupSize * pitch * 0.7, 64));
    const lower = isLatent ? Math.max(2, Math.min(width, (wide * ropeWidth) / latentWidth)) : wide;
    const path = (kind, d) => svg("path", { class: kind, d });
    const box = (x, w, { top, height }) => `M${r(x - w / 2)},${top}h${r(w)}v${height}h${r(-w)}z`;
    const each = Array.from({ length: nHeads }, (_, i) => i);
    const bottom = QUERY.top + QUERY.height;
    const links = each.map((i) => `M${r(centre(i))},${bottom + 2}L${r(middle(Math.floor(i / groupSize)))},${KEY.top - 2}`);
    const shared = Array.from({ length: groups }, (_, i) => middle(i));
    const text = (y, words) => svg("text", { class: "kv-head-label", x: width / 2, y, "text-anchor": "middle" }, words);
    marks.replaceChildren(
      text(QUERY.top - LABEL + 6, nHeads === 1 ? "1 query head" : `${nHeads} query heads`),
      path("kv-link", links.join("")),
      path("kv-q", each.map((i) => box(centre(i), bar, QUERY)).join("")),
      path(isLatent ? "kv-latent" : "kv-k", shared.map((x) => box(x, wide, KEY)).join("")),
      path(isLatent ? "kv-k" : "kv-v", shared.map((x) => box(x, lower, VALUE)).join("")),
      text(VALUE.top + VALUE.height + LABEL, isLatent ? "1 latent, and the RoPE part of K" : nKvHeads === 1 ? "1 KV head" : `${nKvHeads} KV heads`),
    );
  };
  return { element, show, width: () => Math.floor(element.clientWidth) };
}

const r = (n) => Number(n.toFixed(2));

function swatch(part, words) {
  return h(
    "span",
    { class: "kv-key-item" },
    h("span", { class: `kv-swatch kv-fill-${part}`, "aria-hidden": "true" }),
    words,
  );
}
