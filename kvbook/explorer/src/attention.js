// The attention explorer: what each token of a text looks at, in every layer and head of a model.
import { button, slider, textField } from "./common/controls.js";
import { h, setText } from "./common/dom.js";
import { explorer } from "./common/explorer.js";
import { percent, quoted, short, times, visible } from "./common/format.js";
import { kernel } from "./common/kernel.js";
import { save, watch } from "./common/model.js";
import { fold, table as tableOf } from "./common/table.js";
import { map as mapOf } from "./attention/map.js";
import { clamp, decode, evenCode, formula, headline as answer, row } from "./attention/model.js";
import { strip as stripOf } from "./attention/strip.js";

const TRAITS = ["weights", "shape", "tokens", "presets", "layer", "head", "query", "start"];
const PLACE = ["layer", "head", "query"];

function render({ model, el }) {
  const { root, headline } = explorer(el, "Explorer: attention weights");
  let table, place; // what is on the screen
  let drawn = {}; // what the strip, the map and the presets were built for

  const go = (to) => {
    const next = PLACE.map((name) => [name, to?.[name] ?? place[name]]);
    save(model, clamp(table, Object.fromEntries(next)));
  };
  const strip = stripOf((query) => go({ query }));
  const map = mapOf((query) => go({ query }));
  const sliders = {
    layer: slider("Layer", (layer) => go({ layer })),
    head: slider("Head", (head) => go({ head })),
    query: slider("Query token", (query) => go({ query })),
  };
  const reset = button("Reset", () => {
    go(model.get("start"));
    if (live.isLive()) live.request({ type: "reset" }).catch(() => {});
  });
  const presets = h("div", { class: "kv-buttons", role: "group", "aria-label": "Presets and reset" });
  const formulaLine = h("p", { class: "kv-formula" });
  const details = fold("The same as tables", () => tables(table, place));
  const own = h("div");
  const sliderBox = h("div", { class: "kv-sliders" }, ...PLACE.map((name) => sliders[name].element));
  const controls = h("div", { class: "kv-controls" }, presets, sliderBox, formulaLine, own);
  const stripKey = h("p", { class: "kv-legend" }, "Bar: share of attention. Dashed line: even share. A dot before a token is its space.");
  root.append(strip.element, stripKey, h("div", { class: "kv-split" }, map.element, controls), details.element);

  const drawMap = () => {
    const width = map.element.clientWidth;
    if (!table || width === 0) return;
    if (drawn.width !== width || drawn.mapTokens !== table.tokens) map.build(table.tokens, width);
    drawn = { ...drawn, width, mapTokens: table.tokens };
    map.paint(table, place);
  };

  const update = () => {
    const weights = model.get("weights");
    if (drawn.weights !== weights || drawn.tokens !== model.get("tokens")) {
      table = decode(weights, model.get("shape"), model.get("tokens")) ?? table;
      if (!table) return;
      drawn = { ...drawn, weights, tokens: model.get("tokens") };
      strip.build(table.tokens);
    }
    place = clamp(table, Object.fromEntries(PLACE.map((name) => [name, model.get(name)])));
    const { tokens, nLayers, nHeads, n } = table;
    const shares = row(table, place);
    setText(headline, answer(table, place).replaceAll(" %", "\u00a0%")); // a number keeps its unit
    strip.paint(place.query, shares);
    drawMap();
    sliders.layer.show({ value: place.layer, max: nLayers - 1, text: `${place.layer} of 0–${nLayers - 1}` });
    sliders.head.show({ value: place.head, max: nHeads - 1, text: `${place.head} of 0–${nHeads - 1}` });
    sliders.query.show({ value: place.query, max: n - 1, text: `${place.query}: ${short(tokens[place.query], 16)}` });
    showPresets();
    formulaLine.replaceChildren(...formulaParts(tokens, place, shares, model.get("head_dim") ?? 64));
    details.refresh();
  };

  const showPresets = () => {
    const given = model.get("presets") ?? [];
    if (drawn.presets !== given) {
      drawn.presets = given;
      presets.replaceChildren(...given.map((preset) => button(preset.label, () => go(preset))), reset);
    }
    given.forEach((preset, i) => {
      const on = PLACE.every((name) => preset[name] == null || preset[name] === place[name]);
      presets.children[i].setAttribute("aria-pressed", String(on));
    });
  };

  const live = kernel(model, () => {
    own.append(textField("Try your own sentence", "Compute", (text) => live.request({ type: "text", text })));
  });
  const stopWatching = watch(model, TRAITS, update);
  const resized = new ResizeObserver(drawMap);
  resized.observe(map.element);
  return () => {
    resized.disconnect();
    stopWatching();
    live.stop();
  };
}

function formulaParts(tokens, place, shares, headDim) {
  const { scale, root, keys, even, most } = formula(place, shares, headDim);
  const q = h("b", { class: "kv-query" }, "q");
  const k = h("b", { class: "kv-key" }, "k");
  const line = (...parts) => h("span", {}, ...parts);
  return [
    line("shares = softmax(", q, " · ", k, ` / ${scale})`),
    line(`over ${keys}, ${root}`),
    line(`even share: ${even}`),
    line(`largest: ${most}`),
  ];
}

function tables(table, place) {
  const { tokens } = table;
  const name = (i) => `${i} ${visible(tokens[i])}`;
  const head = `layer ${place.layer}, head ${place.head}`;
  const shares = row(table, place);
  const even = evenCode(shares.length);
  const one = [...shares].map((code, i) => [name(i), percent(code), `${times(code / even)} ×`]);
  const all = tokens.map((_, query) => {
    const codes = row(table, { ...place, query });
    return [name(query), ...tokens.map((_, key) => (key <= query ? percent(codes[key]) : "–"))];
  });
  return [
    tableOf(`What ${quoted(tokens, place.query)} looks at: ${head}`, ["Key", "Share", "Against even"], one),
    tableOf(`All queries: ${head} (– is not visible)`, ["Query", ...tokens.map((_, i) => name(i))], all),
  ];
}

export default { render };
