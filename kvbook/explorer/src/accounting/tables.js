// The tables that Python reads too: families.json and dtypes.json; tables.py says what is in them. No DOM.
import dtypesTable from "../../../accounting/dtypes.json" with { type: "json" };
import familiesTable from "../../../accounting/families.json" with { type: "json" };

export const { families, rules, roles, fields, inside, states, unknown } = familiesTable;
export const { dtypes } = dtypesTable;

/** The value of an object's own key, or undefined: what it inherits (constructor, __proto__) does not count. */
export function own(object, key) {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** The entry of a model_type, with what it takes over by `same` filled in; undefined if unknown. */
export function family(name) {
  const entry = own(families, name);
  if (entry?.same === undefined) return entry;
  const base = family(entry.same) ?? {};
  const merged = { ...base, ...entry };
  for (const key of ["defaults", "switches", "fields"]) merged[key] = { ...base[key], ...entry[key] };
  return merged;
}
