import palette from "../../../palette.json";

/** Give an explorer the book's colours as --kv-weights, --kv-cache, ...; its color-scheme picks the mode. */
export function setPalette(root) {
  for (const [role, light] of Object.entries(palette.light)) {
    root.style.setProperty(`--kv-${role}`, `light-dark(${light}, ${palette.dark[role]})`);
  }
}
