// What the explorer says. No DOM here.
import { saving, usersLine as division } from "../capacity/text.js";
import { count, decimal } from "../common/units.js";

export { count, decimal };
const NB = "\u00a0"; // a number is not torn from its unit

export const bytes = (n) => `${count(n)}${NB}B`;
export const tokens = (n) => (n === 1 ? "1 token" : `${count(n)} tokens`);
export const kvHeads = (n) => (n === 1 ? "1 KV head" : `${n} KV heads`);
export const values = (n) => (n === 1 ? "1 value" : `${count(n)} values`);
export const fitting = (n) => (n === 1 ? "1 user" : `${count(n)} users`);
export const loss = (n) => n.toFixed(3);

/** The kind of attention by its name. */
export function kindOf(nKvHeads, nHeads) {
  if (nKvHeads === nHeads) return "MHA";
  return nKvHeads === 1 ? "MQA" : "GQA";
}

const settingOf = (state, { model, isLatent }) =>
  isLatent
    ? `with one latent of ${count(state.latentWidth)} + ${count(state.ropeWidth)} values a layer`
    : `with ${state.nKvHeads} KV ${state.nKvHeads === 1 ? "head" : "heads"} for ${model.spec.nHeads} query heads`;

const isPublished = (state, { model, isLatent }) => !isLatent && state.nKvHeads === model.publishedHeads;

/** The answer, [what, of what]. */
export function headline(state, found) {
  const { model, gpu, now, published, free, weights, memory } = found;
  const same = isPublished(state, found);
  const shrunk = same ? ", as published" : `, ${saving(published.perToken, now.perToken)} than as published`;
  const each = `${decimal(now.perToken)} of cache a token${shrunk.replace("the same than", "the same")}`;
  const rest = `${model.name} ${settingOf(state, found)}: ${each}; ${tokens(state.context)} each on one ${gpu.name}.`;
  if (free < 0) return ["The weights do not fit.", `${decimal(weights)} of weights, ${decimal(memory)} on the card. ${rest}`];
  if (now.users === 0) return ["No user fits.", rest];
  const fit = now.users === 1 ? "1 user fits" : `${count(now.users)} users fit`;
  return [same ? `${fit}.` : `${fit}, ${count(published.users)} as published.`, rest];
}

/** The finding of the picture of heads. */
export function sharing(state, { model, isLatent, groupSize }) {
  const { nHeads } = model.spec;
  if (isLatent) return `All ${nHeads} query heads read one latent; K and V of each head are made from it.`;
  const kind = kindOf(state.nKvHeads, nHeads);
  if (kind === "MHA") return `Each of ${nHeads} query heads has a KV head of its own (MHA).`;
  if (kind === "MQA") return `All ${nHeads} query heads share one KV head (MQA).`;
  return `Each of ${state.nKvHeads} KV heads serves ${groupSize} query heads (GQA).`;
}

/** What a token leaves in a layer, as a product. */
export function rowLine(state, { model, isLatent }) {
  const { kDim, vDim, publishedHeads } = model;
  const most = values(publishedHeads * (kDim + vDim));
  const own = isLatent
    ? `${count(state.latentWidth)} + ${count(state.ropeWidth)} = ${values(state.latentWidth + state.ropeWidth)}`
    : `${state.nKvHeads} × (${kDim} + ${vDim}) = ${values(state.nKvHeads * (kDim + vDim))}`;
  return `One token in one layer: ${own}; as published ${most}.`;
}

/** The finding of the list of choices. */
export function falling({ model, rows, gpu }) {
  const [fewest, most] = [rows[0], rows.at(-1)];
  const fit = `users on one ${gpu.name} from ${count(most.users)} to ${count(fewest.users)}`;
  return (
    `From ${kvHeads(model.spec.nHeads)} to ${fewest.nKvHeads} a token shrinks from ${decimal(most.perToken)} to` +
    ` ${decimal(fewest.perToken)}${most.users === fewest.users ? "." : `; ${fit}.`}`
  );
}

export function tokenLine(state, { model, now, isLatent }) {
  const layers = model.spec.layers.length;
  const row = isLatent
    ? `(${count(state.latentWidth)} + ${count(state.ropeWidth)}) values`
    : `${kvHeads(state.nKvHeads)} × (${model.kDim} + ${model.vDim}) values`;
  return `${layers} layers × ${row} × 2${NB}B = ${bytes(now.perToken)}`;
}

export const userLine = (state, { memory, weights, free, now }) =>
  division(
    { utilization: 1, overheadGb: 0, tensorParallel: 1 },
    {
      card: { memoryBytes: memory },
      room: { free, weights, usable: memory, overhead: 0 },
      weightsBytes: weights,
      sequence: now.sequence,
      users: now.users,
    },
  );

/** The finding of the trained series: how far it moves, against its spread. */
export function trained({ points }) {
  const [fewest, most] = [points[0], points.at(-1)];
  if (points.length === 1) return `Measured: a loss of ${loss(most.loss)} nats with ${kvHeads(most.n_kv_heads)}.`;
  const difference = fewest.loss - most.loss;
  const way = difference >= 0 ? "rises" : "falls";
  return (
    `From ${kvHeads(most.n_kv_heads)} to ${fewest.n_kv_heads} the measured loss ${way} by` +
    ` ${loss(Math.abs(difference))} nats; ${against(Math.abs(difference), points)}.`
  );
}

function against(difference, points) {
  const ends = [points[0], points.at(-1)];
  const largest = (list) => loss(Math.max(...list.map(({ spread }) => spread)));
  if (!ends.every(hasSpread)) return "with one seed no spread is known, so this may be chance";
  if (difference <= ends[0].spread + ends[1].spread)
    return `not more than the spreads of the two over seeds together (the larger is ${largest(ends)})`;
  return `the spread over seeds is at most ${largest(points.filter(hasSpread))}`;
}

/** One seed has no spread. */
const hasSpread = ({ seeds }) => seeds > 1;

/** The length of a point's error bar: none where no spread is known. */
export const spreadOf = (point) => (hasSpread(point) ? point.spread : 0);
export const spreadWords = (point) => (hasSpread(point) ? loss(point.spread) : "not known");

const sampled = ({ seeds }) => (seeds === 1 ? "1 seed" : `${seeds} seeds`);

export function pointWords(point) {
  const spread = hasSpread(point) ? ` ± ${loss(point.spread)} nats` : " nats, spread not known,";
  return `${kvHeads(point.n_kv_heads)}: ${loss(point.loss)}${spread} over ${sampled(point)}`;
}

/** What the series says of the chosen settings, and what it is. */
export function beside({ model, isLatent, groupSize }, { points, heads }, same) {
  const what = `Measured on small decoders of the lesson with ${heads} query heads; what ${model.name} would lose is not known.`;
  if (isLatent) return `${what} They were trained with KV heads, not with a latent.`;
  const share = groupSize === 1 ? "a KV head for each query head" : `${groupSize} query heads a KV head`;
  if (same) return `${what} Ringed, for it too has ${share}: ${pointWords(same)}.`;
  const groups = points.map(({ n_kv_heads: n }) => heads / n).filter(Number.isInteger).sort((a, b) => a - b);
  return `${what} None was trained with ${share}; measured are groups of ${groups.join(", ")}.`;
}

/** What a reader should know about these settings. */
export function notes(state, found) {
  const { model, now, moreWeights: more, isLatent } = found;
  const another = isPublished(state, found) ? "" : ": this is another model, not a setting of this one";
  const said = [`The number of KV heads is fixed before training${another}.`];
  said.push("Weights as published, at 16 bits; cache in fp16; nothing else takes memory.");
  if (more !== null && more !== 0)
    said.push(`Other KV heads also change the weights: ${decimal(Math.abs(more))} ${more < 0 ? "less" : "more"}, not counted.`);
  if (isLatent) {
    said.push("A latent needs other projections than this model has; their weights are not counted.");
    if (now.perToken >= found.published.perToken) said.push("This latent is no smaller than the published K and V.");
  }
  if (state.context > model.max_context) said.push(`${model.name} is made for at most ${tokens(model.max_context)}.`);
  return said;
}
