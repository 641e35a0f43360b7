// Bytes of coded keys and values, scales and tails counted. Held equal to the accounting where that has the
// format. No DOM here.
import { ceilDiv } from "../accounting/exact.js";
import { codingOf } from "./formats.js";

const TAIL_BYTES = 2; // a value that waits in the tail, in fp16

/** Bytes that `tokens` rows of `dim` values of one head take; in blocks of several with the room of a tail, one block. */
export function rowsNbytes({ along, bits, group, extra, block }, tokens, dim) {
  const packed = (values) => ceilDiv(values * bits, 8);
  const blocks = Math.floor(tokens / block);
  const tail = block > 1 ? block * dim * TAIL_BYTES : 0;
  if (along === "channel") return blocks * dim * (packed(group) + extra) + tail;
  if (along === "token") return tokens * (packed(dim) + extra);
  if (along === "group") return blocks * block * ceilDiv(dim, group) * (packed(group) + extra) + tail;
  return (tokens * dim * bits) / 8;
}

/** What a row takes for each value, over many tokens: bits of its code and of its share of the scales. */
export function bitsPerValue({ along, bits, group, extra }, dim) {
  const among = { channel: group, group, token: dim }[along];
  return bits + (among ? (8 * extra) / among : 0);
}

/** Bytes of one sequence of `context` tokens: [{ keys, values } of one head in one layer, all together]. */
export function sequenceNbytes({ layer, nLayers }, format, only, context) {
  const coding = codingOf(format, only);
  const keys = rowsNbytes(coding.keys, context, layer.kDim);
  const values = rowsNbytes(coding.values, context, layer.vDim);
  return { keys, values, all: nLayers * layer.nKvHeads * (keys + values) };
}

/** The same for one more token, over many: a block's scales are shared by its tokens. */
export function tokenNbytes({ layer, nLayers }, format, only) {
  const coding = codingOf(format, only);
  const keys = (bitsPerValue(coding.keys, layer.kDim) * layer.kDim) / 8;
  const values = (bitsPerValue(coding.values, layer.vDim) * layer.vDim) / 8;
  return { keys, values, all: nLayers * layer.nKvHeads * (keys + values) };
}
