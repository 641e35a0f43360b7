// An explorer's settings as a table: for each its name, the trait and the key in the address that carry it, where it
// starts and what it may be. No DOM here.

const count = (n) => n.toLocaleString("en-US");

export const oneOf = (choices) => ({
  check: (value) => (choices.includes(value) ? null : `must be one of ${choices.join(", ")}`),
  read: (text) => choices.find((choice) => String(choice) === text),
});

export const whole = (low, high) => ({
  check: (v) =>
    Number.isInteger(v) && v >= low && v <= high
      ? null
      : `must be a whole number from ${count(low)} to ${count(high)}`,
  read: (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined),
  low,
  high,
});

export const decimal = (low, high) => ({
  check: (v) =>
    Number.isFinite(v) && v >= low && v <= high
      ? null
      : `must be a number from ${count(low)} to ${count(high)}`,
  read: (text) => (/^\d{1,9}(\.\d{1,9})?$/.test(text) ? Number(text) : undefined),
  low,
  high,
});

export const text = (longest) => ({
  check: (v) =>
    typeof v === "string" && v.length <= longest
      ? null
      : `must be a text of at most ${count(longest)} characters`,
  read: (v) => v,
});

export const optional = (kind) => ({
  ...kind,
  check: (v) => (v === null ? null : kind.check(v)),
  optional: true,
});

export const field = (name, trait, key, initial, kind) => ({ name, trait, key, initial, ...kind });

export const initialOf = (fields) =>
  Object.freeze(Object.fromEntries(fields.map(({ name, initial }) => [name, initial])));

/** The sentence that says what is wrong with a setting's value, or null. */
export function fault({ trait, check }, value) {
  const wrong = check(value);
  return wrong === null ? null : `${trait} is ${shown(value)}; it ${wrong}.`;
}

function shown(value) {
  const written = JSON.stringify(value) ?? String(value);
  return written.length <= 40 ? written : `${written.slice(0, 37)}...`;
}

/** The ways between a state and what carries it: { fromTraits, toTraits, same }. */
export function carriedBy(fields) {
  /** The state that a widget's traits hold; a value that is not allowed stays where it starts. */
  const fromTraits = (get) => {
    const value = (f) => get(f.trait);
    return Object.fromEntries(
      fields.map((f) => [f.name, f.check(value(f)) === null ? value(f) : f.initial]),
    );
  };
  /** Some settings as a widget's traits. */
  const toTraits = (changes) =>
    Object.fromEntries(
      fields.filter(({ name }) => name in changes).map(({ name, trait }) => [trait, changes[name]]),
    );
  const same = (a, b) => fields.every(({ name }) => a[name] === b[name]);
  return { fromTraits, toTraits, same };
}
