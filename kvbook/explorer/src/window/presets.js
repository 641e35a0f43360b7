// Settings worth a look, by a button. No DOM here.
const MOST = 6; // measured pairs with a button

export const nameOf = ({ window, sinks }) => `Window ${window.toLocaleString("en-US")}${sinks === 0 ? "" : `, ${sinks} ${sinks === 1 ? "sink" : "sinks"}`}`;

/** Small windows that the text shows, and measured pairs: of many, those without sinks and with the most. */
export function presetsFor(measured) {
  const most = Math.max(0, ...measured.map(({ sinks }) => sinks));
  const ends = measured.filter(({ sinks }) => sinks === 0 || sinks === most);
  const list = measured.length <= MOST ? measured : spread(ends, MOST);
  const small = [
    { window: 8, sinks: 0 },
    { window: 8, sinks: 4 },
  ].filter((one) => !list.some(({ window, sinks }) => window === one.window && sinks === one.sinks));
  return [
    ...small.map((changes) => ({ label: nameOf(changes), changes })),
    ...list.map(({ window, sinks }) => ({ label: nameOf({ window, sinks }), changes: { window, sinks }, isMeasured: true })),
  ];
}

/** `n` of a list, evenly, its ends among them. */
function spread(list, n) {
  if (list.length <= n) return list;
  return Array.from({ length: n }, (_, i) => list[Math.round((i * (list.length - 1)) / (n - 1))]);
}
