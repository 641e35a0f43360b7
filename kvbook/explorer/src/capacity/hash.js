// The state in the address, as common/hash.js writes it. No DOM here.
import { OWN } from "../common/facts.js";
import { hashOf } from "../common/hash.js";
import { FIELDS } from "./state.js";

const OF_OWN = ["config", "parameters"]; // they say something of one's own model alone
const of = hashOf(FIELDS, "#kv:");

export const { read, isOurs, isAnothers, fits } = of;

/** The state as a hash; what was pasted is left out while another model is shown. */
export function write(state, start) {
  const { config, parameters } = state.model === OWN ? state : start;
  return of.write({ ...state, config, parameters }, start);
}

/** Throws an Error with one sentence where an address gives its own model's settings and names another model. */
export function check(changes, { model }) {
  const unused = OF_OWN.find((name) => name in changes);
  if (unused && model !== OWN)
    throw new Error(`The address has “${unused}=…”, which is read only with “model=${OWN}”.`);
}
