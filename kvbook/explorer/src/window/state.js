// The state: everything that the explorer shows follows from it and from what was measured. No DOM here.
import { carriedBy, field, initialOf, whole } from "../common/fields.js";
import { hashOf } from "../common/hash.js";

export const MAX_TOKENS = 128;
export const MAX_WINDOW = 4096;
export const MAX_SINKS = 64;

export const FIELDS = [
  field("window", "window", "window", 8, whole(1, MAX_WINDOW)),
  field("sinks", "sinks", "sinks", 4, whole(0, MAX_SINKS)),
  field("position", "position", "position", 0, whole(0, MAX_TOKENS - 1)),
];

export const INITIAL = initialOf(FIELDS);
export const { fromTraits, toTraits, same } = carriedBy(FIELDS);
export const hash = hashOf(FIELDS, "#window:");

/** The windows that the slider offers: each small one, then fewer, up to the text's and the measured ones. */
export function windowChoices(tokens, measured, start) {
  const most = Math.max(tokens, start, ...measured.map(({ window }) => window));
  const found = new Set([most, start, ...measured.map(({ window }) => window)]);
  for (let n = 1, step = 1; n < most; n += step) {
    found.add(n);
    if (n >= 16 * step) step *= 2;
  }
  return [...found].sort((a, b) => a - b);
}

/** The sinks that the slider offers. */
export const mostSinks = (measured, start) => Math.max(8, start, ...measured.map(({ sinks }) => sinks));
