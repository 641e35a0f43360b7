"""A real browser that sees only this machine: what a page asks of any other host fails its test."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, sync_playwright

HOST = Path(__file__).resolve().parents[2] / "book" / "_static" / "widget-host.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """KVBOOK_CHROMIUM, else a Chromium on the PATH, else Playwright's own."""
    path = os.environ.get("KVBOOK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*ARGS, *sandbox])
        yield chromium
        chromium.close()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """serve(folder) -> the address at which the folder is served, without a slash at its end."""
    servers = []

    def start(folder: Path) -> str:
        handler = partial(QuietHandler, directory=str(folder))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(params=["http", "file"])
def publish(
    request: pytest.FixtureRequest, tmp_path: Path, serve: Callable[[Path], str]
) -> Callable[[str], str]:
    """publish(html) -> the address of the page, on a server and as a file."""

    def write(html: str) -> str:
        shutil.copy(HOST, tmp_path)
        (tmp_path / "page.html").write_text(html)
        base = serve(tmp_path) if request.param == "http" else tmp_path.as_uri()
        return f"{base}/page.html"

    return write


STAND = """[...document.scripts].filter((script) => script.type.endsWith("widget-view+json")).length
    <= document.querySelectorAll(".kvbook-explorer").length"""


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """open_page(url, width, height, dark, listening, asked) -> a page.

    The address of every request is added to the list `asked`, if there is one. Requests to other hosts
    are blocked. At the end of the test any of them, any error on a console and any uncaught exception
    fails it.
    """
    contexts, faults, loads = [], [], []

    def check(address: str) -> bool:
        url = urlsplit(address)
        ours = url.scheme in ("file", "data", "blob") or url.hostname == "127.0.0.1"
        if not ours:
            faults.append(f"asked another host: {address}")
        return ours

    def guard(route: Route, asked: list[str]) -> None:
        asked.append(route.request.url)
        if check(route.request.url):
            route.continue_()
        else:
            route.abort()

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error":
            faults.append(f"console: {message.text}")

    def start(
        url: str,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        listening: bool = True,
        asked: list[str] | None = None,
    ) -> Page:
        addresses = [] if asked is None else asked
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            service_workers="block",
        )
        contexts.append(context)
        context.route("**/*", lambda route: guard(route, addresses))
        page = context.new_page()
        page.on("websocket", lambda socket: check(socket.url))
        if listening:  # to errors of our own pages; JupyterLab's are not ours
            page.on("console", listen)
            page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))
        page.on("load", lambda: loads.append(monotonic()))
        page.goto(url)
        for _ in range(100 if listening else 0):  # until every explorer stands, 5 s at most
            if page.evaluate(STAND):
                break
            page.wait_for_timeout(50)
        return page

    yield start
    seen = 1000 * (monotonic() - max(loads, default=0.0))
    for context in contexts:
        for page in context.pages:
            page.wait_for_timeout(max(50, 300 - seen))  # for what a page asks late
        context.close()
    assert not faults, "\n".join(faults)
