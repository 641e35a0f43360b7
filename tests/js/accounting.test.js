// The accounting in JavaScript gives what Python's gives, number by number and sentence by sentence.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import models from "../../kvbook/accounting/models.json" with { type: "json" };
import {
  ConfigError,
  bytesPerToken,
  cacheSpec,
  exactNbytes,
  explain,
  kvHeadChoices,
  layerNbytes,
  nbytes,
  parseConfig,
  users,
  whatIf,
} from "../../kvbook/explorer/src/accounting/index.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../data/${name}`, import.meta.url)));
const vectors = read("accounting_vectors.json");
const specs = models.map(({ config }) => cacheSpec(config));

/** What it gives, or its sentence; anything else that is thrown fails the test. */
function answer(compute) {
  try {
    const result = compute();
    return plain(result);
  } catch (error) {
    assert.ok(error instanceof ConfigError, error.stack);
    return { error: error.message };
  }
}
/** A whole number as the vectors hold it: a string beyond 2**53. */
const plain = (whole) => (typeof whole === "bigint" ? String(whole) : whole);

/** The rows of a table as objects, by its first row. */
const rows = ([columns, ...list]) =>
  list.map((row) => Object.fromEntries(row.map((value, i) => [columns[i], value])));
const optionsOf = ([context, batch, cacheDtype, policy, tensorParallel, blockSize]) => {
  return { context, batch, cacheDtype, policy, tensorParallel, blockSize };
};

test("the presets are those of the vectors, and each gives the same layers, sizes and notes", () => {
  assert.deepEqual(
    models.map(({ id }) => id),
    vectors.models,
  );
  for (const [i, expected] of vectors.specs.entries()) {
    const spec = specs[i];
    const runs = [];
    for (const layer of spec.layers) {
      const row = [layer.kind, layer.nKvHeads, layer.kDim, layer.vDim, layer.window, layer.tokens];
      const [last] = runs.slice(-1);
      if (last && String(last.slice(1)) === String(row)) last[0] += 1;
      else runs.push([1, ...row]);
    }
    const found = {
      family: spec.family,
      max_context: spec.maxContext,
      state_values: spec.stateValues,
      notes: spec.notes,
      n_heads: spec.nHeads,
      layers: runs,
      kv_head_choices: kvHeadChoices(spec),
    };
    assert.deepEqual(found, expected, vectors.models[i]);
  }
});

test("bytes of every preset over settings and what-ifs", () => {
  assert.ok(vectors.sizes.length > 2000);
  for (const row of rows(vectors.sizes)) {
    const { n_kv_heads: nKvHeads, full_every: fullEvery, ...rest } = row.what_if ?? {};
    const options = {
      context: row.context,
      batch: row.batch,
      cacheDtype: row.cache_dtype,
      policy: row.policy,
      tensorParallel: row.tensor_parallel,
      blockSize: row.block_size,
    };
    const spec = answer(() =>
      row.what_if ? whatIf(specs[row.model], { nKvHeads, fullEvery, ...rest }) : specs[row.model],
    );
    const found = spec.error ? spec : answer(() => exactNbytes(spec, options));
    assert.deepEqual(found, row.nbytes, JSON.stringify(row));
    if (typeof found === "object") continue;
    assert.equal(nbytes(spec, options), Number(row.nbytes));
    const layers = layerNbytes(spec, options);
    assert.equal(layers.length, spec.layers.length);
    if (typeof found === "number") assert.equal(layers.reduce((a, b) => a + b) * row.batch, found);
  }
});

test("bytes per token, below and beyond the windows", () => {
  for (const row of rows(vectors.tokens)) {
    const { cache_dtype: cacheDtype, tensor_parallel: tensorParallel, policy } = row;
    const options = { cacheDtype, tensorParallel, policy };
    const found = answer(() => bytesPerToken(specs[row.model], options));
    const expected = row.below.error ? row.below : { below: row.below, beyond: row.beyond };
    assert.deepEqual(found, expected, JSON.stringify(row));
  }
});

test("a small share as a number is the decimal that it is written as; as a text it is refused", () => {
  const given = { sequenceBytes: 1, memoryBytes: 10 ** 12, weightsBytes: 0 };
  assert.equal(users({ ...given, utilization: 1e-5 }), 10 ** 7);
  assert.equal(users({ ...given, utilization: 1e-7 }), 10 ** 5);
  assert.equal(users({ ...given, utilization: 2.5e-10 }), 250);
  for (const utilization of ["1e-7", NaN, Infinity, -1e-7, 1e21, 0]) {
    assert.throws(() => users({ ...given, utilization }), ConfigError);
  }
});

test("users that fit", () => {
  for (const row of rows(vectors.users)) {
    const given = {
      sequenceBytes: row.sequence_bytes,
      memoryBytes: row.memory_bytes,
      weightsBytes: row.weights_bytes,
      utilization: row.utilization,
      tensorParallel: row.tensor_parallel,
      overheadBytes: row.overhead_bytes,
    };
    assert.deepEqual(
      answer(() => users(given)),
      row.users,
      JSON.stringify(row),
    );
    if (/^0\.[1-9]+$|^1$/.test(row.utilization) && row.utilization.length < 9) {
      assert.deepEqual(
        answer(() => users({ ...given, utilization: Number(row.utilization) })),
        row.users,
      );
    }
  }
});

test("the sum in words is Python's", () => {
  for (const [model, settings, expected] of vectors.explained) {
    const found = answer(() => explain(specs[model], optionsOf(settings)).join("\n"));
    assert.deepEqual(found, expected);
  }
});

test("every case of real models with published sizes gives its exact bytes, or its error", () => {
  const sentences = new Map(vectors.cases);
  for (const { id, config, expect_bytes: expected, expect_error: fails, ...given } of read("kv_sizes.json")
    .cases) {
    const { context, batch, policy, cache_dtype: cacheDtype, tensor_parallel: tensorParallel } = given;
    const text = typeof config === "string" ? config : JSON.stringify(config);
    const options = { context, batch, cacheDtype, policy, tensorParallel };
    const found = answer(() => nbytes(cacheSpec(parseConfig(text)), options));
    if (fails) assert.ok(found.error, id);
    else assert.equal(found, expected, id);
    if (sentences.has(id)) assert.deepEqual(found, sentences.get(id), id);
  }
});

/** All that a spec says, as the vectors of odd configs have it. */
function outcome(text) {
  return answer(() => {
    const spec = cacheSpec(parseConfig(text));
    const { below, beyond } = bytesPerToken(spec);
    const total = plain(exactNbytes(spec, { context: 5001, batch: 3 }));
    return [total, below, beyond, spec.stateValues, spec.maxContext, spec.nHeads, spec.family, ...spec.notes];
  });
}

for (const section of ["families", "odd"]) {
  test(`${section}: the same answer or the same sentence`, () => {
    for (const [text, expected] of vectors[section]) {
      if (!expected.error && expected[3] !== null) expected[3] = Number(expected[3]); // the nearest one
      assert.deepEqual(outcome(text), expected, text);
    }
  });
}
