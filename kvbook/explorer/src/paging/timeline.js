// Requests that arrive, grow, fork and finish, played through the book-keeping. No DOM here.
//
// An event is [do, who, ...]: arrive with the tokens of a prompt, grow by tokens, fork into another name, finish.
import { BlockManager, GrowingTables, OutOfBlocks } from "./blocks.js";

/** All states of a timeline, the empty one first: states[k] is after k events. */
export function play(events, { blockSize, numBlocks, sharing, maxLen }) {
  const tables = sharing ? new BlockManager(numBlocks, blockSize) : new GrowingTables(numBlocks, blockSize);
  const live = new Map(); // name -> { name, seq, tokens, found }
  const sums = { asked: 0, found: 0, copies: 0, evicted: 0, refused: 0 };
  const remember = ({ seq, tokens }) => sharing && tables.remember(seq, tokens);

  /** A sequence with all of these tokens, or nothing changes hands. */
  const admit = (name, tokens) => {
    const seq = tables.start(tokens);
    const found = tables.lengths.get(seq);
    try {
      tables.append(seq, tokens.length - found);
    } catch (error) {
      tables.free(seq);
      throw error;
    }
    const one = { name, seq, tokens: [...tokens], found };
    live.set(name, one);
    remember(one);
    return found;
  };
  const acts = {
    arrive(name, prompt) {
      const found = admit(name, prompt);
      sums.asked += prompt.length;
      sums.found += found;
      return { found, asked: prompt.length };
    },
    grow(name, tokens) {
      const one = live.get(name);
      const copies = tables.append(one.seq, tokens.length);
      one.tokens.push(...tokens);
      remember(one);
      sums.copies += copies.length;
      return { copies, grown: tokens.length };
    },
    fork(name, into) {
      const { seq, tokens } = live.get(name);
      if (sharing) live.set(into, { name: into, seq: tables.fork(seq), tokens: [...tokens], found: 0 });
      else admit(into, tokens);
      return { tokens: tokens.length };
    },
    finish(name) {
      tables.free(live.get(name).seq);
      live.delete(name);
      return {};
    },
  };

  const log = logged(tables.pool);
  const stateAfter = (last) => stateOf({ tables, live, maxLen }, { ...sums }, last);
  const states = [stateAfter(null)];
  for (const event of events) {
    log.length = 0;
    let report;
    try {
      const [what, who, more] = event;
      const isThere = live.has(who);
      const isLeftOut = isThere === (what === "arrive") || (what === "fork" && live.has(more));
      report = isLeftOut ? { isLeftOut } : acts[what](who, more);
    } catch (error) {
      if (!(error instanceof OutOfBlocks)) throw error;
      sums.refused += 1;
      log.length = 0; // whole: what was taken is given back
      report = { refused: error.message };
    }
    sums.evicted += log.filter(([move]) => move === "evicted").length;
    states.push(stateAfter({ event, report, moves: movesOf(log, tables.pool, report.copies ?? []) }));
  }
  const finals = new Map(states.flatMap(({ requests }) => requests.map(({ seq, length }) => [seq, length]))); // the last of each
  for (const { requests, tokens } of states) tokens.exact = requests.reduce((sum, { seq }) => sum + finals.get(seq), 0);
  return states;
}

/** A list to which a pool writes what is done to its blocks: [taken | evicted | shared | freed | kept, block]. */
function logged(pool) {
  const log = [];
  const wrap = (name, note) => {
    const plain = pool[name].bind(pool);
    pool[name] = (...given) => {
      const kept = pool.unused?.size ?? 0;
      const result = plain(...given);
      note(given[0] ?? result, kept);
      return result;
    };
  };
  wrap("take", (block, kept) => log.push([(pool.unused?.size ?? 0) < kept ? "evicted" : "taken", block]));
  wrap("share", (block) => log.push(["shared", block]));
  wrap("giveBack", (block) => {
    if (pool.refCounts[block] === 0) log.push([pool.unused?.has(block) ? "kept" : "freed", block]);
  });
  return log;
}

/** What an event did to each block, by its number: the last of it, and whether rows that were kept are lost by it. */
function movesOf(log, pool, copies) {
  const moves = new Map();
  for (const [move, block] of log) moves.set(block, { move: move === "evicted" ? "taken" : move, isEvicted: move === "evicted" });
  for (const [from, to] of copies) moves.set(to, { ...moves.get(to), move: "copied", from });
  return moves;
}

function stateOf({ tables, live, maxLen }, sums, last) {
  const { pool, blockSize } = tables;
  const requests = [...live.values()].map(({ name, seq, found }) => ({
    ...{ name, seq, found, length: tables.lengths.get(seq), table: [...tables.tables.get(seq)] },
  }));
  const fill = new Array(pool.numBlocks).fill(0); // tokens in each block that is in use
  for (const { length, table } of requests) {
    table.forEach((block, i) => (fill[block] = Math.max(fill[block], Math.min(blockSize, length - i * blockSize))));
  }
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const inUse = pool.refCounts.filter((n) => n > 0).length;
  return {
    ...{ requests, fill, sums, last, inUse, refCounts: [...pool.refCounts], kept: new Set(pool.unused ?? []) },
    tokens: {
      written: sum(requests.map(({ length }) => length)), // of all requests, shared ones more than once
      filled: sum(fill), // rows that are there
      paged: inUse * blockSize,
      exact: 0, // what they hold in the end: known when all has happened
      maximum: requests.length * maxLen,
    },
  };
}
