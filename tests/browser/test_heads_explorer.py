"""The heads explorer on a static page, as the book publishes it: no kernel, no other host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from static_page import luminance, page_of

from kvbook.explorer.heads import HeadsExplorer

pytestmark = pytest.mark.browser

ONLY_HTTP = pytest.mark.parametrize("publish", ["http"], indirect=True)
SERIES: list[dict[str, Any]] = [
    {"n_kv_heads": n, "loss": 1.842 + i / 100, "spread": 0.01, "seeds": 3}
    for i, n in enumerate((8, 4, 2, 1))
]
START = (
    "123 users fit, 30 as published. Llama 2 7B with 8 KV heads for 32 query heads: 131.1 kB of"
    " cache a token, 4.00 × smaller than as published; 4,096 tokens each on one A100 80GB."
)


@pytest.fixture
def url(publish: Callable[[str], str]) -> str:
    return publish(page_of(HeadsExplorer(SERIES)))


@pytest.fixture
def page(url: str, open_page: Callable[..., Page]) -> Page:
    page = open_page(url)
    expect(page.locator(".kv-heads .kv-q")).to_be_attached()
    return page


def says(root: Page | Locator, text: str) -> None:
    """The headline begins with this."""
    pattern = "^" + re.escape(text).replace("\\ ", r"\s")
    expect(root.locator(".kv-headline")).to_have_text(re.compile(pattern))


def press(root: Page | Locator, name: str) -> Locator:
    return root.get_by_role("button", name=name, exact=True)


def slider(root: Page | Locator, name: str) -> Locator:
    return root.get_by_role("slider", name=name)


def boxes(page: Page, kind: str) -> int:
    """How many rectangles the path of a kind of head draws."""
    return (page.locator(f".kv-heads .{kind}").get_attribute("d") or "").count("M")


def test_it_starts_with_the_point_and_the_heads_move_with_the_keys(page: Page) -> None:
    expect(page.locator(".kv-headline")).to_have_text(START)
    assert (boxes(page, "kv-q"), boxes(page, "kv-k"), boxes(page, "kv-v")) == (32, 8, 8)
    tree, ours, measured = page.locator(".kv-chart-title").all()
    expect(tree).to_have_text("Each of 8 KV heads serves 4 query heads (GQA).")
    expect(ours).to_contain_text("524.3 kB to 16.38 kB; users on one A100 80GB from 30 to 991.")
    expect(measured).to_contain_text("From 8 KV heads to 1 the measured loss rises by 0.030 nats")
    expect(page.locator(".kv-sum").first).to_have_text(
        "32 layers × 8 KV heads × (128 + 128) values × 2 B = 131,072 B"
    )
    expect(page.locator(".kv-sum").last).to_contain_text("536,870,912 B = 123.91 → 123")
    expect(page.locator("li[aria-current]")).to_contain_text("8 GQA")
    expect(press(page, "GQA: 8")).to_have_attribute("aria-pressed", "true")
    expect(press(page, "Reset")).to_be_disabled()
    slider(page, "KV heads").focus()
    page.keyboard.press("End")
    says(page, "30 users fit. Llama 2 7B with 32 KV heads for 32 query heads")
    assert boxes(page, "kv-k") == 32
    page.keyboard.press("Home")
    says(page, "991 users fit, 30 as published.")
    assert boxes(page, "kv-k") == 1
    expect(page.locator(".kv-chosen")).to_have_count(0)
    expect(page.locator(".kv-beside")).to_contain_text("None was trained with 32 query heads")
    tops = set()
    for _ in range(5):
        slider(page, "KV heads").press("ArrowRight")
        top = "e => Math.round(e.getBoundingClientRect().top + scrollY)"
        tops.add(slider(page, "KV heads").evaluate(top))
    assert len(tops) == 1
    press(page, "Reset").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".kv-headline")).to_have_text(START)
    expect(press(page, "Reset")).to_be_focused()
    page.evaluate("document.addEventListener('keydown', () => (document.title = 'heard'))")
    slider(page, "Context").press("ArrowRight")
    assert page.title() == "A page"  # keys stay inside


@ONLY_HTTP
def test_a_latent_has_its_own_controls_and_picture(page: Page) -> None:
    expect(slider(page, "Latent")).to_be_hidden()
    press(page, "MLA: 512 + 64").click()
    says(page, "440 users fit, 30 as published. Llama 2 7B with one latent of 512 + 64 values")
    expect(slider(page, "KV heads")).to_be_hidden()
    assert (boxes(page, "kv-latent"), boxes(page, "kv-k")) == (1, 1)
    expect(page.locator(".kv-v")).to_have_count(0)
    before = page.locator(".kv-headline").inner_text()
    slider(page, "Latent").press("ArrowLeft")
    assert page.locator(".kv-headline").inner_text() != before
    number = page.get_by_label("RoPE part, values", exact=True)
    number.fill("128")
    expect(page.locator(".kv-sum").first).to_contain_text("(448 + 128) values")
    number.fill("0")
    expect(page.get_by_text("A whole number from 1 to 65,536.")).to_be_visible()
    expect(page.locator(".kv-sum").first).to_contain_text("(448 + 128) values")
    expect(page.locator(".kv-beside")).to_contain_text("not with a latent")


@ONLY_HTTP
def test_every_model_and_card_can_be_chosen_and_bars_are_as_long_as_the_bytes(page: Page) -> None:
    seen = set()
    values = "all => all.map(e => e.value)"
    for label in ("Model", "GPU"):
        for value in page.get_by_label(label, exact=True).locator("option").evaluate_all(values):
            page.get_by_label(label, exact=True).select_option(value)
            headline = page.locator(".kv-headline").inner_text()
            assert not re.search("do not go|NaN|undefined|Infinity", headline)
            seen.add(headline)
    assert len(seen) >= 30
    press(page, "Reset").click()
    widths = page.locator(".kv-choices-list .kv-fill").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width)"
    )
    assert np.allclose(
        np.array(widths[:5]) / widths[0], [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16], atol=0.02
    )
    page.locator("summary").click()
    row = page.locator("tr", has=page.locator("th:text-is('4 KV heads')"))
    expect(row.locator("td")).to_have_text(["GQA", "65,536 B", "268.4 MB", "247"])
    expect(page.locator("table", has_text="Measured: decoders")).to_contain_text("1.872")


@ONLY_HTTP
def test_measured_points_stand_at_their_losses_and_nowhere_else(page: Page) -> None:
    points = page.locator("circle.kv-measured-point")
    expect(points).to_have_count(4)
    y = points.evaluate_all("all => all.map(e => Number(e.getAttribute('cy')))")
    steps = np.diff(y)
    assert np.allclose(steps, steps[0], atol=0.1)  # losses with equal steps
    assert steps[0] > 0  # more heads, a lower loss, further down
    expect(page.locator(".kv-chosen")).to_have_count(1)  # 2 of its 8, as 8 of 32
    expect(points.nth(1).locator("title")).to_contain_text("2 KV heads: 1.862 ± 0.010 nats")


@ONLY_HTTP
def test_without_a_series_nothing_measured_is_shown(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    page = open_page(publish(page_of(HeadsExplorer())))
    expect(page.locator(".kv-headline")).to_have_text(START)
    expect(page.locator(".kv-trained")).to_be_hidden()


@ONLY_HTTP
def test_the_address_holds_the_state_and_brings_it_back(
    page: Page, url: str, open_page: Callable[..., Page]
) -> None:
    slider(page, "KV heads").press("Home")
    page.wait_for_function("location.hash === '#heads:heads=1'")
    again = open_page(url + "#heads:kind=latent&latent=256")
    says(again, "793 users fit")
    bad = open_page(url + "#heads:heads=5")
    expect(bad.locator(".kv-message")).to_contain_text("n_kv_heads is 5, which does not divide 32")
    expect(bad.locator(".kv-headline")).to_have_text(START)


@ONLY_HTTP
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_all_is_seen_and_hit_and_nothing_moves(
    url: str, open_page: Callable[..., Page], dark: bool
) -> None:
    page = open_page(url, width=390, height=844, dark=dark)
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    targets = page.locator(".kvbook-explorer :is(button, input, select, summary):visible")
    size = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    assert np.min(targets.evaluate_all(size)) >= 44
    tops = set()
    for key in ["Home", *["ArrowRight"] * 5]:
        slider(page, "KV heads").press(key)
        tops.add(
            slider(page, "KV heads").evaluate(
                "e => Math.round(e.getBoundingClientRect().top + scrollY)"
            )
        )
    assert len(tops) == 1
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
    """Texts and marks stand out from the ground."""
    root = page.locator(".kvbook-explorer")
    ground = luminance(root.evaluate("e => getComputedStyle(e).backgroundColor"))
    assert (ground < 0.1) is dark

    def contrast(part: str, style: str) -> float:
        colour = page.locator(part).first.evaluate(f"e => getComputedStyle(e).{style}")
        low, high = sorted([luminance(colour), ground])
        return (high + 0.05) / (low + 0.05)

    for part in (".kv-headline strong", ".kv-legend", ".kv-row-line", ".kv-users", ".kv-beside"):
        assert contrast(part, "color") >= 4.5, part
    for part in (".kv-head-label", ".kv-axis text", ".kv-point-text", ".kv-axis-title"):
        assert contrast(part, "fill") >= 4.5, part
    for part in (".kv-q", ".kv-k", ".kv-v", ".kv-measured-point"):
        assert contrast(part, "fill") >= 3, part
    assert contrast(".kv-choice-bar .kv-fill", "backgroundColor") >= 3
    assert contrast(".kv-error-bar", "stroke") >= 3
