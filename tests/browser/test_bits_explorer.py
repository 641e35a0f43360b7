"""The bits explorer on a static page, as the book publishes it: no kernel, no other host."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from static_page import luminance, page_of

from kvbook.explorer.bits import BitsExplorer
from kvbook.explorer.capacity import CapacityExplorer

pytestmark = pytest.mark.browser

EVIL = "<img src=x onerror=alert(1)></script>"
ONLY_HTTP = pytest.mark.parametrize("publish", ["http"], indirect=True)


def row(format: str, only: str | None, bits: float, change: float, error: float) -> dict[str, Any]:
    names = ("format", "only", "bits_per_value", "change", "error")
    values = (format, only, bits, change, error)
    return {**dict(zip(names, values, strict=True)), "perplexity": 30 * (1 + change)}


MEASURED = [
    row("float16", None, 16, 1e-5, 1e-5),
    row("int8", None, 8.25, -0.0002, 0.0005),
    row("fp8_e4m3", None, 8, 0.007, 0.002),
    row("int4_token", None, 4.5, 0.27, 0.055),
    row("int4", None, 5, 0.023, 0.0051),
    row("int4", "keys", 10.5, 0.014, 0.004),
    row("int2", None, 3, 2.9, 0.5),
]
SAMPLE = [
    [(9 if c % 20 == 7 else 0.4) * math.sin(0.7 * t + c) + (c % 20 == 7) * 6 for c in range(64)]
    for t in range(64)
]
START = (
    "Perplexity +2.30 % ± 0.51 % with int4, keys per channel. 5 bits a value, scales counted:"
    " 97 users of 4,096 tokens fit where fp16 holds 30 (Llama 2 7B on one A100 80GB)."
    " The change of perplexity was measured on SmolLM2 135M."
)


@pytest.fixture
def url(publish: Callable[[str], str]) -> str:
    return publish(page_of(BitsExplorer(MEASURED, SAMPLE)))


@pytest.fixture
def page(url: str, open_page: Callable[..., Page]) -> Page:
    return open_page(url)


def press(root: Page | Locator, name: str) -> Locator:
    return root.get_by_role("button", name=name, exact=True)


def choose(root: Page | Locator, label: str, value: str) -> None:
    root.get_by_label(label, exact=True).select_option(value)


def cells(page: Page, caption: str, name: str) -> list[str]:
    table = page.locator("table", has_text=caption)
    found = table.locator("tr", has=page.locator(f"th:text-is('{name}')")).locator("td")
    return [text.replace("\xa0", " ") for text in found.all_text_contents()]


def test_it_starts_where_the_lesson_s_point_is(page: Page) -> None:
    expect(page.locator(".kv-headline")).to_have_text(START)
    lines = page.locator(".kv-formula p")
    expect(lines.nth(0)).to_have_text("a key: 128 values × 4 bits + 128 × 4 B ÷ 32 tokens = 80 B")
    expect(lines.nth(3)).to_contain_text("÷ 679.5 MB = 97")
    expect(page.locator(".kv-facts .kv-fact").nth(3)).to_contain_text("int4 per token: +27.0 %")
    expect(press(page, "Reset")).to_be_disabled()
    expect(press(page, "int4 per channel")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".kv-marks > g")).to_have_count(len(MEASURED))
    expect(page.locator(".kv-error-of-channel")).to_have_count(64)
    assert page.evaluate("location.hash") == ""


@ONLY_HTTP
def test_the_picture_is_what_was_measured_and_quantised(page: Page) -> None:
    ring = page.locator(".kv-chosen-ring")
    expect(page.locator(".kv-marks > g")).to_have_count(len(MEASURED))
    disc = page.locator(".kv-marks > g").nth(4).locator("circle")
    assert ring.get_attribute("cx") == disc.get_attribute("cx")
    assert ring.get_attribute("cy") == disc.get_attribute("cy")
    tops = [
        float(page.locator(".kv-marks > g").nth(i).locator("circle").get_attribute("cy") or 0)
        for i in (0, 4, 3, 6)
    ]
    assert tops == sorted(tops, reverse=True)  # the more it costs, the higher
    heights = page.locator(".kv-error-of-channel").evaluate_all(
        "all => all.map(e => Number(e.getAttribute('height')))"
    )
    large = [h for c, h in enumerate(heights) if c % 20 == 7]
    small = [h for c, h in enumerate(heights) if c % 20 != 7]
    assert min(large) > 3 * max(small)  # per channel only outliers pay for outliers
    paths = page.locator(".kv-error-tick").evaluate_all("all => all.map(e => e.getAttribute('d'))")
    ticks = [194 - float(path.split(",")[1].split("h")[0]) for path in paths]
    assert min(ticks) > 0.3 * max(ticks)  # per token all channels pay
    choose(page, "Coded", "values")
    expect(page.locator(".kv-headline strong")).to_have_text(
        "Perplexity was not measured with int4, keys per channel, values alone."
    )
    expect(ring).to_be_hidden()
    expect(page.locator(".kv-errors .kv-chart-title")).to_contain_text("fp16, for only values")


def test_by_keyboard_by_hand_and_back(page: Page) -> None:
    channel = page.get_by_role("slider", name="Channel")
    channel.focus()
    page.keyboard.press("Home")
    for _ in range(7):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".kv-channel .kv-chart-title")).to_contain_text("Channel 7 has keys up to")
    box = page.locator(".kv-errors svg").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] - 14, box["y"] + 120)
    expect(page.locator(".kv-channel .kv-chart-title")).to_contain_text("Channel 63")
    context = page.get_by_label("Context, tokens", exact=True)
    context.fill("8192")
    expect(page.locator(".kv-headline")).to_contain_text("49 users of 8,192 tokens fit")
    context.fill("0")
    expect(page.get_by_text("A whole number from 1 to 1,048,576.")).to_be_visible()
    press(page, "int8").click()
    expect(page.locator(".kv-headline strong")).to_contain_text("a tie, with int8 per token")
    page.evaluate("document.addEventListener('keydown', () => (document.title = 'heard'))")
    press(page, "Reset").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".kv-headline")).to_have_text(START)
    assert page.title() == "A page"


@ONLY_HTTP
def test_no_control_that_can_be_used_does_nothing(page: Page) -> None:
    root = page.locator(".kvbook-explorer")
    picture = (
        "e => [...e.querySelectorAll('.kv-headline, .kv-facts, .kv-formula, .kv-chart-title')]"
        ".map(p => p.innerText).join()"
    )
    fields = root.locator("select:visible").all()
    assert len(fields) == 5
    for field in fields:
        before, now = root.evaluate(picture), field.input_value()
        values = field.locator("option").evaluate_all("all => all.map(e => e.value)")
        for value in values:
            field.select_option(value)
            assert not re.search("NaN|undefined|Infinity", root.evaluate(picture))
        field.select_option(next(value for value in reversed(values) if value != now))
        assert root.evaluate(picture) != before
        field.select_option(now)
    for name in page.locator(".kv-hands .kv-buttons button").all_inner_texts()[:-1]:
        press(page, name).click()
        expect(press(page, name)).to_have_attribute("aria-pressed", "true")


def test_the_address_holds_the_state_and_brings_it_back(
    page: Page, url: str, open_page: Callable[..., Page]
) -> None:
    choose(page, "Format", "int8")
    choose(page, "Coded", "keys")
    page.wait_for_function("location.hash.includes('only=keys')")
    assert page.evaluate("location.hash") == "#bits:format=int8&only=keys"
    again = open_page(url + "#bits:format=int8&only=keys")
    expect(again.locator(".kv-headline strong")).to_contain_text("int8 per token, keys alone")
    press(again, "Reset").click()
    again.wait_for_function("location.hash === ''")


@ONLY_HTTP
def test_a_bad_address_and_an_odd_name_do_no_harm(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    explorer = BitsExplorer(MEASURED, SAMPLE, measured_on=EVIL)
    page = open_page(publish(page_of(explorer)) + "#bits:format=%3Cimg%20src%3Dx%3E")
    expect(page.locator(".kv-message")).to_contain_text("“format=<img src=x>”, which is not")
    expect(page.locator(".kv-headline")).to_contain_text(f"measured on {EVIL}")
    expect(page.locator(".kvbook-explorer :is(img, script)")).to_have_count(0)


@ONLY_HTTP
def test_without_a_record_and_a_sample_it_counts_bytes(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    page = open_page(publish(page_of(BitsExplorer())))
    expect(page.locator(".kv-headline")).to_contain_text("Perplexity was not measured with int4")
    expect(page.locator(".kv-headline")).to_contain_text("97 users")
    expect(page.locator(".kv-sample-box")).to_be_hidden()


@ONLY_HTTP
def test_beside_another_explorer_styles_and_addresses_do_not_meet(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    widgets = [BitsExplorer(MEASURED, SAMPLE), CapacityExplorer()]
    page = open_page(publish(page_of(*widgets)) + "#kv:context=8192")
    bits, capacity = page.locator(".kvbook-explorer").all()
    expect(bits.locator(".kv-headline")).to_have_text(START)
    expect(capacity.locator(".kv-headline")).to_contain_text("15 users fit")
    choose(bits, "Format", "int8")
    page.wait_for_timeout(500)
    assert page.evaluate("location.hash") == "#kv:context=8192"


@ONLY_HTTP
def test_the_tables_say_the_same_as_the_pictures(page: Page) -> None:
    page.locator("summary").click()
    assert cells(page, "Llama 2 7B on one A100 80GB", "int8 per token") == [
        *("8.125", "266,240 B", "1.091 GB", "61")
    ]
    assert cells(page, "Perplexity, measured on SmolLM2 135M", "int4 per token") == [
        *("38.1", "+27.0 % ± 5.5 %")
    ]
    channel = cells(page, "Error of each channel", "7")
    assert float(channel[1]) < float(channel[2]) + 0.2
    small = cells(page, "Error of each channel", "0")
    assert 5 * float(small[1]) < float(small[2])
    assert cells(page, "All settings", "only") == ["–"]
    page.emulate_media(media="print")
    expect(page.locator(".kv-main").first).to_be_hidden()
    expect(page.locator("table", has_text="All settings")).to_be_visible()


@ONLY_HTTP
@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True)])
def test_on_a_phone_nothing_scrolls_sideways_and_fingers_hit(
    url: str, open_page: Callable[..., Page], width: int, dark: bool
) -> None:
    page = open_page(url, width=width, height=844, dark=dark)
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    targets = page.locator(".kvbook-explorer :is(button, input, select, summary):visible")
    size = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    assert np.min(targets.evaluate_all(size)) >= 44
    for picture in page.locator("svg.kv-chart").all():
        box = picture.bounding_box()
        assert box
        sides = picture.locator("text:visible").evaluate_all(
            "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
        )
        assert min(left for left, _ in sides) >= box["x"] - 1
        assert max(right for _, right in sides) <= box["x"] + box["width"] + 1


@ONLY_HTTP
@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_marks_are_seen_in_light_dark_and_print(
    url: str, open_page: Callable[..., Page], dark: bool
) -> None:
    page = open_page(url, dark=dark)
    page.locator("summary").click()
    root = page.locator(".kvbook-explorer")

    def contrast(part: str, style: str) -> float:
        colour = page.locator(part).first.evaluate(f"e => getComputedStyle(e).{style}")
        ground = root.evaluate("e => getComputedStyle(e).backgroundColor")
        low, high = sorted([luminance(colour), luminance(ground)])
        return (high + 0.05) / (low + 0.05)

    texts = [".kv-headline strong", ".kv-legend", ".kv-field label", ".kv-facts dt", "td"]
    assert (luminance(root.evaluate("e => getComputedStyle(e).backgroundColor")) < 0.1) is dark
    for part in [*texts, ".kv-formula p", ".kv-facts dd", "caption"]:
        assert contrast(part, "color") >= 4.5, part
    for part in (".kv-marks circle", ".kv-marks path.kv-of-key", ".kv-error-of-channel"):
        assert contrast(part, "fill") >= 3, part
    for part in (".kv-error-tick", ".kv-original", ".kv-back-other", ".kv-error-bar"):
        assert contrast(part, "stroke") >= 3, part
    for part in (".kv-mark-text", ".kv-quiet", ".kv-axis text", ".kv-axis-title"):
        assert contrast(f".kv-chart {part}", "fill") >= 4.5, part
    moves = root.locator("*").evaluate_all(
        "all => all.map(e => getComputedStyle(e))"
        ".map(s => `${s.transitionDuration} ${s.animationName}`)"
    )
    assert set(moves) == {"0s none"}
    page.emulate_media(media="print")
    assert luminance(root.evaluate("e => getComputedStyle(e).backgroundColor")) > 0.9
    for part in texts[:1] + texts[-1:]:
        assert contrast(part, "color") >= 4.5, part


@ONLY_HTTP
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_moves_under_a_finger_that_drags(
    url: str, open_page: Callable[..., Page], width: int
) -> None:
    page = open_page(url, width=width)
    for name in ("Context", "Channel"):
        control = page.get_by_role("slider", name=name)
        control.press("Home")
        tops = set()
        for _ in range(20):
            control.press("ArrowRight")
            top = control.evaluate("e => e.getBoundingClientRect().top + window.scrollY")
            tops.add(round(top))
        assert len(tops) == 1, name
