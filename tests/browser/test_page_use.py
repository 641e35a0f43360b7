"""The built page used: by keyboard, on paper, from disk, and at an address that does not exist."""

from __future__ import annotations

import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from book_page import absolute

SITE = Path(__file__).resolve().parents[2] / "_build" / "html"
LESSON = "notebooks/03_cost.html"

pytestmark = [pytest.mark.book, pytest.mark.browser]


class Host(SimpleHTTPRequestHandler):
    """As static hosts do: what does not exist is answered with the book's 404.html."""

    def log_message(self, *_: Any) -> None:
        pass

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        body = (Path(self.directory) / "book" / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def host(tmp_path: Path):
    """A host whose folder `book` holds the book, its 404 page written for that address."""
    place = tmp_path / "book"
    place.mkdir()
    for entry in SITE.iterdir():
        if entry.name != "404.html":
            (place / entry.name).symlink_to(entry)
    page = absolute((SITE / "404.html").read_text(), "https://example.org/book/")
    (place / "404.html").write_text(page)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Host, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_address_that_does_not_exist_leads_back_at_any_depth(host: str, open_page) -> None:
    page = open_page(f"{host}/book/notebooks/old/99_gone.html", listening=False)
    assert page.locator("h1:visible").inner_text() == "This page does not exist"
    assert page.evaluate("[...document.styleSheets].every((sheet) => sheet.cssRules.length > 0)")
    lost = page.evaluate(
        "async () => { const lost = [];"
        " for (const link of document.links) if (!link.hash && link.host === location.host)"
        " if (!(await fetch(link.href)).ok) lost.push(link.href);"
        " return lost; }"
    )
    assert lost == []
    page.locator("main a", has_text="How many users fit?").click()
    page.wait_for_url(re.compile(r"/book/book/index\.html$"))


def test_the_policy_itself_stops_what_is_not_the_book_s(host: str, open_page) -> None:
    page = open_page(
        f"{host}/book/{LESSON}", listening=False
    )  # each refusal is an error on the console
    refused = page.evaluate(
        """async () => {
          const other = "http://127.0.0.1:9/";
          const make = (tag, fields) =>
            document.body.append(Object.assign(document.createElement(tag), fields));
          const ways = {
            "connect-src": () => fetch(other).catch(() => 0),
            "img-src": () => make("img", {src: other}),
            "style-src-elem": () => make("link", {rel: "stylesheet", href: other}),
            "script-src-elem": () => make("script", {textContent: "window.ran = true"}),
            "script-src-attr": () => make("p", {}) ?? document.body.lastChild.setAttribute("onclick", "1"),
            "frame-src": () => make("iframe", {src: other}),
          };
          const seen = [];
          for (const [name, way] of Object.entries(ways)) {
            const refusal = new Promise((resolve) => {
              addEventListener("securitypolicyviolation", resolve, {once: true});
              setTimeout(() => resolve({}), 2000);
            });
            way();
            seen.push((await refusal).violatedDirective === name);
          }
          return [...seen, window.ran === undefined];
        }"""
    )
    assert refused == [True] * 7


def test_a_search_for_a_name_of_javascript_s_own_ends(host: str, open_page) -> None:
    for word in ("constructor", "__proto__"):
        page = open_page(f"{host}/book/search.html?q={word}")
        page.get_by_text("Your search did not match any documents").wait_for()


def test_who_wants_no_motion_gets_none(host: str, open_page) -> None:
    page = open_page(f"{host}/book/{LESSON}")
    page.emulate_media(reduced_motion="reduce")
    moving = (
        "[...document.querySelectorAll('*')].map((tag) => getComputedStyle(tag))"
        ".filter((style) => parseFloat(style.transitionDuration) > 0).length"
    )
    assert page.evaluate(moving) == 0
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moving) > 0


@pytest.mark.parametrize("way", ["disk", "host"])
def test_search_needs_no_server_of_its_own(host: str, open_page, way: str) -> None:
    base = SITE.as_uri() if way == "disk" else f"{host}/book"
    page = open_page(f"{base}/search.html?q=softmax")
    result = page.locator("#search-results li a").first
    result.wait_for()
    result.click()
    page.wait_for_selector("main article h1")


def test_a_lesson_is_read_by_keyboard(host: str, open_page) -> None:
    page = open_page(f"{host}/book/{LESSON}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
    page.keyboard.press("Enter")
    page.wait_for_url("**#main-content")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")

    page.keyboard.press("Control+k")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("Escape")
    assert not page.locator("#pst-search-dialog").is_visible()

    fold = page.locator("main details > summary").first
    fold.focus()
    page.keyboard.press("Enter")
    assert page.locator("main details").first.get_attribute("open") is not None
    # What has the focus shows it.
    assert page.evaluate(
        "(s => s.outlineStyle !== 'none' || s.boxShadow !== 'none')(getComputedStyle(document.activeElement))"
    )

    mode = page.get_by_role("button", name="Color mode")
    before = page.evaluate("document.documentElement.dataset.mode")
    mode.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.mode") != before


def test_on_a_phone_the_contents_open_and_close_by_keyboard(host: str, open_page) -> None:
    page = open_page(f"{host}/book/{LESSON}", width=390)
    link = page.locator(".bd-sidebar-primary a", has_text="A decoder you can read").first
    assert not link.is_visible()
    page.locator("button.primary-toggle").first.focus()
    page.keyboard.press("Enter")
    link.wait_for(state="visible")
    page.keyboard.press("Escape")
    link.wait_for(state="hidden")


def test_on_paper_all_is_open_and_on_white(host: str, open_page, tmp_path: Path) -> None:
    page = open_page(f"{host}/book/{LESSON}", dark=True)
    page.evaluate(
        "addEventListener('beforeprint', () => window.seen = ["
        " document.querySelectorAll('main details:not([open])').length,"
        " document.documentElement.dataset.theme])"
    )
    folded = page.locator("main details:not([open])").count()
    assert folded > 0
    page.pdf(path=tmp_path / "page.pdf")
    assert page.evaluate("window.seen") == [0, "light"]
    assert page.locator("main details:not([open])").count() == folded  # as before
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")
    for part in (".bd-sidebar-primary", ".bd-header-article", ".prev-next-footer", ".copybtn"):
        assert not page.locator(part).first.is_visible(), part
