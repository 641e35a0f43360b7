// Pasted text: a config as its author meant it, or one sentence; nothing else is ever thrown.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError, cacheSpec, nbytes, parseConfig } from "../../kvbook/explorer/src/accounting/index.js";

const LLAMA =
  '"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096';
const size = (text) => nbytes(cacheSpec(parseConfig(text)), { context: 4096, cacheDtype: "float16" });

/** The sentence for a text. */
function sentence(text) {
  try {
    size(text);
  } catch (error) {
    assert.ok(error instanceof ConfigError, error.stack);
    assert.doesNotMatch(error.message, /[\n\r]/);
    assert.match(error.message, /^[^]{1,400}\.$/);
    return error.message;
  }
  return "";
}

test("a config is read with spaces, a mark of byte order, and what it does not need", () => {
  assert.equal(
    size(`\ufeff\r\n\t{${LLAMA}, "rope_theta": 1e6, "a": [1.5, -0, {"b": null}], "é": "\\u00e9\\n"}\n`),
    2 ** 31,
  );
  assert.equal(
    size(`{${LLAMA}, "time_step_limit": [0.0, Infinity], "eps": NaN, "big": ${"9".repeat(5000)}}`),
    2 ** 31,
  );
});

test("text that is no config is named in one sentence", () => {
  const expected = {
    "": "There is no text; paste a config.json.",
    " \n": "There is no text; paste a config.json.",
    "[1, 2]": "The text is JSON, but not an object with keys and values.",
    null: "The text is JSON, but not an object with keys and values.",
    '"{}"': "The text is JSON, but not an object with keys and values.",
    NaN: "The text is JSON, but not an object with keys and values.",
    '{"a":': "The text is not JSON: line 1, column 6 has the end of the text where a value must be.",
    "{'a': 1}": 'The text is not JSON: line 1, column 2 has "\'" where a string in double quotes must be.',
    '{"a": 1,}': 'The text is not JSON: line 1, column 9 has "}" where a string in double quotes must be.',
    '{"a": 1\n "b": 2}': 'The text is not JSON: line 2, column 2 has "\\"" where a comma or } must be.',
    '{"a" 1}': 'The text is not JSON: line 1, column 6 has "1" where a colon must be.',
    '{"a": [1 2]}': 'The text is not JSON: line 1, column 10 has "2" where a comma or ] must be.',
    '{"a": True}': 'The text is not JSON: line 1, column 7 has "T" where a value must be.',
    '{"a": <b>}': 'The text is not JSON: line 1, column 7 has "<" where a value must be.',
    '{"a": 01}': 'The text is not JSON: line 1, column 8 has "1" where a comma or } must be.',
    "{} {}": 'The text is not JSON: line 1, column 4 has "{" where the end must be.',
    '{"a": 1, "a": 1}': 'The text gives "a" twice.',
  };
  for (const [text, wanted] of Object.entries(expected)) assert.equal(sentence(text), wanted);
  for (const value of [undefined, null, 5, {}, []])
    assert.equal(sentence(value), "There is no text; paste a config.json.");
});

test("too much text and too deep text are refused, whatever is in it", () => {
  assert.match(
    sentence(`{"a": "${"x".repeat(1_000_000)}"}`),
    /^The text has 1000009 characters; a config.json has at most/,
  );
  for (const open of ["[", '{"a":'])
    assert.equal(sentence(open.repeat(100_000)), "The text is nested too deeply.");
  const deep = `${"[".repeat(90)}${"]".repeat(90)}`;
  assert.match(
    sentence(`{${LLAMA.replace("4096", deep)}}`),
    /^hidden_size is \[\[\[.*; it must be a whole number/,
  );
});

test("numbers are what the file says: no fraction is a whole number, none is rounded", () => {
  const wrong = {
    NaN: "NaN",
    "-Infinity": "-Infinity",
    "1e999": "Infinity",
    "32.0": "32.0",
    "1e3": "1000.0",
    "-0.0": "-0.0",
  };
  Object.assign(wrong, {
    4096.5: "4096.5",
    true: "true",
    '"4096"': '"4096"',
    "9007199254740993": "9007199254740993",
  });
  const range = "it must be a whole number from 1 to 2147483648.";
  for (const [given, shown] of Object.entries(wrong)) {
    assert.equal(sentence(`{${LLAMA.replace("4096", given)}}`), `hidden_size is ${shown}; ${range}`);
  }
  const digits = "7".repeat(5000);
  assert.equal(
    sentence(`{${LLAMA.replace("4096", digits)}}`),
    `hidden_size is ${digits.slice(0, 57)}...; ${range}`,
  );
});

test("what objects inherit is neither read nor changed", () => {
  for (const key of ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty"]) {
    assert.equal(size(`{${LLAMA}, "${key}": {"num_key_value_heads": 1, "polluted": 1}}`), 2 ** 31);
    assert.match(
      sentence(`{"model_type": "${key}", "num_attention_heads": 4}`),
      /^num_hidden_layers is missing/,
    );
    assert.match(sentence(`{${LLAMA}, "layer_types": ["${key}"]}`), /has 1 entries/);
    assert.match(sentence(`{${LLAMA.replace("32", "1")}, "layer_types": ["${key}"]}`), /names .* not known/);
  }
  assert.equal({}.polluted, undefined);
  assert.equal({}.num_key_value_heads, undefined);
  assert.match(
    sentence('{"__proto__": {"model_type": "llama", "num_hidden_layers": 2}}'),
    /^num_hidden_layers is missing/,
  );
  class Sub {
    get num_hidden_layers() {
      return 1;
    }
  }
  assert.throws(
    () => cacheSpec(Object.assign(new Sub(), { model_type: "llama" })),
    /num_hidden_layers is missing/,
  );
});

test("anything but an object is no config", () => {
  for (const config of [undefined, null, 1, "{}", [], true]) {
    assert.throws(
      () => cacheSpec(config),
      new ConfigError("The config must be a JSON object, with keys and values."),
    );
  }
});

test("the parser takes what JSON.parse takes, but for a key given twice", () => {
  const pieces = [
    '{"a":',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"a"',
    '"\\u12e',
    '"\\n"',
    '"\n"',
    "1",
    "-",
    "-0",
    "0.5",
    "1e5",
    "1.",
    ".5",
  ];
  pieces.push(
    "true",
    "false",
    "null",
    " ",
    "\n",
    "\v",
    "\u00a0",
    '"b"',
    "2e",
    "+1",
    "//",
    "tru",
    '"',
    "\\",
    '"\ud800"',
    "\0",
  );
  let seed = 7;
  const below = (n) => (seed = (seed * 48271) % 2147483647) % n;
  let taken = 0;
  for (let turn = 0; turn < 40_000; turn++) {
    const inside = Array.from({ length: below(5) }, () => pieces[below(pieces.length)]).join("");
    const text = `{"x":${inside}}`;
    let wanted = null;
    try {
      wanted = JSON.parse(text);
    } catch {
      assert.throws(() => parseConfig(text), ConfigError, text);
      continue;
    }
    taken += 1;
    const plain = (_, value) => (value?.constructor?.name === "Float" ? value.value : value);
    if (/"([ab])".*"\1"/s.test(text)) continue; // perhaps a key given twice
    assert.equal(JSON.stringify(parseConfig(text), plain), JSON.stringify(wanted), text);
  }
  assert.ok(taken > 1000, String(taken));
});
