/** Call `update` once now and once after each burst of changes to the named traits. Returns a stop function. */
export function watch(model, names, update) {
  let waiting = false;
  let stopped = false;
  const changed = () => {
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      if (!stopped) update();
    });
  };
  for (const name of names) model.on(`change:${name}`, changed);
  update();
  return () => {
    stopped = true;
    for (const name of names) model.off(`change:${name}`, changed);
  };
}

/** Set traits here and, where there is one, in the kernel. */
export function save(model, traits) {
  for (const [name, value] of Object.entries(traits)) model.set(name, value);
  model.save_changes();
}
