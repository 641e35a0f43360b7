import { h, setText } from "./dom.js";

const SPOKEN_AFTER = 700; // ms after the last change: a drag would have every number read out

/** The answer as a headline, [what, the rest, an aside], which is read out once the settings have come to rest. */
export function answerIn(headline) {
  headline.removeAttribute("aria-live");
  const spoken = h("p", { class: "kv-spoken", role: "status" });
  headline.after(spoken);
  let speaking = null;
  const show = (what, rest, aside = "") => {
    setText(headline, "");
    headline.append(h("strong", {}, what), " ", h("span", {}, rest));
    if (aside !== "") headline.append(" ", h("span", { class: "kv-aside" }, aside));
    clearTimeout(speaking);
    speaking = setTimeout(() => setText(spoken, `${what} ${rest} ${aside}`.trim()), SPOKEN_AFTER);
  };
  return { show, stop: () => clearTimeout(speaking) };
}
