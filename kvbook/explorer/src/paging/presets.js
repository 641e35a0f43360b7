// Settings worth a look, by a button; each changes the start. No DOM here.
import { BLOCK_SIZES, isPossible, settle } from "./state.js";

/** The presets of a start. */
export function presetsFor(start, timelines) {
  const larger = BLOCK_SIZES.filter((size) => size > start.blockSize && isPossible(start, size)).at(1);
  const smaller = BLOCK_SIZES.filter((size) => size < start.blockSize && isPossible(start, size))[0];
  const others = timelines.map(({ name }, timeline) => ({ label: name, changes: settle(start, { timeline }, timelines) }));
  return [
    ...(others.length > 1 ? others : []),
    { label: "Sharing off", changes: { sharing: false } },
    { label: "Half the pool", changes: settle(start, { poolTokens: Math.ceil(start.poolTokens / 2) }, timelines) },
    ...(larger ? [{ label: `Blocks of ${larger}`, changes: { blockSize: larger } }] : []),
    ...(smaller ? [{ label: smaller === 1 ? "Blocks of 1 token" : `Blocks of ${smaller}`, changes: { blockSize: smaller } }] : []),
  ];
}
