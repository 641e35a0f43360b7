import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { mock, test } from "node:test";
import { kernel } from "../../kvbook/explorer/src/common/kernel.js";
import { watch } from "../../kvbook/explorer/src/common/model.js";

/** A model whose messages are kept, and that can be answered. */
function fakeModel() {
  const events = new EventEmitter();
  const sent = [];
  const answer = (message) => events.emit("msg:custom", message);
  return { on: (e, f) => events.on(e, f), off: (e, f) => events.off(e, f), send: (m) => sent.push(m), events, sent, answer };
}
const kinds = (model) => model.sent.map(({ type }) => type);

test("hello is repeated until it is answered, and onLive is called once", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const model = fakeModel();
  let lives = 0;
  const { stop } = kernel(model, () => lives++);
  mock.timers.tick(1000);
  assert.deepEqual(kinds(model), ["hello", "hello"]); // the first was lost
  model.answer({ type: "hello" });
  model.answer({ type: "hello" });
  mock.timers.tick(60000);
  assert.equal(lives, 1);
  assert.equal(model.sent.length, 2);
  stop();
  mock.timers.reset();
});

test("a view that is gone asks and hears nothing more", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const model = fakeModel();
  const { stop } = kernel(model, () => assert.fail("heard an answer"));
  stop();
  mock.timers.tick(60000);
  model.answer({ type: "hello" });
  assert.equal(model.sent.length, 0);
  assert.equal(model.events.listenerCount("msg:custom"), 0);
  mock.timers.reset();
});

test("each request gets its own answer, whatever the order", async () => {
  const model = fakeModel();
  const { request, stop } = kernel(model, () => {});
  const other = kernel(model, () => {}); // a second view of the same model
  const first = request({ type: "text", text: "a" });
  const second = other.request({ type: "text", text: "b" });
  const [a, b] = model.sent;
  model.answer({ type: "error", id: b.id, message: "too long" });
  model.answer({ type: "done", id: "nobody's" });
  model.answer({ type: "done", id: a.id });
  await first;
  await assert.rejects(second, /too long/);
  stop();
  other.stop();
});

test("a request without an answer ends in a sentence, also where sending fails", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const model = fakeModel();
  model.send = () => {
    throw new Error("no comm");
  };
  const { request, stop } = kernel(model, () => {});
  const asked = request({ type: "text", text: "a" });
  mock.timers.tick(60000);
  await assert.rejects(asked, /The kernel has not answered/);
  stop();
  mock.timers.reset();
});

test("a burst of changes is drawn once, and none after the view is gone", async () => {
  const model = fakeModel();
  let draws = 0;
  const stop = watch(model, ["weights", "tokens"], () => draws++);
  assert.equal(draws, 1);
  model.events.emit("change:weights");
  model.events.emit("change:tokens");
  await null;
  assert.equal(draws, 2);
  model.events.emit("change:tokens");
  stop();
  await null;
  assert.equal(draws, 2);
});
