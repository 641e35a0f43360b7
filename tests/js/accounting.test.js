import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ConfigError, cacheSpec, nbytes, parseConfig, users } from "../../kvbook/explorer/src/accounting/index.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../data/${name}`, import.meta.url)));

test("every case of real models with published sizes gives its exact bytes, or its error", () => {
  for (const { id, config, ...given } of read("kv_sizes.json").cases) {
    const { context, batch, policy, cache_dtype: cacheDtype, tensor_parallel: tensorParallel } = given;
    const text = typeof config === "string" ? config : JSON.stringify(config);
    const answer = () => nbytes(cacheSpec(parseConfig(text)), { context, batch, cacheDtype, policy, tensorParallel });
    if (given.expect_error) assert.throws(answer, ConfigError, id);
    else assert.equal(answer(), given.expect_bytes, id);
  }
});

test("users of a 7B model at 4,096 tokens, on 80 GB and on 81,920 MiB", () => {
  const fit = (memoryBytes, utilization) =>
    users({ sequenceBytes: 2147483648, memoryBytes, weightsBytes: 6738415616 * 2, utilization });
  assert.deepEqual([fit(80e9), fit(81920 * 2 ** 20), fit(81920 * 2 ** 20, 0.9), fit(80e9, 0.9)], [30, 33, 29, 27]);
});
