import assert from "node:assert/strict";
import { test } from "node:test";
import { OWN } from "../../kvbook/explorer/src/common/facts.js";
import { decades, domains } from "../../kvbook/explorer/src/roofline/chart.js";
import { figures, pointOf } from "../../kvbook/explorer/src/roofline/figures.js";
import { presetsFor } from "../../kvbook/explorer/src/roofline/presets.js";
import { CACHE_DTYPES, DENSE, FIELDS, hash, INITIAL, RATED, settle } from "../../kvbook/explorer/src/roofline/state.js";
import * as text from "../../kvbook/explorer/src/roofline/text.js";

const at = (changes = {}) => ({ ...INITIAL, ...changes });
const shown = (changes) => figures(at(changes));
const plain = (words) => words.replaceAll("\u00a0", " ");

test("it starts where the lesson's point is: prefill bound by compute, decode by memory", () => {
  const found = shown();
  assert.deepEqual([found.prefill.boundBy, found.decode.boundBy], ["compute", "memory"]);
  const read = 2 * (6_738_415_616 - 32_000 * 4096) + 1024 * 524_288;
  assert.equal(found.decode.nbytes, read);
  assert.equal(found.decode.tokensPerS, 1 / (read / 2.039e12));
  assert.ok(found.prefill.intensity > 3 * found.device.ridge && found.decode.intensity < found.device.ridge / 100);
  assert.deepEqual(text.headline(at(), found), [
    "Decode is bound by memory: at most 148 tokens/s.",
    "Prefill is bound by compute: at most 23,839 tokens/s. Both are bounds, not forecasts: Llama 2 7B on one A100" +
      " 80GB, 1 sequence.",
  ]);
});

test("each setting reaches the figures, and only what it should", () => {
  const start = shown();
  const moved = (changes) => {
    const { prefill, decode } = shown(changes);
    return [prefill, decode].map(({ intensity }, i) =>
      Math.sign(intensity - [start.prefill, start.decode][i].intensity),
    );
  };
  assert.deepEqual(moved({ prompt: 16 }), [-1, 0]);
  assert.deepEqual(moved({ batch: 8 }), [1, 1]);
  assert.deepEqual(moved({ weights: "4" }), [1, 1]);
  assert.deepEqual(moved({ cacheDtype: "fp8" }), [1, 1]);
  assert.deepEqual(moved({ nKvHeads: 8 }), [1, 1]);
  assert.equal(moved({ batch: 64, context: 8192 })[1], 1);
  assert.ok(shown({ batch: 64, context: 8192 }).decode.intensity < shown({ batch: 64 }).decode.intensity);
  assert.equal(shown({ gpu: "H200" }).decode.intensity, start.decode.intensity);
  assert.ok(shown({ gpu: "H200" }).decode.tokensPerS > 2 * start.decode.tokensPerS);
  assert.deepEqual(shown({ gpu: OWN, ownGbPerS: 25, ownTflops: 0.5 }).device.ridge, 20);
});

test("a cache never turns compute-bound by batch; its intensity is the group's", () => {
  for (const batch of [1, 64, 4096]) {
    assert.equal(shown({ batch }).parts.weights.intensity, batch);
    assert.equal(shown({ batch }).parts.cache.intensity, 1);
    assert.equal(shown({ batch, nKvHeads: 8 }).parts.cache.intensity, 4);
    assert.equal(shown({ batch, nKvHeads: 8, cacheDtype: "float32" }).parts.cache.intensity, 2);
  }
  const knee = shown().knees;
  assert.deepEqual([Math.ceil(knee.weights), knee.step], [154, null]);
  assert.equal(shown({ weights: "4" }).knees.weights, knee.weights / 4);
  const { step } = shown({ nKvHeads: 1 }).knees;
  const [below, above] = [Math.floor(step), Math.ceil(step)].map((batch) => shown({ batch, nKvHeads: 1 }).decode.boundBy);
  assert.deepEqual([below, above], ["memory", "compute"]);
  assert.ok(shown({ batch: 65_536 }).decode.tokensPerS < shown().ceiling);
});

test("every dense model stands every device, precision and number of KV heads that is offered", () => {
  for (const { id } of DENSE) {
    const { model } = shown({ model: id });
    assert.equal(model.headChoices.includes(model.publishedHeads), false);
    for (const nKvHeads of model.headChoices) assert.ok(shown({ model: id, nKvHeads }).decode.tokensPerS > 0);
    for (const cacheDtype of CACHE_DTYPES) assert.ok(shown({ model: id, cacheDtype }).prefill.seconds > 0);
    for (const { name } of RATED) {
      const found = shown({ model: id, gpu: name, prompt: 2 ** 20, context: 2 ** 20, batch: 65_536 });
      const words = [...text.headline(at(), found), ...text.notes(at(), found, 0), text.finding(found)].join();
      assert.doesNotMatch(words, /NaN|undefined|Infinity|e\+/);
    }
  }
  assert.throws(() => shown({ nKvHeads: 5 }), /n_kv_heads is 5, which does not divide 32 attention heads\./);
});

test("numbers in three digits, with units that fit", () => {
  assert.deepEqual([0.0375, 0.998, 9.996, 153.4, 22_946, 1e-5].map(text.three), ["0.0375", "0.998", "10.0", "153", "22,900", "0.0000100"]);
  assert.deepEqual([999, 999_600, 6.7e12].map((n) => plain(text.flops(n))), ["999 FLOP", "1.00 MFLOP", "6.70 TFLOP"]);
  assert.deepEqual([4.41e-5, 0.0067, 9.25, 150, 2e11].map((s) => plain(text.time(s))), ["44.1 µs", "6.70 ms", "9.25 s", "2.50 min", "6,340 years"]);
  assert.deepEqual([148.9, 34.19, 3.999].map(text.rate), ["149", "34.2", "4"]);
  assert.equal(plain(text.gbPerS({ bytesPerS: 2.039e12 })), "2,039 GB/s");
  assert.deepEqual([text.against(10, 10), text.against(15, 10), text.against(1, 4)], ["", "1.50 × the start", "0.250 × the start"]);
  assert.deepEqual([text.fromBatch(null), text.fromBatch(153.02)], ["at no batch", "from batch 154"]);
});

test("the formula's lines give what they say", () => {
  const { decode, prefill, device } = shown();
  assert.equal(plain(text.ridgeLine(device)), "312 TFLOP/s ÷ 2,039 GB/s = 153 FLOP/B");
  assert.match(plain(text.boundLine(decode, device)), /^1 token ÷ \(13\.75 GB ÷ 2,039 GB\/s = 6\.74 ms\) = 148 tokens\/s$/);
  assert.match(plain(text.boundLine(prefill, device)), /^512 tokens ÷ \(6\.70 TFLOP ÷ 312 TFLOP\/s = 21\.5 ms\)/);
  assert.match(plain(text.intensityLine(prefill, device)), /= 497 FLOP\/B, above the ridge$/);
});

test("what a reader should know is said where it holds", () => {
  const notes = (changes, hidden = 0) => text.notes(at(changes), shown(changes), hidden).join(" ");
  assert.match(notes(), /^Bounds, not a forecast/);
  assert.doesNotMatch(notes(), /fit|multiplied|shorter/);
  assert.match(plain(notes({ batch: 512 })), /This does not fit: 13\.48 GB of weights and 274\.9 GB of cache, on a card of 80\.00 GB\./);
  assert.doesNotMatch(notes({ batch: 512, gpu: OWN }), /fit|published/); // its memory is not known
  assert.match(notes({ weights: "4" }), /Weights of 4 bits are read as such but multiplied at the rate that is drawn/);
  assert.match(notes({ weights: "32" }), /slower than the fp16 rate/);
  assert.match(notes({ context: 8192 }), /made for at most 4,096 tokens/);
  assert.match(notes({ context: 100 }), /shorter than the prompt/);
  assert.match(notes({}, 1), /1 measured point is of your machine/);
});

test("a measured point is held against the bound at its own intensity", () => {
  const device = { flopsPerS: 100, bytesPerS: 10, ridge: 10 };
  const given = { label: "a", phase: "decode", tokens: 4, flops: 40, nbytes: 20, seconds: 4 };
  assert.deepEqual(pointOf(given, device), {
    ...{ label: "a", phase: "decode", intensity: 2, rate: 10, share: 0.5, tokensPerS: 1, seconds: 4 },
  });
  for (const odd of [{ seconds: 0 }, { flops: "x" }, { phase: "<b>" }, { label: 5 }, { nbytes: NaN }]) {
    assert.equal(pointOf({ ...given, ...odd }, device), null);
  }
});

test("the axes hold all that is drawn, in whole decades", () => {
  assert.deepEqual(decades([0.2, 30]), [0.1, 100]);
  assert.deepEqual(decades([1, 1000]), [1, 1000]);
  const { device, prefill, decode } = shown();
  const { x, y } = domains(device, [prefill.intensity, decode.intensity], [prefill.at, decode.at]);
  assert.deepEqual(x, [0.1, 1e5]);
  assert.deepEqual(y, [1e11, 1e15]);
  assert.ok(domains(device, [3e6], [5]).x[1] >= 3e6 && domains(device, [1], [5]).y[0] <= 5);
});

test("the address holds what differs from the start, under its own mark", () => {
  const changed = at({ batch: 64, gpu: OWN, ownTflops: 0.125, nKvHeads: 8, weights: "4" });
  assert.match(hash.write(changed, INITIAL), /^#roofline:/);
  assert.deepEqual({ ...INITIAL, ...hash.read(hash.write(changed, INITIAL)) }, changed);
  assert.deepEqual([hash.isOurs("#kv:batch=3"), hash.isAnothers("#kv:batch=3")], [false, true]);
  assert.deepEqual([hash.isAnothers("#roofline:batch=3"), hash.isAnothers("#fig:a")], [false, false]);
  assert.throws(() => hash.read("#roofline:batch=0"), /batch is 0; it must be a whole number from 1 to 65,536/);
  assert.throws(() => hash.read("#roofline:gpu=H100 NVL"), /not understood/);
  assert.equal(new Set(FIELDS.map(({ key }) => key)).size, FIELDS.length);
});

test("another model takes back the last one's heads; presets are those that the start can have", () => {
  assert.deepEqual(settle(at({ nKvHeads: 8 }), { model: "phi-4" }), { nKvHeads: null, model: "phi-4" });
  assert.deepEqual(settle(at({ nKvHeads: 8 }), { batch: 3 }), { batch: 3 });
  const labels = (start, heads, measured) => presetsFor(start, heads, measured).map(({ label }) => label);
  assert.ok(labels(at(), [1, 2], []).includes("Batch 512 with one KV head"));
  assert.ok(!labels(at(), [], []).includes("Batch 512 with one KV head"));
  assert.equal(labels(at(), [1], [{}]).at(-1), "Your machine");
  assert.ok(!labels(at({ gpu: OWN }), [1], [{}]).includes("Your machine"));
  const own = presetsFor(at(), [1], [{}], { model: "smollm2-135m", weights: "32" }).at(-1);
  assert.deepEqual(own, { label: "Your machine", changes: { model: "smollm2-135m", weights: "32", gpu: "own" } });
  for (const { changes } of presetsFor(at(), [1], [])) assert.ok(shown(changes).decode.tokensPerS > 0);
});

test("the answer says where its settings do not fit, in a line that is no longer", () => {
  const line = (changes) => text.headline(at(changes), shown(changes))[1];
  assert.match(line({ batch: 512 }), /Only bounds: this does not fit: Llama 2 7B/);
  assert.match(line({ batch: 16 }), /Both are bounds, not forecasts: Llama 2 7B/);
  assert.doesNotMatch(line({ batch: 512, gpu: OWN }), /fit/); // its memory is not known
});
