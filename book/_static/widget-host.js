// Show the explorers on a published page, without a kernel: each is an anywidget whose code and state the
// notebook has stored. For every stored view this gives the widget's module a model of plain values.
(() => {
  "use strict";
  const MIME = "application/vnd.jupyter.widget-";
  const modules = new Map(); // code -> promise of its module: two explorers of one kind share it
  const styles = new Set();
  const models = {}; // by id: two views of one model move together

  const load = (code) => {
    if (!modules.has(code)) modules.set(code, import(URL.createObjectURL(new Blob([code], { type: "text/javascript" }))));
    return modules.get(code);
  };

  const makeModel = (state) => {
    const listeners = {};
    const model = {
      get: (name) => state[name],
      set(name, value) {
        if (state[name] === value) return;
        state[name] = value;
        for (const listener of [...(listeners[`change:${name}`] ?? [])]) listener(value);
      },
      save_changes() {},
      send() {},
      on: (event, listener) => void (listeners[event] ??= new Set()).add(listener),
      off: (event, listener) => (listener ? listeners[event]?.delete(listener) : delete listeners[event]),
    };
    return model;
  };

  const show = async (view, id, state) => {
    const el = document.createElement("div");
    view.after(el);
    try {
      const { default: widget } = await load(state._esm);
      if (state._css && !styles.has(state._css)) {
        styles.add(state._css);
        document.head.append(Object.assign(document.createElement("style"), { textContent: state._css }));
      }
      await widget.render({ model: (models[id] ??= makeModel(state)), el });
    } catch (error) {
      el.textContent = `This interactive figure could not be shown (${error.message}).`;
    }
  };

  const start = () => {
    const states = {};
    for (const script of document.querySelectorAll(`script[type="${MIME}state+json"]`)) {
      Object.assign(states, JSON.parse(script.textContent).state);
    }
    for (const view of document.querySelectorAll(`script[type="${MIME}view+json"]`)) {
      const { model_id: id } = JSON.parse(view.textContent);
      if (states[id]?.state._esm) show(view, id, states[id].state);
    }
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
