// The explorer's labelled native inputs. Each show(…) sets what a control says, and why it may be off.
import { h, setText, uid } from "./dom.js";

function framed(label, kind, ...inputs) {
  const reason = h("span", { class: "kv-reason", id: uid() });
  const id = inputs[0].id;
  const element = h("div", { class: `kv-field ${kind}` }, h("label", { for: id }, label), ...inputs, reason);
  inputs[0].setAttribute("aria-describedby", reason.id);
  const explain = (why) => {
    setText(reason, why ?? "");
    reason.hidden = !why;
  };
  explain(null);
  return { element, explain };
}

/** A list to choose from. show({ options: [[value, words, disabled]], value, why }). */
export function select(label, onChange) {
  const input = h("select", { id: uid(), class: "kv-input", onchange: () => onChange(input.value) });
  const { element, explain } = framed(label, "kv-select", input);
  let drawn = "";
  let shown;
  const show = ({ options, value, why }) => {
    const written = JSON.stringify(options);
    if (drawn !== written) {
      input.replaceChildren(
        ...options.map(([v, words, disabled]) => h("option", { value: v, disabled }, words)),
      );
      drawn = written;
    }
    input.value = value;
    shown = value;
    input.disabled = Boolean(why);
    explain(why);
  };
  const restore = () => (input.value = shown);
  return { element, show, restore };
}

/**
 * A number to type. onChange(number | null); what is not allowed is told beside it and changes nothing.
 * show({ value, why, note }): `why` it is off, or a `note` on what comes of its value.
 */
export function number(label, { low, high, step = 1, unit, empty }, onChange) {
  const input = h("input", {
    type: "number",
    id: uid(),
    class: "kv-input",
    min: low,
    max: high,
    step,
    inputmode: "decimal",
    placeholder: empty,
  });
  const { element, explain } = framed(label, "kv-number", input);
  if (unit) {
    const row = h("span", { class: "kv-with-unit" });
    input.replaceWith(row);
    row.append(input, h("span", { class: "kv-unit" }, unit));
  }
  const set = (n) => n.toLocaleString("en-US");
  const allowed = `${step === 1 ? "A whole number" : "A number"} from ${set(low)} to ${set(high)}.`;
  let shown = null;
  let off = null; // what stands beside it while its value is allowed
  const bad = () => {
    if (input.value === "" && !input.validity.badInput) return empty === undefined;
    const value = input.valueAsNumber;
    return !(value >= low && value <= high) || (step === 1 && !Number.isInteger(value));
  };
  input.addEventListener("input", () => {
    const wrong = bad();
    if (wrong) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
    explain(wrong ? allowed : off);
    if (!wrong) onChange(input.value === "" ? null : input.valueAsNumber);
  });
  input.addEventListener("blur", () => {
    if (bad()) write(shown);
    explain(off);
    input.removeAttribute("aria-invalid");
  });
  const write = (value) => (input.value = value === null ? "" : String(value));
  const show = ({ value, why, note }) => {
    shown = value;
    off = why ?? note ?? null;
    const typed = input.value === "" ? null : input.valueAsNumber;
    if (typed !== value && !(document.activeElement === input && bad())) write(value);
    input.disabled = Boolean(why);
    if (!input.hasAttribute("aria-invalid")) explain(off);
  };
  return { element, show };
}

/** A slider over the numbers of a list, with a field for any number between, and what stands beside it. */
export function steps(label, list, { high, beside }, onChange) {
  const range = h("input", { type: "range", min: 0, max: list.length - 1, step: 1 });
  range.addEventListener("input", () => onChange(list[range.valueAsNumber]));
  const exact = number(label, { low: 1, high }, onChange);
  if (beside) exact.element.insertBefore(beside, exact.element.children[1]);
  range.setAttribute("aria-label", `${label}, by steps`);
  exact.element.classList.add("kv-steps");
  exact.element.append(range);
  const show = ({ value, words }) => {
    exact.show({ value });
    range.value = nearest(list, value);
    range.setAttribute("aria-valuetext", words);
  };
  return { element: exact.element, show };
}

/** Where the number stands in a rising list, or would stand. */
export function nearest(list, value) {
  const above = list.findIndex((n) => n >= value);
  if (above <= 0) return above === 0 ? 0 : list.length - 1;
  return value / list[above - 1] < list[above] / value ? above - 1 : above;
}

/** Powers of two and one and a half times as many, from one power of two to another: 64, 96, 128, 192, ... */
export function roundNumbers(low, high) {
  const n = Math.round(Math.log2(high / low));
  const pairs = Array.from({ length: n }, (_, i) => [low * 2 ** i, low * 1.5 * 2 ** i]);
  return [...pairs.flat(), high];
}

/** Rising whole numbers, `perOctave` to each doubling. */
export function octaves(low, high, perOctave) {
  const n = Math.round(Math.log2(high / low) * perOctave);
  return [...new Set(Array.from({ length: n + 1 }, (_, i) => Math.round(low * 2 ** (i / perOctave))))];
}
