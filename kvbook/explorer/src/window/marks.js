// The text, the slots and the mask: the same rows three times.
import { h, setText, uid } from "../common/dom.js";
import { short } from "../common/format.js";
import { set, svg } from "../common/svg.js";
import { kept as keptOf } from "../accounting/ring.js";
import { writing } from "./text.js";

const WORDS = { sink: "sink", kept: "in the window", newest: "newest: the query", evicted: "evicted", later: "not there yet" };
const COMPACT = 24; // slots; more are drawn without their tokens
const MASK = { most: 300, label: 18 }; // px

/** The tokens as a text, each marked by what its row is. */
export function textStrip() {
  const text = h("p", { class: "kv-said" });
  const keys = Object.entries(WORDS).map(([state, words]) =>
    h("span", { class: "kv-key-item" }, h("bdi", { class: `kv-${state}`, "aria-hidden": "true" }, "token"), words),
  );
  const element = h("div", { class: "kv-text-box" }, text, h("p", { class: "kv-legend kv-keys" }, ...keys));
  let words = [];
  const build = (tokens) => {
    words = tokens.map((token) => h("bdi", {}, short(token, 20)));
    text.replaceChildren(...words.flatMap((word) => [word, h("wbr")]));
  };
  const paint = (states) => words.forEach((word, i) => (word.className = `kv-${states[i]}`));
  return { element, build, paint };
}

/** The cache's slots with the positions that they hold: the sinks' first, then the ring. */
export function slotGrid() {
  const title = h("p", { class: "kv-chart-title" });
  const cells = h("div", { class: "kv-slots", role: "img" });
  const rest = h("p", { class: "kv-legend kv-slot-rest" });
  const element = h("figure", { class: "kv-slots-figure" }, title, cells, rest);
  const paint = (state, found, { tokens }) => {
    const { slots, slot, n } = found;
    const drawn = slots.slice(0, state.sinks + Math.min(state.window, tokens.length));
    const list = drawn.map((position, i) => {
      const kind = i < state.sinks ? "sink" : "kept";
      const isNewest = position !== null && i === slot;
      const name = position === null ? "later" : isNewest ? "newest" : kind;
      return h(
        "span",
        { class: `kv-slot kv-${name}${i === state.sinks && i > 0 ? " kv-ring-start" : ""}` },
        h("span", { class: "kv-slot-position" }, position === null ? "–" : String(position)),
        h("bdi", {}, position === null ? "" : short(tokens[position], 7)),
      );
    });
    cells.classList.toggle("kv-compact", drawn.length > COMPACT);
    cells.replaceChildren(...list);
    const held = slots.filter((position) => position !== null);
    cells.setAttribute("aria-label", `Slots in order hold positions ${held.join(", ")}; ${slots.length - held.length} are empty.`);
    setText(title, writing(state, found));
    const left = slots.length - drawn.length;
    const more = left > 0 ? ` ${left.toLocaleString("en-US")} more empty slots are not drawn.` : "";
    const what = state.sinks > 0 ? `${state.sinks} of the sinks, then ${state.window} of the ring` : `${state.window} of the ring`;
    setText(rest, `${slots.length === 1 ? "1 slot" : `${slots.length.toLocaleString("en-US")} slots`}: ${what}; each with its position.${more}`);
    return n;
  };
  return { element, paint };
}

/** The mask: a row for each query so far, a column for each key; the newest query's row is framed. */
export function maskGrid() {
  const title = h("p", { class: "kv-mask-title", id: uid() }, "The mask: rows are queries, columns keys.");
  const paths = Object.fromEntries(["seen", "gone"].map((name) => [name, svg("path", { class: `kv-mask-${name}` })]));
  const frame = svg("rect", { class: "kv-mask-frame" });
  const words = svg("text", { class: "kv-mask-label" }, "key position");
  const side = svg("text", { class: "kv-mask-label" }, "query position");
  const picture = svg("svg", { class: "kv-chart kv-mask-grid", role: "img", "aria-labelledby": title.id }, ...Object.values(paths), frame, words, side);
  const keys = [
    ["seen", "seen"],
    ["gone", "evicted before"],
  ].map(([name, text]) => h("span", { class: "kv-key-item" }, h("span", { class: `kv-swatch kv-swatch-${name}`, "aria-hidden": "true" }), text));
  const element = h("figure", { class: "kv-mask-figure" }, title, picture, h("p", { class: "kv-legend kv-keys" }, ...keys));
  let drawn = "";
  const paint = ({ window, sinks }, { n, newest }, { tokens }, width) => {
    if (width === 0) return;
    const size = Math.min(MASK.most, width - MASK.label);
    const cell = size / tokens.length;
    const asked = [window, sinks, n, size, tokens.length].join();
    if (drawn === asked) return;
    drawn = asked;
    const gap = cell > 4 ? 1 : 0;
    const parts = { seen: [], gone: [] };
    const square = (q, k, part) => {
      const d = cell - gap;
      parts[part].push(`M${r(MASK.label + k * cell)},${r(MASK.label + q * cell)}h${r(d)}v${r(d)}h${r(-d)}z`);
    };
    const dot = (q, k) => {
      const d = Math.max(0.8, cell * 0.3);
      const at = (i) => r(MASK.label + (i + 0.5) * cell - d / 2);
      parts.gone.push(`M${at(k)},${at(q)}h${r(d)}v${r(d)}h${r(-d)}z`);
    };
    for (let q = 0; q < n; q++) {
      const seen = new Set(keptOf(q + 1, window, sinks));
      for (let k = 0; k <= q; k++) if (seen.has(k)) square(q, k, "seen");
      for (let k = 0; k <= q; k++) if (!seen.has(k)) dot(q, k);
    }
    const all = size + MASK.label;
    set(picture, { width: all, height: all, viewBox: `0 0 ${all} ${all}` });
    for (const [name, path] of Object.entries(paths)) set(path, { d: parts[name].join("") || null });
    set(frame, { x: MASK.label - 1, y: MASK.label + newest * cell - 1, width: n * cell + 1, height: cell + 1 });
    set(words, { x: MASK.label, y: 12 });
    set(side, { x: 12, y: MASK.label, transform: `rotate(-90 12 ${MASK.label})`, "text-anchor": "end" });
  };
  return { element, paint, width: () => Math.floor(element.clientWidth) };
}

const r = (n) => Number(n.toFixed(2));
