import { button } from "../common/controls.js";
import { h, setText } from "../common/dom.js";
import { baselineName, decimal, fitting, gain, gainOfAll, tokens } from "./text.js";

/** Each technique alone, as a button that sets it, with its users; under them all settings together. */
export function techniqueList(go) {
  const caption = h("p", { class: "kv-gains-title" });
  const rows = h("ul", { class: "kv-gains" });
  const element = h("div", { class: "kv-gains-box" }, h("h3", {}, "What each technique buys"), caption, rows);
  let drawn = [];

  const row = (head) => {
    const cells = { users: h("span", { class: "kv-users" }), saving: h("span", { class: "kv-legend" }) };
    const fill = h("span", { class: "kv-fill" });
    const bar = h("span", { class: "kv-gain-bar", "aria-hidden": "true" }, fill);
    return { element: h("li", {}, head, bar, cells.users, cells.saving), head, bar, fill, ...cells };
  };
  const baseRow = row(h("span", { class: "kv-gain-name" }));
  const allRow = row(h("span", { class: "kv-gain-name" }, "Your settings together"));

  const show = (state, list, base, now) => {
    if (drawn.length !== list.length) {
      drawn = list.map((_, i) => row(button("", () => press(i))));
      rows.replaceChildren(baseRow.element, ...drawn.map(({ element }) => element), allRow.element);
    }
    setText(baseRow.head, baselineName(state));
    setText(
      caption,
      `Users on the same card with the same weights, each technique alone, against ${now.model.name} as published` +
        ` with ${tokens(state.context)} reserved a sequence.`,
    );
    const most = Math.max(1, ...[base, now, ...list].map(({ users }) => users ?? 0));
    put(baseRow, base, base.why ?? `${decimal(base.sequence)} each`, most);
    put(allRow, now, gainOfAll(now, base), most);
    list.forEach((one, i) => {
      const { head } = drawn[i];
      setText(head, one.label);
      head.setAttribute("aria-pressed", String(one.pressed));
      head.toggleAttribute("disabled", Boolean(one.why));
      put(drawn[i], one, gain(one, base), most);
    });
    shown = list;
  };
  let shown = [];
  const press = (i) => go(shown[i].pressed ? shown[i].back : shown[i].changes);

  const put = (parts, { users, why, because }, words, most) => {
    setText(parts.users, why ? "" : fitting(users));
    parts.users.hidden = Boolean(why);
    parts.bar.hidden = Boolean(why);
    setText(parts.saving, words);
    parts.element.classList.toggle("kv-explained", Boolean(because));
    parts.fill.style.setProperty("--kv-part", why ? 0 : (users ?? most) / most);
  };
  return { element, show };
}
