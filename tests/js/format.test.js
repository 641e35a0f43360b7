import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, percent, quoted, short, times, visible } from "../../kvbook/explorer/src/common/format.js";

test("shares are whole percents, and a small one is not called none", () => {
  const written = [0, 1, 2, 3, 64, 128, 254, 255].map(percent);
  assert.deepEqual(written, ["<1 %", "<1 %", "<1 %", "1 %", "25 %", "50 %", "100 %", "100 %"]);
});

test("ratios have two digits, or the whole number", () => {
  assert.deepEqual([0.04, 0.3, 4.34, 9.94, 9.96, 11.2].map(times), ["0.0", "0.3", "4.3", "9.9", "10", "11"]);
});

test("bytes have three digits and the unit that fits them, kB being 1,000 B", () => {
  const written = [0, 7, 999, 1000, 46080, 737280, 999499, 999500, 3133440, 1e9, 2.5e15].map(bytes);
  const expected = "0 B|7 B|999 B|1.00 kB|46.1 kB|737 kB|999 kB|1.00 MB|3.13 MB|1.00 GB|2.50e+3 TB".split("|");
  assert.deepEqual(written.map((text) => text.replace("\u00a0", " ")), expected);
  assert.equal(count(2336), "2,336");
});

test("what cannot be seen in a token is made visible", () => {
  assert.equal(visible(" cat"), "·cat");
  assert.equal(visible("\n\n"), "⏎⏎");
  assert.equal(visible("a\u202eb"), "aU+202Eb"); // would turn the rest of the line around
  assert.equal(visible("\u200b"), "U+200B");
  assert.equal(visible(""), "∅");
  assert.equal(visible(" <b>&"), "·<b>&");
  assert.equal(visible("é漢🙂"), "é漢🙂");
});

test("a token is cut between characters, not inside one", () => {
  assert.equal(short(" because", 8), "·because");
  assert.equal(short("🙂🙂🙂🙂", 3), "🙂🙂…");
});

test("a sentence names a token without its space, and twins by number", () => {
  const tokens = ["The", " cat", " saw", " the", "cat", " ", "\n"];
  assert.equal(quoted(tokens, 0), "“The”");
  assert.equal(quoted(tokens, 1), "“cat” (position 1)");
  assert.equal(quoted(tokens, 4), "“cat” (position 4)");
  assert.equal(quoted(tokens, 5), "“·”");
  assert.equal(quoted(tokens, 6), "“⏎”");
});
