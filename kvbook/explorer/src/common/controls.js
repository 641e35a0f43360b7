import { h, setText, uid } from "./dom.js";

/** A labelled slider from `min` with its value in words. show({ value, max, text }) sets all three. */
export function slider(label, onInput, min = 0) {
  const id = uid();
  const input = h("input", { type: "range", id, min, step: 1, oninput: () => onInput(Number(input.value)) });
  const words = h("span", { class: "kv-value", "aria-hidden": "true" });
  const element = h("div", { class: "kv-slider" }, h("label", { for: id }, label), words, input);
  const show = ({ value, max, text }) => {
    input.max = max;
    input.value = value;
    input.disabled = max === min;
    input.setAttribute("aria-valuetext", text);
    setText(words, text);
  };
  return { element, show };
}

export function button(label, onclick, attributes = {}) {
  return h("button", { type: "button", class: "kv-button", onclick, ...attributes }, label);
}

/** Tell whether a button has something to do. One that has not keeps the focus that it may have. */
export function enable(element, can) {
  if (can) element.removeAttribute("aria-disabled");
  else element.setAttribute("aria-disabled", "true");
}

/** A labelled text field with a button and a line for what came of it. onSubmit(text) returns a promise. */
export function textField(label, action, onSubmit) {
  const id = uid();
  const input = h("input", { type: "text", id, autocomplete: "off", maxlength: 300 });
  const submit = h("button", { type: "submit", class: "kv-button" }, action);
  const status = h("p", { class: "kv-status", role: "status" });
  const say = (text, isError) => {
    setText(status, text);
    status.classList.toggle("kv-error", isError);
  };
  const onsubmit = async (event) => {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true;
    say("Computing …", false);
    try {
      await onSubmit(input.value);
      say("", false);
    } catch (error) {
      say(error.message, true);
    }
    submit.disabled = false;
  };
  return h("form", { class: "kv-text", onsubmit }, h("label", { for: id }, label), input, submit, status);
}
