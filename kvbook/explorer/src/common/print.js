/** Open folds while the page is printed: on paper nothing opens. */
export function openForPrint(folds) {
  const media = matchMedia("print");
  let opened = [];
  const change = () => {
    if (media.matches) {
      opened = folds.filter((fold) => !fold.open);
      for (const fold of opened) fold.open = true;
    } else {
      for (const fold of opened) fold.open = false;
      opened = [];
    }
  };
  media.addEventListener("change", change);
  return { stop: () => media.removeEventListener("change", change) };
}
