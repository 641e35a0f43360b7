// The page's address follows one explorer, the first that asks for it, or the one whose settings it holds. It is
// replaced, not added to, so that the back button leads where it led before.
const OWNER = Symbol.for("kvbook.address");
const AFTER = 300; // ms after the last change; browsers limit how often an address may be set

/** Whether this page's address is the reader's: not a frame's, and not that of JupyterLab. */
function isPage() {
  return (
    window.top === window &&
    document.body.dataset.jpThemeLight === undefined &&
    !document.getElementById("jupyter-config-data")
  );
}

/** Whether the reader came by this address, not back to it or by a reload: then the browser knows the place. */
function isFollowed() {
  const [entry] = performance.getEntriesByType("navigation");
  return entry?.type === undefined || entry.type === "navigate";
}

/**
 * `hash` is what hashOf gives. onRead(changes) gets what the address says, onFault(sentence) what is wrong with it.
 * null: another explorer has the address.
 */
export function link(root, hash, { start, onRead, onFault }) {
  const { fits, isOurs, isAnothers, read, write } = hash;
  if (isAnothers(location.hash) || !isPage() || window[OWNER]?.isConnected) return null;
  window[OWNER] = root;
  let timer = null;
  let written = null; // the last address that was put here

  const take = (event) => {
    if (!isOurs(location.hash)) return;
    const isNew = event ? location.hash !== written : isFollowed();
    if (isNew) requestAnimationFrame(() => root.scrollIntoView());
    try {
      onRead(read(location.hash));
    } catch (error) {
      onFault(`${error.message} The explorer shows what it showed before.`);
    }
  };
  const put = (state) => {
    const tail = write(state, start());
    if (!fits(tail) || tail === location.hash || (tail === "" && !isOurs(location.hash))) return;
    written = tail;
    try {
      history.replaceState(history.state, "", tail || location.pathname + location.search);
    } catch {
      location.replace(tail || "#"); // where a page from disk may not name itself
    }
  };
  const follow = (state) => {
    clearTimeout(timer);
    timer = setTimeout(put, AFTER, state);
  };
  const address = (state) => {
    const tail = write(state, start());
    return fits(tail) ? location.href.split("#")[0] + tail : null;
  };
  const stop = () => {
    clearTimeout(timer);
    removeEventListener("hashchange", take);
    if (window[OWNER] === root) delete window[OWNER];
  };
  addEventListener("hashchange", take);
  return { take, follow, address, stop };
}
