import { h, setText } from "../common/dom.js";
import { decimal } from "./text.js";

const PARTS = ["weights", "overhead", "cache", "free", "kept", "over"]; // the card ends before the last

/** Weights, cache and free memory against the card; what does not fit stands, hatched, behind its end. */
export function bar() {
  const segments = Object.fromEntries(
    PARTS.map((part) => [part, h("span", { class: `kv-part kv-part-${part}` })]),
  );
  const end = h("span", { class: "kv-card-end" });
  const track = h("div", { class: "kv-track", role: "img" }, ...Object.values(segments), end);
  const values = Object.fromEntries(PARTS.map((part) => [part, h("span", { class: "kv-key-value" })]));
  const item = (part, words) => {
    const name = h("span", {}, words, " ");
    return h(
      "span",
      { class: "kv-key-item" },
      h("span", { class: `kv-swatch kv-part-${part}`, "aria-hidden": "true" }),
      name,
      values[part],
    );
  };
  const items = {
    weights: item("weights", "weights"),
    overhead: item("overhead", "overhead"),
    cache: item("cache", "cache"),
    free: item("free", "free"),
    kept: item("kept", "kept back"),
    over: item("over", "does not fit"),
  };
  const caption = h("p", { class: "kv-verdict" });
  const legend = h("p", { class: "kv-legend kv-keys" }, ...Object.values(items));
  const element = h("figure", { class: "kv-bar-figure" }, track, legend, caption);

  const show = (parts, cardName, words) => {
    const card = PARTS.slice(0, -1).reduce((sum, part) => sum + parts[part], 0);
    const drawn = { ...parts, over: Math.min(parts.over, card) }; // a bar twice the card is long enough
    const whole = card + drawn.over;
    segments.over.classList.toggle("kv-torn", drawn.over < parts.over);
    for (const part of PARTS) {
      segments[part].style.setProperty("--kv-size", drawn[part] / whole);
      segments[part].hidden = parts[part] === 0;
      items[part].hidden = parts[part] === 0 && part !== "cache" && part !== "free";
      setText(values[part], decimal(parts[part]));
    }
    end.style.setProperty("--kv-at", card / whole);
    end.hidden = parts.over === 0;
    const named = PARTS.filter((part) => parts[part] > 0).map(
      (part) => `${decimal(parts[part])} ${NAMES[part]}`,
    );
    track.setAttribute("aria-label", `Memory of ${cardName}: ${named.join(", ")}.`);
    setText(caption, words);
  };
  return { element, show };
}

const NAMES = {
  weights: "of weights",
  overhead: "of overhead",
  cache: "of cache",
  over: "that do not fit",
  free: "free",
  kept: "kept back",
};

/** How the bar is cut: weights, overhead and cache take what they can; what the card has not is `over`. */
export function cut({ card, usable, kept, overhead, weights }, cache) {
  let left = usable;
  let over = 0;
  const take = (wanted) => {
    const got = Math.min(wanted, Math.max(0, left));
    over += wanted - got;
    left -= got;
    return got;
  };
  const parts = { weights: take(weights), overhead: take(overhead), cache: take(cache) };
  return { ...parts, over, free: Math.max(0, left), kept: Math.max(0, Math.min(kept, card)) };
}
