"""Every page of the built book, loaded once: its weight, its axe-core report, its width on three screens.

The book is served below a sub-path, as GitHub Pages does.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "_build" / "html"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text())
CONTENTS = [TOC["root"], *(entry["file"] for part in TOC["parts"] for entry in part["chapters"])]
PAGES = [*CONTENTS, "search", "404"]
PREFIX = "/some/prefix"
LIMIT_BYTES, LIMIT_REQUESTS = 700_000, 25
PACKED = (".png", ".woff", ".woff2", ".jpg")

pytestmark = [pytest.mark.book, pytest.mark.browser]

# Most of a lesson's elements are tokens of code. A block that brings no new kind of token becomes plain text.
THIN_OUT = """() => {
  const seen = new Set();
  for (const block of document.querySelectorAll("main pre")) {
    const kinds = [...block.querySelectorAll("span")].map((token) => token.className);
    if (kinds.every((kind) => seen.has(kind))) block.textContent = block.textContent;
    for (const kind of kinds) seen.add(kind);
  }
}"""
RUN_AXE = """async (rules) => {
  const options = {resultTypes: ["violations"]};
  if (rules) options.runOnly = {type: "rule", values: rules};
  const {violations} = await axe.run(document, options);
  return violations.flatMap(({id, help, nodes}) =>
    nodes.slice(0, 3).map((node) => `${id}: ${help}: ${node.html.slice(0, 200)}`));
}"""
CUT_CODE = """() => [...document.querySelectorAll("main pre")]
  .filter((pre) => pre.checkVisibility() && pre.scrollWidth > pre.clientWidth + 1)
  .map((pre) => pre.innerText)"""
BENT = """() => [...document.querySelectorAll("article img")]
  .filter((image) => image.complete && image.naturalWidth)
  .filter((image) => { const style = getComputedStyle(image);
    const width = image.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = image.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return Math.abs(width / height * image.naturalHeight / image.naturalWidth - 1) > 0.02; })
  .map((image) => image.src)"""
OVERFLOW = "() => document.documentElement.scrollWidth - window.innerWidth"
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
CONTRAST = ["color-contrast", "link-in-text-block"]
NARROW = ["scrollable-region-focusable", "target-size"]  # what a small screen changes


@pytest.fixture(scope="module")
def site(serve, tmp_path_factory) -> str:
    assert SITE.exists(), "run `make book` first"
    folder = tmp_path_factory.mktemp("host")
    place = folder / PREFIX.strip("/")
    place.parent.mkdir(parents=True)
    place.symlink_to(SITE)
    return serve(folder) + PREFIX


@cache
def transferred(file: Path) -> int:
    """Bytes of a file as a host sends it: gzip for what is not packed already."""
    content = file.read_bytes()
    return len(content) if file.suffix in PACKED else len(gzip.compress(content, 6))


def weigh(asked: list[str]) -> tuple[int, list[str]]:
    """Bytes and paths of a first load; the figures of the page count apart, its icon counts as asked."""
    paths = {unquote(urlsplit(url).path) for url in asked if not url.startswith(("data:", "blob:"))}
    paths = {path.removeprefix(PREFIX).lstrip("/") for path in paths} | {"_static/favicon.svg"}
    paths = {path for path in paths if not path.startswith("_images/")}
    return sum(transferred(SITE / path) for path in paths), sorted(paths)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light_accessible_and_fits(open_page, site: str, name: str) -> None:
    asked: list[str] = []
    page = open_page(f"{site}/{name}.html", asked=asked)
    page.wait_for_load_state("networkidle")
    if page.locator("script[src*='tex-chtml']").count():
        page.wait_for_selector("mjx-container")
        page.evaluate("MathJax.startup.promise.then(() => document.fonts.ready)")
    if page.locator("script[type$='widget-view+json']").count():
        page.wait_for_selector(".kvbook-explorer")
    nbytes, paths = weigh(asked)
    assert nbytes <= LIMIT_BYTES, (nbytes, paths)
    assert len(paths) <= LIMIT_REQUESTS, paths
    assert page.locator("main h1:visible").count() == 1

    assert page.evaluate(CUT_CODE) == []
    page.evaluate(THIN_OUT)
    page.evaluate(AXE.read_text())
    faults = page.evaluate(RUN_AXE, None)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")  # no colours half-way
    page.wait_for_selector("html[data-theme='dark']")
    faults += [f"dark: {fault}" for fault in page.evaluate(RUN_AXE, CONTRAST)]
    for width in (1280, 768, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) <= 0, width
        assert page.evaluate(BENT) == [], width
    page.evaluate(TWO_FRAMES)  # then the page knows its new width
    faults += [f"narrow: {fault}" for fault in page.evaluate(RUN_AXE, NARROW)]
    assert not faults, "\n".join(faults)
