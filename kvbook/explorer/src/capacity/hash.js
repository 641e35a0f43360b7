// The state in the address: "#kv:context=8192&cache=fp8", only what differs from the start. Other hashes are a
// page's own (#section) and are left alone.
import { FIELDS, fault } from "./state.js";

const MARK = "#kv:";
const LONGEST = 20_000; // characters; a longer config is left out of the address

/** The state as a hash; "" where it is the start. */
export function write(state, start) {
  const pairs = FIELDS.filter(({ name }) => state[name] !== start[name]).map(({ name, key }) => [
    key,
    state[name] ?? "none",
  ]);
  const tail = new URLSearchParams(pairs).toString();
  return tail === "" ? "" : MARK + tail;
}

export const isOurs = (hash) => hash.startsWith(MARK);
export const fits = (hash) => hash.length <= LONGEST;

/** The settings that a hash names. Throws an Error with one sentence where any of it is not understood. */
export function read(hash) {
  if (!fits(hash)) throw new Error("The address is too long.");
  const found = {};
  for (const [key, text] of new URLSearchParams(hash.slice(MARK.length))) {
    const field = FIELDS.find((f) => f.key === key);
    if (!field) throw new Error(`The address names “${key.slice(0, 40)}”, which is no setting.`);
    const value = field.optional && text === "none" ? null : field.read(text);
    if (value === undefined)
      throw new Error(`The address has “${key}=${text.slice(0, 40)}”, which is not understood.`);
    const wrong = fault(field, value);
    if (wrong) throw new Error(`In the address, ${wrong}`);
    found[field.name] = value;
  }
  return found;
}
