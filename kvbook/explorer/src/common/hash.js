// A state in the address: "#kv:context=8192&cache=fp8", only what differs from the start. Other hashes are a page's
// own (#section) and are left alone. No DOM here.
import { fault } from "./fields.js";

const EXPLORERS = ["kv", "roofline", "heads", "window", "bits", "paging"]; // that write to the address
const MARKS = EXPLORERS.map((name) => `#${name}:`);
const LONGEST = 20_000; // characters; a longer config is left out of the address

/** How the settings `fields` are written to an address behind `mark`, and read from it. */
export function hashOf(fields, mark) {
  /** The state as a hash; "" where it is the start. */
  const write = (state, start) => {
    const pairs = fields
      .filter(({ name }) => state[name] !== start[name])
      .map(({ name, key }) => [key, state[name] ?? "none"]);
    const tail = new URLSearchParams(pairs).toString();
    return tail === "" ? "" : mark + tail;
  };

  /** The settings that a hash names. Throws an Error with one sentence where any of it is not understood. */
  const read = (hash) => {
    if (!fits(hash)) throw new Error("The address is too long.");
    const found = {};
    for (const [key, text] of new URLSearchParams(hash.slice(mark.length))) {
      const field = fields.find((f) => f.key === key);
      if (!field) throw new Error(`The address names “${key.slice(0, 40)}”, which is no setting.`);
      const value = field.optional && text === "none" ? null : field.read(text);
      if (value === undefined)
        throw new Error(`The address has “${key}=${text.slice(0, 40)}”, which is not understood.`);
      const wrong = fault(field, value);
      if (wrong) throw new Error(`In the address, ${wrong}`);
      found[field.name] = value;
    }
    return found;
  };
  const isOurs = (hash) => hash.startsWith(mark);
  const isAnothers = (hash) => MARKS.some((other) => other !== mark && hash.startsWith(other));
  const fits = (hash) => hash.length <= LONGEST;
  return { write, read, isOurs, isAnothers, fits };
}
