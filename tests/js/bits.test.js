import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { channelErrors, coded, readBack, relativeError } from "../../kvbook/explorer/src/bits/codec.js";
import { figures } from "../../kvbook/explorer/src/bits/figures.js";
import { codingOf, formatOf, FORMATS, PLAIN } from "../../kvbook/explorer/src/bits/formats.js";
import { even, rounded } from "../../kvbook/explorer/src/bits/minifloat.js";
import { presetsFor } from "../../kvbook/explorer/src/bits/presets.js";
import { rowsNbytes, sequenceNbytes, tokenNbytes } from "../../kvbook/explorer/src/bits/size.js";
import { FIELDS, hash, INITIAL, modelFor, UNIFORM } from "../../kvbook/explorer/src/bits/state.js";
import * as text from "../../kvbook/explorer/src/bits/text.js";
import { span } from "../../kvbook/explorer/src/bits/tradeoff.js";
import { nbytes } from "../../kvbook/explorer/src/accounting/spec.js";
import { cacheSpec } from "../../kvbook/explorer/src/accounting/reader.js";

const vectors = JSON.parse(readFileSync(new URL("../data/bits_vectors.json", import.meta.url)));
const plain = (words) => words.replaceAll("\u00a0", " ");

/** The rows that a vector holds, [tokens][width]. */
function rowsOf(tokens, written) {
  const bytes = Uint8Array.from(Buffer.from(written, "base64"));
  const values = new Float32Array(bytes.buffer);
  const width = values.length / tokens;
  return Array.from({ length: tokens }, (_, t) => [...values.subarray(t * width, (t + 1) * width)]);
}

const MEASURED = [
  { format: "float16", only: null, bits_per_value: 16, perplexity: 30, change: 1e-5, error: 1e-5 },
  { format: "int8", only: null, bits_per_value: 8.25, perplexity: 30.01, change: 0.0002, error: 0.0004 },
  { format: "int4_token", only: null, bits_per_value: 4.5, perplexity: 38, change: 0.27, error: 0.055 },
  { format: "int4", only: null, bits_per_value: 5, perplexity: 30.7, change: 0.023, error: 0.0051 },
  { format: "int4", only: "keys", bits_per_value: 10.5, perplexity: 30.4, change: 0.014, error: 0.004 },
];
const SAMPLE = Array.from({ length: 64 }, (_, t) => [0.1 * Math.sin(t), 8 + Math.cos(t), 0.5 * Math.sin(2 * t), 2]);
const GIVEN = { measured: MEASURED, channels: SAMPLE };
const at = (changes = {}) => ({ ...INITIAL, ...changes });
const shown = (changes) => figures(at(changes), GIVEN);

test("every codec reads back what Python's reads back, to the bit", () => {
  const seen = new Set();
  for (const [name, half, index, tokens, written] of vectors.read_back) {
    const expected = rowsOf(tokens, written);
    const found = readBack(rowsOf(...vectors.samples[index]), formatOf(name)[half]);
    found.forEach((row, t) => {
      row.forEach((x, c) => assert.ok(x === expected[t][c], `${name} ${half}, sample ${index}, [${t}][${c}]: ${x}, not ${expected[t][c]}`));
    });
    seen.add(name);
  }
  assert.deepEqual([...seen].sort(), ["bfloat16", "float16", "fp8_e4m3", "fp8_e5m2", "int2", "int4", "int4_group", "int4_group_tail", "int4_token", "int8"]);
});

test("rounding is to even, in small floats too", () => {
  assert.deepEqual([0.5, 1.5, 2.5, -1.5, -2.5, 2.4, 2.6].map(even), [0, 2, 2, -2, -2, 2, 3]);
  assert.deepEqual([2049, 2051, 65_519, 1e9, 2 ** -25, 3 * 2 ** -26].map((x) => rounded(x, "float16")), [2048, 2052, 65_504, 65_504, 0, 2 ** -24]);
  assert.deepEqual([17, 19, 500, -500, 2 ** -10, 3 * 2 ** -11].map((x) => rounded(x, "float8_e4m3fn")), [16, 20, 448, -448, 0, 2 ** -9]);
  assert.deepEqual([9, 11, 1e6].map((x) => rounded(x, "float8_e5m2")), [8, 12, 57_344]);
});

test("a group has a scale, and a minimum where it takes one", () => {
  const int8 = coded([-127, 0, 63.5, 127], { bits: 8, minimum: false });
  assert.deepEqual([int8.codes, int8.scale], [[-127, 0, 64, 127], 1]);
  const int4 = coded([10, 17.5, 25], { bits: 4, minimum: true });
  assert.deepEqual([int4.codes, int4.scale, int4.low, int4.back], [[0, 8, 15], 1, 10, [10, 18, 25]]);
  assert.deepEqual(coded([3, 3, 3], { bits: 4, minimum: true }).back, [3, 3, 3]);
  assert.deepEqual(coded([0, 0], { bits: 8, minimum: false }).back, [0, 0]);
  assert.deepEqual(channelErrors([[1, 2], [3, 4]], [[1, 0], [3, 4]]), [0, Math.sqrt(2)]);
  assert.equal(relativeError([[3, 4]], [[0, 4]]), 3 / 5);
});

test("where the accounting has a format, the bytes are its bytes; a tail comes on top and has a name", () => {
  for (const model of UNIFORM) {
    const spec = cacheSpec(model.config);
    for (const [name, cacheDtype] of [["float16", "float16"], ["bfloat16", "bfloat16"], ["fp8_e4m3", "fp8"], ["fp8_e5m2", "fp8"], ["int8", "int8"], ["int4_group", "int4"]]) {
      for (const context of [1, 31, 4096]) {
        assert.equal(sequenceNbytes(model, name, null, context).all, nbytes(spec, { context, cacheDtype }), `${model.id} ${name}`);
      }
      assert.equal(tokenNbytes(model, name, null).all, nbytes(spec, { context: 1, cacheDtype }));
    }
    if (model.layer.kDim % 32 === 0) {
      const tail = model.nLayers * model.layer.nKvHeads * 32 * model.layer.kDim * 2;
      assert.equal(sequenceNbytes(model, "int4", null, 4096).all, nbytes(spec, { context: 4096, cacheDtype: "int4" }) + tail);
    }
    const [both, keys, values, none] = [["int8", null], ["int8", "keys"], ["int8", "values"], [PLAIN, null]].map(([name, only]) => tokenNbytes(model, name, only).all);
    assert.equal(keys + values, both + none);
  }
  assert.ok(UNIFORM.length >= 12);
  assert.equal(rowsNbytes(codingOf("int4", null).keys, 70, 64), 2 * 64 * 20 + 32 * 64 * 2);
  assert.equal(rowsNbytes(codingOf("int4_group_tail", null).keys, 70, 64), 64 * 2 * 20 + 32 * 64 * 2);
});

test("it starts where the lesson's point is, and says what was measured where", () => {
  const found = shown();
  assert.deepEqual(text.headline(at(), found, "SmolLM2 135M").map(plain), [
    "Perplexity +2.30 % ± 0.51 % with int4, keys per channel.",
    "5 bits a value, scales counted: 97 users of 4,096 tokens fit where fp16 holds 30 (Llama 2 7B on one A100 80GB).",
    "The change of perplexity was measured on SmolLM2 135M.",
  ]);
  assert.match(text.headline(at({ context: 262_144 }), shown({ context: 262_144 }), "S")[1], /: 1 user of 262,144 tokens fits where fp16 holds 0 /);
  assert.equal(plain(text.tradeoffFinding(found, "S")), "On S, 5 bits a value change perplexity by +2.30 % ± 0.51 %; int4 per token, 4.5 bits a value, by +27.0 % ± 5.5 %.");
  assert.ok(found.sample.chosen.relative < found.sample.compared.relative);
  assert.match(text.notes(at(), found, "SmolLM2 135M").join(" "), /Bytes and users are of Llama 2 7B; perplexity is of SmolLM2 135M/);
  assert.doesNotMatch(text.notes(at({ model: "smollm2-135m" }), shown({ model: "smollm2-135m" }), "SmolLM2 135M").join(" "), /Bytes and users are of/);
});

test("what was not measured is said to be so, never made up from its neighbours", () => {
  const found = shown({ only: "values" });
  assert.equal(found.chosen.row, null);
  assert.equal(text.headline(at(), found, "S")[0], "Perplexity was not measured with int4, keys per channel, values alone.");
  assert.equal(text.headline(at(), found, "S")[2], "");
  assert.match(text.tradeoffFinding(found), /nothing was measured/);
  assert.equal(figures(at(), { measured: [], channels: [] }).sample, null);
  assert.match(text.headline(at({ format: "int8" }), shown({ format: "int8" }), "S")[0], /a tie, with int8/);
  assert.equal(shown({ format: "float16", only: "keys" }).chosen.row, MEASURED[0]); // whichever half: nothing is coded
  assert.equal(plain(text.sampleFinding(found.sample, found)).includes("fp16, for only values are coded"), true);
});

test("a tie is what lies within two standard errors", () => {
  const tie = (change, error) => text.isTie({ change, error });
  assert.deepEqual([tie(0.0015, 0.001), tie(-0.0015, 0.001), tie(0.002, 0.001)], [true, true, true]);
  assert.deepEqual([tie(0.0025, 0.001), tie(-0.0025, 0.001)], [false, false]);
});

test("the largest key of a channel is the largest in size, negative ones too", () => {
  const { sample } = figures(at(), { measured: [], channels: [[0.5, -9], [1, 7]] });
  assert.deepEqual(sample.sizes, [1, 9]);
});

test("another sample is coded anew, the same one is not", () => {
  const given = (channels) => figures(at({ format: "int8" }), { measured: [], channels }).sample.chosen;
  const first = given(SAMPLE);
  assert.equal(given(SAMPLE), first);
  const other = SAMPLE.map((row) => row.map((x) => 2 * x));
  assert.equal(given(other).back[3][1], 2 * first.back[3][1]);
  assert.equal(given(SAMPLE).back[3][1], first.back[3][1]);
});

test("the format that is compared codes the same half", () => {
  const { compared, sample } = shown({ format: "int8", compare: "int4", only: "keys" });
  assert.deepEqual([compared.only, compared.row], ["keys", MEASURED[4]]);
  assert.equal(compared.bits, 10.5);
  assert.equal(sample.compared.coding, codingOf("int4", "keys").keys);
  const values = shown({ format: "int8", compare: "int4_token", only: "values" });
  assert.equal(values.compared.row, null);
  assert.equal(values.sample.compared.relative, shown({ format: PLAIN }).sample.chosen.relative);
});

test("a change is written to the digit that its error tells", () => {
  const say = (change, error) => plain(text.change({ change, error }));
  assert.deepEqual([say(0.023, 0.0051), say(-0.0001, 0.0002), say(3.5, 0.4), say(25.4, 3), say(0, 0), say(0.00001, 0.00001)], [
    "+2.30 % ± 0.51 %",
    "−0.010 % ± 0.020 %",
    "+350 % ± 40 %",
    "+2,540 % ± 300 %",
    "0 %",
    "+0.001 % ± 0.001 %",
  ]);
  assert.deepEqual([0.0312, 123.4, 0, 4.50001, 1e-9].map(text.three), ["0.0312", "123", "0", "4.5", "1e-9"]);
});

test("the formula's lines give what they say", () => {
  const { chosen, model, card } = shown();
  assert.equal(plain(text.rowLine(chosen.coding.keys, 128)), "128 values × 4 bits + 128 × 4 B ÷ 32 tokens = 80 B");
  assert.equal(plain(text.rowLine(chosen.coding.values, 128)), "128 values × 4 bits + 4 × 4 B = 80 B");
  assert.equal(plain(text.rowLine(formatOf("int8").keys, 64)), "64 values × 8 bits + 2 B = 66 B");
  assert.equal(plain(text.rowLine(formatOf("fp8_e4m3").keys, 64)), "64 values × 8 bits = 64 B");
  assert.equal(plain(text.tokenLine(chosen, model)), "(80 B + 80 B) × 32 KV heads × 32 layers = 163,840 B");
  assert.match(plain(text.usersLine(chosen, { card, weights: 13_476_831_232 })), /^\(80\.00 GB − 13\.48 GB of weights = 66\.52 GB\) ÷ 679\.5 MB = 97$/);
});

test("every format, half, model and GPU that is offered gives figures that can be read", () => {
  for (const { name } of FORMATS) {
    for (const only of [null, "keys", "values"]) {
      const found = shown({ format: name, only, compare: name });
      const words = [...text.headline(at(), found, "S"), text.tradeoffFinding(found, "S"), text.sampleFinding(found.sample, found), text.channelFinding(found.sample, found)];
      assert.doesNotMatch(words.join(), /NaN|undefined|Infinity/);
    }
  }
  for (const { id } of UNIFORM) assert.ok(shown({ model: id, context: 1 }).chosen.users >= 0);
  assert.equal(modelFor("mixtral-8x7b").layer.nKvHeads, 8);
  assert.equal(modelFor("gemma-3-27b"), undefined);
  for (const { changes } of presetsFor()) assert.ok(shown(changes).chosen);
});

test("the chart's axis holds what was measured", () => {
  const { low, high, ticks } = span(MEASURED);
  assert.deepEqual([low, high, ticks], [-0.5, 100, [0, 1, 10, 100]]);
  assert.ok(span([{ change: -0.03, error: 0.01 }]).low <= -4);
  assert.deepEqual(span([]).high, 1);
  assert.equal(span([{ change: 0.08, error: 0.03 }]).high, 100); // the bar's end counts: 11 %
  assert.equal(span([{ change: 0.08, error: 0.01 }]).high, 10);
  assert.equal(span([{ change: 0.001, error: 0.02 }]).low, -2);
});

test("the address holds what differs from the start, under its own mark", () => {
  const changed = at({ format: "int8", only: "keys", channel: 3 });
  assert.equal(hash.write(changed, INITIAL), "#bits:format=int8&only=keys&channel=3");
  assert.deepEqual({ ...INITIAL, ...hash.read(hash.write(changed, INITIAL)) }, changed);
  assert.equal(hash.read("#bits:only=none").only, null);
  assert.throws(() => hash.read("#bits:format=int3"), /not understood/);
  assert.equal(new Set(FIELDS.map(({ key }) => key)).size, FIELDS.length);
});
