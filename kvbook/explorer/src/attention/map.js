import { axisBottom, axisLeft } from "d3-axis";
import { scaleBand } from "d3-scale";
import { create } from "d3-selection";
import { h, uid } from "../common/dom.js";
import { percent, quoted, short } from "../common/format.js";
import { row } from "./model.js";

const MARGIN = { top: 4, right: 4, bottom: 92, left: 92 };
const CELL = { min: 24, max: 30 }; // px; a row stays high enough to be hit by a finger
const LEGEND = [1, 5, 20, 50, 100]; // percent

const opacity = (code) => Math.sqrt(code / 255); // so that small shares stay visible

/** The whole head as a triangle: one row per query, one column per key. A click on a row selects its query. */
export function map(onSelect) {
  const svg = create("svg").attr("class", "kv-map").attr("role", "img");
  const hatch = uid();
  const swatches = LEGEND.map((share) => {
    const swatch = h("span", { class: "kv-swatch" });
    swatch.style.setProperty("--kv-part", opacity(2.55 * share));
    return h("span", {}, swatch, ` ${share} %`);
  });
  const legend = h("p", { class: "kv-legend" }, "Share of attention: ", ...swatches);
  const element = h("figure", { class: "kv-figure" }, svg.node(), legend);
  let cells, outline, y, names;

  const build = (tokens, width) => {
    const n = tokens.length;
    const side = Math.min(CELL.max, (width - MARGIN.left - MARGIN.right) / n);
    const w = side * n;
    const height = Math.max(CELL.min, side) * n;
    const all = tokens.map((_, i) => i);
    const x = scaleBand(all, [0, w]);
    y = scaleBand(all, [0, height]);
    const size = [w + MARGIN.left + MARGIN.right, height + MARGIN.top + MARGIN.bottom];
    svg.attr("width", size[0]).attr("height", size[1]).attr("viewBox", [0, 0, ...size]);
    svg.selectAll("*").remove();
    const pattern = svg.append("pattern").attr("id", hatch).attr("width", 6).attr("height", 6);
    pattern.attr("patternUnits", "userSpaceOnUse").attr("patternTransform", "rotate(45)");
    pattern.append("line").attr("class", "kv-hatch").attr("y2", 6);
    const plot = svg.append("g").attr("transform", `translate(${MARGIN.left},${MARGIN.top})`);

    const steps = all.slice(1).map((i) => `V${y(i)}H${x(i) + x.bandwidth()}`);
    plot.append("path").attr("class", "kv-unseen").attr("fill", `url(#${hatch})`);
    plot.select(".kv-unseen").attr("d", `M${x.bandwidth()},0${steps.join("")}V0Z`);
    const note = plot.append("text").attr("class", "kv-note").attr("x", w - 10).attr("y", 22);
    if (n > 7) {
      note.append("tspan").text("Not visible: a token");
      note.append("tspan").attr("x", w - 10).attr("dy", "1.3em").text("cannot look at later ones");
    }

    const triangle = all.flatMap((query) => all.slice(0, query + 1).map((key) => ({ query, key })));
    cells = plot.append("g").selectAll("rect").data(triangle).join("rect").attr("class", "kv-cell");
    cells.attr("x", (d) => x(d.key)).attr("y", (d) => y(d.query));
    cells.attr("width", x.bandwidth()).attr("height", y.bandwidth()).append("title");
    outline = plot.append("rect").attr("class", "kv-outline");

    const label = (i) => short(tokens[i], 10);
    const left = plot.append("g").call(axisLeft(y).tickFormat(label).tickSize(0).tickPadding(6));
    const bottom = plot.append("g").attr("transform", `translate(0,${height})`);
    bottom.call(axisBottom(x).tickFormat(label).tickSize(0).tickPadding(6));
    bottom.selectAll("text").attr("transform", "rotate(-90)").attr("x", -6).attr("dy", "0.32em").attr("y", 0);
    bottom.selectAll("text").attr("text-anchor", "end");
    for (const axis of [left, bottom]) axis.attr("class", "kv-axis").attr("font-family", null).attr("font-size", null);
    names = left.selectAll("text");
    const titles = plot.append("g").attr("class", "kv-axis-title");
    titles.append("text").attr("transform", `translate(${4 - MARGIN.left},${height / 2}) rotate(-90)`).attr("dy", "0.6em");
    titles.select("text").text("query: the token that looks");
    titles.append("text").attr("x", w / 2).attr("y", height + MARGIN.bottom - 6).text("key: the token looked at");

    const hits = plot.append("g").selectAll("rect").data(all).join("rect").attr("class", "kv-hit");
    hits.attr("x", -MARGIN.left).attr("y", y).attr("width", w + MARGIN.left).attr("height", y.bandwidth());
    hits.attr("data-query", (i) => i).on("click", (_, i) => onSelect(i));
    cells.on("click", (_, d) => onSelect(d.query));
    plot.node().append(cells.node().parentNode, outline.node()); // above the hits, so that cells show their titles
  };

  const paint = (table, place) => {
    const rows = table.tokens.map((_, query) => row(table, { ...place, query }));
    svg.attr("aria-label", `Attention map of layer ${place.layer}, head ${place.head}; the table below says the same.`);
    cells.style("fill-opacity", (d) => opacity(rows[d.query][d.key]));
    cells.select("title").text((d) => {
      const share = percent(rows[d.query][d.key]);
      return `${quoted(table.tokens, d.query)} gives ${share} to ${quoted(table.tokens, d.key)}`;
    });
    const width = cells.filter((d) => d.query === place.query && d.key === 0).attr("width");
    outline.attr("y", y(place.query)).attr("width", width * (place.query + 1)).attr("height", y.bandwidth());
    names.classed("kv-current", (i) => i === place.query);
  };
  return { element, build, paint };
}
