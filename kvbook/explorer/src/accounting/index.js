// What a KV cache costs: config.json -> spec -> bytes -> users, as Python's kvbook.accounting. No DOM here.
export { ConfigError } from "./errors.js";
export { users } from "./fit.js";
export { explain, formula } from "./formula.js";
export { parseConfig } from "./json.js";
export { cacheSpec } from "./reader.js";
export {
  CACHE_DTYPES,
  POLICIES,
  bytesPerToken,
  exactNbytes,
  headsOnGpu,
  layerNbytes,
  nbytes,
  stateBytes,
  tokensHeld,
  windows,
} from "./spec.js";
export { hasKvHeads, isFull, kvHeadChoices, whatIf } from "./whatif.js";
