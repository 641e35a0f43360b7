import { h, setText, uid } from "../common/dom.js";
import { compact } from "./commands.js";
import { cacheSpec, parseConfig } from "./engine.js";
import { OWN } from "../common/facts.js";

const MOST = 1e14; // parameters

/** A fold that takes a pasted config.json. onModel(changes) throws a sentence where it cannot be shown. */
export function pasteFold(onModel) {
  const textId = uid();
  const numberId = uid();
  const text = h("textarea", {
    id: textId,
    class: "kv-input kv-paste",
    rows: 6,
    spellcheck: "false",
    autocomplete: "off",
  });
  const parameters = h("input", {
    id: numberId,
    class: "kv-input",
    type: "text",
    inputmode: "numeric",
    autocomplete: "off",
  });
  const status = h("p", { class: "kv-status", role: "status" });
  const say = (words, isError) => {
    setText(status, words);
    status.classList.toggle("kv-error", isError);
  };
  const onsubmit = (event) => {
    event.preventDefault();
    try {
      const config = parseConfig(text.value);
      cacheSpec(config);
      onModel({
        model: OWN,
        config: compact(text.value),
        parameters: parameterNumber(parameters.value),
        weights: "16",
      });
      say("This is now the model.", false);
    } catch (error) {
      say(error.message, true);
    }
  };
  const element = h(
    "details",
    { class: "kv-fold kv-paste-fold" },
    h("summary", {}, "Your own model: paste a config.json"),
    h(
      "form",
      { class: "kv-own", onsubmit },
      h("label", { for: textId }, "The text of a config.json, as Hugging Face has it"),
      text,
      h("label", { for: numberId }, "How many parameters it has, such as 8.03B (the file does not say)"),
      h(
        "div",
        { class: "kv-row" },
        parameters,
        h("button", { type: "submit", class: "kv-button" }, "Show this model"),
      ),
      status,
    ),
  );
  const open = () => {
    element.open = true;
    text.focus();
  };
  return { element, open };
}

/** "8,030,261,248", "8.03B" or "500M" as a whole number. Throws an Error with one sentence. */
export function parameterNumber(written) {
  const match = written.trim().match(/^(\d+|\d{1,3}(?:([,_ ])\d{3})(?:\2\d{3})*)(\.\d+)?\s*([kmbt]?)$/i);
  const unit = { "": 1, k: 1e3, m: 1e6, b: 1e9, t: 1e12 }[match?.[4].toLowerCase()];
  const number = match ? Math.round(Number(match[1].replace(/[,_ ]/g, "") + (match[3] ?? "")) * unit) : NaN;
  if (!(number >= 1 && number <= MOST)) {
    throw new Error(
      "Give the number of parameters as 7B, 7.5B or 7,000,000,000 (a comma only before three digits); the file does not say it.",
    );
  }
  return number;
}
