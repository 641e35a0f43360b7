// Settings worth a look, by a button. No DOM here.

/** Full sharing, some of it, none, and the latent of DeepSeek-V3; only what the model can have. */
export function presetsFor({ choices, spec: { nHeads } }) {
  const groups = choices.filter((n) => n > 1 && n < nHeads);
  const few = groups.filter((n) => n <= 8).at(-1) ?? groups[0];
  return [
    { label: nHeads === 1 ? "1 head" : `MHA: ${nHeads}`, changes: { kind: "heads", nKvHeads: nHeads } },
    ...(few ? [{ label: `GQA: ${few}`, changes: { kind: "heads", nKvHeads: few } }] : []),
    ...(nHeads > 1 ? [{ label: "MQA: 1", changes: { kind: "heads", nKvHeads: 1 } }] : []),
    { label: "MLA: 512 + 64", changes: { kind: "latent", latentWidth: 512, ropeWidth: 64 } },
  ];
}
