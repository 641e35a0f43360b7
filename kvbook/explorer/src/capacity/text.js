// What the explorer says. No DOM here.
import { times } from "../common/format.js";
import { binary, CACHE_NAMES, count, decimal } from "../common/units.js";

export { binary, CACHE_NAMES, count, decimal };

export const both = (n) => `${decimal(n)} (${binary(n)})`;
export const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`);
export const sequences = (n) => (n === 1 ? "1 sequence" : `${count(n)} sequences`);

export const WEIGHT_NAMES = {
  released: "as released",
  32: "32 bits",
  16: "16 bits",
  8: "8 bits",
  4: "4 bits",
};

export const cards = ({ name, nominal }, n) =>
  n > 1 ? `${n} × ${name}` : nominal === null ? name : `one ${name}`;

/** The answer, [what, of what]. */
export function headline(state, { model, card, plan, room, sequence, users }) {
  const where = cards(card, state.tensorParallel);
  const each = state.tensorParallel > 1 ? " on each" : "";
  if (users === null) return ["Any number of users fits.", `${capital(model.name)} keeps no KV cache.`];
  if (room.free < 0) {
    const weights = `${capital(model.name)} takes ${decimal(room.weights)} of weights${each}`;
    return [
      "The weights do not fit.",
      `${weights}; ${where} leaves ${decimal(Math.max(0, room.usable - room.overhead))} for them.`,
    ];
  }
  if (users === 0) {
    return [
      "No user fits.",
      `One sequence takes ${decimal(sequence)} of cache${each}; ${decimal(room.free)} are free for it.`,
    ];
  }
  const reserved = plan.tokens > state.context ? `, ${count(plan.tokens)} reserved` : "";
  const cache = CACHE_NAMES[state.cacheDtype];
  const what = users === 1 ? "1 user fits" : `${count(users)} users fit`;
  return [
    what,
    `with ${tokens(state.context)} each${reserved}: ${model.name} on ${where}, cache in ${cache}.`,
  ];
}

/** What a sequence keeps beside its cache and the users do not count, where there is such a thing; else "". */
export function aside({ tensorParallel }, { constant, users, usersWithState }) {
  if (constant === null)
    return "A sequence also keeps a constant state, which is not counted: the config does not tell its size.";
  if (constant === 0) return "";
  const kept = `A sequence also keeps a constant state of ${decimal(constant)} (at 2 bytes a value), which is not counted`;
  if (users === 0) return `${kept}.`;
  const shared = tensorParallel > 1 ? `, shared evenly among the ${tensorParallel} GPUs,` : "";
  const still = users === usersWithState ? "still " : "";
  const fitting = usersWithState === 1 ? "1 user" : `${count(usersWithState)} users`;
  return `${kept}: with it${shared} ${still}${fitting} would fit.`;
}

/** How the batch lies in the free memory. */
export function verdict({ batch, tensorParallel }, { cache, room, users }) {
  const on = tensorParallel > 1 ? " on each GPU" : "";
  const what = `The cache of ${sequences(batch)} takes ${decimal(cache)}${on}`;
  if (users === null) return "No layer of this model has keys or values to keep.";
  if (room.free < 0) return `${decimal(-room.free)} are missing for the weights alone.`;
  if (batch > users) return `${what}: ${decimal(cache - room.free)} more than there is.`;
  const more = users - batch;
  const rest = more === 0 ? "none more fits" : `${count(more)} more ${more === 1 ? "fits" : "fit"}`;
  const heavier = cache > room.weights ? `, ${times(cache / room.weights)} × the weights` : "";
  return `${what}${heavier}; ${rest}.`;
}

/** The division that gives the users. */
export function usersLine(
  { utilization, overheadGb, tensorParallel },
  { card, room, weightsBytes, sequence, users },
) {
  if (users === null) return "users: a sequence takes no cache";
  const share = utilization === 1 ? "" : `${String(utilization)} × `;
  const overhead = overheadGb > 0 ? ` − ${count(Math.round(room.overhead))}` : "";
  const weights = `${count(weightsBytes)}${tensorParallel > 1 ? ` ÷ ${tensorParallel}` : ""}`;
  const free = `(${share}${count(card.memoryBytes)}${overhead} − ${weights}) B`;
  if (room.free < 0) {
    const what = room.weights > room.usable ? "the weights alone take" : "the weights and the overhead take";
    return `${free}: ${what} more than there is → 0`;
  }
  const exact = room.free / sequence;
  const rounded = Number(exact.toFixed(2)); // 30.98; but 30.999 must not read "31.00 → 30"
  const shown = Math.floor(rounded) > exact ? Math.floor(exact * 100) / 100 : rounded;
  const quotient = exact >= 1e4 ? count(Math.floor(exact)) : hundredths(shown);
  const equals = exact > 0 && exact < 0.01 ? "< 0.01" : `= ${quotient}`;
  return `${free} ÷ ${count(sequence)} B ${equals} → ${count(users)}`;
}

const hundredths = (n) => n.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Tokens a second, in words. */
export const rate = (n) => (n >= 100 ? count(Math.round(n)) : n >= 10 ? n.toFixed(1) : n.toPrecision(2));

export function boundLine({ bandwidth, stepBytes, weightsBytes, cacheBytes }) {
  const read = `${decimal(weightsBytes)} of weights + ${decimal(cacheBytes)} of cache`;
  const speed = `${count(Math.round(bandwidth / 1e9))} GB/s`;
  return `${speed} ÷ (${read}) = ${rate(bandwidth / stepBytes)} steps a second`;
}

export function boundNotes({ tensorParallel, batch }, { model, users }) {
  const notes = [
    "An upper bound, not a forecast: each step reads all weights and all of the cache once; nothing else takes time.",
  ];
  if (model.experts) {
    notes.push(
      "A mixture of experts reads only the experts that its tokens choose: a small batch can be faster than this.",
    );
  }
  if (tensorParallel > 1)
    notes.push(
      `The ${tensorParallel} GPUs read their parts at once; what they send to each other is left out.`,
    );
  if (users !== null && batch > users) notes.push("This batch does not fit.");
  return notes;
}

/** What a sequence's cache shrinks to: "4.00 × smaller". */
export function saving(before, after) {
  if (before === undefined) return decimal(after);
  if (before === after) return "the same";
  if (after === 0) return "nothing left";
  return after < before ? `${ratio(before / after)} × smaller` : `${ratio(after / before)} × larger`;
}

const ratio = (n) => (n < 100 ? n.toPrecision(3) : count(Math.round(n)));

export const fitting = (users) => (users === null ? "any number" : count(users));

/** The row that the techniques are measured against. */
export const baselineName = ({ context }) => `As published, 16 bits, ${tokens(context)} reserved`;

/** What a technique's row says: why it cannot be, the reason for what it saves, or how much it saves. */
export const gain = ({ why, because, sequence }, base) => why ?? because ?? saving(base.sequence, sequence);

/** What all settings together save; the baseline where nothing of it is changed. */
export const gainOfAll = ({ sequence }, base) =>
  base.sequence === sequence ? "as published" : saving(base.sequence, sequence);

/** What paging saves: what would be reserved beyond the tokens in use. Both are as `alone` gives them. */
export function pagingGain(context, paged, reserved) {
  if (reserved.tokens <= context)
    return `Saves nothing here: every token that would be reserved, ${count(context)} a sequence, is in use.`;
  if (reserved.sequence <= paged.sequence)
    return `Saves nothing here: the ${count(reserved.tokens)} tokens that might be reserved take no more cache.`;
  const smaller = saving(reserved.sequence, paged.sequence);
  const would = `${fitting(reserved.users)} would fit`;
  return `${smaller} than with ${tokens(reserved.tokens)} reserved a sequence (${would}).`;
}

/** The chart's finding. */
export function finding(batch, { weights, free }, most) {
  const whose = batch === 1 ? "One sequence’s cache" : `The cache of ${sequences(batch)}`;
  const weighs =
    weights === null
      ? `stays below the weights up to ${tokens(most)}`
      : `is larger than the weights from ${tokens(weights)}`;
  if (free === null) return `${whose} ${weighs} and fits at every length shown.`;
  if (free === 1) return `${whose} does not fit at any length.`;
  if (weights !== null && weights <= free)
    return `${whose} ${weighs} and no longer fits from ${tokens(free)}.`;
  return `${whose} no longer fits from ${tokens(free)}, when it is still smaller than the weights.`;
}

/** What a reader should know about these settings. */
export function notes({ context }, { model }) {
  const said = [...model.spec.notes];
  if (model.maxContext && context > model.maxContext) {
    said.push(`${capital(model.name)} is made for at most ${tokens(model.maxContext)}.`);
  }
  return said;
}

const capital = (name) => name[0].toUpperCase() + name.slice(1);
