// The one error of the accounting, and how a wrong value is shown in it, as in Python. No DOM here.

/** Something that was given cannot be answered. The message is one sentence that names it. */
export class ConfigError extends Error {
  name = "ConfigError";
}

/** A number with a point or an exponent although it is whole: 32.0 is no whole number, as in Python. */
export class Float {
  constructor(value) {
    this.value = value;
  }
}

const DEEPEST = 200;

/** A value as it stands in the file, on one line and cut to 60 characters. */
export function shown(value) {
  return cut(dump(value, DEEPEST));
}

/** A key or a name from a file, as `shown` but without quotes. */
export function named(text) {
  return cut(dump(text).slice(1, -1));
}

const cut = (text) => (text.length <= 60 ? text : `${text.slice(0, 57)}...`);

function dump(value, depth) {
  if (depth === 0) return "...";
  if (typeof value === "string") return ascii(JSON.stringify(value));
  if (value instanceof Float) return floatText(value.value);
  if (typeof value === "number") return Number.isInteger(value) ? String(BigInt(value)) : floatText(value);
  if (Array.isArray(value)) return `[${value.map((item) => dump(item, depth - 1)).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const pairs = Object.entries(value).map(
      ([key, item]) => `${ascii(JSON.stringify(key))}: ${dump(item, depth - 1)}`,
    );
    return `{${pairs.join(", ")}}`;
  }
  return String(value); // null, true, false, a big integer; undefined for an option that was not given
}

function ascii(text) {
  return text.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A float as Python writes it: 32.0, 1e-05, 1e+16, NaN. */
function floatText(value) {
  if (!Number.isFinite(value)) return String(value);
  const [, sign, digits, power] = value.toExponential().match(/^(-?)([\d.]+)e(.+)$/);
  const minus = sign || (Object.is(value, -0) ? "-" : "");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${minus}${digits}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  const plain = digits.replace(".", "");
  if (exponent < 0) return `${minus}0.${"0".repeat(-exponent - 1)}${plain}`;
  const whole = plain.padEnd(exponent + 1, "0");
  return `${minus}${whole.slice(0, exponent + 1)}.${whole.slice(exponent + 1) || "0"}`;
}
