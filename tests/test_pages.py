"""The built book, read as files: every link leads somewhere and no page needs another host."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"

pytestmark = pytest.mark.book
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(SITE).as_posix())


def contents() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    return [toc["root"], *(entry["file"] for part in toc["parts"] for entry in part["chapters"])]


@cache
def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(), "html.parser")


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(tag["id"] for tag in soup(page).find_all(id=True)) | {"", "top"}


def is_elsewhere(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def test_every_page_of_the_contents_is_built() -> None:
    assert {SITE / f"{name}.html" for name in contents()} <= set(PAGES)
    assert (SITE / "index.html").exists()


@pages
def test_a_page_loads_nothing_from_another_host(page: Path) -> None:
    loads = {
        tag.get("src") or tag.get("data") or tag.get("srcset")
        for tag in soup(page).find_all(
            ["script", "img", "iframe", "source", "object", "embed", "video"]
        )
    }
    loads |= {
        tag.get("href")
        for tag in soup(page).find_all("link")
        if {"stylesheet", "preload", "prefetch", "preconnect", "icon", "modulepreload"}
        & set(tag.get("rel", []))
    }
    assert [address for address in loads if address and is_elsewhere(address)] == []


@pages
def test_links_and_anchors_inside_the_book_are_alive(page: Path) -> None:
    dead = []
    for tag in soup(page).find_all(["a", "link", "script", "img"]):
        address = tag.get("href") or tag.get("src")
        if not address or is_elsewhere(address) or address.startswith("data:"):
            continue
        parts = urlsplit(address)
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if target.is_dir():
            target /= "index.html"
        is_page = target.suffix == ".html" and target.exists()
        if not target.exists() or (is_page and unquote(parts.fragment) not in anchors(target)):
            dead.append(address)
    assert dead == []


@pages
def test_every_image_is_described(page: Path) -> None:
    for image in soup(page).select("article img"):
        assert len(image.get("alt", "")) > 40, image.get("src")


@pages
def test_every_figure_has_its_room_and_waits_until_it_is_near(page: Path) -> None:
    figures = soup(page).select("article img")
    for image in figures:
        assert int(image["width"]) > 100
        assert int(image["height"]) > 100
    assert all(image.get("loading") == "lazy" for image in figures[1:])


@pages
def test_no_page_shows_an_error_or_a_warning(page: Path) -> None:
    assert soup(page).select(".output.traceback, .output.stderr, .system-message") == []


@pages
def test_widgets_and_their_host_come_together(page: Path) -> None:
    state = soup(page).find("script", type=WIDGET_STATE)
    hosts = soup(page).find_all("script", src=re.compile(r"widget-host\.js"))
    views = soup(page).find_all("script", type="application/vnd.jupyter.widget-view+json")
    assert (state is not None) == bool(hosts) == bool(views)
    if state:
        models = json.loads(state.string)["state"]
        assert {json.loads(view.string)["model_id"] for view in views} <= set(models)


@pytest.mark.parametrize(
    ("name", "slider"), [("01_decoder", "temperature_slider"), ("02_cache", "context_slider")]
)
def test_a_lesson_s_page_has_its_explorer_and_not_its_kernel_sliders(
    name: str, slider: str
) -> None:
    page = soup(SITE / "notebooks" / f"{name}.html")
    assert len(page.find_all("script", type="application/vnd.jupyter.widget-view+json")) == 1
    assert slider in page.get_text()  # its code is shown
