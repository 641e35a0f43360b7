import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import models from "../../kvbook/accounting/models.json" with { type: "json" };
import { cacheSpec, ConfigError, nbytes } from "../../kvbook/explorer/src/accounting/index.js";
import { withLatent } from "../../kvbook/explorer/src/accounting/latent.js";
import { domain, logTicks } from "../../kvbook/explorer/src/common/points.js";
import { figures, seriesOf, twin } from "../../kvbook/explorer/src/heads/figures.js";
import { headsView } from "../../kvbook/explorer/src/heads/heads_view.js";
import { presetsFor } from "../../kvbook/explorer/src/heads/presets.js";
import { FIELDS, hash, INITIAL, modelFor, PLAIN, settle } from "../../kvbook/explorer/src/heads/state.js";
import { tables } from "../../kvbook/explorer/src/heads/tables.js";
import * as text from "../../kvbook/explorer/src/heads/text.js";

const vectors = JSON.parse(readFileSync(new URL("../data/accounting_vectors.json", import.meta.url)));
const specs = models.map(({ config }) => cacheSpec(config));
const at = (changes = {}) => ({ ...INITIAL, ...changes });
const shown = (changes) => figures(at(changes));
const plain = (words) => words.replaceAll("\u00a0", " ");
const POINTS = [8, 4, 2, 1].map((n, i) => ({ n_kv_heads: n, loss: 1.8 + i / 100, spread: 0.005 + i / 1000, seeds: 3 })).reverse();
const series = seriesOf(POINTS, 8);

test("a latent costs what Python says, or is refused in the same words", () => {
  const [, ...rows] = vectors.latents;
  assert.ok(rows.length > 100);
  for (const [model, width, rope, context, expected] of rows) {
    let found;
    try {
      found = nbytes(withLatent(specs[model], width, rope), { context });
    } catch (error) {
      assert.ok(error instanceof ConfigError, error.stack);
      found = { error: error.message };
    }
    assert.deepEqual(found, expected, JSON.stringify([model, width, rope, context]));
  }
  assert.equal(rows.filter(([, , , , { error }]) => error).length > 30, true);
});

test("it starts where the lesson's point is: a quarter of the heads, four times the users", () => {
  const found = shown();
  assert.deepEqual([found.now.perToken, found.published.perToken], [131_072, 524_288]);
  assert.deepEqual([found.now.users, found.published.users], [123, 30]);
  const [what, rest] = text.headline(at(), found);
  assert.equal(what, "123 users fit, 30 as published.");
  assert.equal(
    plain(rest),
    "Llama 2 7B with 8 KV heads for 32 query heads: 131.1 kB of cache a token, 4.00 × smaller than as published;" +
      " 4,096 tokens each on one A100 80GB.",
  );
});

test("a latent of DeepSeek's width, and one that saves nothing", () => {
  const changes = { kind: "latent" };
  const found = shown(changes);
  assert.equal(found.now.perToken, 32 * 576 * 2);
  assert.equal(found.now.users, 440);
  assert.match(text.sharing(at(changes), found), /^All 32 query heads read one latent/);
  assert.equal(plain(text.tokenLine(at(changes), found)), "32 layers × (512 + 64) values × 2 B = 36,864 B");
  const wide = { kind: "latent", latentWidth: 8192 };
  assert.match(text.notes(at(wide), shown(wide)).join(), /no smaller than the published K and V/);
  assert.match(text.headline(at(wide), shown(wide))[1], /1\.01 × larger than as published/);
});

test("every model offered stands every choice of heads on every card, in words without gaps", () => {
  assert.ok(PLAIN.length >= 15);
  for (const { id } of PLAIN) {
    const { choices, publishedHeads } = modelFor(id);
    assert.ok(choices.includes(publishedHeads));
    for (const nKvHeads of choices) {
      for (const gpu of ["T4", "MI325X"]) {
        const state = at({ model: id, nKvHeads, gpu });
        const found = figures(state);
        const words = [...text.headline(state, found), text.sharing(state, found), text.rowLine(state, found)];
        words.push(text.falling(found), text.tokenLine(state, found), text.userLine(state, found), ...text.notes(state, found));
        assert.doesNotMatch(words.join(), /NaN|undefined|Infinity|null/);
        assert.equal(found.now.perToken * publishedHeads, found.published.perToken * nKvHeads);
      }
    }
  }
  assert.throws(() => shown({ nKvHeads: 5 }), /n_kv_heads is 5, which does not divide 32 attention heads\./);
});

test("where the weights do not fit, or no user, it says so", () => {
  assert.equal(text.headline(at({ gpu: "T4", model: "phi-4", nKvHeads: 10 }), shown({ gpu: "T4", model: "phi-4", nKvHeads: 10 }))[0], "The weights do not fit.");
  const long = { context: 2 ** 20 };
  assert.equal(text.headline(at(long), shown(long))[0], "No user fits.");
});

test("heads by their names, and as they share", () => {
  assert.deepEqual([32, 8, 1].map((n) => text.kindOf(n, 32)), ["MHA", "GQA", "MQA"]);
  assert.match(text.sharing(at({ nKvHeads: 32 }), shown({ nKvHeads: 32 })), /^Each of 32 query heads has a KV head of its own/);
  assert.match(text.sharing(at({ nKvHeads: 1 }), shown({ nKvHeads: 1 })), /^All 32 query heads share one KV head/);
  assert.equal(text.rowLine(at(), shown()), "One token in one layer: 8 × (128 + 128) = 2,048 values; as published 8,192 values.");
});

test("of the series only what was measured is shown: the decoder that shares its heads as chosen, or none", () => {
  const of = (changes) => twin(shown(changes), series)?.n_kv_heads ?? null;
  assert.deepEqual([32, 16, 8, 4, 2, 1].map((nKvHeads) => of({ nKvHeads })), [8, 4, 2, 1, null, null]);
  assert.equal(of({ kind: "latent" }), null);
  const words = (changes) => text.beside(shown(changes), series, twin(shown(changes), series));
  assert.match(words(), /what Llama 2 7B would lose is not known\. Ringed, for it too has 4 query heads a KV head: 2 KV heads: 1\.820 ± 0\.007 nats over 3 seeds\.$/);
  assert.match(words({ nKvHeads: 1 }), /None was trained with 32 query heads a KV head; measured are groups of 1, 2, 4, 8\.$/);
  assert.match(words({ kind: "latent" }), /They were trained with KV heads, not with a latent\.$/);
  assert.deepEqual(seriesOf([{ n_kv_heads: "<b>" }, ...POINTS], 8).points, POINTS);
  assert.deepEqual(seriesOf(undefined, 0).points, []);
});

test("a difference within the spread is called so", () => {
  const two = (difference, spread) => ({
    points: [
      { n_kv_heads: 1, loss: 2 + difference, spread, seeds: 3 },
      { n_kv_heads: 4, loss: 2, spread, seeds: 3 },
    ],
    heads: 4,
  });
  assert.equal(text.trained(two(0.03, 0.01)), "From 4 KV heads to 1 the measured loss rises by 0.030 nats; the spread over seeds is at most 0.010.");
  assert.match(text.trained(two(0.015, 0.01)), /rises by 0\.015 nats; not more than the spreads of the two over seeds together/);
  assert.match(text.trained(two(-0.03, 0.01)), /falls by 0\.030/);
  assert.match(text.trained({ points: two(0, 0).points.slice(1), heads: 4 }), /^Measured: a loss of 2\.000 nats with 4 KV heads\.$/);
});

test("presets are those that the model can have; another model keeps heads that divide its own", () => {
  const labels = (id) => presetsFor(modelFor(id)).map(({ label }) => label);
  assert.deepEqual(labels("llama-2-7b"), ["MHA: 32", "GQA: 8", "MQA: 1", "MLA: 512 + 64"]);
  assert.deepEqual(labels("smollm2-135m"), ["MHA: 9", "GQA: 3", "MQA: 1", "MLA: 512 + 64"]);
  assert.deepEqual(labels("falcon-7b"), ["MHA: 71", "MQA: 1", "MLA: 512 + 64"]);
  for (const { id } of PLAIN) for (const { changes } of presetsFor(modelFor(id))) assert.ok(shown({ model: id, nKvHeads: 1, ...changes }).now.perToken > 0);
  assert.deepEqual(settle(at(), { model: "smollm2-135m" }), { model: "smollm2-135m", nKvHeads: 3 });
  assert.deepEqual(settle(at(), { model: "llama-3.1-8b" }), { model: "llama-3.1-8b" });
});

test("the address holds what differs from the start, under its own mark", () => {
  const changed = at({ kind: "latent", latentWidth: 256, ropeWidth: 32, gpu: "H200", context: 100 });
  assert.match(hash.write(changed, INITIAL), /^#heads:/);
  assert.deepEqual({ ...INITIAL, ...hash.read(hash.write(changed, INITIAL)) }, changed);
  assert.deepEqual([hash.isAnothers("#kv:batch=3"), hash.isAnothers("#heads:heads=2"), hash.isAnothers("#fig:a")], [true, false, false]);
  assert.throws(() => hash.read("#heads:latent=0"), /latent_width is 0; it must be a whole number from 1 to 65,536/);
  assert.throws(() => hash.read("#heads:model=deepseek-v3"), /not understood/);
  assert.equal(new Set(FIELDS.map(({ key }) => key)).size, FIELDS.length);
});

test("axes of measured points: room around them, few round numbers", () => {
  const [low, high] = domain([1.83, 1.88], false);
  assert.ok(low < 1.83 && high > 1.88 && high - low < 0.1);
  assert.ok(domain([2, 2], false)[0] < 2);
  assert.deepEqual(logTicks(domain([26, 90], true)), [30, 50, 70, 100]);
  for (const ends of [[10, 12], [1, 5000], [20, 30]]) {
    const ticks = logTicks(ends);
    assert.ok(ticks.length >= 2 && ticks.length <= 9, String(ticks));
  }
});

test("other heads change the weights, to the byte, and it says so", () => {
  const found = shown({ nKvHeads: 8 });
  assert.equal(found.moreWeights, -2 * 32 * 4096 * 2 * 24 * 128); // bytes, layers, width, K and V, 24 heads fewer
  const said = (changes) => plain(text.notes(at(changes), shown(changes)).join(" "));
  assert.match(said({ nKvHeads: 8 }), /Other KV heads also change the weights: 1\.611 GB less, not counted\./);
  assert.doesNotMatch(said({ nKvHeads: 32 }), /change the weights/);
  assert.equal(shown({ nKvHeads: 32 }).moreWeights, 0);
  assert.match(said({ nKvHeads: 8 }), /this is another model/);
  assert.match(said({ kind: "latent" }), /this is another model/);
  assert.doesNotMatch(said({ nKvHeads: 32 }), /this is another model/); // it is as published
});

test("a text longer than the model is made for is called so", () => {
  const said = (context) => plain(text.notes(at({ context }), shown({ context })).join(" "));
  assert.match(said(4097), /Llama 2 7B is made for at most 4,096 tokens\.$/);
  assert.doesNotMatch(said(4096), /is made for/);
});

test("the spread that is named is the largest of all points, of those that have one", () => {
  const of = (spreads, seeds = 3) => ({
    points: spreads.map((spread, i) => ({ n_kv_heads: 2 ** i, loss: 2.5 - i / 10, spread, seeds })),
    heads: 4,
  });
  assert.match(text.trained(of([0.041, 0.076, 0.048])), /rises by 0\.200 nats; the spread over seeds is at most 0\.076\.$/);
  assert.match(text.trained(of([0.15, 0.9, 0.1])), /not more than the spreads of the two over seeds together \(the larger is 0\.150\)\.$/);
  const one = of([0, 0, 0], 1);
  assert.match(text.trained(one), /rises by 0\.200 nats; with one seed no spread is known, so this may be chance\.$/);
  assert.equal(text.pointWords(one.points[0]), "1 KV head: 2.500 nats, spread not known, over 1 seed");
  assert.deepEqual([text.spreadWords(one.points[0]), text.spreadOf({ spread: 3, seeds: 1 })], ["not known", 0]);
});

/** As much of a page as the views ask for. */
class Part {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], own: "", style: { setProperty() {} } });
    this.classList = { add() {} };
  }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
  }
  removeAttribute(name) {
    delete this.attributes[name];
  }
  addEventListener() {}
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  get textContent() {
    return this.own + this.children.map((child) => child.textContent ?? child).join("");
  }
  set textContent(text) {
    [this.own, this.children] = [text, []];
  }
  all(name) {
    const found = this.children.filter((child) => child instanceof Part).flatMap((child) => child.all(name));
    return this.tag === name ? [this, ...found] : found;
  }
}

function withPage(job) {
  globalThis.document = { createElement: (tag) => new Part(tag), createElementNS: (_, tag) => new Part(tag) };
  try {
    return job();
  } finally {
    delete globalThis.document;
  }
}

test("the picture joins each query to the KV head of its group", () => {
  const picture = withPage(() => {
    const view = headsView();
    view.show(at({ nKvHeads: 8 }), shown({ nKvHeads: 8 }), 640);
    return view.element;
  });
  const d = picture.all("path").find(({ attributes }) => attributes.class === "kv-link").attributes.d;
  const ends = [...d.matchAll(/M([\d.]+),[\d.]+L([\d.]+),/g)].map((match) => match.slice(1).map(Number));
  assert.equal(ends.length, 32);
  ends.forEach(([query, head], i) => {
    assert.deepEqual([query, head], [(i + 0.5) * 20, (Math.floor(i / 4) + 0.5) * 80], `query ${i}`);
  });
});

test("the table of what was measured holds each point", () => {
  const lines = (points) =>
    withPage(() => {
      const all = tables(at(), shown(), seriesOf(points, 8));
      const one = all.find((each) => each.textContent.startsWith("Measured"));
      return one.all("tr").map(({ children }) => children.map((cell) => cell.textContent));
    });
  const head = ["KV heads", "Loss, nats", "Spread over seeds", "Seeds"];
  assert.deepEqual(lines(POINTS.slice(0, 2)), [head, ["1", "1.830", "0.008", "3"], ["2", "1.820", "0.007", "3"]]);
  assert.deepEqual(lines([{ ...POINTS[0], seeds: 1 }])[1], ["1", "1.830", "not known", "1"]);
});
