// config.json -> what the model caches, by the table families.json; kvbook/accounting/reader.py says why.
// No DOM here.
import { ConfigError, named, shown } from "./errors.js";
import { plus, product, sum, times } from "./exact.js";
import { refuseHints } from "./hints.js";
import { layout } from "./layouts.js";
import { LARGEST, Reading, isInt, isMissing, isObject, whole } from "./reading.js";
import { layerCache, valuesPerToken } from "./spec.js";
import { family as familyEntry, fields, inside, own, states, unknown } from "./tables.js";

const ATTENDING = ["full", "sliding", "chunked", "cross"];
const isKnown = (reading) => reading.family.known ?? true;

/** What the model of a Hugging Face config.json caches, layer by layer; raises ConfigError, one sentence. */
export function cacheSpec(config) {
  const reading = read(config);
  if (reading.family.error)
    throw new ConfigError(`model_type is ${shown(reading.name)}, which ${reading.family.error}.`);
  const found = layout(reading);
  switchOff(reading, found);
  const windows = {
    sliding: windowOf(reading, found, "sliding", "window"),
    chunked: windowOf(reading, found, "chunked", "chunk"),
  };
  share(reading, found);
  let layers = layersOf(reading, found, windows);
  if (reading.family.cross !== undefined) layers = layers.concat(cross(reading, layers));
  const stateValues = stateValuesOf(reading, found);
  if (!layers.some(valuesPerToken)) {
    reading.note("No layer attends: there is no KV cache, only a state of constant size.");
  }
  noteIndex(reading);
  if (!isKnown(reading)) {
    const latent = layers.some(({ kind }) => kind === "latent");
    refuseHints(reading, found, latent);
  }
  const times = reading.family.repeat ?? 1;
  return {
    family: reading.name,
    layers: Array.from({ length: times }, () => layers).flat(),
    maxContext: plain(reading, "max_context"),
    stateValues,
    notes: reading.notes,
    nHeads: plain(reading, "n_heads"),
  };
}

/** The language model's part of a config, with its family's entry of the table. */
function read(config) {
  if (!isObject(config)) throw new ConfigError("The config must be a JSON object, with keys and values.");
  let inner = config;
  let [name, entry] = familyOf(config);
  const places = entry?.inside ?? inside;
  const forced = entry?.cross === undefined ? {} : { cross: entry.cross };
  for (let depth = 0; depth < 3; depth++) {
    const nested = places.map((key) => own(inner, key)).find(isObject);
    if (nested === undefined || (countsLayers(inner) && !countsLayers(nested))) break;
    inner = nested;
    const [ownName, ownEntry] = familyOf(inner);
    if (ownName !== null && (ownEntry || !entry)) [name, entry] = [ownName, ownEntry];
  }
  entry ??= { known: false, ...unknown };
  const isDecoder = own(inner, "is_decoder") === true; // an encoder may be set up as one
  if (entry.error !== undefined && isDecoder) entry = {};
  const knownAs = name ? named(name) : "a config without model_type";
  const reading = new Reading(inner, config, { ...entry, ...forced }, knownAs);
  if (!isKnown(reading)) {
    reading.note(
      `${reading.name} is not in the table of families: ` +
        "read by the standard fields, as keys and values in every layer.",
    );
  }
  return reading;
}

const countsLayers = (config) => fields.n_layers.some((key) => !isMissing(own(config, key)));

function familyOf(config) {
  const name = own(config, "model_type") ?? null;
  if (name !== null && typeof name !== "string") {
    throw new ConfigError(`model_type is ${shown(name)}; it must be a string.`);
  }
  return [name, name ? familyEntry(name) : undefined];
}

/** A switch such as use_sliding_window: false makes sliding layers full. */
function switchOff(reading, found) {
  const { off } = reading.family;
  if (!off || !reading.holds(off) || !found.roles.includes("sliding")) return;
  found.roles = found.roles.map((role) => (role === "sliding" ? "full" : role));
  reading.note(`${Object.keys(off).join(", ")} is off: no layer slides.`);
}

/** The window of the layers with a role; null makes them full where a rule gave the role. */
function windowOf(reading, found, role, name) {
  if (!found.roles.includes(role) || found.windows.size) return null;
  const [key, value] = reading.field(name);
  if (!isMissing(value)) return whole(key, value);
  if (found.key !== null || (value === undefined && found.roles.some((other) => other !== role))) {
    const state = value === null ? "null" : "missing";
    const where = found.key ?? reading.name;
    throw new ConfigError(`${key} is ${state}, but ${where} has ${role} layers, which need it.`);
  }
  found.roles = found.roles.map((old) => (old === role ? "full" : old));
  return null;
}

/** Mark the layers that reuse the cache of another layer. */
function share(reading, found) {
  const rule = reading.family.shared;
  if (rule === undefined || !reading.holds(rule.when ?? {})) return;
  const nLayers = found.roles.length;
  const [key, given] = reading.first(rule.keys);
  const value = given ?? rule.default ?? (rule.op === "last" ? 0 : null);
  if (value === null) return;
  const isOwner = OWNERS[rule.op](key, value, nLayers);
  found.roles = found.roles.map((role, layer) =>
    isOwner(layer) || !["full", "sliding", "chunked"].includes(role) ? role : "shared",
  );
}

/** For each `op` of `shared`: which layers have a cache of their own. */
const OWNERS = {
  last(key, value, nLayers) {
    const count = nLayers - whole(key, value, { low: 0, high: nLayers - 1 });
    return (layer) => layer < count;
  },
  factor(key, value) {
    const factor = whole(key, value);
    return (layer) => layer % factor === 0;
  },
  groups(key, value, nLayers) {
    const owners = Array(nLayers).fill(true);
    for (const group of Array.isArray(value) ? value : [value]) {
      if (!Array.isArray(group)) {
        throw new ConfigError(`${key} is ${shown(value)}; it must be a list of lists of layers.`);
      }
      for (const [place, layer] of group.entries()) {
        owners[whole(key, layer, { low: 0, high: nLayers - 1 })] = place === 0;
      }
    }
    return (layer) => owners[layer];
  },
  source(key, value, nLayers) {
    if (!Array.isArray(value) || value.length !== nLayers) {
      throw new ConfigError(`${key} must be a list of ${nLayers} layer numbers.`);
    }
    const owners = value.map((source, layer) => whole(key, source, { low: 0, high: layer }) === layer);
    return (layer) => owners[layer];
  },
};

/** The cache of each layer: its role with the sizes of that role. */
function layersOf(reading, found, windows) {
  const attending = ATTENDING.filter((role) => found.roles.includes(role));
  const latent = attending.length ? latentOf(reading) : null;
  const sizes = {};
  if (!latent) for (const role of attending) sizes[role] = sizesOf(reading, found, role);
  const tokens = attending.includes("cross") ? crossTokens(reading) : null;
  const listed = attending.length && !latent ? listedSizes(reading) : new Map();
  return found.roles.map((role, index) => {
    if (!attending.includes(role)) return layerCache(role);
    const window = found.windows.get(index) ?? windows[role] ?? null;
    if (latent) return layerCache("latent", { nKvHeads: 1, kDim: latent, window });
    const size = Object.fromEntries(
      Object.entries(sizes[role]).map(([name, value]) => [name, at(value, index)]),
    );
    Object.assign(size, ownSizes(index, listed.get(String(index)) ?? {}));
    if (found.kvHeads.has(index)) size.nKvHeads = found.kvHeads.get(index);
    return layerCache(role, { ...size, window, tokens: role === "cross" ? tokens : null });
  });
}

/** Values of a latent and its rotary part, where the family or the file caches latents. */
function latentOf(reading) {
  const rule = reading.family.latent;
  if (rule === undefined && isKnown(reading)) return null;
  if (isObject(rule) && reading.holds(rule.off)) return null;
  const rank = reading.integer("kv_lora_rank");
  if (rank === null && rule === undefined) return null;
  if (rank === null) {
    const [key, value] = reading.field("kv_lora_rank");
    const state = value === null ? "null" : "missing";
    throw new ConfigError(`${key} is ${state}; ${reading.name} caches latents and needs it.`);
  }
  const rope = reading.integer("qk_rope_head_dim", 0);
  if (rope === null) throw new ConfigError("qk_rope_head_dim is missing; a latent (kv_lora_rank) needs it.");
  return rank + rope;
}

/** KV heads and widths of the layers with a role: each a number, or a list over layers. */
function sizesOf(reading, found, role) {
  const nLayers = found.roles.length;
  const heads = reading.perLayer("n_heads", nLayers);
  let nKvHeads = kvHeadsOf(reading, heads, nLayers);
  const listed = !isMissing(own(reading.config, "per_layer_config"));
  const ofRole = listed ? {} : roleFields(reading, role);
  if (ofRole.n_kv_heads !== undefined) {
    nKvHeads = ofRole.n_kv_heads;
  } else if (
    nKvHeads === null &&
    found.kvHeads.size < found.roles.filter((other) => ATTENDING.includes(other)).length
  ) {
    throw noHeads(reading);
  }
  const kDim = ofRole.head_dim ?? headDim(reading, ofRole.n_heads ?? heads);
  let vDim = ofRole.v_head_dim ?? null;
  if (vDim === null && ofRole.head_dim === undefined && reading.family.latent === undefined) {
    vDim = reading.integer("v_head_dim");
  }
  return { nKvHeads: nKvHeads ?? 0, kDim, vDim: vDim ?? kDim };
}

function noHeads(reading) {
  const [key, value] = reading.field("n_heads");
  return new ConfigError(`${key} is ${value === null ? "null" : "missing"}; it must be a whole number.`);
}

/** Sizes that the family gives to one role alone. */
function roleFields(reading, role) {
  const sizes = {};
  for (const [name, rule] of Object.entries(reading.family.role_fields?.[role] ?? {})) {
    if (!reading.holds(rule.when ?? {})) continue;
    const [key, given] = reading.first(rule.keys);
    let value = given === undefined ? rule.default : given;
    if (given === undefined && rule.times_full !== undefined) {
      const others = reading.integer(name); // a multiple of what the other layers have
      value = others === null ? null : rule.times_full * others;
    }
    if (!isMissing(value)) sizes[name] = whole(key, value);
  }
  return sizes;
}

/** KV heads of a layer, by the family's switches; the heads themselves where none are given. */
function kvHeadsOf(reading, heads, nLayers) {
  const rule = (reading.family.kv ?? []).find(({ when }) => reading.holds(when ?? {}));
  if (rule !== undefined) reading.checkNeeds(rule);
  const use = rule?.use ?? "n_kv_heads";
  if (typeof use === "number") return use;
  const kvHeads = use === "n_kv_heads" ? reading.perLayer("n_kv_heads", nLayers) : null;
  if (kvHeads === null) return heads;
  for (let index = 0; index < nLayers; index++) {
    const some = at(heads, index);
    const few = at(kvHeads, index);
    if (some !== null && some % few) {
      const key = reading.field("n_kv_heads")[0];
      throw new ConfigError(`${key} is ${few}, which does not divide ${some} attention heads.`);
    }
  }
  return kvHeads;
}

/** The width of a key: given, or the hidden size divided by the heads. */
function headDim(reading, heads) {
  const given = reading.integer("head_dim");
  if (given !== null) return given;
  const hidden = reading.required("hidden") * (reading.family.hidden_factor ?? 1);
  if (heads === null) throw noHeads(reading);
  if (!Number.isInteger(heads)) {
    throw new ConfigError("head_dim is missing; it cannot be derived from a list of heads.");
  }
  if (hidden % heads) {
    const key = reading.field("hidden")[0];
    const name = reading.field("n_heads")[0];
    throw new ConfigError(
      `${name} is ${heads}, which does not divide ${key} ${hidden}, and head_dim is missing.`,
    );
  }
  return hidden / heads;
}

/** What per_layer_config holds, by the layer's number without leading zeros ("5" for "05"). */
function listedSizes(reading) {
  const given = own(reading.config, "per_layer_config");
  const found = new Map();
  if (isMissing(given)) return found;
  if (!isObject(given))
    throw new ConfigError("per_layer_config must be an object with layer numbers as keys.");
  for (const [name, sizes] of Object.entries(given)) {
    const number = name.replace(/^0+(?=.)/, "");
    if (!found.has(number)) found.set(number, sizes);
  }
  return found;
}

/** Sizes that the file gives to one layer in per_layer_config. */
function ownSizes(index, sizes) {
  const where = `per_layer_config.${index}`;
  if (!isObject(sizes)) throw new ConfigError(`${where} is ${shown(sizes)}; it must be an object.`);
  const get = (key) => (isMissing(own(sizes, key)) ? undefined : whole(`${where}.${key}`, sizes[key]));
  const nKvHeads = get("num_key_value_heads");
  const vDim = get("v_head_dim");
  const kDim = get("head_dim");
  return {
    ...(kDim !== undefined && { kDim, vDim: kDim }),
    ...(nKvHeads !== undefined && { nKvHeads }),
    ...(vDim !== undefined && { vDim }),
  };
}

/** A cross cache beside each layer of a decoder, over the encoder's tokens. */
function cross(reading, layers) {
  const tokens = reading.family.cross === "source_tokens" ? reading.integer("source_tokens") : null;
  if (tokens === null) reading.note("The cross cache holds as many encoder tokens as the context has.");
  const sizes = roleFields(reading, "cross");
  return layers.map((layer) =>
    layerCache("cross", {
      nKvHeads: sizes.n_kv_heads ?? layer.nKvHeads,
      kDim: sizes.head_dim ?? layer.kDim,
      vDim: sizes.head_dim ?? layer.vDim,
      tokens,
    }),
  );
}

/** Image tokens of layers that attend to one image alone; null: as many as the context. */
function crossTokens(reading) {
  const paths = reading.family.cross_tokens;
  if (paths === undefined) return null;
  const image = new Reading(reading.outer, reading.outer, {}, reading.name);
  const values = Object.entries(paths).map(([name, path]) => [name, image.find(path)]);
  if (values.some(([, value]) => isMissing(value))) {
    reading.note("The cross cache holds as many image tokens as the context has.");
    return null;
  }
  const size = Object.fromEntries(values.map(([name, value]) => [name, whole(paths[name], value)]));
  const side = Math.floor(size.image / size.patch);
  const tokens = times(plus(times(side, side), 1), size.tiles);
  reading.note(`The cross cache holds one image of ${tokens} tokens.`);
  return tokens;
}

/** Values of the constant states of one sequence; null where the config does not tell. */
function stateValuesOf(reading, found) {
  let rule = own(states, reading.family.state ?? "");
  const everyLayer = reading.family.state_in_every_layer ?? false;
  const count = everyLayer ? found.roles.length : found.roles.filter((role) => role === "state").length;
  if (!count) return 0;
  if (rule === undefined) {
    reading.note("The constant states of layers without keys and values are not counted.");
    return null;
  }
  while (rule.else !== undefined && isMissing(reading.first(Object.values(rule.fields)[0])[1])) {
    rule = states[rule.else];
  }
  const sizes = {};
  for (const [name, keys] of Object.entries(rule.fields)) {
    const [key, given] = reading.first(keys);
    const value = given ?? rule.defaults[name] ?? null;
    if (typeof value === "boolean" || !isInt(value) || value < 0 || value > LARGEST) {
      reading.note(`The constant states are not counted: ${key} does not give a number.`);
      return null;
    }
    sizes[name] = Number(value);
  }
  const each = rule.terms.map((term) => product(term.map((factor) => sizes[factor] ?? factor)));
  return Number(times(count, sum(each)));
}

/** Say what an indexer's keys would add: they are no keys or values of the attention. */
function noteIndex(reading) {
  const width = reading.family.latent ? reading.integer("index_dim") : null;
  if (width !== null) {
    reading.note(`The indexer's keys, ${width} values a token and layer, are not counted.`);
  }
}

/** What the file or the family says of a quantity that nothing depends on; null if it is no size. */
function plain(reading, name) {
  const value =
    reading.first(reading.family.fields?.[name] ?? fields[name])[1] ?? reading.family.defaults?.[name];
  return Number.isInteger(value) && 0 < value && value <= LARGEST ? value : null;
}

const at = (value, index) => (Array.isArray(value) ? value[index] : value);
