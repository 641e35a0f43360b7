"""The built book in a real browser: its maths and its explorers. `test_page_all.py` looks at every page."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "_build" / "html"
LESSON = "notebooks/01_decoder.html"

pytestmark = [pytest.mark.book, pytest.mark.browser]


@pytest.fixture(scope="module")
def site(serve) -> str:
    assert SITE.exists(), "run `make book` first"
    return serve(SITE)


def test_math_is_set_with_the_book_s_own_fonts(open_page, site: str) -> None:
    page = open_page(f"{site}/{LESSON}")
    page.wait_for_selector("mjx-container")
    assert page.evaluate(
        "document.fonts.ready.then(() => [...document.fonts].some("
        "(font) => font.family.startsWith('MJX') && font.status === 'loaded'))"
    )


@pytest.mark.parametrize("way", ["server", "disk"])
def test_the_explorer_of_lesson_1_works_on_the_page(open_page, site: str, way: str) -> None:
    base = site if way == "server" else SITE.as_uri()
    page = open_page(f"{base}/{LESSON}")
    explorer = page.locator(".kvbook-explorer")
    explorer.scroll_into_view_if_needed()
    headline = explorer.locator("[aria-live]").first
    before = headline.inner_text()
    layer = explorer.get_by_role("slider", name="Layer")
    layer.focus()
    page.keyboard.press("Home")
    assert layer.input_value() == "0"
    assert headline.inner_text() != before
    assert explorer.get_by_role("textbox").count() == 0  # no kernel, no field for a sentence


@pytest.mark.parametrize("way", ["server", "disk"])
def test_the_stepper_of_lesson_2_ends_at_the_hooks_counts(open_page, site: str, way: str) -> None:
    page = open_page(f"{site if way == 'server' else SITE.as_uri()}/notebooks/02_cache.html")
    stepper = page.locator(".kvbook-explorer")
    step = stepper.get_by_role("slider", name="Step")
    step.focus()
    page.keyboard.press("End")
    assert step.input_value() == "64"
    text = stepper.inner_text().replace("\xa0", " ").replace("\u202f", " ")
    assert "2,336" in text
    assert "68" in text
    assert "3.13 MB" in text
    page.keyboard.press("Home")
    assert "2,336" not in stepper.inner_text()


@pytest.mark.parametrize("name", ["notebooks/02_cache", "notebooks/09_window"])
def test_the_words_of_a_figure_can_be_read_on_a_phone(open_page, site: str, name: str) -> None:
    """Its words have 10 points, at 100 dots per inch; it scrolls in its own box."""
    page = open_page(f"{site}/{name}.html", width=390)
    figures = page.evaluate(
        "[...document.querySelectorAll('.cell_output > img')].map((img) =>"
        " [img.clientWidth / img.naturalWidth, getComputedStyle(img.parentElement).overflowX])"
    )
    assert figures
    for scale, overflow in figures:
        assert 10 * 100 / 72 * scale >= 9
        assert overflow == "auto"
