// Every figure that the explorer shows, from the state alone. The sizes and the users are the accounting's; here is
// only which of its questions to ask. No DOM here.
import { decodeBound } from "./bound.js";
import { bytesPerToken, nbytes, stateBytes, users, whatIf } from "./engine.js";
import { cardFor, modelFor, weightsFor } from "./model.js";
import { MAX_CONTEXT } from "./state.js";

/** All figures of a state. Throws an Error with one sentence where its settings do not go together. */
export function figures(state) {
  const model = modelFor(state);
  const card = cardFor(state);
  const plan = planFor(state, model);
  const weightsBytes = weightsFor(model, state.weights);
  const room = roomFor(state, card, weightsBytes);
  const sequence = sequenceBytes(plan);
  const cache = sizeAt(plan, state.context, state.batch);
  const read = nbytes(plan.spec, {
    context: state.context,
    batch: state.batch,
    ...plan.options,
    policy: "exact",
  });
  const constant = stateBytes(plan.spec); // null where the config does not tell
  return {
    model,
    card,
    plan,
    room,
    weightsBytes,
    sequence,
    cache,
    perToken: bytesPerToken(plan.spec, plan.options),
    users: fit(state, card, weightsBytes, sequence),
    constant,
    usersWithState:
      constant === null
        ? null
        : fit(state, card, weightsBytes, sequence + Math.ceil(constant / state.tensorParallel)),
    bound: decodeBound({
      bandwidth: card.bandwidth,
      weightsBytes: room.weights,
      cacheBytes: read,
      batch: state.batch,
    }),
  };
}

/** What is cached and how it is reserved: a spec, the engine's options, and the tokens that a sequence holds. */
export function planFor(state, model) {
  const { nKvHeads, window, sinks, fullEvery, policy, context } = state;
  const slides = window !== null && model.takesWindow;
  const change = {
    ...(nKvHeads !== null &&
      nKvHeads !== model.publishedHeads &&
      model.headChoices.length > 0 && { nKvHeads }),
    ...(slides && { window, sinks }),
    ...(slides && fullEvery !== null && { fullEvery }),
  };
  const longest = policy === "reserve" ? (state.reserve ?? model.maxContext ?? context) : 0;
  return {
    change,
    spec: Object.keys(change).length > 0 ? whatIf(model.spec, change) : model.spec,
    longest, // a sequence takes at least as many tokens
    tokens: Math.max(context, longest),
    options: {
      cacheDtype: state.cacheDtype,
      policy: policy === "reserve" ? "exact" : policy,
      tensorParallel: state.tensorParallel,
      blockSize: state.blockSize,
    },
  };
}

/** Bytes on one card that sequences of `context` tokens take under a plan. */
export function sizeAt({ spec, longest, options }, context, batch = 1) {
  return nbytes(spec, { context: Math.max(context, longest), batch, ...options });
}

const sequenceBytes = (plan) => sizeAt(plan, plan.tokens);

export const overheadBytes = ({ overheadGb }) => Math.round(overheadGb * 1e9);

function fit(state, { memoryBytes }, weightsBytes, sequence) {
  const { tensorParallel, utilization } = state;
  const given = { memoryBytes, weightsBytes, tensorParallel, utilization: String(utilization) };
  return users({ ...given, overheadBytes: overheadBytes(state), sequenceBytes: sequence });
}

/** How one card's memory is divided, in bytes; `free` is below 0 where not even the weights fit. */
function roomFor(state, { memoryBytes }, weightsBytes) {
  const weights = weightsBytes / state.tensorParallel;
  const usable = Math.floor((memoryBytes * Math.round(state.utilization * 1e9)) / 1e9);
  const overhead = overheadBytes(state);
  return {
    card: memoryBytes,
    usable,
    kept: memoryBytes - usable,
    overhead,
    weights,
    free: usable - overhead - weights,
  };
}

/** The least context, up to `most`, at which `size` is above `limit`; null where it never is. `size` never falls. */
export function firstAbove(limit, size, most = MAX_CONTEXT) {
  if (!(size(most) > limit)) return null;
  let [low, high] = [0, most];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (size(middle) > limit) high = middle;
    else low = middle;
  }
  return high;
}

/** Where the batch's cache outgrows the weights and the free memory, and where one sequence's does. */
export function crossings({ plan, room }, batch) {
  const of = (n) => (context) => sizeAt(plan, context, n);
  return {
    weights: firstAbove(room.weights, of(batch)),
    free: firstAbove(Math.max(0, room.free), of(batch)),
    single: { weights: firstAbove(room.weights, of(1)), free: firstAbove(Math.max(0, room.free), of(1)) },
  };
}

/**
 * What one technique alone does: the published model with a cache of 16 bits, the context of each sequence reserved,
 * and a change. { tokens, sequence, users }, where `tokens` are those that a sequence takes; { why } where that cannot be.
 */
export function alone(state, changes) {
  const plain = {
    nKvHeads: null,
    window: null,
    sinks: 0,
    fullEvery: null,
    policy: "exact",
    cacheDtype: "float16",
  };
  const one = { ...state, ...plain, ...changes };
  const model = modelFor(one);
  try {
    const plan = planFor(one, model);
    const sequence = sequenceBytes(plan);
    const users = fit(one, cardFor(one), weightsFor(model, one.weights), sequence);
    return { tokens: plan.tokens, sequence, users };
  } catch (error) {
    return { why: error.message }; // KV heads that the GPUs cannot share
  }
}
