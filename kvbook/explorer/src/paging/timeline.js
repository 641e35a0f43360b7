// Requests that arrive, grow, fork and finish, played through the book-keeping. No DOM here.
//
// An event is { do, who, ... }: arrive with prompt [[text, tokens], ...]; grow by n tokens, of one or of several;
// fork into `into`; finish. Token i of a text is the same in every prompt; what a request grows is the text of its name.
import { BlockManager, GrowingTables, OutOfBlocks } from "./blocks.js";

/** The tokens that each request will hold in the end. */
export function finalLengths(events) {
  const lengths = new Map();
  for (const { do: what, who, prompt, n, into } of events) {
    if (what === "arrive") lengths.set(who, promptLength(prompt));
    if (what === "grow") for (const one of [who].flat()) lengths.set(one, lengths.get(one) + n);
    if (what === "fork") lengths.set(into, lengths.get(who));
  }
  return lengths;
}

export const promptLength = (prompt) => prompt.reduce((sum, [, n]) => sum + n, 0);

/** All states of a timeline, the empty one first: states[k] is after k events. */
export function play(events, { blockSize, numBlocks, sharing, maxLen }) {
  const tables = sharing ? new BlockManager(numBlocks, blockSize) : new GrowingTables(numBlocks, blockSize);
  const live = new Map(); // name -> { seq, tokens, own, found, isWaiting }
  const gone = new Set(); // not let in, so all that follows of them is left out
  const ids = new Map(); // text and place -> token
  const finals = finalLengths(events);
  const sums = { asked: 0, found: 0, copies: 0, evicted: 0, refused: 0 };
  const token = (text, i) => {
    const key = `${i} ${text}`;
    if (!ids.has(key)) ids.set(key, ids.size);
    return ids.get(key);
  };
  const written = (prompt) => prompt.flatMap(([text, n]) => Array.from({ length: n }, (_, i) => token(text, i)));
  const remember = ({ seq, tokens }) => sharing && tables.remember(seq, tokens);

  const grow = (one, n) => {
    const copies = tables.append(one.seq, n);
    for (let i = 0; i < n; i++) one.tokens.push(token(one.name, one.own++));
    remember(one);
    return copies;
  };
  const acts = {
    arrive({ who, prompt }) {
      const tokens = written(prompt);
      const seq = tables.start(tokens);
      const found = tables.lengths.get(seq);
      try {
        tables.append(seq, tokens.length - found);
      } catch (error) {
        tables.free(seq);
        gone.add(who);
        throw error;
      }
      const one = { name: who, seq, tokens, own: 0, found };
      live.set(who, one);
      remember(one);
      sums.asked += tokens.length;
      sums.found += found;
      return { found, asked: tokens.length };
    },
    grow({ who, n }) {
      const report = { copies: [], waiting: [], missing: "" };
      for (const name of [who].flat()) {
        const one = live.get(name);
        if (!one) continue;
        try {
          report.copies.push(...grow(one, n));
        } catch (error) {
          if (!(error instanceof OutOfBlocks)) throw error;
          report.waiting.push(name);
          report.missing = error.message;
        }
      }
      sums.copies += report.copies.length;
      sums.refused += report.waiting.length;
      return report;
    },
    fork({ who, into }) {
      const parent = live.get(who);
      if (!parent) return gone.add(into) && {};
      let seq;
      if (sharing) seq = tables.fork(parent.seq);
      else {
        seq = tables.start();
        try {
          tables.append(seq, parent.tokens.length);
        } catch (error) {
          tables.free(seq);
          gone.add(into);
          throw error;
        }
      }
      live.set(into, { name: into, seq, tokens: [...parent.tokens], own: 0, found: 0 });
      return {};
    },
    finish({ who }) {
      const one = live.get(who);
      if (one) tables.free(one.seq);
      live.delete(who);
      return {};
    },
  };

  const log = logged(tables.pool);
  const stateAfter = (last) => stateOf({ tables, live, finals, maxLen }, { ...sums }, last);
  const states = [stateAfter(null)];
  for (const event of events) {
    log.length = 0;
    let report;
    try {
      const isLeftOut = [event.who].flat().every((name) => gone.has(name));
      report = isLeftOut ? { isLeftOut } : acts[event.do](event);
    } catch (error) {
      if (!(error instanceof OutOfBlocks)) throw error;
      sums.refused += 1;
      log.length = 0; // whole: what was taken is given back
      report = { refused: error.message };
    }
    sums.evicted += log.filter(([move]) => move === "evicted").length;
    states.push(stateAfter({ event, report, moves: movesOf(log, tables.pool, report.copies ?? []) }));
  }
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

function stateOf({ tables, live, finals, maxLen }, sums, last) {
  const { pool, blockSize } = tables;
  const requests = [...live.values()].map(({ name, seq, found }) => ({
    ...{ name, found, length: tables.lengths.get(seq), table: [...tables.tables.get(seq)] },
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
      exact: sum(requests.map(({ name, length }) => Math.max(length, finals.get(name)))),
      maximum: requests.length * maxLen,
    },
  };
}
