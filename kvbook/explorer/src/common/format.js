// How numbers and tokens are written. No DOM here.

/** A share kept as 0..255 in whole percents. Code 0 holds shares up to 1/510, so it is not 0 %. */
export function percent(code) {
  const value = (100 * code) / 255;
  return value < 1 ? "<1 %" : `${Math.round(value)} %`;
}

/** A ratio in two or three digits: 0.3, 4.3, 11. */
export function times(ratio) {
  return ratio < 9.95 ? ratio.toFixed(1) : String(Math.round(ratio));
}

/** A whole number with its thousands set apart: 46,080. */
export function count(n) {
  return n.toLocaleString("en-US");
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Bytes in three digits, not torn from their unit; a kB is 1,000 B: 512 B, 46.1 kB, 3.13 MB. */
export function bytes(n) {
  let power = 0;
  let value = n;
  while (power < UNITS.length - 1 && Number(value.toPrecision(3)) >= 1000) value = n / 1000 ** ++power;
  return `${power === 0 ? value : value.toPrecision(3)}\u00a0${UNITS[power]}`;
}

const MARKS = { " ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍" };

/** A token with its spaces, line ends and invisible characters made visible: " cat" -> "·cat". */
export function visible(token) {
  if (token === "") return "∅";
  return token.replace(/[\s\p{C}]/gu, (c) => MARKS[c] ?? `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
}

/** The same, at most `length` characters long. */
export function short(token, length) {
  const characters = [...visible(token)];
  return characters.length <= length ? characters.join("") : `${characters.slice(0, length - 1).join("")}…`;
}

/** A token as a sentence names it: “cat”; where another token reads the same, with its number. */
export function quoted(tokens, i) {
  const name = (token) => (token.trim() === "" ? visible(token) : visible(token.trim()));
  const twin = tokens.some((token, j) => j !== i && name(token) === name(tokens[i]));
  return `“${name(tokens[i])}”${twin ? ` (position ${i})` : ""}`;
}
