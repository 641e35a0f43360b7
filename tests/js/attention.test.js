import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { clamp, decode, formula, headline, row, top } from "../../kvbook/explorer/src/attention/model.js";

const vectors = JSON.parse(readFileSync(new URL("../data/attention_vectors.json", import.meta.url)));
const table = decode(vectors.weights, vectors.shape, vectors.tokens);

/** A table of one layer and one head from rows of codes. */
function small(rows, tokens) {
  const codes = Buffer.from(rows.flat()).toString("base64");
  return decode(codes, [1, 1, rows.length], tokens);
}
const at = (query) => ({ layer: 0, head: 0, query });

test("every row is the one that Python stored", () => {
  assert.equal(vectors.rows.length, 2 * 3 * 5);
  for (const { codes, top: key, ...place } of vectors.rows) {
    const shares = row(table, place);
    assert.deepEqual([...shares], codes);
    assert.equal(top(shares).key, key);
  }
});

test("weights that do not fit the text give no table", () => {
  assert.equal(decode(vectors.weights, vectors.shape, ["a", "b"]), null);
  assert.equal(decode(vectors.weights, [2, 4, 5], vectors.tokens), null);
});

test("a place outside the table is moved into it", () => {
  assert.deepEqual(clamp(table, { layer: 9, head: -1, query: 2 }), { layer: 1, head: 0, query: 2 });
  assert.deepEqual(clamp(table, { layer: undefined, head: NaN, query: 1.9 }), { layer: 0, head: 0, query: 1 });
});

test("the headline compares with an even share", () => {
  const tokens = ["The", " cat", " sat", " sat"];
  const t = small([[255], [128, 127], [51, 153, 51], [10, 10, 10, 225]], tokens);
  const where = "Layer 0, head 0: ";
  assert.equal(headline(t, at(0)), `${where}“The” comes first, so it can only look at itself.`);
  assert.equal(headline(t, at(1)), `${where}“cat” gives 50 % of its attention to “The”, about an even share.`);
  const third = "“sat” (position 2) gives 60 % of its attention to “cat”, 1.8 times an even share.";
  assert.equal(headline(t, at(2)), where + third);
  const last = "“sat” (position 3) gives 88 % of its attention to itself, 3.5 times an even share.";
  assert.equal(headline(t, at(3)), where + last);
});

test("the formula line has the live numbers", () => {
  const t = small([[255], [128, 127], [51, 153, 51]], ["a", "b", "c"]);
  const shown = formula(at(2), row(t, at(2)), 64);
  const expected = { scale: "√64", root: "√64 = 8", keys: "3 visible keys", even: "1/3 = 33 %", most: "60 % = 1.8 × even" };
  assert.deepEqual(shown, expected);
  assert.equal(formula(at(0), row(t, at(0)), 80).root, "√80 = 8.94");
  assert.equal(formula(at(0), row(t, at(0)), 80).keys, "1 visible key");
});
