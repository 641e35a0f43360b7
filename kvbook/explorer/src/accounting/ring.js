// Which rows a cache with a window and sinks keeps, and in which slots, as kvbook/accounting/ring.py. No DOM here.
import { checkCount } from "./spec.js";

function check(window, sinks) {
  checkCount("window", window);
  checkCount("sinks", sinks, { low: 0 });
}

/** The slot for a token, fed one at a time: the first `sinks` keep theirs, the others go round. */
export function slotOf(position, window, sinks = 0) {
  checkCount("position", position, { low: 0 });
  check(window, sinks);
  return position < sinks ? position : sinks + ((position - sinks) % window);
}

/** The position that each of the sinks + window slots holds after `tokens` tokens; null: empty. */
export function ring(tokens, window, sinks = 0) {
  checkCount("tokens", tokens, { low: 0 });
  check(window, sinks);
  const slots = Array.from({ length: sinks + window }, () => null);
  for (const position of kept(tokens, window, sinks)) slots[slotOf(position, window, sinks)] = position;
  return slots;
}

/** The positions that are still there after `tokens` tokens, rising: min(tokens, window + sinks) of them. */
export function kept(tokens, window, sinks = 0) {
  checkCount("tokens", tokens, { low: 0 });
  check(window, sinks);
  const first = Math.min(sinks, tokens);
  const from = Math.max(first, tokens - window);
  const range = (low, high) => Array.from({ length: high - low }, (_, i) => low + i);
  return [...range(0, first), ...range(from, tokens)];
}
