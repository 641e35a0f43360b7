import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { appendFileSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
let copy;
const inCopy = (name) => join(copy, "kvbook/explorer", name);
const run = (...args) => spawnSync(process.execPath, [join(copy, "tools/bundle.mjs"), ...args], { encoding: "utf8" });

before(() => {
  copy = mkdtempSync(join(tmpdir(), "kvbook-"));
  for (const name of ["tools/bundle.mjs", "kvbook/explorer", "kvbook/accounting", "kvbook/palette.json"]) {
    cpSync(join(root, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
});
after(() => rmSync(copy, { recursive: true }));

test("the bundles are what the sources give, wherever they are built", () => {
  const { status, stderr } = run("--check");
  assert.deepEqual([status, stderr], [0, ""]);
});

test("a bundle carries the licences of what it holds, and asks for no other file", () => {
  const text = readFileSync(inCopy("static/attention.js"), "utf8");
  assert.match(text, /^\/\*! .*d3-selection .*\(ISC\)[^]*Mike Bostock[^]*above copyright notice/);
  assert.doesNotMatch(text, /\bimport\s*[("{*]|sourceMappingURL/);
});

test("check names what is stale, missing or left over, and writes nothing", () => {
  appendFileSync(inCopy("src/attention.css"), "\n.kvbook-explorer .kv-new { color: red; }\n");
  writeFileSync(inCopy("src/another.js"), "export default { render() {} };\n");
  writeFileSync(inCopy("static/gone.js"), "");
  const old = readFileSync(inCopy("static/attention.css"));
  const { status, stderr } = run("--check");
  assert.equal(status, 1);
  const named = stderr.match(/static\/[\w.]+/g).sort();
  assert.deepEqual(named, ["static/another.js", "static/attention.css", "static/gone.js"]);
  assert.deepEqual(readFileSync(inCopy("static/attention.css")), old);
  assert.equal(existsSync(inCopy("static/another.js")), false);

  assert.equal(run().status, 0);
  assert.equal(run("--check").status, 0);
  assert.equal(existsSync(inCopy("static/gone.js")), false);
});
