/** Open folds, { element, refresh }, while the page is printed: on paper nothing opens. */
export function openForPrint(folds) {
  const media = matchMedia("print");
  let opened = [];
  const open = () => {
    const closed = folds.filter(({ element }) => !element.open);
    for (const { element, refresh } of closed) {
      element.open = true;
      refresh(); // now: the paper does not wait for the fold's own event
    }
    opened.push(...closed);
  };
  const close = () => {
    for (const { element } of opened) element.open = false;
    opened = [];
  };
  const change = () => (media.matches ? open() : close());
  media.addEventListener("change", change);
  addEventListener("beforeprint", open); // before the pages are counted
  addEventListener("afterprint", close);
  if (media.matches) open();
  const stop = () => {
    media.removeEventListener("change", change);
    removeEventListener("beforeprint", open);
    removeEventListener("afterprint", close);
  };
  return { stop };
}
