// Copy the third-party files that the published pages load from node_modules into book/_static/vendor.
// `--check` writes nothing and exits 1, naming each file that is missing, different or no longer listed.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const target = join(root, "book/_static/vendor");
const fonts = "output/chtml/fonts/woff-v2";
const mathjax = join(root, "node_modules/mathjax");

// MathJax's combined component for TeX input and CHTML output, and the fonts that it loads.
const files = {
  "mathjax/tex-chtml.js": join(mathjax, "es5/tex-chtml.js"),
  "mathjax/LICENSE": join(mathjax, "LICENSE"),
};
for (const font of readdirSync(join(mathjax, "es5", fonts))) {
  files[`mathjax/${fonts}/${font}`] = join(mathjax, "es5", fonts, font);
}

function list(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(target, join(entry.parentPath ?? entry.path, entry.name)));
}

const same = (copy, source) => existsSync(copy) && readFileSync(copy).equals(readFileSync(source));
const wrong = Object.keys(files).filter((name) => !same(join(target, name), files[name]));
const extra = list(target).filter((name) => !(name in files));

if (process.argv.includes("--check")) {
  for (const name of [...wrong, ...extra]) console.error(`stale: book/_static/vendor/${name} (run \`make bundles\`)`);
  process.exitCode = wrong.length + extra.length > 0 ? 1 : 0;
} else {
  for (const name of extra) rmSync(join(target, name));
  for (const name of wrong) {
    mkdirSync(dirname(join(target, name)), { recursive: true });
    cpSync(files[name], join(target, name));
  }
}
