// The techniques of the book as settings: each alone against the baseline, and each as a button. No DOM here.
import { alone } from "./figures.js";
import { INITIAL } from "./state.js";
import { pagingGain } from "./text.js";

const WINDOW = { window: 1024, sinks: 4 };
const count = (n) => n.toLocaleString("en-US");
const holds = (state, changes) => Object.entries(changes).every(([name, value]) => state[name] === value);

/**
 * The rows: { label, changes, back, pressed, sequence, users, why, because }. `why` says why one has no effect here,
 * `because` what it saves where that is not to be read from the sizes.
 */
export function techniques(state, { model }) {
  const rows = [heads(state, model), ...precisions(state), ...windows(state, model), allocation(state)];
  return rows.map(({ because, ...row }) => {
    const found = row.why ? {} : alone(state, row.changes);
    return {
      ...row,
      ...found,
      pressed: !row.why && holds(state, row.changes),
      because: found.why || !because ? undefined : because(found),
    };
  });
}

function heads(state, { headChoices, publishedHeads }) {
  const fewer = headChoices.filter((n) => publishedHeads === null || n < publishedHeads);
  const label = (n) => (n === 1 ? "One KV head (MQA)" : `${n} KV heads (GQA)`);
  const back = { nKvHeads: null };
  if (fewer.length === 0) return { label: "Fewer KV heads", why: "This model has none to share.", back };
  const chosen = headChoices.includes(state.nKvHeads)
    ? state.nKvHeads
    : (fewer.filter((n) => n <= 8).at(-1) ?? fewer[0]);
  return { label: label(chosen), changes: { nKvHeads: chosen }, back };
}

const PRECISIONS = { fp8: "fp8 cache", int8: "int8 cache, with scales", int4: "int4 cache, with scales" };
const OTHERS = { q8_0: "q8_0 cache", q4_0: "q4_0 cache", float32: "32-bit cache" };

function precisions({ cacheDtype }) {
  const shown = cacheDtype in OTHERS ? { ...PRECISIONS, [cacheDtype]: OTHERS[cacheDtype] } : PRECISIONS;
  const back = { cacheDtype: INITIAL.cacheDtype };
  return Object.entries(shown).map(([dtype, label]) => ({ label, changes: { cacheDtype: dtype }, back }));
}

function windows(state, { takesWindow }) {
  const back = { window: null, sinks: 0, fullEvery: null };
  if (!takesWindow)
    return [{ label: "A window", why: "No layer of this model attends to everything.", back }];
  const { window, sinks } = state.window === null ? WINDOW : state;
  const besides = sinks === 0 ? "" : sinks === 1 ? " and 1 sink" : ` and ${sinks} sinks`;
  const kept = `Window of ${count(window)}${besides}`;
  const every = state.fullEvery ?? 4;
  const inside = `Saves nothing here: all ${count(state.context)} tokens lie in the window.`;
  const because = state.context <= window + sinks ? () => inside : null;
  return [
    { label: kept, changes: { window, sinks, fullEvery: null }, back, because },
    {
      label: `Window, 1 layer in ${every} full`,
      changes: { window, sinks, fullEvery: every },
      back,
      because,
    },
  ];
}

/** Paging reserves nothing beyond the tokens in use: told against a reservation of the most tokens there may be. */
function allocation(state) {
  const { blockSize, context } = state;
  return {
    label: `Paged, blocks of ${blockSize}`,
    changes: { policy: "paged", blockSize },
    back: { policy: INITIAL.policy },
    because: (paged) => pagingGain(context, paged, alone(state, { policy: "reserve" })),
  };
}

/** The row that all are measured against. */
export const baseline = (state) => alone(state, {});
