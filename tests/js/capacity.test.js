import assert from "node:assert/strict";
import { test } from "node:test";
import { fault } from "../../kvbook/explorer/src/common/fields.js";
import { cut } from "../../kvbook/explorer/src/capacity/bar.js";
import { decodeBound } from "../../kvbook/explorer/src/capacity/bound.js";
import { decades, samples } from "../../kvbook/explorer/src/capacity/chart.js";
import { command, compact, python } from "../../kvbook/explorer/src/capacity/commands.js";
import { nearest, octaves, roundNumbers } from "../../kvbook/explorer/src/common/inputs.js";
import { CACHE_DTYPES, parseConfig } from "../../kvbook/explorer/src/capacity/engine.js";
import { GPUS, hasExperts, MODELS, OWN } from "../../kvbook/explorer/src/common/facts.js";
import { alone, crossings, figures, firstAbove, sizeAt } from "../../kvbook/explorer/src/capacity/figures.js";
import { check, isOurs, read, write } from "../../kvbook/explorer/src/capacity/hash.js";
import { parameterNumber } from "../../kvbook/explorer/src/capacity/paste.js";
import { PRESETS, presetsThatKeepTheCard, withBatch } from "../../kvbook/explorer/src/capacity/presets.js";
import * as stateModule from "../../kvbook/explorer/src/capacity/state.js";
import { baseline, techniques } from "../../kvbook/explorer/src/capacity/techniques.js";
import { powers } from "../../kvbook/explorer/src/common/axes.js";
import * as text from "../../kvbook/explorer/src/capacity/text.js";

const { FIELDS, fromTraits, INITIAL, POLICIES, same, settle, toTraits } = stateModule;
const at = (changes = {}) => ({ ...INITIAL, ...changes });
const shown = (changes) => figures(at(changes));
const CONFIG = '{"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 6,\n "hidden_size": 48}';
const own = { model: OWN, config: CONFIG, parameters: 5_000_000 };

test("it starts where the book's point is: 30 users of 4,096 tokens", () => {
  const found = shown();
  assert.equal(found.users, 30);
  assert.deepEqual([found.perToken.below, found.sequence, found.cache], [524_288, 2 ** 31, 30 * 2 ** 31]);
  assert.equal(found.weightsBytes, 13_476_831_232);
  const [what, rest] = text.headline(at(), found);
  assert.equal(what, "30 users fit");
  assert.equal(rest, "with 4,096 tokens each: Llama 2 7B on one A100 80GB, cache in fp16.");
});

test("the known numbers: what the driver reports, what is used of it, the crossing", () => {
  assert.equal(shown({ memory: "reported" }).users, 33);
  assert.equal(shown({ memory: "reported", utilization: 0.9 }).users, 29);
  assert.equal(shown({ utilization: 0.9 }).users, 27);
  assert.equal(shown({ overheadGb: 2 }).users, 30);
  assert.equal(shown({ overheadGb: 2.1 }).users, 29);
  assert.deepEqual(crossings(shown(), 1), { weights: 25_706, free: 126_883, single: { weights: 25_706, free: 126_883 } });
  assert.equal(crossings(shown(), 30).free, 4230);
});

test("each setting reaches the figures", () => {
  const { sequence } = shown();
  assert.equal(shown({ nKvHeads: 8 }).sequence, sequence / 4);
  assert.equal(shown({ cacheDtype: "fp8" }).sequence, sequence / 2);
  assert.equal(shown({ cacheDtype: "int8" }).sequence, (sequence / 256) * 130);
  assert.equal(shown({ window: 1020, sinks: 4 }).sequence, sequence / 4);
  assert.equal(shown({ window: 1020, sinks: 4, fullEvery: 2 }).sequence, (sequence * 5) / 8);
  assert.equal(shown({ context: 5000, policy: "paged", blockSize: 64 }).sequence, 524_288 * 5056);
  assert.equal(shown({ context: 1000, policy: "reserve" }).sequence, sequence); // the model's most
  assert.equal(shown({ context: 1000, policy: "reserve", reserve: 2048 }).sequence, sequence / 2);
  assert.equal(shown({ context: 8192, policy: "reserve", reserve: 2048 }).sequence, 2 * sequence);
  assert.equal(shown({ tensorParallel: 4 }).sequence, sequence / 4);
  assert.equal(shown({ weights: "4" }).weightsBytes, 3_369_207_808);
  assert.equal(shown({ gpu: OWN, ownGb: 24.5, ownGbPerS: 900 }).card.memoryBytes, 24_500_000_000);
  assert.equal(shown({ model: "gemma-3-27b", policy: "all_layers_full" }).sequence, 507_904 * 4096);
  assert.equal(shown({ model: "gpt-oss-120b", weights: "released" }).weightsBytes, 65_248_815_744);
  assert.equal(shown({ ...own, context: 7 }).sequence, 7 * 3 * 2 * 48 * 2);
});

test("the bar's parts fill the card, and what does not fit is told apart", () => {
  for (const changes of [{}, { context: 16_384 }, { model: "llama-3.1-405b" }, { utilization: 0.85, overheadGb: 3 }]) {
    const { room, cache } = shown(changes);
    const { weights, overhead, cache: held, free, kept, ...rest } = cut(room, cache);
    const over = rest["over-weights"] + rest["over-cache"];
    assert.equal(weights + overhead + held + free + kept, room.card);
    assert.equal(weights + overhead + held + over, room.weights + room.overhead + cache);
    assert.equal(over > 0 && free > 0, false);
    assert.equal(rest["over-weights"] > 0, room.free < 0);
  }
});

test("the free memory holds the users and not one more, for every model and card", () => {
  let tried = 0;
  for (const { id } of MODELS) {
    for (const { name } of GPUS) {
      const { room, sequence, users } = shown({ model: id, gpu: name, utilization: 0.9, overheadGb: 1.5 });
      assert.ok(users === 0 || (users * sequence <= room.free && (users + 1) * sequence > room.free), `${id} ${name}`);
      tried += 1;
    }
  }
  assert.ok(tried > 400);
});

test("every model stands every policy, precision, window and number of KV heads that is offered", () => {
  for (const { id } of MODELS) {
    const { headChoices, takesWindow, publishedHeads } = shown({ model: id }).model;
    assert.equal(headChoices.includes(publishedHeads), false);
    for (const nKvHeads of headChoices) {
      assert.notEqual(shown({ model: id, nKvHeads }).sequence, shown({ model: id }).sequence);
    }
    for (const cacheDtype of CACHE_DTYPES) assert.ok(shown({ model: id, cacheDtype }).sequence > 0);
    for (const policy of POLICIES) assert.ok(shown({ model: id, policy }).sequence > 0);
    const slid = shown({ model: id, context: 2 ** 20, window: 16 }).sequence;
    assert.equal(slid < shown({ model: id, context: 2 ** 20 }).sequence, takesWindow, id);
  }
});

test("settings that do not go together are one sentence", () => {
  assert.throws(() => shown({ model: "qwen2.5-7b", nKvHeads: 7, tensorParallel: 2 }), /tensor_parallel is 2, which does not/);
  assert.throws(() => shown({ nKvHeads: 5 }), /n_kv_heads is 5, which does not divide 32 attention heads\./);
  assert.throws(() => shown({ ...own, config: "{" }), /The text is not JSON/);
  assert.throws(() => shown({ ...own, parameters: null }), /give their number/);
});

test("the first context above a limit, by halving", () => {
  const asked = [];
  const size = (n) => (asked.push(n), Math.min(n, 700) * 3);
  assert.equal(firstAbove(299, size), 100);
  assert.equal(firstAbove(300, size), 101);
  assert.equal(firstAbove(0, size), 1);
  assert.equal(firstAbove(2100, size), null);
  assert.ok(asked.length < 90);
});

test("the bound is the bandwidth over what a step reads", () => {
  const bound = decodeBound({ bandwidth: 2000, weightsBytes: 30, cacheBytes: 10, batch: 3 });
  assert.deepEqual([bound.stepBytes, bound.perSequence, bound.total], [40, 50, 150]);
  const { bound: start } = shown();
  assert.equal(start.stepBytes, 13_476_831_232 + 30 * 2 ** 31);
  assert.equal(shown({ policy: "reserve", context: 64 }).bound.cacheBytes, 30 * 64 * 524_288); // read, not reserved
  assert.equal(shown({ tensorParallel: 2 }).bound.stepBytes, start.stepBytes / 2);
});

test("a mixture of experts is known by its config", () => {
  const experts = MODELS.filter(({ config }) => hasExperts(config)).map(({ id }) => id);
  assert.ok(["mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "llama-4-scout", "jamba-v0.1"].every((id) => experts.includes(id)));
  assert.ok(["llama-2-7b", "gemma-3-27b", "qwen3-8b", "gpt2"].every((id) => !experts.includes(id)));
  assert.match(text.boundNotes(at(), shown({ model: "mixtral-8x7b" })).join(" "), /can be faster than this/);
});

test("each technique is told alone against the model as published", () => {
  const users = Object.fromEntries(techniques(at(), shown()).map((row) => [row.label, row.users]));
  assert.deepEqual(users, {
    "8 KV heads (GQA)": 123,
    "fp8 cache": 61,
    "int8 cache, with scales": 61,
    "int4 cache, with scales": 99,
    "Window of 1,024 and 4 sinks": 123,
    "Window, 1 layer in 4 full": 70,
    "Paged, blocks of 16": 30,
  });
  const changed = at({ cacheDtype: "fp8", nKvHeads: 4, context: 2048, window: 512 });
  assert.equal(alone(changed, {}).users, 61); // of the settings of now, only the context is the baseline's too
  const rows = techniques(changed, figures(changed));
  assert.deepEqual(rows.filter(({ pressed }) => pressed).map(({ label }) => label), ["4 KV heads (GQA)", "fp8 cache", "Window of 512"]);
  assert.deepEqual([rows.at(-1).users, alone(changed, { policy: "reserve" }).users], [61, 30]);
  assert.equal(rows.at(-1).because, "2.00 × smaller than with 4,096 tokens reserved a sequence (30 would fit).");
  const latent = techniques(at({ model: "deepseek-v3" }), shown({ model: "deepseek-v3" }));
  assert.equal(latent[0].why, "This model has none to share.");
  assert.deepEqual([[8, 2], [2, 8], [3, 3], [3, 0]].map(([a, b]) => text.saving(a, b)), ["4.00 × smaller", "4.00 × larger", "the same", "nothing left"]);
});

test("where nothing else is changed the baseline is the headline's, for every model", () => {
  for (const { id } of MODELS) {
    for (const context of [1, 5000, 131_072]) {
      const state = at({ model: id, context });
      const found = figures(state);
      const base = baseline(state);
      assert.deepEqual([base.sequence, base.users], [found.sequence, found.users], `${id} ${context}`);
      assert.equal(text.gainOfAll(found, base), "as published");
      for (const row of techniques(state, found)) assert.notEqual(text.gain(row, base), "the same", `${id} ${row.label}`);
    }
  }
  assert.equal(text.baselineName(at()), "As published, 16 bits, 4,096 tokens reserved");
});

test("a row that saves nothing says why", () => {
  const said = (changes, n) => techniques(at(changes), shown(changes)).at(n).because;
  const all = "Saves nothing here: every token that would be reserved,";
  assert.equal(said({}, -1), `${all} 4,096 a sequence, is in use.`);
  assert.equal(said({ reserve: 8192 }, -1), "2.00 × smaller than with 8,192 tokens reserved a sequence (15 would fit).");
  assert.equal(said({ reserve: 100 }, -1), `${all} 4,096 a sequence, is in use.`);
  const llama = { model: "llama-3.1-8b" };
  assert.match(said(llama, -1), /^32\.0 × smaller than with 131,072 tokens reserved a sequence \(3 would fit\)\.$/);
  const slid = { ...own, config: CONFIG.replace("llama", "mistral").replace("}", ', "num_key_value_heads": 6, "sliding_window": 64, "max_position_embeddings": 9000}') };
  assert.equal(said(slid, -1), "Saves nothing here: the 9,000 tokens that might be reserved take no more cache.");
  assert.equal(said({ context: 1028 }, 4), "Saves nothing here: all 1,028 tokens lie in the window.");
  assert.deepEqual([said({ context: 1029 }, 4), said({ context: 1028 }, 3)], [undefined, undefined]);
});

test("weights that do not fit are words in the sum, too", () => {
  const line = (changes) => text.usersLine(at(changes), shown(changes)).replace(/^[^B]*B/, "");
  assert.equal(line({ model: "llama-3.1-405b" }), ": the weights alone take more than there is → 0");
  assert.equal(line({ overheadGb: 70 }), ": the weights and the overhead take more than there is → 0");
  assert.equal(line({ gpu: OWN, ownGb: 13.48, context: 2 ** 20 }), " ÷ 549,755,813,888 B < 0.01 → 0");
  assert.equal(line({ context: 2 ** 20 }), " ÷ 549,755,813,888 B = 0.12 → 0");
});

test("a baseline that the GPUs cannot share is said, and breaks nothing", () => {
  const state = at({ model: "phi-4", nKvHeads: 20, tensorParallel: 4 });
  assert.match(alone(state, {}).why, /tensor_parallel is 4, which does not divide 10 KV heads/);
  const rows = techniques(state, figures(state));
  assert.deepEqual([rows[0].users > 0, rows[1].why], [true, alone(state, {}).why]);
});

test("a pasted file's huge or odd numbers are a sentence or do no harm", () => {
  const with_ = (line) => ({ ...own, policy: "reserve", config: CONFIG.replace("}", `, ${line}}`) });
  for (const most of ["1e300", "123456789012345678901234567890", "9007199254740993", "-5", "NaN", '"many"', "0", "[]"]) {
    const changes = with_(`"max_position_embeddings": ${most}`);
    assert.equal(shown(changes).plan.tokens, 4096, most);
    assert.ok(techniques(at(changes), shown(changes)).every(({ users, why }) => users > 0 || why));
  }
  assert.equal(shown(with_('"max_position_embeddings": 5000')).plan.tokens, 5000);
  const wide = CONFIG.replace("48", "2147483640");
  assert.ok(Number.isFinite(shown({ ...own, config: wide, context: 2 ** 20, batch: 100_000 }).cache));
});

test("a card is one, several, or one's own", () => {
  assert.deepEqual([1, 8].map((n) => text.cards(shown().card, n)), ["one A100 80GB", "8 × A100 80GB"]);
  assert.deepEqual([1, 2].map((n) => text.cards(shown({ gpu: OWN }).card, n)), ["your GPU", "2 × your GPU"]);
});

test("the headline says why none fits", () => {
  const say = (changes) => text.headline(at(changes), shown(changes)).join(" ");
  assert.match(say({ context: 2 ** 20 }), /^No user fits\. One sequence takes 549\.8.GB of cache; 66\.52.GB are free for it/);
  assert.match(say({ model: "llama-3.1-405b" }), /^The weights do not fit\. Llama 3\.1 405B takes 811\.7.GB of weights; one/);
  assert.match(say({ context: 32_768, batch: 2 }), /^3 users fit with 32,768 tokens each/);
  assert.match(say({ context: 100_000 }), /^1 user fits/);
  assert.match(say({ context: 8, policy: "reserve" }), /^30 users fit with 8 tokens each, 4,096 reserved:/);
  const none = { config: '{"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 8}', model: OWN, parameters: 9 };
  assert.match(say(none), /^Any number of users fits\. Your model keeps no KV cache/);
  assert.equal(text.verdict(at(), shown()), "The cache of 30 sequences takes 64.42\u00a0GB, 4.8 × the weights; none more fits.");
  assert.match(text.verdict(at({ batch: 31 }), shown({ batch: 31 })), /: 48\.\d+.MB more than there is\.$/);
  assert.match(text.notes(at({ context: 5000 }), shown({ context: 5000 })).join(), /made for at most 4,096 tokens/);
});

test("a hybrid's constant state is said under the answer, with the users that it leaves", () => {
  const say = (changes) => text.aside(at(changes), shown(changes)).replaceAll("\u00a0", " ");
  const nemotron = { model: "nemotron-nano-9b-v2" };
  const found = shown(nemotron);
  assert.deepEqual([found.users, found.constant, found.usersWithState], [927, 73_433_088, 442]);
  const both = found.sequence + found.constant;
  assert.ok(442 * both <= found.room.free && 443 * both > found.room.free);
  const kept = "A sequence also keeps a constant state of 73.43 MB (at 2 bytes a value), which is not counted";
  assert.equal(say(nemotron), `${kept}: with it 442 users would fit.`);
  assert.equal(say({ ...nemotron, tensorParallel: 2 }), `${kept}: with it, shared evenly among the 2 GPUs, 1,011 users would fit.`);
  assert.equal(say({ ...nemotron, context: 2 ** 20 }), `${kept}: with it still 3 users would fit.`);
  assert.equal(say({ ...nemotron, gpu: OWN, ownGb: 10 }), `${kept}.`);
  assert.equal(say({}), "");
  const odd = { ...shown(), constant: null, usersWithState: null };
  assert.match(text.aside(at(), odd), /is not counted: the config does not tell its size\.$/);
  assert.doesNotMatch(text.notes(at(nemotron), found).join(), /state/);
});

test("sizes name their unit, decimal and binary", () => {
  const plain = (n) => [text.decimal(n), text.binary(n)].map((s) => s.replace("\u00a0", " "));
  assert.deepEqual(plain(2 ** 31), ["2.147 GB", "2.000 GiB"]);
  assert.deepEqual(plain(524_288), ["524.3 kB", "512.0 KiB"]);
  assert.deepEqual(plain(512), ["512 B", "512 B"]);
  assert.deepEqual(plain(13_476_831_232), ["13.48 GB", "12.55 GiB"]);
  assert.equal(text.usersLine(at(), shown()), "(80,000,000,000 − 13,476,831,232) B ÷ 2,147,483,648 B = 30.98 → 30");
});

test("the address holds what differs from the start, and comes back the same", () => {
  assert.equal(write(INITIAL, INITIAL), "");
  const changed = at({ context: 8192, gpu: "H100 SXM", nKvHeads: 8, utilization: 0.9, ...own, fullEvery: 4, window: 256 });
  const hash = write(changed, INITIAL);
  assert.match(hash, /^#kv:/);
  assert.ok(isOurs(hash) && !isOurs("#a-section") && !isOurs(""));
  assert.deepEqual({ ...INITIAL, ...read(hash) }, changed);
  assert.deepEqual(read(write(INITIAL, changed)).nKvHeads, null);
  assert.equal(write(at({ context: 8192, cacheDtype: "fp8" }), INITIAL), "#kv:context=8192&cache=fp8");
});

test("an address that is not understood is refused with one sentence", () => {
  for (const [hash, sentence] of [
    ["#kv:contxt=8192", /names “contxt”, which is no setting\.$/],
    ["#kv:context=1e9", /“context=1e9”, which is not understood\.$/],
    ["#kv:context=99999999", /context is 99999999; it must be a whole number from 1 to 1,048,576\.$/],
    ["#kv:context=none", /not understood/],
    ["#kv:model=<script>", /“model=<script>”/],
    ["#kv:use=7", /utilization is 7; it must be a number from 0.01 to 1/],
    ["#kv:__proto__=1", /“__proto__”/],
    [`#kv:config=${"x".repeat(30_000)}`, /too long/],
  ]) {
    assert.throws(() => read(hash), sentence);
  }
});

test("a pasted config is in the address only while it is the model, and is refused where another is", () => {
  const other = at({ ...own, model: "gpt2" });
  assert.equal(write(other, INITIAL), "#kv:model=gpt2");
  assert.match(write(at(own), INITIAL), /^#kv:model=own&config=.+&parameters=5000000$/);
  assert.equal(write(other, at(own)), "#kv:model=gpt2");
  const lone = read("#kv:config=%7B%7D");
  assert.throws(() => check(lone, at(lone)), /^Error: The address has “config=…”, which is read only with “model=own”\.$/);
  assert.throws(() => check({ parameters: 5 }, at({ parameters: 5 })), /“parameters=…”/);
  check(lone, { ...at(own), ...lone }); // an explorer that starts with one's own model
  check({ context: 5 }, at({ context: 5 }));
});

test("traits that are not allowed stay where they start", () => {
  assert.deepEqual(fromTraits(() => undefined), { ...INITIAL });
  const odd = { context: -3, gpu: "<b>", batch: 2.5, n_kv_heads: "8", utilization: NaN, cache_dtype: "fp8" };
  assert.deepEqual(fromTraits((trait) => odd[trait]), at({ cacheDtype: "fp8" }));
  assert.deepEqual(toTraits({ nKvHeads: 8, cacheDtype: "int4" }), { cache_dtype: "int4", n_kv_heads: 8 });
  assert.equal(fault(FIELDS.find(({ name }) => name === "batch"), 0), "batch is 0; it must be a whole number from 1 to 100,000.");
  assert.ok(same(INITIAL, { ...INITIAL }) && !same(INITIAL, at({ sinks: 1 })));
});

test("another model takes back what belonged to the last", () => {
  const before = at({ nKvHeads: 8, reserve: 9000 });
  assert.deepEqual(settle(before, { model: "gpt-oss-20b" }), { model: "gpt-oss-20b", nKvHeads: null, reserve: null, weights: "released" });
  assert.equal(settle(at({ model: "gpt-oss-20b", weights: "released" }), { model: "llama-2-7b" }).weights, "16");
  assert.equal(settle(at({ weights: "4" }), { model: "qwen3-8b" }).weights, "4");
  assert.deepEqual(settle(at({ window: 9, sinks: 3 }), { window: null }), { window: null, sinks: 0, fullEvery: null });
});

test("presets fit what they name", () => {
  for (const { changes } of PRESETS) {
    const state = withBatch(at(changes));
    assert.equal(figures(state).users, state.batch);
  }
});

test("presets keep the reader's card, and give it back where one brought another", () => {
  const apply = presetsThatKeepTheCard();
  const preset = (part) => PRESETS.find(({ label }) => label.includes(part));
  const card = ({ gpu, memory, ownGb, tensorParallel }) => [gpu, memory, ownGb, tensorParallel];
  const mine = at({ gpu: OWN, ownGb: 24.5, memory: "reported", nKvHeads: 8, context: 777 });
  const first = apply(preset("at 4K"), mine, INITIAL);
  assert.deepEqual(card(first), [OWN, "reported", 24.5, 1]);
  assert.deepEqual([first.nKvHeads, first.context, first.batch], [null, 4096, figures(first).users]);
  const far = apply(preset("DeepSeek"), first, INITIAL);
  assert.deepEqual([far.gpu, far.tensorParallel], ["H200", 8]);
  assert.deepEqual(card(apply(preset("Gemma"), far, INITIAL)), card(first));
  const again = apply(preset("DeepSeek"), first, INITIAL);
  const chosen = apply(preset("Gemma"), { ...again, gpu: "H100 SXM" }, INITIAL);
  assert.equal(chosen.gpu, "H100 SXM"); // a card that the reader took since
  const huge = apply(preset("at 4K"), at({ gpu: OWN, ownGb: 100_000 }), INITIAL);
  assert.equal(huge.batch, 100_000);
  const odd = at({ model: "phi-4", nKvHeads: 20 });
  assert.equal(apply(preset("at 128K"), odd, odd).nKvHeads, null); // 20 heads were the other model's
});

test("sliders and samples rise, and hold the numbers people use", () => {
  const contexts = roundNumbers(64, 2 ** 20);
  assert.deepEqual([contexts.length, ...contexts.slice(0, 5)], [29, 64, 96, 128, 192, 256]);
  assert.ok(contexts.every((n, i) => Number.isInteger(n) && (i === 0 || n > contexts[i - 1])));
  assert.ok([64, 4096, 6144, 131_072, 2 ** 20].every((n) => contexts.includes(n)));
  const batches = octaves(1, 4096, 8);
  assert.ok(batches.every((n, i) => i === 0 || n > batches[i - 1]));
  assert.deepEqual([nearest([1, 2, 4], 1), nearest([1, 2, 4], 3), nearest([1, 2, 4], 99), nearest([8, 16], 2)], [0, 2, 2, 0]);
  const points = samples([1024, 4096, 7]);
  assert.ok(points.every((n, i) => i === 0 || n > points[i - 1]));
  assert.ok(points.includes(1024) && points[0] === 64 && points.at(-1) === 2 ** 20);
  assert.deepEqual([decades([3e6, 2e9, 0, -4]), decades([5]), decades([1e6, 1e9])], [[1e6, 1e10], [1, 10], [1e6, 1e10]]);
  assert.deepEqual([powers([1, 1]), powers([1e6, 1e9]), powers([0.1, 10])], [[1], [1e6, 1e7, 1e8, 1e9], [0.1, 1, 10]]);
  assert.ok(sizeAt(shown().plan, 65) > sizeAt(shown().plan, 64));
});

test("a number of parameters as people write it", () => {
  assert.deepEqual(["8,030,261,248", "8.03B", "500 m", "1_000"].map(parameterNumber), [8_030_261_248, 8.03e9, 5e8, 1000]);
  assert.deepEqual(["7B", "7.5B", "7,000,000,000", "12 345 678"].map(parameterNumber), [7e9, 7.5e9, 7e9, 12_345_678]);
  const forms = /^Error: Give the number of parameters as 7B, 7\.5B or 7,000,000,000 \(a comma only before three digits\)/;
  for (const bad of ["", "-1", "many", "1e9", "7e9", "0", "999T", "<b>", "8,03B", "8,0300B", "1,2345", "1,234_567", ",5B", "1234,567"]) {
    assert.throws(() => parameterNumber(bad), forms, bad);
  }
});

test("a config is pasted into code without its line ends, its numbers as they were", () => {
  assert.equal(compact('{"a" : 1.0,\n "b c": "x  \\" y", "d": 1e400}'), '{"a":1.0,"b c":"x  \\" y","d":1e400}');
  assert.deepEqual(parseConfig(compact(CONFIG)), parseConfig(CONFIG));
  const code = python(at(own), shown(own));
  assert.match(code, /^import json\n\nfrom kvbook/);
  assert.doesNotMatch(code.replaceAll("\n", ""), /[^ -~]/);
  const evil = { ...own, config: CONFIG.replace("}", ', "x": "\\"); import os #é\'\'\' END"}') };
  assert.equal(command(at(evil), shown(evil)).text.split("\n").filter((line) => line === "END").length, 1);
  assert.match(command(at({ nKvHeads: 8 }), shown({ nKvHeads: 8 })).why, /take the Python/);
});
