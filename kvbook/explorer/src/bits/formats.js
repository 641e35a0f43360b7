// The formats: how the keys and the values of a cache are coded. No DOM here.
import table from "../../formats.json" with { type: "json" };

export const PLAIN = "float16"; // what the others are held against, and what is not coded is kept in
export const PART_NAMES = { null: "keys and values", keys: "keys alone", values: "values alone" };
export const HALVES = ["keys", "values"]; // of a cache; null: both

/** How a half is coded: `along` a cast, a token's row, a group in it or a channel, `group` values to a scale,
 * `block` tokens at a time; with more than one the newest wait uncoded. */
function described(coding) {
  if (coding.cast) return { ...coding, along: "cast", extra: 0, block: 1 };
  const { tokens, width, minimum, waits } = coding;
  const along = tokens > 1 ? "channel" : width === null ? "token" : "group";
  return { ...coding, along, group: tokens > 1 ? tokens : width, extra: minimum ? 4 : 2, block: waits ?? tokens };
}

export const FORMATS = Object.entries(table.formats).map(([name, { keys, values, ...rest }]) => ({
  ...{ name, ...rest },
  keys: described(keys),
  values: described(values),
}));

const byName = new Map(FORMATS.map((format) => [format.name, format]));

export const formatOf = (name) => byName.get(name);

/** How keys and how values are held where `only` one of them, or both, take a format. */
export function codingOf(name, only) {
  const plain = formatOf(PLAIN);
  const format = formatOf(name);
  return {
    keys: only === "values" ? plain.keys : format.keys,
    values: only === "keys" ? plain.values : format.values,
  };
}
