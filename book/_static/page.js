// What the theme leaves to do on a page: printing, and what works from disk.
(() => {
  "use strict";
  const root = document.documentElement;
  let folded = [];
  let theme = "";

  // On paper everything is open and on white.
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("main details:not([open])")];
    for (const details of folded) details.open = true;
    theme = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    for (const details of folded) details.open = false;
    root.dataset.theme = theme;
  });
  for (const button of document.querySelectorAll(".btn-download-pdf-button")) {
    button.addEventListener("click", () => print());
  }

  // What scrolls sideways on a narrow screen can be scrolled by keyboard too.
  const boxes = document.querySelectorAll("main pre, main table, main div.cell_output");
  const reach = (box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  const sizes = new ResizeObserver((changes) => {
    for (const box of new Set(changes.map(({ target }) => target.closest("pre, table, div.cell_output")))) reach(box);
  });
  for (const box of boxes) {
    sizes.observe(box);
    for (const image of box.querySelectorAll(":scope > img")) sizes.observe(image);  // it may come late
  }

  // A page opened from disk may not read other pages, so its search shows titles alone.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

  // Each page holds its headings once more, for print. A search result shows the text around its word instead.
  if (typeof Search === "object") {
    const textOf = Search.htmlToText;
    Search.htmlToText = (html, anchor) => {
      const page = new DOMParser().parseFromString(html, "text/html");
      page.getElementById("jb-print-docs-body")?.remove();
      return textOf(page.documentElement.outerHTML, anchor);
    };
  }
})();
