// Look-ups in a config: which key gives a quantity, and whether its value is allowed. No DOM here.
// undefined is Python's MISSING: no key gives a value. null is a null in the file.
import { ConfigError, Float, shown } from "./errors.js";
import { fields, own } from "./tables.js";

export const LARGEST = 2 ** 31; // of any size in a config
const CORE = ["n_layers", "n_heads", "hidden"]; // their defaults count only in a nested config

export const isObject = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Float);
export const isMissing = (value) => value === undefined || value === null;
/** Whether Python calls it an int; true and false are. */
export const isInt = (value) => typeof value === "boolean" || isWhole(value);
const isWhole = (value) => typeof value === "bigint" || Number.isInteger(value);

/** The value if it is a whole number in the range; a ConfigError that names the key if not. */
export function whole(key, value, { low = 1, high = LARGEST } = {}) {
  if (!isWhole(value) || !(low <= value && value <= high)) {
    throw new ConfigError(`${key} is ${shown(value)}; it must be a whole number from ${low} to ${high}.`);
  }
  return Number(value);
}

/** One config under one family's entry of the table; collects notes and the keys it read. */
export class Reading {
  notes = [];
  used = new Set();

  /** `config` describes the language model; `outer` is the file, perhaps the same object. */
  constructor(config, outer, family, name) {
    Object.assign(this, { config, outer, family, name });
  }

  /** The value at a dotted path, undefined where there is none. */
  find(path) {
    const keys = path.split(".");
    let value = this.config;
    for (const key of keys) {
      value = isObject(value) ? own(value, key) : undefined;
      if (value === undefined) return undefined;
    }
    this.used.add(path);
    return value;
  }

  /** [path, value] of the first path that is there and not null; else of the first null; else of none. */
  first(paths) {
    let empty;
    for (const path of paths) {
      const value = this.find(path);
      if (!isMissing(value)) return [path, value];
      if (value === null) empty ??= path;
    }
    return empty === undefined ? [paths[0] ?? "", undefined] : [empty, null];
  }

  /** A quantity of the table's `fields`: the key that gives it, and the raw value. */
  field(name) {
    const listed = this.family.fields?.[name];
    const paths = listed ?? fields[name];
    const [key, value] = this.first(paths);
    if (listed === undefined && isInt(value)) {
      for (const other of paths) {
        const second = this.find(other);
        if (Array.isArray(second)) return [other, second]; // one number per layer says more than one for all
        if (isInt(second) && BigInt(second) !== BigInt(value)) {
          throw new ConfigError(
            `${key} is ${shown(value)} but ${other} is ${shown(second)}; they must be equal.`,
          );
        }
      }
    }
    if (value === undefined && (!CORE.includes(name) || this.config !== this.outer)) {
      const fallback = this.family.defaults?.[name];
      if (fallback !== undefined) {
        this.note(`${key} is not in the file; ${this.name} takes ${fallback}.`);
        return [key, fallback];
      }
    }
    return [key, value];
  }

  /** A quantity as a whole number; null where it is null or not given. */
  integer(name, low = 1) {
    const [key, value] = this.field(name);
    return isMissing(value) ? null : whole(key, value, { low });
  }

  /** A quantity given once or as a list with one number for each layer. */
  perLayer(name, nLayers) {
    const [key, value] = this.field(name);
    if (isMissing(value)) return null;
    if (!Array.isArray(value)) return whole(key, value);
    if (value.length !== nLayers) {
      throw new ConfigError(`${key} has ${value.length} entries; it must have ${nLayers}.`);
    }
    return value.map((item, index) => whole(`${key}[${index}]`, item));
  }

  /** A quantity that nothing can be said without. */
  required(name) {
    const value = this.integer(name);
    if (value === null)
      throw new ConfigError(`${this.field(name)[0]} is missing; it must be a whole number.`);
    return value;
  }

  /** Whether every key has the value that the table asks for; missing keys take defaults. */
  holds(conditions) {
    for (const [path, wanted] of Object.entries(conditions)) {
      const value = this.find(path) ?? this.family.switches?.[path] ?? undefined;
      if (value !== undefined && typeof value !== typeof wanted) {
        const kind = typeof wanted === "boolean" ? "true or false" : "a string";
        throw new ConfigError(`${path} is ${shown(value)}; it must be ${kind}.`);
      }
      if (value !== wanted) return false;
    }
    return true;
  }

  /** Raise ConfigError where a rule of `kv` needs a number of KV heads that is not there. */
  checkNeeds(rule) {
    if (rule.needs === undefined || !isMissing(this.field("n_kv_heads")[1])) return;
    const where = Object.keys(rule.when ?? {}).join(", ") || this.name;
    throw new ConfigError(`${rule.needs} is missing; ${where} needs it.`);
  }

  /** Keep a sentence for the reader of the result, once. */
  note(sentence) {
    if (!this.notes.includes(sentence)) this.notes.push(sentence);
  }
}
