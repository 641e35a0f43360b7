import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { at, cacheProduct, clampStep, headline, record, rows, sum } from "../../kvbook/explorer/src/stepper/model.js";
import { player } from "../../kvbook/explorer/src/stepper/play.js";

const traits = (promptLen, steps, bytesPerToken) => ({
  tokens: Array.from({ length: promptLen + steps }, (_, i) => ` t${i}`),
  prompt_len: promptLen,
  without_cache: Array.from({ length: steps }, (_, i) => promptLen + i),
  with_cache: Array.from({ length: steps }, (_, i) => (i === 0 ? promptLen : 1)),
  bytes_per_token: bytesPerToken,
});
const lesson = record(traits(5, 64, 46080));
const small = record(traits(2, 4, 720));

test("the counts are sums of the record, up to 2,336 and 68", () => {
  const { withoutSum, cachedSum, bytes, query, next } = at(lesson, 64);
  assert.deepEqual([withoutSum, cachedSum, bytes, query, next], [2336, 68, 68 * 46080, 67, 68]);
  const odd = record({ ...traits(2, 4, 720), without_cache: [20, 30, 40, 50], with_cache: [3, 0, 2, 1] });
  assert.deepEqual([1, 2, 3, 4].map((step) => at(odd, step).withoutSum), [20, 50, 90, 140]);
  assert.deepEqual([1, 2, 3, 4].map((step) => at(odd, step).cachedSum), [3, 3, 5, 6]);
  assert.equal(at(odd, 3).without, 40);
});

test("traits that do not fit each other give no record", () => {
  assert.equal(record({ ...traits(2, 4, 720), prompt_len: 3 }), null);
  assert.equal(record({ ...traits(2, 4, 720), with_cache: [2, 1, 1] }), null);
});

test("each row is computed, read or not there yet", () => {
  const here = at(small, 3);
  assert.deepEqual(rows(small, here, here.without), ["computed", "computed", "computed", "computed", "later", "later"]);
  assert.deepEqual(rows(small, here, here.cached), ["read", "read", "read", "computed", "later", "later"]);
  assert.deepEqual([here.read, here.query, here.next], [3, 3, 4]);
  const first = at(small, 1);
  assert.deepEqual(rows(small, first, first.cached), ["computed", "computed", "later", "later", "later", "later"]);
  assert.equal(first.read, 0);
});

test("the headline says what is done again", () => {
  const twelve = "Step 12: without a cache 16 tokens are processed, 15 of them again; with a cache 1.";
  assert.equal(headline(at(lesson, 12)), twelve);
  const prefill = "Step 1, the prefill: with a cache or without, 5 tokens are processed, none again.";
  assert.equal(headline(at(lesson, 1)), prefill);
  assert.match(headline(at(record(traits(1, 2, 7)), 1)), /1 token is processed/);
});

test("a sum is written out as far as it is short", () => {
  assert.equal(sum(lesson.without, 1), "5");
  assert.equal(sum(lesson.without, 2), "5 + 6 = 11");
  assert.equal(sum(lesson.without, 4), "5 + 6 + 7 + 8 = 26");
  assert.equal(sum(lesson.without, 64), "5 + 6 + … + 68 = 2,336");
  assert.equal(sum(lesson.cached, 12), "5 + 1 + … + 1 = 16");
  assert.equal(cacheProduct(lesson, at(lesson, 12)), "16 tokens × 46,080 B = 737\u00a0kB");
  assert.equal(cacheProduct(record(traits(1, 2, 7)), { held: 1, bytes: 7 }), "1 token × 7 B = 7\u00a0B");
});

test("a step outside the record is moved into it", () => {
  assert.deepEqual([-3, 0, 1, 2.9, 64, 65, NaN, undefined].map((step) => clampStep(lesson, step)), [1, 1, 1, 2, 64, 64, 1, 1]);
});

test("play ticks about three times a second until there is no more, and tells when it starts and stops", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let left = 3;
  let ticks = 0;
  const told = [];
  const wait = (periods) => Array.from({ length: periods }, () => mock.timers.tick(333));
  const clock = player(() => (ticks++, --left > 0), (playing) => told.push(playing), 333);
  clock.pause(); // not playing: nothing to tell
  clock.play();
  clock.play(); // twice is once
  wait(2);
  assert.deepEqual([ticks, clock.isPlaying(), told], [2, true, [true]]);
  wait(9);
  assert.deepEqual([ticks, clock.isPlaying(), told], [3, false, [true, false]]);
  left = 9;
  clock.play();
  wait(1);
  clock.pause();
  wait(9);
  assert.deepEqual([ticks, told], [4, [true, false, true, false]]);
  mock.timers.reset();
});
