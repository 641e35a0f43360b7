// The page's address follows one explorer, the first that asks for it. It is replaced, not added to, so that the
// back button leads where it led before.
import { fits, isOurs, read, write } from "./hash.js";

const OWNER = Symbol.for("kvbook.capacity.address");
const AFTER = 300; // ms after the last change; browsers limit how often an address may be set

/** Whether this page's address is the reader's: not a frame's, and not that of JupyterLab. */
function isPage() {
  return (
    window.top === window &&
    document.body.dataset.jpThemeLight === undefined &&
    !document.getElementById("jupyter-config-data")
  );
}

/** onRead(changes) gets what the address says, onFault(sentence) what is wrong with it. null: another has it. */
export function link(root, { start, onRead, onFault }) {
  if (!isPage() || window[OWNER]?.isConnected) return null;
  window[OWNER] = root;
  let timer = null;

  const take = () => {
    if (!isOurs(location.hash)) return;
    try {
      onRead(read(location.hash));
    } catch (error) {
      onFault(`${error.message} The explorer shows what it showed before.`);
    }
  };
  const put = (state) => {
    const hash = write(state, start());
    if (!fits(hash) || hash === location.hash || (hash === "" && !isOurs(location.hash))) return;
    try {
      history.replaceState(history.state, "", hash || location.pathname + location.search);
    } catch {
      location.replace(hash || "#"); // where a page from disk may not name itself
    }
  };
  const follow = (state) => {
    clearTimeout(timer);
    timer = setTimeout(put, AFTER, state);
  };
  const address = (state) => {
    const hash = write(state, start());
    return fits(hash) ? location.href.split("#")[0] + hash : null;
  };
  const stop = () => {
    clearTimeout(timer);
    removeEventListener("hashchange", take);
    if (window[OWNER] === root) delete window[OWNER];
  };
  addEventListener("hashchange", take);
  return { take, follow, address, stop };
}
