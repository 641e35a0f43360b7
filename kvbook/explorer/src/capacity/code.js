import { button } from "../common/controls.js";
import { h, setText } from "../common/dom.js";
import { fold } from "../common/table.js";
import { command, python } from "./commands.js";

/** A fold with the state as Python, as a command and as a link, each with a button that copies it. */
export function codeFold(now) {
  const status = h("p", { class: "kv-status", role: "status" });
  const copy = async (text) =>
    setText(
      status,
      (await copied(text)) ? "Copied." : "The browser did not let it be copied; select the text instead.",
    );
  const block = (label, text, name) =>
    h(
      "div",
      { class: "kv-code" },
      h(
        "div",
        { class: "kv-code-head" },
        h("span", { class: "kv-code-label" }, label),
        button("Copy", () => copy(text), { "aria-label": `Copy ${name}` }),
      ),
      h("pre", { class: "kv-scroll", tabindex: 0, role: "region", "aria-label": label }, text),
    );
  const box = fold("As Python, as a command, as a link", () => {
    const { state, found, address } = now();
    const line = command(state, found);
    const shell = line.text
      ? block("On the command line", line.text, "the command")
      : h("p", { class: "kv-legend" }, line.why);
    const url =
      address === null
        ? h("p", { class: "kv-legend" }, "No link: only the first such explorer of a published page has one.")
        : block("Link to these settings", address, "the link");
    return [block("In Python", python(state, found), "the Python"), shell, url, status];
  });
  const refresh = () => {
    setText(status, "");
    box.refresh();
  };
  return { element: box.element, refresh };
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

/** For where the clipboard may not be written to: an old way that most browsers still have. */
function copiedBySelection(text) {
  const before = document.activeElement;
  const area = h("textarea", { readonly: true, "aria-hidden": "true" });
  area.value = text;
  area.style.position = "fixed";
  area.style.opacity = "0";
  document.body.append(area);
  area.select();
  let done = false;
  try {
    done = document.execCommand("copy");
  } catch {
    // Then it is not to be had.
  }
  area.remove();
  before?.focus();
  return done;
}
