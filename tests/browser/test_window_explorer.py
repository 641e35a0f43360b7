"""The window explorer on a static page, as the book publishes it: no kernel, no other host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from static_page import luminance, page_of

from kvbook.accounting.ring import kept
from kvbook.explorer.heads import HeadsExplorer
from kvbook.explorer.window import WindowExplorer

pytestmark = pytest.mark.browser

ONLY_HTTP = pytest.mark.parametrize("publish", ["http"], indirect=True)
EVIL = "<img src=x onerror=alert(1)></script>"
TOKENS = ["A", " cache", "\n", EVIL, *(f" word{i}" for i in range(4, 48))]
MEASURED: list[dict[str, Any]] = [
    {
        **{"window": window, "sinks": sinks, "nbytes": (window + sinks) * 46_080},
        **{"perplexity": 26 * (1 + change), "change": change, "error": change / 10},
    }
    for window, changes in ((64, (2.44, 0.26)), (128, (1.35, 0.07)), (256, (0.92, 0.03)))
    for sinks, change in zip((0, 4), changes, strict=True)
]
START = (
    "12 rows kept, 36 evicted. With a window of 8 and 4 sinks, the query “word47” at position 47"
    " sees the first 4 tokens and the last 8, itself included. The cache holds 553.0 kB, not"
    " 2.212 MB."
)


@pytest.fixture
def url(publish: Callable[[str], str]) -> str:
    return publish(page_of(WindowExplorer(TOKENS, MEASURED, 26.0)))


@pytest.fixture
def page(url: str, open_page: Callable[..., Page]) -> Page:
    page = open_page(url)
    expect(page.locator(".kv-line.kv-of-kept[d]")).to_be_attached()
    return page


def says(root: Page | Locator, text: str) -> None:
    """The headline begins with this."""
    pattern = "^" + re.escape(text).replace("\\ ", r"\s")
    expect(root.locator(".kv-headline")).to_have_text(re.compile(pattern))


def press(root: Page | Locator, name: str) -> Locator:
    return root.get_by_role("button", name=name, exact=True)


def slider(root: Page | Locator, name: str) -> Locator:
    return root.get_by_role("slider", name=name)


def assert_shows(page: Page, window: int, sinks: int, position: int) -> None:
    """Text, slots and mask all show the rows that Python keeps."""
    held = kept(position + 1, window, sinks)
    names = page.locator(".kv-said bdi").evaluate_all("all => all.map(e => e.className.slice(3))")
    expected = []
    for i in range(len(TOKENS)):
        seen = "sink" if i < sinks else "kept"
        state = "newest" if i == position else seen if i in held else "evicted"
        expected.append("later" if i > position else state)
    assert names == expected
    slots = page.locator(".kv-slot-position").all_text_contents()
    filled = [int(text) for text in slots if text != "–"]
    assert sorted(filled) == held
    squares = page.locator(".kv-mask-seen").get_attribute("d") or ""
    assert squares.count("M") == sum(len(kept(n, window, sinks)) for n in range(1, position + 2))
    dots = page.locator(".kv-mask-gone").get_attribute("d") or ""
    assert dots.count("M") == sum(n - len(kept(n, window, sinks)) for n in range(1, position + 2))


def test_it_starts_with_the_point_and_moves_with_the_keys(page: Page) -> None:
    expect(page.locator(".kv-headline")).to_have_text(START)
    assert_shows(page, 8, 4, 47)
    expect(press(page, "Window 8, 4 sinks")).to_have_attribute("aria-pressed", "true")
    expect(press(page, "Reset")).to_be_disabled()
    expect(page.locator(".kv-sum")).to_have_text(
        [
            "min(48, 8 + 4) = 12 rows",
            "slot = 4 + (47 − 4) mod 8 = 7",
            "12 rows × 46,080 B = 552,960 B",
        ]
    )
    slider(page, "Window").press("ArrowRight")
    assert_shows(page, 9, 4, 47)
    slider(page, "Sinks").press("Home")
    assert_shows(page, 9, 0, 47)
    for _ in range(3):
        slider(page, "Newest token").press("ArrowLeft")
    assert_shows(page, 9, 0, 44)
    slider(page, "Newest token").press("Home")
    assert_shows(page, 9, 0, 0)
    says(page, "The only row is kept.")
    press(page, "Reset").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".kv-headline")).to_have_text(START)
    expect(press(page, "Reset")).to_be_focused()
    page.evaluate("document.addEventListener('keydown', () => (document.title = 'heard'))")
    slider(page, "Window").press("ArrowRight")
    assert page.title() == "A page"  # keys stay inside


@ONLY_HTTP
def test_measured_pairs_are_shown_as_measured_and_nothing_between(page: Page) -> None:
    title = page.locator(".kv-measured-box .kv-chart-title")
    expect(title).to_contain_text("A window of 8 and 4 sinks was not measured. The nearest")
    expect(page.locator(".kv-chosen")).to_have_count(0)
    points = page.locator("circle.kv-measured-point")
    expect(points).to_have_count(6)
    expect(page.locator(".kv-measured-box path.kv-line")).to_have_count(0)
    for one in MEASURED:
        sinks = ", 4 sinks" if one["sinks"] else ""
        press(page, f"Window {one['window']}{sinks}").click()
        expect(title).to_contain_text("Measured over 1,024 tokens: a window of")
        expect(title).to_contain_text(f"from 26.00 to {one['perplexity']:.2f}".rstrip())
        expect(page.locator(".kv-chosen")).to_have_count(1)
        ring, chosen = page.locator(".kv-chosen"), points.nth(MEASURED.index(one))
        assert ring.get_attribute("cx") == chosen.get_attribute("cx")
    slider(page, "Sinks").press("ArrowRight")
    expect(title).to_contain_text("was not measured. The nearest measured: a window of 256 and 4")


@ONLY_HTTP
def test_the_bytes_are_flat_once_the_window_is_full(page: Page) -> None:
    path = page.locator(".kv-line.kv-of-kept").get_attribute("d") or ""
    (x0, y0), (x1, y1), (x2, y2) = (
        (float(a), float(b)) for a, b in re.findall(r"([\d.]+),([\d.]+)", path)
    )
    assert y1 == y2
    assert y1 < y0
    assert abs((x1 - x0) / (x2 - x0) - 12 / 64) < 1e-6
    full = page.locator(".kv-line.kv-of-full").get_attribute("d") or ""
    assert re.findall(r"([\d.]+),", full)[1] == f"{x2:g}"
    dots = page.locator(".kv-dot").evaluate_all("all => all.map(e => e.getAttribute('cy'))")
    assert float(dots[1]) == y1
    expect(page.locator(".kv-chart-figure .kv-chart-title").first).to_have_text(
        "From 12 tokens on the cache stays at 553.0 kB; at 64 the full one takes 2.949 MB,"
        " 5.3 × as much."
    )
    page.locator("summary").click()
    cells = page.locator("tr", has=page.locator("th:text-is('24')")).locator("td")
    expect(cells).to_have_text(["12", "552,960 B", "1,105,920 B"])
    expect(page.locator("table", has_text="Slots after")).to_contain_text("<img·src=x")
    expect(page.locator("table", has_text="Measured over")).to_contain_text("+244 %")
    expect(page.locator(".kvbook-explorer :is(img, script)")).to_have_count(0)


@ONLY_HTTP
def test_without_measurements_none_are_shown_and_beside_another_it_looks_the_same(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    box = "all => all.map(e => Math.round(e.getBoundingClientRect().height))"
    alone, other = WindowExplorer(TOKENS), HeadsExplorer()
    heights = []
    for widgets in ([alone], [other], [other, alone]):
        page = open_page(publish(page_of(*widgets)))
        expect(page.locator(".kvbook-explorer .kv-formula")).to_have_count(len(widgets))
        page.wait_for_timeout(200)
        heights.append(page.locator(".kvbook-explorer").evaluate_all(box))
    assert heights[2] == [*heights[1], *heights[0]]
    expect(page.locator(".kv-measured-box")).to_be_hidden()
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))


@ONLY_HTTP
def test_the_address_holds_the_state_and_brings_it_back(
    page: Page, url: str, open_page: Callable[..., Page]
) -> None:
    press(page, "Window 64").click()
    page.wait_for_function("location.hash === '#window:window=64&sinks=0'")
    again = open_page(url + "#window:window=4&sinks=1&position=20")
    expect(again.locator(".kv-line.kv-of-kept[d]")).to_be_attached()
    assert_shows(again, 4, 1, 20)
    bad = open_page(url + "#window:sinks=65")
    expect(bad.locator(".kv-message")).to_contain_text("sinks is 65; it must be a whole number")
    expect(bad.locator(".kv-headline")).to_have_text(START)


@ONLY_HTTP
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_all_is_seen_and_hit_and_nothing_moves(
    url: str, open_page: Callable[..., Page], dark: bool
) -> None:
    page = open_page(url, width=390, height=844, dark=dark)
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    targets = page.locator(".kvbook-explorer :is(button, input, summary):visible")
    size = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    assert np.min(targets.evaluate_all(size)) >= 44
    tops = set()
    for name in ("Window", "Sinks", "Newest token"):
        for key in ("Home", "End", "ArrowLeft", "ArrowLeft", "PageDown"):
            slider(page, name).press(key)
            top = "e => Math.round(e.getBoundingClientRect().top + scrollY)"
            tops.add(slider(page, "Window").evaluate(top))
    assert len(tops) == 1
    press(page, "Reset").click()
    slider(page, "Newest token").press("ArrowLeft")
    assert_seen(page, dark)
    moves = (
        "all => all.map(e => getComputedStyle(e)).map(s => s.transitionDuration + s.animationName)"
    )
    assert set(page.locator(".kvbook-explorer *").evaluate_all(moves)) == {"0snone"}
    page.emulate_media(media="print")
    assert_seen(page, False)
    expect(page.locator("table", has_text="All settings")).to_be_visible()
    for part in (".kv-main", ".kv-buttons"):
        expect(page.locator(part)).to_be_hidden()


def assert_seen(page: Page, dark: bool) -> None:
    """Texts and marks stand out from the ground, and rows differ in form as well as in colour."""
    root = page.locator(".kvbook-explorer")
    ground = luminance(root.evaluate("e => getComputedStyle(e).backgroundColor"))
    assert (ground < 0.1) is dark

    def style(part: str, name: str) -> str:
        return str(page.locator(part).first.evaluate(f"e => getComputedStyle(e).{name}"))

    def contrast(part: str, name: str) -> float:
        low, high = sorted([luminance(style(part, name)), ground])
        return (high + 0.05) / (low + 0.05)

    for part in (".kv-headline strong", ".kv-legend", ".kv-said .kv-evicted", ".kv-slot.kv-kept"):
        assert contrast(part, "color") >= 4.5, part
    assert contrast(".kv-said .kv-newest", "backgroundColor") >= 4.5
    for part in (".kv-said .kv-sink", ".kv-said .kv-kept"):
        assert contrast(part, "outlineColor") >= 3, part
    for part in (".kv-mask-seen", ".kv-mask-gone", ".kv-measured-point", ".kv-dot"):
        assert contrast(part, "fill") >= 3 or contrast(part, "stroke") >= 3, part
    for part in (".kv-of-kept", ".kv-of-full", ".kv-error-bar", ".kv-level", ".kv-mask-frame"):
        assert contrast(f"svg {part}", "stroke") >= 3, part
    for part in (".kv-axis text", ".kv-axis-title", ".kv-point-text", ".kv-level-text"):
        assert contrast(part, "fill") >= 4.5, part
    assert [style(f".kv-said .kv-{name}", "outlineWidth") for name in ("sink", "kept")] == [
        *("2px", "1px"),
    ]
    assert "line-through" in style(".kv-said .kv-evicted", "textDecorationLine")
