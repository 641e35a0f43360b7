// Bundle each explorer, kvbook/explorer/src/NAME.js and NAME.css, into one file each in kvbook/explorer/static.
// `--check` writes nothing and exits 1, naming each bundle that is not what the sources give.
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const source = join(root, "kvbook/explorer/src");
const target = join(root, "kvbook/explorer/static");

/** The licences of the packages that a bundle holds, as one comment; a text that several share is given once. */
function licences(inputs) {
  const used = Object.keys(inputs).filter((path) => inputs[path].bytesInOutput > 0);
  const packages = new Set(used.map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1]).filter(Boolean));
  const holders = new Map();
  for (const name of [...packages].sort()) {
    const folder = join(root, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json")));
    const text = readFileSync(join(folder, "LICENSE"), "utf8").trim();
    holders.set(text, [...(holders.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  return [...holders].map(([text, names]) => `/*! ${names.join(", ")}\n\n${text}\n*/\n`).join("");
}

async function bundle(name) {
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: [join(source, name)],
    outdir: target,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none", // the banner has the licences in full
    metafile: true,
    write: false,
    logLevel: "error",
  });
  const [{ inputs }] = Object.values(metafile.outputs);
  return Buffer.from(licences(inputs) + outputFiles[0].text);
}

const bundles = {};
for (const name of readdirSync(source).filter((name) => /\.(js|css)$/.test(name))) bundles[name] = await bundle(name);

const same = (name) => existsSync(join(target, name)) && readFileSync(join(target, name)).equals(bundles[name]);
const wrong = Object.keys(bundles).filter((name) => !same(name));
const extra = (existsSync(target) ? readdirSync(target) : []).filter((name) => !(name in bundles));

if (process.argv.includes("--check")) {
  for (const name of [...wrong, ...extra]) console.error(`stale: kvbook/explorer/static/${name} (run \`make bundles\`)`);
  process.exitCode = wrong.length + extra.length > 0 ? 1 : 0;
} else {
  mkdirSync(target, { recursive: true });
  for (const name of extra) rmSync(join(target, name));
  for (const name of wrong) writeFileSync(join(target, name), bundles[name]);
}
