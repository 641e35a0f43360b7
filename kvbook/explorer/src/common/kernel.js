// The way to a running kernel. Messages may be lost and a kernel may be gone, so nothing here waits for ever:
// hello is repeated until it is answered, and each request has an id and a time limit.

const HELLO_AFTER = [0, 1000, 4000, 15000]; // ms
const ANSWER_WITHIN = 60000; // ms; a kernel that runs another cell answers late

/** onLive is called once, when a kernel has answered. request(message) resolves or rejects with its answer. */
export function kernel(model, onLive) {
  const open = new Map(); // id -> { resolve, reject, timer }
  const scope = Math.random().toString(36).slice(2); // views of one model hear each other's answers
  let live = false;
  let sent = 0;

  const send = (message) => {
    try {
      model.send(message);
    } catch {
      // No kernel: as good as no answer.
    }
  };
  const receive = (message) => {
    if (message?.type === "hello" && !live) {
      live = true;
      onLive();
    }
    const waiting = open.get(message?.id);
    if (!waiting) return;
    open.delete(message.id);
    clearTimeout(waiting.timer);
    if (message.type === "done") waiting.resolve();
    else waiting.reject(new Error(String(message.message)));
  };
  const request = (message) =>
    new Promise((resolve, reject) => {
      const id = `${scope}-${sent++}`;
      const timer = setTimeout(() => {
        open.delete(id);
        reject(new Error("The kernel has not answered. Is it busy, or gone?"));
      }, ANSWER_WITHIN);
      open.set(id, { resolve, reject, timer });
      send({ ...message, id });
    });

  model.on("msg:custom", receive);
  const hellos = HELLO_AFTER.map((after) => setTimeout(() => live || send({ type: "hello" }), after));
  const stop = () => {
    model.off("msg:custom", receive);
    hellos.forEach(clearTimeout);
    for (const { timer } of open.values()) clearTimeout(timer);
    open.clear();
  };
  return { request, isLive: () => live, stop };
}
