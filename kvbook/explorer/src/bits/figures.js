// Every figure that the explorer shows, from the state, the sample and the record alone. No DOM here.
import { users } from "../accounting/fit.js";
import { gpuOf } from "../common/facts.js";
import { channelErrors, readBack, relativeError } from "./codec.js";
import { codingOf, formatOf, FORMATS, PLAIN } from "./formats.js";
import { bitsPerValue, sequenceNbytes, tokenNbytes } from "./size.js";
import { modelFor } from "./state.js";

/** All figures of a state; `given` is { measured, channels }, as the traits hold them. */
export function figures(state, given) {
  const model = modelFor(state.model);
  const card = gpuOf(state.gpu);
  const of = (name, only) => ({ ...formatFigures(state, model, card, name, only), ...rowOf(given, name, only) });
  const chosen = of(state.format, state.only);
  return {
    model,
    card,
    chosen,
    compared: of(state.compare, state.only),
    plain: of(PLAIN, null),
    all: FORMATS.map(({ name }) => of(name, state.only)),
    measured: given.measured,
    sample: sampleFigures(state, given.channels),
  };
}

/** What a format does to bytes and users. */
function formatFigures({ context }, model, card, name, only) {
  const coding = codingOf(name, only);
  const { kDim, vDim } = model.layer;
  const bits = (bitsPerValue(coding.keys, kDim) * kDim + bitsPerValue(coding.values, vDim) * vDim) / (kDim + vDim);
  const sequence = sequenceNbytes(model, name, only, context);
  return {
    ...{ format: formatOf(name), only: name === PLAIN ? null : only, coding, bits, sequence },
    token: tokenNbytes(model, name, only),
    users: users({
      sequenceBytes: sequence.all,
      memoryBytes: card.memory_bytes_nominal,
      weightsBytes: weightsBytes(model),
    }),
  };
}

/** Weights in 16 bits a parameter. */
export const weightsBytes = ({ parameters }) => 2 * parameters;

/** The record's row of a format and a choice of halves; nothing between rows is ever made up. */
function rowOf({ measured }, name, only) {
  const row = measured.find((one) => one.format === name && (one.only === only || name === PLAIN));
  return { row: row ?? null };
}

const known = new Map(); // read-backs of one sample, by format: a drag over channels asks for none again
let knownFor = null;

/** A format's keys of the sample as read back, with their errors. */
function sampleOf(channels, name, only) {
  if (knownFor !== channels) {
    known.clear();
    knownFor = channels;
  }
  const { keys } = codingOf(name, only);
  const key = JSON.stringify(keys);
  if (!known.has(key)) {
    const back = readBack(channels, keys);
    const errors = channelErrors(channels, back);
    known.set(key, { back, errors, relative: relativeError(channels, back), coding: keys });
  }
  return known.get(key);
}

function sampleFigures({ format, compare, only, channel: asked }, channels) {
  if (channels.length === 0) return null;
  const dim = channels[0].length;
  const channel = Math.min(asked, dim - 1);
  const sizes = Array.from({ length: dim }, (_, c) => Math.max(...channels.map((row) => Math.abs(row[c]))));
  return {
    ...{ channel, dim, tokens: channels.length, channels, sizes },
    chosen: sampleOf(channels, format, only),
    compared: sampleOf(channels, compare, only),
  };
}
