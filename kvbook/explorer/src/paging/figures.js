// Every figure that the explorer shows, from the state and the timelines alone. No DOM here.
import { play } from "./timeline.js";

const played = new Map(); // the last few runs: a step through one plays it once

function run(events, options) {
  const key = JSON.stringify([events, options]);
  if (!played.has(key)) {
    if (played.size >= 4) played.delete(played.keys().next().value);
    played.set(key, play(events, options));
  }
  return played.get(key);
}

/** All figures of a state: the timeline's states, the one that is shown, and bytes of each way to reserve. */
export function figures(state, { timelines, bytesPerToken }) {
  const timeline = timelines[Math.min(state.timeline, timelines.length - 1)];
  const { blockSize, sharing, poolTokens, maxLen } = state;
  const numBlocks = Math.max(1, Math.floor(poolTokens / blockSize));
  const states = run(timeline.events, { blockSize, numBlocks, sharing, maxLen });
  const step = Math.min(state.step, states.length - 1);
  const here = states[step];
  return {
    ...{ timeline, states, step, here, numBlocks, blockSize, bytesPerToken, sharing },
    ways: waysOf(here),
    poolTokens: numBlocks * blockSize,
  };
}

/** Tokens that each way to reserve holds, and those of them in which nothing lies. */
export function waysOf({ tokens }) {
  const { written, filled, paged, exact, maximum } = tokens;
  const way = (held, rows) => ({ held, rows, waste: held - rows, share: held === 0 ? 0 : (held - rows) / held });
  return { maximum: way(maximum, written), exact: way(exact, written), paged: way(paged, filled) };
}
