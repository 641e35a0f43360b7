// The two axes of a chart with logarithmic scales, by d3, in the explorers' own type and colours.
import { axisBottom, axisLeft } from "d3-axis";
import { select } from "d3-selection";
import { svg } from "./svg.js";

/** Groups with the axes: `x` and `y` are { scale, ticks, format }, `box` the plot's { left, right, bottom } in px. */
export function axes(x, y, { left, right, bottom }) {
  const below = svg("g", { class: "kv-axis", transform: `translate(0,${bottom})` });
  const side = svg("g", { class: "kv-axis", transform: `translate(${left},0)` });
  select(below).call(axisBottom(x.scale).tickValues(x.ticks).tickFormat(x.format).tickSizeOuter(0));
  select(side).call(
    axisLeft(y.scale).tickValues(y.ticks).tickFormat(y.format).tickSize(left - right).tickPadding(8),
  );
  for (const axis of [below, side]) {
    for (const name of ["font-family", "font-size", "fill"]) axis.removeAttribute(name); // the style sheet has them
  }
  return [side, below];
}

/** The powers of ten from one to another, both powers of ten themselves. */
export function powers([low, high]) {
  const n = Math.round(Math.log10(high / low));
  return Array.from({ length: n + 1 }, (_, i) => low * 10 ** i);
}
