// The formula line: it is short, and what it says comes to the bytes that it claims.
import assert from "node:assert/strict";
import { test } from "node:test";
import models from "../../kvbook/accounting/models.json" with { type: "json" };
import {
  CACHE_DTYPES,
  POLICIES,
  cacheSpec,
  exactNbytes,
  formula,
  whatIf,
} from "../../kvbook/explorer/src/accounting/index.js";

const specs = new Map(models.map(({ id, config }) => [id, cacheSpec(config)]));
const text = (parts) => parts.map((part) => part.text).join("");

/** What the text's products and sums come to, its words left out. */
function value(product) {
  const signs = product.replaceAll("×", "*").replaceAll(/[^\d+*/().]/g, "");
  return Function(`return ${signs}`)();
}

test("a plain model's line, with a name for each number", () => {
  const parts = formula(specs.get("llama-3.1-8b"), { context: 4096, batch: 32, cacheDtype: "float16" });
  const expected =
    "32 layers × 2 × 8 KV heads × 128 values × 2 B × 4,096 tokens × 32 sequences = 17,179,869,184 B";
  assert.equal(text(parts), expected);
  const named = parts.filter(({ term }) => term).map(({ term }) => term);
  assert.deepEqual(named, ["layers", "pair", "heads", "dim", "bytes", "tokens", "batch", "total"]);
});

test("lines of other kinds", () => {
  const line = (id, options) => text(formula(specs.get(id), { cacheDtype: "float16", ...options }));
  const latent = "61 latent layers × 576 latent values × 2 B × 1 token × 1 sequence = 70,272 B";
  assert.equal(line("deepseek-v3", { context: 1 }), latent);
  const mixed =
    "(12 sliding layers × 2 × 8 KV heads × 64 values × 2 B × 128 tokens + " +
    "12 layers × 2 × 8 KV heads × 64 values × 2 B × 1,000 tokens) × 1 sequence = 27,721,728 B";
  assert.equal(line("gpt-oss-20b", { context: 1000 }), mixed);
  const scaled =
    "32 layers × 2 × 32 KV heads × (128 values × 1 B + 2 B) × 10 tokens × 1 sequence = 2,662,400 B";
  assert.equal(line("llama-2-7b", { context: 10, cacheDtype: "int8" }), scaled);
  const blocks = "30 layers × 2 × 3 KV heads × 2 blocks × 20 B × 10 tokens × 1 sequence = 72,000 B";
  assert.equal(line("smollm2-135m", { context: 10, cacheDtype: "int4" }), blocks);
  assert.equal(
    text(formula(cacheSpec({ model_type: "rwkv", num_hidden_layers: 3 }), { context: 9 })),
    "0 B × 1 sequence = 0 B",
  );
});

test("every line comes to its total", () => {
  const uneven = { model_type: "mimo", num_hidden_layers: 5, num_attention_heads: 8, num_key_value_heads: 4 };
  const spec = cacheSpec({ ...uneven, hidden_size: 512, head_dim: 96, v_head_dim: 64 });
  for (const [id, plain] of [...specs, ["uneven", spec]]) {
    for (const changed of [plain, whatIf(plain, { window: 999, sinks: 4, fullEvery: 3 })]) {
      for (const cacheDtype of CACHE_DTYPES) {
        for (const policy of POLICIES) {
          const options = { context: 5000, batch: 7, cacheDtype, policy, tensorParallel: 2, blockSize: 32 };
          if (plain.layers.some(({ nKvHeads }) => nKvHeads > 2 && nKvHeads % 2)) options.tensorParallel = 1;
          const [left, right] = text(formula(changed, options)).split(" = ");
          const total = Number(exactNbytes(changed, options));
          assert.equal(value(right), total, `${id} ${right}`);
          assert.equal(Math.ceil(value(left)), total, `${id} ${left}`);
        }
      }
    }
  }
});
