import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ConfigError } from "../../kvbook/explorer/src/accounting/index.js";
import { kept, ring, slotOf } from "../../kvbook/explorer/src/accounting/ring.js";
import { chartEnd, figures, nearest, points, record, states } from "../../kvbook/explorer/src/window/figures.js";
import { presetsFor } from "../../kvbook/explorer/src/window/presets.js";
import { FIELDS, hash, INITIAL, mostSinks, windowChoices } from "../../kvbook/explorer/src/window/state.js";
import { slotRows, tokenRows } from "../../kvbook/explorer/src/window/tables.js";
import * as text from "../../kvbook/explorer/src/window/text.js";

const vectors = JSON.parse(readFileSync(new URL("../data/accounting_vectors.json", import.meta.url)));
const TOKENS = Array.from({ length: 48 }, (_, i) => ` word${i}`);
const MEASURED = [64, 128, 256].flatMap((window, i) =>
  [0, 4].map((sinks) => ({
    ...{ window, sinks, nbytes: (window + sinks) * 46_080, perplexity: 60 - 10 * i - 5 * sinks },
    ...{ change: (34 - 10 * i - 5 * sinks) / 26, error: 0.02 },
  })),
);
const TRAITS = { tokens: TOKENS, measured: MEASURED, baseline: 26, bytes_per_token: 46_080, measured_tokens: 1024 };
const rec = record((name) => TRAITS[name]);
const at = (changes = {}) => ({ ...INITIAL, position: 47, ...changes });
const shown = (changes) => figures(at(changes), rec);
const plain = (words) => words.replaceAll("\u00a0", " ");

test("rows are kept, and lie in the slots, as Python says, or are refused in the same words", () => {
  const [, ...rows] = vectors.rings;
  const answer = (compute) => {
    try {
      return compute();
    } catch (error) {
      assert.ok(error instanceof ConfigError, error.stack);
      return { error: error.message };
    }
  };
  assert.ok(rows.length >= 120);
  for (const [tokens, window, sinks, slots, held] of rows) {
    const asked = JSON.stringify([tokens, window, sinks]);
    assert.deepEqual(answer(() => ring(tokens, window, sinks)), slots, asked);
    assert.deepEqual(answer(() => kept(tokens, window, sinks)), held, asked);
  }
});

test("the traps: window 8, a prompt of 6, then 4 more; nothing is evicted before the 9th token", () => {
  assert.deepEqual([6, 7, 8, 9].map((position) => slotOf(position, 8)), [6, 7, 0, 1]);
  assert.deepEqual(kept(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(kept(9, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal(kept(1000, 128).length, 128); // never 129: the window counts the token itself
  assert.deepEqual(kept(5, 1), [4]);
  for (let n = 0; n < 60; n++) {
    for (const [window, sinks] of [[1, 0], [5, 0], [5, 3], [8, 4], [64, 4]]) {
      const held = kept(n, window, sinks);
      assert.equal(held.length, Math.min(n, window + sinks));
      assert.deepEqual(ring(n, window, sinks).filter((p) => p !== null).sort((a, b) => a - b), held);
      // fed one by one, a slot only ever takes the row that is evicted
      const [before, after] = [ring(n, window, sinks), ring(n + 1, window, sinks)];
      assert.deepEqual(before.flatMap((p, i) => (p === after[i] ? [] : [i])), [slotOf(n, window, sinks)]);
    }
  }
});

test("it starts where the lesson's point is: 12 rows of 48, the first ones among them", () => {
  const found = shown();
  assert.deepEqual(found.kept, [0, 1, 2, 3, 40, 41, 42, 43, 44, 45, 46, 47]);
  const [what, rest] = text.headline(at(), found, rec);
  assert.equal(what, "12 rows kept, 36 evicted.");
  assert.equal(
    plain(rest),
    "With a window of 8 and 4 sinks, the query “word47” at position 47 sees the first 4 tokens and the last 8, itself" +
      " included. The cache holds 553.0 kB, not 2.212 MB.",
  );
  assert.equal(text.keptLine(at(), found), "min(48, 8 + 4) = 12 rows");
  assert.equal(text.sum(at(), found), "slot = 4 + (47 − 4) mod 8 = 7");
  assert.equal(plain(text.bytesLine(found, rec)), "12 rows × 46,080 B = 552,960 B");
  assert.match(text.writing(at(), found), /^Position 47 went to slot 7, slot 3 of the ring, where position 39 was/);
});

test("what each row is, at the start, while the ring fills, and once it is full", () => {
  const of = (changes) => {
    const counts = {};
    for (const state of states(shown(changes), at(changes), TOKENS)) counts[state] = (counts[state] ?? 0) + 1;
    return counts;
  };
  assert.deepEqual(of({ position: 0 }), { newest: 1, later: 47 });
  assert.deepEqual(of({ position: 6 }), { sink: 4, kept: 2, newest: 1, later: 41 });
  assert.deepEqual(of({}), { sink: 4, kept: 7, newest: 1, evicted: 36 });
  assert.deepEqual(of({ sinks: 0 }), { kept: 7, newest: 1, evicted: 40 });
  assert.match(text.writing(at({ position: 2 }), shown({ position: 2 })), /is a sink: it went to slot 2 and stays/);
  assert.match(text.writing(at({ position: 10 }), shown({ position: 10 })), /which was empty; 1 more is\.$/);
  assert.match(text.writing(at({ position: 11 }), shown({ position: 11 })), /the next row takes an old one’s place/);
});

test("a measured pair is shown as measured; of others it says that they were not, and never a number between", () => {
  const words = (changes) => plain(text.measuredTitle(at(changes), shown(changes), rec));
  assert.equal(
    words({ window: 64, sinks: 0 }),
    "Measured over 1,024 tokens: a window of 64 and no sinks changes perplexity by +131 % (± 2.0), from 26.00 to 60.00.",
  );
  assert.match(words({ window: 8 }), /^A window of 8 and 4 sinks was not measured\. The nearest measured: a window of 64 and 4 sinks, \+53\.8 %/);
  assert.match(words({ window: 96, sinks: 1 }), /not measured\. The nearest measured: a window of 128 and 4 sinks/); // one sink is nearer to four than to none
  const near = (window, sinks) => Object.values(nearest(MEASURED, window, sinks)).slice(0, 2);
  assert.deepEqual([near(1, 8), near(90, 3), near(91, 3), near(4096, 0)], [[64, 4], [64, 4], [128, 4], [256, 0]]);
  assert.equal(nearest([], 1, 0), null);
  assert.equal(text.measuredList(rec), "Measured windows: 64, 128, 256 with no sinks; 64, 128, 256 with 4 sinks. Nothing is drawn between them.");
});

test("the chart shows the plateau and all of the text", () => {
  assert.deepEqual([chartEnd(48, 12), chartEnd(48, 68), chartEnd(2, 1), chartEnd(128, 1)], [64, 256, 2, 128]);
  assert.equal(plain(text.plateau(shown(), 64, rec)), "From 12 tokens on the cache stays at 553.0 kB; at 64 the full one takes 2.949 MB, 5.3 × as much.");
  assert.deepEqual([0, 500_000, 1_500_000, 10e6].map((n) => plain(text.round(n))), ["0 B", "500 kB", "1.5 MB", "10 MB"]);
});

test("a record that does not fit is not shown; points that are none are left out", () => {
  assert.equal(record((name) => ({ ...TRAITS, tokens: ["a"] })[name]), null);
  const odd = record((name) => ({ ...TRAITS, measured: [{ window: "<b>" }, ...MEASURED] })[name]);
  assert.deepEqual(odd.measured, MEASURED);
  assert.deepEqual(record((name) => ({ ...TRAITS, baseline: 0 })[name]).measured, []);
  assert.equal(figures(at({ position: 127 }), rec).newest, 47); // the text has become shorter
});

test("every setting gives words without gaps", () => {
  for (const window of [1, 2, 8, 47, 48, 64, 4096]) {
    for (const sinks of [0, 1, 4, 64]) {
      for (const position of [0, 1, 3, 4, 8, 47]) {
        const [state, found] = [at({ window, sinks, position }), shown({ window, sinks, position })];
        const words = [...text.headline(state, found, rec), text.writing(state, found), text.sum(state, found)];
        words.push(text.measuredTitle(state, found, rec), ...text.notes(rec, state), text.positionOf(rec, found));
        words.push(text.plateau(found, chartEnd(48, found.room), rec));
        assert.doesNotMatch(words.join(" "), /NaN|undefined|Infinity|null|\b1 tokens|\b1 rows/);
      }
    }
  }
  assert.deepEqual([0.26, -0.012, 2.44, 0.9949, 0.996].map((n) => plain(text.percent(n))), ["+26.0 %", "−1.2 %", "+244 %", "+99.5 %", "+100 %"]);
  assert.deepEqual([26.3, 1234.5, 9.8765].map(text.perplexity), ["26.30", "1,235", "9.877"]);
});

test("the sliders offer small windows one by one, the measured ones and the start's", () => {
  const choices = windowChoices(48, MEASURED, 100);
  assert.deepEqual(choices.slice(0, 16), Array.from({ length: 16 }, (_, i) => i + 1));
  for (const window of [48, 64, 100, 128, 256]) assert.ok(choices.includes(window), String(window));
  assert.ok(choices.length < 80 && choices.at(-1) === 256);
  assert.ok(windowChoices(2, [], 4096).length < 160);
  assert.deepEqual(windowChoices(2, [], 1), [1, 2]);
  assert.deepEqual([mostSinks([], 0), mostSinks(MEASURED, 12), mostSinks([{ sinks: 16 }], 0)], [8, 12, 16]);
});

test("presets: small windows, then measured pairs; of many, some", () => {
  const labels = (measured) => presetsFor(measured).map(({ label }) => label);
  assert.deepEqual(labels([]), ["Window 8", "Window 8, 4 sinks"]);
  assert.deepEqual(labels(MEASURED).slice(1, 4), ["Window 8, 4 sinks", "Window 64", "Window 64, 4 sinks"]);
  const many = [8, 32, 64, 128, 256, 512].flatMap((window) => [0, 1, 2, 4, 8].map((sinks) => ({ window, sinks })));
  const list = presetsFor(many);
  assert.equal(list.filter(({ isMeasured }) => isMeasured).length, 6);
  assert.equal(new Set(list.map(({ label }) => label)).size, list.length);
});

test("the address holds what differs from the start, under its own mark", () => {
  const changed = at({ window: 64, sinks: 0, position: 9 });
  assert.equal(hash.write(changed, at()), "#window:window=64&sinks=0&position=9");
  assert.deepEqual({ ...at(), ...hash.read(hash.write(changed, at())) }, changed);
  assert.equal(hash.isAnothers("#roofline:batch=3"), true);
  assert.throws(() => hash.read("#window:window=0"), /window is 0; it must be a whole number from 1 to 4,096/);
  assert.equal(new Set(FIELDS.map(({ key }) => key)).size, FIELDS.length);
});

test("the full cache holds a row of each token so far, also before the text's end", () => {
  const found = shown({ position: 20 });
  assert.deepEqual([found.fullBytes, found.bytes, found.mostBytes], [21 * 46_080, 12 * 46_080, 12 * 46_080]);
  assert.equal(shown({ position: 5 }).bytes, 6 * 46_080);
});

test("a point's error is that of its perplexity: the change's, times the baseline", () => {
  const drawn = points(rec, shown({ window: 128, sinks: 4 }));
  assert.deepEqual(drawn.map(({ at: window, y, label }) => [window, y, label]).at(3), [128, 30, "4"]);
  assert.ok(drawn.every(({ error }) => error === 26 * 0.02));
  assert.deepEqual(drawn.map(({ isChosen }) => isChosen), [false, false, false, true, false, false]);
  assert.deepEqual(drawn.map(({ isHollow }) => isHollow), [true, false, true, false, true, false]);
});

test("the tables say what is drawn: bytes against tokens, and slots of sinks and of the ring", () => {
  assert.deepEqual(
    tokenRows(shown(), rec).map((cells) => cells.map(plain)),
    [[1, 1], [6, 6], [12, 12], [13, 12], [24, 12], [48, 12]].map(([n, rows]) => [
      ...[String(n), String(rows)],
      ...[rows, n].map((count) => `${(count * 46_080).toLocaleString("en-US")} B`),
    ]),
  );
  const slots = slotRows(at(), shown(), rec);
  assert.deepEqual(slots.map(([slot, of, position]) => [slot, of, position]).slice(3, 6), [["3", "sinks", "3"], ["4", "ring", "44"], ["5", "ring", "45"]]);
  assert.ok(slotRows(at({ sinks: 0 }), shown({ sinks: 0 }), rec).every(([, of]) => of === "ring"));
});
