import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BlockManager, NamedPool, OutOfBlocks } from "../../kvbook/explorer/src/paging/blocks.js";
import { figures, waysOf } from "../../kvbook/explorer/src/paging/figures.js";
import { moveOf, stateOf } from "../../kvbook/explorer/src/paging/pool.js";
import { presetsFor } from "../../kvbook/explorer/src/paging/presets.js";
import { BLOCK_SIZES, FIELDS, hash, INITIAL, isPossible, settle } from "../../kvbook/explorer/src/paging/state.js";
import * as text from "../../kvbook/explorer/src/paging/text.js";
import { play } from "../../kvbook/explorer/src/paging/timeline.js";

const vectors = JSON.parse(readFileSync(new URL("../data/paging_vectors.json", import.meta.url)));
const SYSTEM = [0, 1, 2, 3, 4, 5, 6, 7];
const EVENTS = [
  ["arrive", "A", [...SYSTEM, 20, 21]],
  ["grow", "A", [22, 23, 24]],
  ["arrive", "B", [...SYSTEM, 30, 31, 32]],
  ["fork", "A", "C"],
  ["grow", "C", [40, 41]],
  ["finish", "A", null],
  ["arrive", "D", [50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62]],
  ["arrive", "E", [70, 71, 72, 73, 74]],
  ["grow", "E", [75]],
  ["finish", "B", null],
];
const TIMELINE = { name: "one", events: EVENTS, block_size: 4, pool_tokens: 40, max_len: 20, step: 5, longest: 15 };
const OTHER = { name: "other", events: EVENTS.slice(0, 2), block_size: 16, pool_tokens: 64, max_len: 32, step: 1, longest: 13 };
const GIVEN = { timelines: [TIMELINE, OTHER], bytesPerToken: 1000 };
const at = (changes = {}) => ({ ...INITIAL, blockSize: 4, poolTokens: 40, maxLen: 20, step: 5, ...changes });
const plain = (words) => words.replaceAll("\u00a0", " ");

/** What an operation of the vectors gives, as the tool writes it. */
function operate(manager, live, [what, given, n]) {
  try {
    if (what === "start") {
      const seq = manager.start(given);
      live.set(seq, [...given, ...new Array(200).fill(7)]); // its text, to the end
      return seq;
    }
    if (what === "append") {
      return manager.append(given, n);
    }
    if (what === "fork") {
      const seq = manager.fork(given);
      live.set(seq, [...live.get(given)]);
      return seq;
    }
    if (what === "free") manager.free(given);
    else manager.remember(given, live.get(given).slice(0, manager.lengths.get(given)));
    return null;
  } catch (error) {
    return error instanceof OutOfBlocks ? "out of blocks" : "error";
  }
}

function stateOfManager({ pool, tables, lengths }) {
  const named = [...pool.nameOf.keys()].sort((a, b) => a - b);
  return [pool.refCounts, pool.empty, [...pool.unused], named, [...tables].map(([seq, table]) => [seq, table]), [...lengths.values()]];
}

test("after every operation the book-keeping is Python's: owners, both orders of free blocks, tables, lengths", () => {
  const seen = new Set();
  for (const [numBlocks, blockSize, steps] of vectors.managers) {
    const manager = new BlockManager(numBlocks, blockSize);
    const live = new Map();
    steps.forEach(([operation, gave, state], i) => {
      const where = `${numBlocks} blocks of ${blockSize}, step ${i}`;
      assert.deepEqual(operate(manager, live, operation), gave, where);
      assert.deepEqual(stateOfManager(manager), state, where);
      seen.add(typeof gave === "string" ? gave : operation[0]);
      if (operation[0] === "append" && gave.length > 0) seen.add("copied");
      if (operation[0] === "start" && manager.lengths.get(gave) > 0) seen.add("found");
    });
  }
  const all = ["append", "copied", "error", "fork", "found", "free", "out of blocks", "remember", "start"];
  assert.deepEqual([...seen].sort(), all);
});

test("after every event of a timeline the moment is Python's, with sharing and without", () => {
  let refused = 0;
  for (const [events, numBlocks, blockSize, maxLen, sharing, moments] of vectors.timelines) {
    const states = play(events, { blockSize, numBlocks, sharing, maxLen });
    assert.equal(states.length, moments.length);
    states.forEach(({ requests, refCounts, kept, tokens, sums }, i) => {
      const found = [
        Object.fromEntries(requests.map(({ name, table }) => [name, table])),
        Object.fromEntries(requests.map(({ name, length }) => [name, length])),
        ...[refCounts, sharing ? [...kept] : []],
        ...[tokens.written, tokens.filled, tokens.paged, tokens.exact, tokens.maximum],
        ...[sums.asked, sums.found, sums.copies, sums.refused],
      ];
      assert.deepEqual(found, moments[i], `${numBlocks} blocks of ${blockSize}, event ${i}`);
    });
    refused += states.at(-1).sums.refused;
  }
  assert.ok(refused > 20);
});

test("in every state each row lies once: blocks in use and free add up, tables hold what the lengths need", () => {
  for (const [events, numBlocks, blockSize, maxLen, sharing] of vectors.timelines) {
    for (const { refCounts, kept, requests, fill, inUse, tokens } of play(events, { blockSize, numBlocks, sharing, maxLen })) {
      const owners = new Array(numBlocks).fill(0);
      for (const { table, length } of requests) {
        assert.equal(table.length, Math.ceil(length / blockSize));
        for (const block of table) owners[block] += 1;
      }
      assert.deepEqual(owners, refCounts);
      assert.ok([...kept].every((block) => refCounts[block] === 0));
      assert.equal(inUse, refCounts.filter(Boolean).length);
      assert.ok(fill.every((n, block) => n > 0 === refCounts[block] > 0 && n <= blockSize));
      assert.ok(tokens.filled <= tokens.written && tokens.filled <= tokens.paged);
    }
  }
});

test("the pool refuses what is not in use, and a last block that is kept is lost last", () => {
  const pool = new NamedPool(2);
  assert.throws(() => pool.giveBack(0), /block is 0; it must be one that is in use/);
  const block = pool.take();
  pool.name(block, 5);
  pool.giveBack(block);
  assert.deepEqual([[...pool.unused], pool.numFreeBlocks], [[0], 2]);
  assert.equal(pool.take(), 1);
  assert.equal(pool.take(), 0);
  assert.equal(pool.blockOf.size, 0);
  assert.throws(() => pool.take(), /All 2 blocks are in use/);
});

test("each event lights the blocks that it touches", () => {
  const states = play(EVENTS, { blockSize: 4, numBlocks: 10, sharing: true, maxLen: 20 });
  const moves = (step) => Array.from({ length: 10 }, (_, block) => moveOf(states[step], block)).join();
  assert.equal(moves(0), ",,,,,,,,,");
  assert.equal(moves(1), "taken,taken,taken,,,,,,,");
  assert.equal(moves(2), ",,,taken,,,,,,");
  assert.equal(moves(3), "shared,shared,,,taken,,,,,");
  assert.equal(moves(4), "shared,shared,shared,shared,,,,,,");
  assert.equal(moves(5), ",,,,,copied,,,,");
  assert.equal(states[5].last.moves.get(5).from, 3);
  assert.equal(moves(6), ",,,freed,,,,,,");
  assert.equal(moves(8), ",,,,,,,,,"); // E waits
  assert.deepEqual([0, 2, 3, 9].map((block) => stateOf(states[6], block)), ["shared", "held", "free", "free"]);
  const small = play([["arrive", "A", [1, 2, 3]], ["finish", "A", null], ["arrive", "B", [1, 2, 5]], ["finish", "B", null], ["arrive", "C", [9, 9, 9, 9]]], { blockSize: 1, numBlocks: 4, sharing: true, maxLen: 4 });
  const [, , , found, kept, lost] = small;
  assert.deepEqual([moveOf(found, 0), moveOf(found, 1), moveOf(found, 2)], ["shared", "shared", ""]);
  assert.equal(stateOf(kept, 0), "kept");
  assert.deepEqual([0, 1, 2, 3].map((block) => moveOf(lost, block)), new Array(3).fill("evicted").concat(["evicted"]));
});

test("an event is told in words", () => {
  const states = play(EVENTS, { blockSize: 4, numBlocks: 10, sharing: true, maxLen: 20 });
  assert.deepEqual(states.map((state) => text.eventLine(state)), [
    "Nothing has arrived yet.",
    "A arrives with 10 tokens: all computed.",
    "A grows by 3 tokens.",
    "B arrives with 11 tokens: 8 found in blocks that are there, 3 computed.",
    "A forks: C shares its 4 blocks.",
    "C grows by 2 tokens. Block 3 has another owner, so it is copied to block 5.",
    "A finishes: 1 block free.",
    "D arrives with 13 tokens: all computed.",
    "E waits: 2 blocks are needed; 1 are free.",
    "E was not let in, so nothing happens.",
    "B finishes: 1 block free.",
  ]);
  const alone = play(EVENTS, { blockSize: 4, numBlocks: 20, sharing: false, maxLen: 20 });
  assert.equal(text.eventLine(alone[4]), "A forks: C takes blocks of its own for 13 tokens.");
  assert.equal(alone.at(-1).kept.size, 0);
});

test("the three ways hold and waste what they say", () => {
  const { here, ways } = figures(at(), GIVEN);
  assert.deepEqual(here.tokens, { written: 13 + 11 + 15, filled: 19, paged: 24, exact: 13 + 11 + 15, maximum: 60 });
  assert.deepEqual(ways.paged, { held: 24, rows: 19, waste: 5, share: 5 / 24 });
  assert.deepEqual(ways.maximum, { held: 60, rows: 39, waste: 21, share: 21 / 60 });
  assert.deepEqual(waysOf({ tokens: { written: 0, filled: 0, paged: 0, exact: 0, maximum: 0 } }).paged.share, 0);
  assert.equal(figures(at({ sharing: false, poolTokens: 80 }), GIVEN).here.tokens.filled, 39);
  assert.equal(figures(at({ blockSize: 1 }), GIVEN).ways.paged.waste, 0);
});

test("the answer leads with bytes and waste", () => {
  assert.deepEqual(text.headline(figures(at(), GIVEN)).map(plain), [
    "Blocks hold 24.0 kB; longest lengths would hold 60.0 kB.",
    "Waste: 21 % of the blocks’ room, 35 % of the longest lengths’, 0 % of the requests’ own final lengths’.",
    "Event 5 of 10. C grows by 2 tokens. Block 3 has another owner, so it is copied to block 5.",
  ]);
  assert.match(text.headline(figures(at({ step: 0 }), GIVEN))[0], /^No request is live/);
  assert.deepEqual([0, 0.001, 0.5, 0.999, 1].map((share) => plain(text.percent(share))), ["0 %", "<1 %", "50 %", ">99 %", "100 %"]);
  assert.equal(text.runs([0, 1, 2, 5, 9, 10]), "0–2, 5, 9–10");
  const lines = text.formulaLines(figures(at(), GIVEN), at());
  assert.equal(plain(lines.paged), "6 blocks × 4 tokens × 1,000 B = 24.00 kB");
  assert.equal(plain(lines["longest lengths"]), "3 × 20 tokens × 1,000 B = 60.00 kB");
  const notes = (changes) => text.notes(figures(at(changes), GIVEN), at(changes)).join(" ");
  assert.match(notes(), /longest lengths together do not fit/);
  assert.match(notes({ step: 9 }), /1 event so far found too few/);
  assert.match(notes({ maxLen: 14 }), /grows to 15 tokens, beyond the longest length/);
  assert.match(notes({ blockSize: 1 }), /one token wastes nothing/);
  assert.doesNotMatch(notes({ sharing: false }), /without an owner/);
});

test("another timeline brings its settings, a pool its block sizes; presets change the start", () => {
  const other = settle(at(), { timeline: 1 }, GIVEN.timelines);
  assert.deepEqual([other.blockSize, other.poolTokens, other.maxLen, other.step], [16, 64, 32, 1]);
  assert.equal(settle(at({ blockSize: 16 }), { poolTokens: 10 }, GIVEN.timelines).blockSize, 8);
  assert.equal(settle(at({ blockSize: 1 }), { poolTokens: 4000 }, GIVEN.timelines).blockSize, 8);
  for (let poolTokens = 1; poolTokens <= 4096; poolTokens += 13) {
    assert.ok(BLOCK_SIZES.some((size) => isPossible({ poolTokens }, size)), String(poolTokens));
  }
  const list = presetsFor(at(), GIVEN.timelines);
  assert.deepEqual(list.map(({ label }) => label), ["one", "other", "Sharing off", "Half the pool", "Blocks of 16", "Blocks of 1 token"]);
  for (const { changes } of list) assert.ok(figures({ ...at(), ...changes }, GIVEN).here);
});

test("the address holds what differs from the start, under its own mark", () => {
  const changed = at({ step: 7, sharing: false, blockSize: 8 });
  const tail = hash.write(changed, at());
  assert.equal(tail, "#paging:step=7&block=8&sharing=false");
  assert.deepEqual({ ...at(), ...hash.read(tail) }, changed);
  assert.deepEqual([hash.isAnothers("#bits:format=int8"), hash.isAnothers(tail)], [true, false]);
  assert.throws(() => hash.read("#paging:block=3"), /not understood/);
  assert.equal(new Set(FIELDS.map(({ key }) => key)).size, FIELDS.length);
});

test("final lengths are those of each life of a name, and of what was let in", () => {
  const exact = (events, numBlocks, blockSize) => play(events, { blockSize, numBlocks, sharing: true, maxLen: 20 }).map(({ tokens }) => tokens.exact);
  const again = [["arrive", "A", [1, 2]], ["finish", "A", null], ["arrive", "A", [...SYSTEM, ...SYSTEM]]];
  assert.deepEqual(exact(again, 9, 4), [0, 2, 0, 16]);
  assert.deepEqual(exact([["arrive", "A", [1]], ["grow", "A", [2, 3, 4]], ["grow", "A", [2]]], 1, 2), [0, 2, 2, 2]);
});

test("evictions add up, and a refusal that had found blocks lights none", () => {
  const events = [
    ["arrive", "A", [1, 2, 3]],
    ["finish", "A", null],
    ["arrive", "B", [4, 5]],
    ["arrive", "C", [6]],
    ["arrive", "D", [1, 7, 8]],
  ];
  const states = play(events, { blockSize: 1, numBlocks: 3, sharing: true, maxLen: 4 });
  assert.deepEqual(states.map(({ sums }) => sums.evicted), [0, 0, 0, 2, 3, 3]);
  const found = play([...events.slice(0, 3), ["arrive", "D", [1, 7, 8]]], { blockSize: 1, numBlocks: 3, sharing: true, maxLen: 4 }).at(-1);
  assert.equal(found.sums.refused, 1);
  assert.equal(found.last.moves.size, 0);
  assert.equal(found.sums.evicted, 2);
});

test("other events with the same settings are played anew", () => {
  const other = { ...GIVEN, timelines: [{ ...TIMELINE, events: EVENTS.slice(0, 1) }] };
  assert.equal(figures(at(), GIVEN).states.length, 11);
  assert.equal(figures(at(), other).states.length, 2);
  assert.equal(figures(at(), GIVEN).states.length, 11);
});

test("the chart of all events says the most of each way", () => {
  const found = figures(at(), GIVEN);
  assert.equal(plain(text.courseFinding(found)), "At the most, the longest lengths take 60.00 kB, the final ones 39.00 kB, blocks 36.00 kB.");
});

test("a longest length that the requests outgrow wastes nothing, and is called too short", () => {
  const found = figures(at({ maxLen: 7 }), GIVEN);
  assert.ok(found.ways.maximum.waste < 0);
  assert.match(plain(text.headline(found)[1]), /none of the longest lengths’.*The longest length is too short for these requests\.$/);
  assert.match(plain(text.wayLine(found.ways.maximum, 46_080)), /, too short for these requests$/);
  assert.doesNotMatch(text.headline(found)[1], /-\d|−\d/);
});
