import { h, setText } from "../common/dom.js";
import { decimal } from "./text.js";

const INSIDE = ["weights", "overhead", "cache", "free", "kept"]; // the card ends behind these
const OUTSIDE = ["over-weights", "over-cache"];
const WORDS = {
  weights: "weights",
  overhead: "overhead",
  cache: "cache",
  free: "free",
  kept: "kept back",
  over: "of it does not fit",
};

/** Weights, cache and free memory against the card; what does not fit stands, hatched, behind its end. */
export function bar() {
  const segments = [...INSIDE, ...OUTSIDE].map((part) => [
    part,
    h("span", { class: `kv-part kv-part-${part}` }),
  ]);
  const end = h("span", { class: "kv-card-end" });
  const track = h("div", { class: "kv-track", role: "img" }, ...segments.map(([, element]) => element), end);
  const items = Object.entries(WORDS).map(([part, words]) => {
    const value = h("span", { class: "kv-key-value" });
    const swatch = h("span", { class: `kv-swatch kv-part-${part}`, "aria-hidden": "true" });
    return {
      part,
      value,
      element: h("span", { class: "kv-key-item" }, swatch, h("span", {}, words, " "), value),
    };
  });
  const caption = h("p", { class: "kv-verdict" });
  const legend = h("p", { class: "kv-legend kv-keys" }, ...items.map(({ element }) => element));
  const element = h("figure", { class: "kv-bar-figure" }, track, legend, caption);

  /** What is asked for, by the name of the part, and how it was cut. */
  const show = (asked, parts, cardName, words) => {
    const card = INSIDE.reduce((sum, part) => sum + parts[part], 0);
    const over = OUTSIDE.reduce((sum, part) => sum + parts[part], 0);
    const drawn = Math.min(over, card); // a bar twice the card is long enough
    for (const [part, segment] of segments) {
      const length = OUTSIDE.includes(part) ? (parts[part] * drawn) / (over || 1) : parts[part];
      segment.style.setProperty("--kv-size", length / (card + drawn));
      segment.hidden = parts[part] === 0;
    }
    track.classList.toggle("kv-torn", drawn < over);
    end.style.setProperty("--kv-at", card / (card + drawn));
    end.hidden = over === 0;
    const sizes = { ...parts, ...asked, over };
    for (const { part, value, element } of items) {
      element.hidden = sizes[part] === 0 && part !== "cache" && part !== "free";
      setText(value, decimal(sizes[part]));
    }
    const named = items
      .filter(({ part }) => sizes[part] > 0)
      .map(({ part }) => `${WORDS[part]} ${decimal(sizes[part])}`);
    track.setAttribute("aria-label", `Memory of ${cardName}, ${decimal(card)}: ${named.join(", ")}.`);
    setText(caption, words);
  };
  return { element, show };
}

/** How the bar is cut: weights, overhead and cache take what they can, in this order; the rest of each is over. */
export function cut({ usable, kept, overhead, weights }, cache) {
  let left = usable;
  const take = (wanted) => {
    const got = Math.min(wanted, left);
    left -= got;
    return got;
  };
  const got = { weights: take(weights), overhead: take(overhead), cache: take(cache) };
  const overWeights = weights - got.weights + overhead - got.overhead;
  return { ...got, free: left, kept, "over-weights": overWeights, "over-cache": cache - got.cache };
}
