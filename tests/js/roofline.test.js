// The roofline in JavaScript gives what Python's gives, number by number and sentence by sentence.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import models from "../../kvbook/accounting/models.json" with { type: "json" };
import { denseWeights, isDense, withCache } from "../../kvbook/explorer/src/accounting/dense.js";
import { cacheSpec, ConfigError, whatIf } from "../../kvbook/explorer/src/accounting/index.js";
import * as roof from "../../kvbook/explorer/src/accounting/roofline.js";

const vectors = JSON.parse(readFileSync(new URL("../data/accounting_vectors.json", import.meta.url))).roofline;
const rows = (name) => vectors.filter(([first]) => first === name).map(([, ...row]) => row);
const specs = models.map(({ config }) => cacheSpec(config));

/** What it gives, or its sentence; anything else that is thrown fails the test. */
function answer(compute) {
  try {
    return compute();
  } catch (error) {
    assert.ok(error instanceof ConfigError, error.stack);
    return { error: error.message };
  }
}
const plain = (whole) => (typeof whole === "bigint" ? String(whole) : whole);
const countsOf = ({ tokens, weightFlops, attentionFlops, weightBytes, cacheBytes }) => [
  tokens,
  weightFlops,
  attentionFlops,
  weightBytes,
  cacheBytes,
];
/** Counts as Number, from the vectors' whole numbers: the nearest. */
const numbers = (counts) => (Array.isArray(counts) ? counts.map(Number) : counts);

function pass([nLayers, nHeads, nKvHeads, headDim, dim, ffnDim, vocabSize], lengths, options) {
  const shape = roof.shapeOf({ nLayers, nHeads, nKvHeads, headDim, dim, ffnDim, vocabSize });
  const [weightBytesPerValue, cacheBytesPerValue, logits] = options;
  return countsOf(roof.phase(shape, ...lengths, { weightBytesPerValue, cacheBytesPerValue, logits }));
}

test("there are rows enough of each kind", () => {
  const least = { pairs: 100, phase: 100, sums: 100, dense: 60, bounds: 100 };
  for (const [name, n] of Object.entries(least)) assert.ok(rows(name).length >= n, name);
  assert.equal(vectors.filter((row) => row.at(-1)?.error).length > 20, true);
});

test("pairs of a query and a key, windows and chunks too", () => {
  for (const [qLen, kvLen, window, chunked, expected] of rows("pairs")) {
    const found = answer(() => plain(roof.pairs(qLen, kvLen, window, chunked)));
    assert.deepEqual(found, expected, JSON.stringify([qLen, kvLen, window, chunked]));
  }
});

test("operations and bytes of a pass", () => {
  for (const [shape, lengths, options, expected] of rows("phase")) {
    const found = answer(() => pass(shape, lengths, options));
    assert.deepEqual(found, numbers(expected), JSON.stringify([shape, lengths, options]));
  }
});

test("attention of every preset", () => {
  for (const [model, lengths, expected] of rows("sums")) {
    const found = answer(() => plain(roof.attentionFlops(specs[model], ...lengths)));
    assert.deepEqual(found, expected, JSON.stringify([models[model].id, lengths]));
  }
});

test("the weights of every dense preset, with other KV heads too", () => {
  for (const [model, nKvHeads, expected] of rows("dense")) {
    const found = answer(() => {
      const weights = denseWeights(models[model]);
      const changed = whatIf(specs[model], { nKvHeads });
      return Object.values(withCache(weights, specs[model], changed));
    });
    assert.deepEqual(found, expected, JSON.stringify([models[model].id, nKvHeads]));
    assert.equal(isDense(models[model]), Array.isArray(expected));
  }
});

test("what a device makes of a pass", () => {
  for (const [counts, rates, width, expected] of rows("bounds")) {
    const [tokens, weightFlops, attentionFlops, weightBytes, cacheBytes] = numbers(counts);
    const flops = weightFlops + attentionFlops;
    const nbytes = weightBytes + cacheBytes;
    const work = { tokens, flops, nbytes, weightBytes, cacheBytes, intensity: flops / nbytes };
    const found = answer(() => {
      const device = roof.deviceOf(...rates);
      const { computeSeconds, memorySeconds, seconds, tokensPerS, boundBy } = roof.boundsOf(work, device);
      return [
        work.intensity,
        device.ridge,
        roof.attainable(device, work.intensity),
        computeSeconds,
        memorySeconds,
        seconds,
        tokensPerS,
        boundBy,
        roof.weightKnee(device, width),
        roof.decodeKnee(work, device),
        roof.decodeCeiling(work, device),
      ];
    });
    if (found.error) {
      assert.deepEqual(found, expected);
      continue;
    }
    assert.equal(found.length, expected.length);
    found.forEach((value, i) => {
      if (typeof value !== "number") assert.equal(value, expected[i]);
      else assert.ok(Math.abs(value / expected[i] - 1) < 1e-12, `${i}: ${value} ${expected[i]}`);
    });
  }
});
