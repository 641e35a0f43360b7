// What the file of an unknown family must not hold; kvbook/accounting/hints.py says why. No DOM here.
import { ConfigError, Float, named, shown } from "./errors.js";
import { isInt, isMissing, isObject } from "./reading.js";
import { fields, own, unknown } from "./tables.js";

const FACTORS = ["ratio", "factor", "multiplier"]; // in names of numbers that change nothing at 1
const HEADS = ["n_heads", "n_kv_heads", "head_dim"];
const holds = (text, parts) => parts.some((part) => text.includes(part));

/** Raise ConfigError where an unknown family has a key that may change what is cached. */
export function refuseHints(reading, found, latent) {
  const { config, name } = reading;
  const told = found.key !== null || found.roles.includes("state"); // the file says which layers attend
  const hints = told ? unknown.hints : [...unknown.hints, ...unknown.layout_hints];
  const parts = [
    ...unknown.harmless_parts,
    ...(told ? unknown.state_parts : []),
    ...(latent ? unknown.latent_parts : []),
  ];
  const understood = unknown.understood.flatMap((field) => fields[field]);
  const harmless = new Set([...unknown.harmless, ...reading.used, ...understood]);
  for (const [path, value] of entries(config)) {
    const key = path.slice(path.lastIndexOf(".") + 1);
    if (harmless.has(path) || holds(path, parts) || meansNothing(key, value)) continue;
    if (isOtherPart(key, value) || saysTheSame(reading, path, value)) continue;
    const bare = key.replaceAll("qkv", ""); // what queries, keys and values share says nothing of heads
    if (holds(bare, hints)) throw notKnown(reading, path, value);
  }
  if (latent && own(config, "use_mla") === false) throw notKnown(reading, "use_mla", false);
  for (const key of ["is_encoder_decoder", "add_cross_attention", "use_sliding_window"]) {
    if (own(config, key) === true) throw new ConfigError(`${key} is true, and ${name} is not known.`);
  }
  const [key, window] = reading.field("window");
  const switchedOff = own(config, "use_sliding_window") === false;
  if (isInt(window) && !switchedOff && found.key === null) {
    throw new ConfigError(`${key} is ${shown(window)}, and which layers of ${name} slide is not known.`);
  }
}

function notKnown({ name }, path, value) {
  return new ConfigError(`${named(path)} is ${shown(value)}, and what it means for ${name} is not known.`);
}

/** All keys with their values, and dotted those of an object that describes attention. */
function* entries(config) {
  for (const [key, value] of Object.entries(config)) {
    yield [key, value];
    if (isObject(value) && holds(key, ["attn", "attention", "mixer"])) {
      for (const [inner, item] of Object.entries(value)) yield [`${key}.${inner}`, item];
    }
  }
}

/** Whether a value leaves attention as it is: off, empty, a factor of 1, a plain kind. */
function meansNothing(key, value) {
  if (isMissing(value) || value === false) return true;
  if ((value instanceof Float ? value.value : value) === 1) return holds(key, FACTORS);
  if (isObject(value)) return Object.keys(value).length === 0;
  const names = Array.isArray(value) ? value : [value];
  return names.every((name) => unknown.plain.includes(name));
}

/** Whether an object describes another part than the language model. */
const isOtherPart = (key, value) => isObject(value) && holds(key, unknown.other_parts);

/** Whether a nested key repeats a size that was read. */
function saysTheSame(reading, path, value) {
  const dot = path.lastIndexOf(".");
  if (dot < 0 || typeof value === "boolean" || !isInt(value)) return false;
  const key = path.slice(dot + 1);
  return HEADS.some((name) => fields[name].includes(key) && reading.field(name)[1] === value);
}
