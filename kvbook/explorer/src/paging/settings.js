// The controls. Each shows the state and asks for a change of it.
import { h } from "../common/dom.js";
import { number, select } from "../common/inputs.js";
import { BLOCK_SIZES, isPossible, MAX_POOL } from "./state.js";
import { tokens } from "./text.js";

export function settings(go) {
  const of = {
    timeline: select("Requests", (text) => go({ timeline: Number(text) })),
    blockSize: select("Block size", (text) => go({ blockSize: Number(text) })),
    sharing: select("Sharing", (text) => go({ sharing: text === "on" })),
    poolTokens: number("Pool", { low: 1, high: MAX_POOL, unit: "tokens" }, (poolTokens) => go({ poolTokens })),
    maxLen: number("Longest length", { low: 1, high: MAX_POOL, unit: "tokens" }, (maxLen) => go({ maxLen })),
  };
  const element = h("div", { class: "kv-main" }, h("div", { class: "kv-fields kv-choices" }, ...Object.values(of).map(({ element: one }) => one)));
  const show = (state, timelines) => {
    of.timeline.element.hidden = timelines.length < 2;
    of.timeline.show({ value: String(state.timeline), options: timelines.map(({ name }, i) => [String(i), name]) });
    const sizes = BLOCK_SIZES.filter((size) => isPossible(state, size));
    of.blockSize.show({ value: String(state.blockSize), options: sizes.map((size) => [String(size), tokens(size)]) });
    of.sharing.show({ value: state.sharing ? "on" : "off", options: [["on", "on"], ["off", "off"]] });
    of.poolTokens.show({ value: state.poolTokens });
    of.maxLen.show({ value: state.maxLen });
  };
  return { element, show };
}
