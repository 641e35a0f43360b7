// The state in the address, as common/hash.js writes it.
import { hashOf } from "../common/hash.js";
import { FIELDS } from "./state.js";

export const { write, read, isOurs, isAnothers, fits } = hashOf(FIELDS, "#kv:");
