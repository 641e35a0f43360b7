// The state: everything that the explorer shows follows from it and from the timelines. No DOM here.
import { carriedBy, field, initialOf, oneOf, whole } from "../common/fields.js";
import { hashOf } from "../common/hash.js";

export const BLOCK_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
export const MAX_POOL = 4096; // tokens
export const MAX_BLOCKS = 512; // more would not fit the picture
export const MAX_EVENTS = 200;

export const FIELDS = [
  field("timeline", "timeline", "timeline", 0, whole(0, 15)),
  field("step", "step", "step", 0, whole(0, MAX_EVENTS)),
  field("blockSize", "block_size", "block", 16, oneOf(BLOCK_SIZES)),
  field("sharing", "sharing", "sharing", true, oneOf([true, false])),
  field("poolTokens", "pool_tokens", "pool", 768, whole(1, MAX_POOL)),
  field("maxLen", "max_len", "max", 256, whole(1, MAX_POOL)),
];

export const INITIAL = initialOf(FIELDS);
export const { fromTraits, toTraits, same } = carriedBy(FIELDS);
export const hash = hashOf(FIELDS, "#paging:");

/** The settings that a timeline is made for, at an event that shows what it is about. */
export const settingsOf = ({ block_size: blockSize, pool_tokens: poolTokens, max_len: maxLen, step }) => ({
  ...{ blockSize, poolTokens, maxLen, step },
});

/** Whether a pool is cut into blocks that can be drawn. */
export const isPossible = ({ poolTokens }, blockSize) =>
  blockSize <= poolTokens && Math.floor(poolTokens / blockSize) <= MAX_BLOCKS;

/** Changes to a state with what follows from them: another timeline has its own settings, a pool its block sizes. */
export function settle(state, changes, timelines) {
  const isOther = "timeline" in changes && changes.timeline !== state.timeline;
  const next = { ...state, ...(isOther && settingsOf(timelines[changes.timeline])), ...changes };
  if (isPossible(next, next.blockSize)) return next;
  const best = BLOCK_SIZES.filter((size) => isPossible(next, size));
  const near = (size) => Math.abs(Math.log(size / next.blockSize));
  return { ...next, blockSize: best.reduce((a, b) => (near(b) < near(a) ? b : a)) };
}
