// Pasted text -> a config, or one clear sentence. The text is untrusted: nothing else is ever thrown. No DOM.
//
// Why not JSON.parse: it makes 32.0 an integer and rounds large ones, it keeps the last of two equal keys,
// and its messages differ between browsers. NaN and Infinity are let through: config files do hold them.
import { ConfigError, Float, shown } from "./errors.js";
import { isObject } from "./reading.js";

export const MOST_CHARACTERS = 1_000_000; // real ones have some thousand
const DEEPEST = 100;

/** The JSON object in a text, with keys as its own properties and no prototype; raises ConfigError. */
export function parseConfig(text) {
  if (typeof text !== "string" || text.trim() === "")
    throw new ConfigError("There is no text; paste a config.json.");
  if (text.length > MOST_CHARACTERS) {
    throw new ConfigError(
      `The text has ${text.length} characters; a config.json has at most ${MOST_CHARACTERS}.`,
    );
  }
  const config = new Parser(text).document();
  if (!isObject(config)) throw new ConfigError("The text is JSON, but not an object with keys and values.");
  return config;
}

const SPACE = /[ \t\n\r]*/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/y;
const WORD = /-?[A-Za-z]+/y;
const WORDS = new Map([
  ["true", true],
  ["false", false],
  ["null", null],
  ["NaN", new Float(NaN)],
  ["Infinity", new Float(Infinity)],
  ["-Infinity", new Float(-Infinity)],
]);

class Parser {
  at = 0;

  constructor(text) {
    this.text = text;
  }

  document() {
    if (this.text[0] === "\ufeff") this.at = 1;
    const value = this.value(0);
    if (this.at < this.text.length) this.fail("the end");
    return value;
  }

  value(depth) {
    if (depth > DEEPEST) throw new ConfigError("The text is nested too deeply.");
    this.take(SPACE);
    const first = this.text[this.at];
    let value;
    if (first === "{") value = this.object(depth);
    else if (first === "[") value = this.array(depth);
    else if (first === '"') value = this.string();
    else value = this.number() ?? this.word();
    this.take(SPACE);
    return value;
  }

  object(depth) {
    const found = Object.create(null);
    this.at += 1;
    this.take(SPACE);
    if (this.skip("}")) return found;
    do {
      this.take(SPACE);
      const key = this.string();
      if (key in found) throw new ConfigError(`The text gives ${shown(key)} twice.`);
      this.take(SPACE);
      if (!this.skip(":")) this.fail("a colon");
      found[key] = this.value(depth + 1);
    } while (this.skip(","));
    if (!this.skip("}")) this.fail("a comma or }");
    return found;
  }

  array(depth) {
    const found = [];
    this.at += 1;
    this.take(SPACE);
    if (this.skip("]")) return found;
    do found.push(this.value(depth + 1));
    while (this.skip(","));
    if (!this.skip("]")) this.fail("a comma or ]");
    return found;
  }

  string() {
    const match = this.take(STRING);
    if (!match) this.fail("a string in double quotes");
    return JSON.parse(match[0]);
  }

  number() {
    const match = this.take(NUMBER);
    if (!match) return undefined;
    const [text, fraction, exponent] = match;
    const value = Number(text);
    if (fraction !== undefined || exponent !== undefined)
      return Number.isInteger(value) ? new Float(value) : value;
    return Number.isSafeInteger(value) ? value : BigInt(text);
  }

  word() {
    const begin = this.at;
    const match = this.take(WORD);
    if (match && WORDS.has(match[0])) return WORDS.get(match[0]);
    this.at = begin;
    return this.fail("a value");
  }

  skip(character) {
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  /** The match of a sticky pattern here, if there is one; moves behind it. */
  take(pattern) {
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.text);
    if (match) this.at = pattern.lastIndex;
    return match;
  }

  fail(expected) {
    const lines = this.text.slice(0, this.at).split("\n");
    const found = this.at < this.text.length ? shown(this.text[this.at]) : "the end of the text";
    const place = `line ${lines.length}, column ${lines.at(-1).length + 1}`;
    throw new ConfigError(`The text is not JSON: ${place} has ${found} where ${expected} must be.`);
  }
}
