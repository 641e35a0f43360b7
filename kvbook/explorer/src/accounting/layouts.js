// From the table's layout rules to one role per layer: full, sliding, chunked, cross, state, none. No DOM.
// A rule that finds none of its keys and has no `default` gives null, and the family's next rule is tried.
// What each op means stands in kvbook/accounting/layouts.py.
import { ConfigError, shown } from "./errors.js";
import { isInt, isMissing, isObject, whole } from "./reading.js";
import { own, roles as commonRoles, rules as namedRules } from "./tables.js";

const MOST_LAYERS = 10_000;
const MAIN_NAMES = ["full_attention", "sliding_attention", "chunked_attention", "linear_attention"];

/** A role for each layer, the key of the file that listed them (or null), and sizes that the layout fixes. */
const made = (roles, key = null) => ({ roles, key, kvHeads: new Map(), windows: new Map() });
const filled = (n, role) =>
  Array.from({ length: n }, (_, layer) => (typeof role === "function" ? role(layer) : role));
const isListOrString = (value) => Array.isArray(value) || typeof value === "string";

/** The roles of all layers by the first of the family's rules that applies. */
export function layout(reading) {
  const [key, given] = reading.field("n_layers");
  let nLayers = reading.integer("n_layers");
  if (nLayers !== null) whole(key, nLayers, { high: MOST_LAYERS });
  for (const rule of rulesOf(reading)) {
    if (nLayers === null && rule.op === "names" && given === undefined) {
      const value = reading.first(rule.keys)[1];
      nLayers = (isListOrString(value) && [...value].length) || null;
    }
    if (nLayers === null) continue;
    const found = OPS[rule.op](reading, rule, nLayers);
    if (found !== null) return endsFull(reading, found);
  }
  return endsFull(reading, made(filled(reading.required("n_layers"), "full")));
}

function rulesOf(reading) {
  const entries = reading.family.layout ?? ["layer_types"];
  return entries.map((entry) => (typeof entry === "string" ? namedRules[entry] : entry));
}

function endsFull(reading, found) {
  if (reading.family.last !== undefined) found.roles[found.roles.length - 1] = reading.family.last;
  return found;
}

/** What the rule's keys or its default give; null counts as not there. */
function valueOf(reading, rule) {
  const [key, value] = reading.first(rule.keys ?? []);
  return [key, isMissing(value) ? rule.default : value];
}

function names(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (value === undefined || (Array.isArray(value) && value.length === 0 && rule.empty !== undefined))
    return null;
  if (!isListOrString(value)) {
    throw new ConfigError(`${key} is ${shown(value)}; it must be a list with a name per layer.`);
  }
  let list = [...value];
  const extra = reading.family.extra === undefined ? 0 : reading.find(reading.family.extra);
  const ahead = isInt(extra) ? Number(extra) : 0; // layers that predict ahead
  if (list.length === nLayers + ahead) list = list.slice(0, nLayers);
  if (list.length !== nLayers) {
    throw new ConfigError(`${key} has ${list.length} entries; it must have ${nLayers}, one a layer.`);
  }
  return made(
    list.map((name) => roleOf(rule, key, name)),
    key,
  );
}

function roleOf(rule, key, name) {
  const known = rule.map ?? commonRoles;
  const plain = typeof name === "string" || (isInt(name) && typeof name !== "boolean");
  const role = plain ? own(known, String(name)) : undefined;
  if (role !== undefined) return role;
  const some = (rule.map ? Object.keys(known) : MAIN_NAMES).join(", ");
  throw new ConfigError(`${key} names ${shown(name)}, which is not known, as ${some} are.`);
}

function cycle(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (value === undefined) return null;
  if (!isListOrString(value) || value.length === 0) {
    throw new ConfigError(`${key} is ${shown(value)}; it must be a list of layer names.`);
  }
  const list = rule.map ? [...value].map((name) => roleOf(rule, key, name)) : [...value];
  const roles = filled(nLayers, (layer) => list[layer % list.length]);
  if (rule.last !== undefined) roles[nLayers - 1] = rule.last;
  return made(roles);
}

function every(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (value === undefined) return null;
  const period = whole(key, value);
  const offset = offsetOf(reading, rule.at, period);
  if (offset === null) return null;
  const prefix = (rule.prefix ?? []).slice(0, nLayers);
  const rest = nLayers - prefix.length;
  const wholePeriods = Math.floor(rest / period) * period;
  const inPeriods = (i) => (i % period === offset ? rule.hit : rule.miss);
  const roles = prefix.concat(filled(rest, (i) => (i >= wholePeriods && rule.tail) || inPeriods(i)));
  for (const index of rule.also ?? []) roles[index] = rule.hit;
  if (rule.last !== undefined) roles[nLayers - 1] = rule.last;
  return made(roles);
}

function offsetOf(reading, at, period) {
  if (typeof at === "string") return { start: 0, middle: Math.floor(period / 2), end: period - 1 }[at];
  const [key, value] = valueOf(reading, at);
  return value === undefined ? null : whole(key, value, { low: 0, high: period - 1 });
}

function pattern(reading, rule, nLayers) {
  if (typeof valueOf(reading, rule)[1] === "string") return cycle(reading, rule, nLayers);
  const { keys, default: fallback } = rule;
  return every(reading, { keys, default: fallback, at: "end", hit: "full", miss: "sliding" }, nLayers);
}

function listed(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (value === undefined) return null;
  if (!Array.isArray(value))
    throw new ConfigError(`${key} is ${shown(value)}; it must be a list of layer numbers.`);
  const roles = filled(nLayers, rule.miss);
  const range = { low: rule.base, high: rule.base + nLayers - 1 };
  for (const index of value) roles[whole(key, index, range) - rule.base] = rule.hit;
  return made(roles);
}

function from(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (value === undefined) return null;
  const before = whole(key, value, { low: 0 });
  return made(filled(nLayers, (layer) => (layer < before ? rule.before : rule.after)));
}

function repeat(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  const parts = [];
  let length = 0;
  for (const pair of Array.isArray(value) ? value : [null]) {
    if (!(Array.isArray(pair) && pair.length === 2 && Array.isArray(pair[0]))) {
      throw new ConfigError(`${key} is ${shown(value)}; it must be a list of [[names], times].`);
    }
    const times = whole(key, pair[1], { high: nLayers });
    parts.push({ list: pair[0], times });
    length += pair[0].length * times;
    if (length > nLayers) break;
  }
  if (length !== nLayers && isMissing(reading.find(key))) {
    throw new ConfigError(
      `${key} is missing; what ${reading.name} takes without it is for ${length} layers, not ${nLayers}.`,
    );
  }
  if (length !== nLayers) throw new ConfigError(`${key} gives ${length} layers; it must give ${nLayers}.`);
  const flat = parts.flatMap(({ list, times }) => filled(list.length * times, (i) => list[i % list.length]));
  return made(
    flat.map((name) => roleOf(rule, key, name)),
    key,
  );
}

function blocks(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (value === undefined) return null;
  if (!Array.isArray(value) || value.length !== nLayers) {
    throw new ConfigError(`${key} must be a list of ${nLayers} objects, one a layer.`);
  }
  const found = made(filled(nLayers, "full"), key);
  const nHeads = reading.integer("n_heads");
  for (const [index, block] of value.entries()) {
    const attention = isObject(block) ? own(block, "attention") : undefined;
    if (!isObject(attention)) {
      throw new ConfigError(`${key}[${index}] must be an object that holds an attention object.`);
    }
    const where = `${key}[${index}].attention`;
    const get = (name) => own(attention, name);
    if (get("no_op") === true || get("replace_with_linear") === true) {
      found.roles[index] = "none";
      continue;
    }
    if (!isMissing(get("window_length"))) {
      found.roles[index] = "sliding";
      found.windows.set(index, whole(`${where}.window_length`, get("window_length")));
    }
    if (!isMissing(get("num_key_value_heads"))) {
      found.kvHeads.set(index, whole(`${where}.num_key_value_heads`, get("num_key_value_heads")));
    } else if (!isMissing(get("n_heads_in_group"))) {
      const group = whole(`${where}.n_heads_in_group`, get("n_heads_in_group"));
      if (nHeads === null || nHeads % group) {
        throw new ConfigError(`${where}.n_heads_in_group is ${group}; it must divide the heads.`);
      }
      found.kvHeads.set(index, nHeads / group);
    }
  }
  return found;
}

function yoco(reading, rule, nLayers) {
  const period = whole(...valueOf(reading, rule));
  const half = Math.floor(nLayers / 2);
  const attending = (layer) => (layer < half ? "sliding" : layer === half + 1 ? "full" : "shared");
  const recurrent = (layer) => (layer <= half ? "state" : "none");
  return made(filled(nLayers, (layer) => (layer % period === 0 ? recurrent(layer) : attending(layer))));
}

function windows(reading, rule, nLayers) {
  const [key, value] = valueOf(reading, rule);
  if (!Array.isArray(value)) return null;
  if (value.length === 0 || nLayers % value.length) {
    throw new ConfigError(
      `${key} has ${value.length} entries; it must have ${nLayers}, or a divisor of that.`,
    );
  }
  const found = made(filled(nLayers, "full"), key);
  for (let layer = 0; layer < nLayers; layer++) {
    const place = layer % value.length;
    if (value[place] === null) continue;
    found.roles[layer] = "sliding";
    found.windows.set(layer, whole(`${key}[${place}]`, value[place]));
  }
  return found;
}

const all = (_, rule, nLayers) => made(filled(nLayers, rule.role));

function missing(reading) {
  const keys = rulesOf(reading).flatMap((rule) => rule.keys ?? []);
  throw new ConfigError(`${keys[0]} is missing; ${reading.name} needs one of ${keys.join(", ")}.`);
}

const OPS = { names, cycle, every, pattern, listed, from, repeat, blocks, windows, yoco, all, missing };
