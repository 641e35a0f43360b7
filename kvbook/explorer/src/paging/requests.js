// The live requests, each with its tokens and its table of blocks; a press marks its blocks in the pool.
import { button } from "../common/controls.js";
import { h } from "../common/dom.js";
import { blocks, runs, tokens } from "./text.js";

export function requestList(onPick) {
  const list = h("ul", { class: "kv-requests" });
  const element = h("div", { class: "kv-requests-box" }, h("p", { class: "kv-requests-title" }, "Live requests. Press one to see its blocks."), list);
  let drawn = "";
  const show = ({ here }, picked) => {
    const key = JSON.stringify([here.requests, here.refCounts]);
    if (drawn !== key) {
      const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
      drawn = key;
      list.replaceChildren(...here.requests.map((request) => row(request, here, onPick)));
      if (here.requests.length === 0) list.append(h("li", { class: "kv-legend" }, "None."));
      [...list.querySelectorAll("button")].find((one) => one.textContent === focused)?.focus();
    }
    for (const one of list.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one.textContent === picked));
  };
  return { element, show };
}

function row({ name, length, table }, { refCounts }, onPick) {
  const shared = table.filter((block) => refCounts[block] > 1);
  const own = table.filter((block) => refCounts[block] === 1);
  const parts = [
    ...(shared.length > 0 ? [h("span", { class: "kv-run kv-run-shared" }, `shared ${runs(shared)}`)] : []),
    ...(own.length > 0 ? [h("span", { class: "kv-run kv-run-own" }, `own ${runs(own)}`)] : []),
  ];
  const press = button(name, () => onPick(name), { "aria-label": `Blocks of ${name}` });
  return h("li", {}, press, h("div", {}, h("span", {}, `${tokens(length)}, ${blocks(table.length)}`), h("div", { class: "kv-runs" }, ...parts)));
}
