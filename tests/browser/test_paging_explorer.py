"""The paging explorer on a static page, as the book publishes it: no kernel, no other host."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from static_page import luminance, page_of

from kvbook.explorer.capacity import CapacityExplorer
from kvbook.explorer.paging import Event, PagingExplorer

pytestmark = pytest.mark.browser

ONLY_HTTP = pytest.mark.parametrize("publish", ["http"], indirect=True)
EVIL = "<img src=x>"
SYSTEM = list(range(8))
EVENTS: list[Event] = [
    ("arrive", "A", [*SYSTEM, 20, 21]),
    ("grow", "A", [22, 23, 24]),
    ("arrive", "B", [*SYSTEM, 30, 31, 32]),
    ("fork", "A", "C"),
    ("grow", "C", [40, 41]),
    ("finish", "A", None),
    ("arrive", EVIL, list(range(50, 63))),
    ("arrive", "E", list(range(70, 75))),
    ("finish", "B", None),
    ("finish", "C", None),
    ("arrive", "E", list(range(70, 83))),
]
START = (
    "Blocks hold 1.11 MB; longest lengths would hold 2.76 MB. Waste: 21 % of the blocks’ room,"
    " 35 % of the longest lengths’, 0 % of the requests’ own final lengths’. Event 5 of 11."
    " C grows by 2 tokens. Block 3 has another owner, so it is copied to block 5."
)


def explorer(step: int = 5) -> PagingExplorer:
    return PagingExplorer(EVENTS, num_blocks=10, block_size=4, max_len=20, step=step)


@pytest.fixture
def url(publish: Callable[[str], str]) -> str:
    return publish(page_of(explorer()))


@pytest.fixture
def page(url: str, open_page: Callable[..., Page]) -> Page:
    return open_page(url)


def press(root: Page | Locator, name: str) -> Locator:
    return root.get_by_role("button", name=name, exact=True)


def blocks(page: Page) -> list[str]:
    """Of each block its number and marks, as they are read, and what it is by its class."""
    return page.locator(".kv-pool > .kv-block").evaluate_all(
        "all => all.map(e => e.innerText.trim().replaceAll('\\u00a0', ' ') + ' '"
        " + e.className.match(/kv-(held|shared|kept|free)/)[1])"
    )


def test_a_figure_stands_below_its_name_in_jupyterlab_too(page: Page) -> None:
    page.add_style_tag(  # JupyterLab's rules for lists in outputs
        content="main dl, main dt, main dd { display: block } main dl { overflow: hidden }"
        " main dt { float: left; width: 20% } main dd { float: left; width: 80% }"
    )
    facts = page.locator(".kv-fact").evaluate_all(
        "all => all.map(e => ['dt', 'dd'].map(s => e.querySelector(s).getBoundingClientRect().toJSON()))"
    )
    assert len(facts) == 6
    assert all(
        name["bottom"] <= value["top"] and name["left"] == value["left"] for name, value in facts
    )


def test_it_starts_where_the_lesson_s_point_is(page: Page) -> None:
    expect(page.locator(".kv-headline")).to_have_text(START)
    expect(page.locator(".kv-pool-figure .kv-chart-title")).to_have_text(
        "6 of 10 blocks in use, 3 shared."
    )
    assert blocks(page) == [
        *("0 ×3 shared", "1 ×3 shared", "2 ×2 shared", "3 held", "4 held", "5 ←3 held"),
        *("6 free", "7 free", "8 free", "9 free"),
    ]
    expect(page.locator(".kv-formula p").first).to_have_text(
        "paged: 6 blocks × 4 tokens × 46,080 B = 1.106 MB"
    )
    expect(press(page, "Reset")).to_be_disabled()
    assert page.evaluate("location.hash") == ""


def test_step_by_step_blocks_light_up(page: Page) -> None:
    press(page, "Next").click()
    assert blocks(page)[3] == "3 − free"
    press(page, "Next").click()
    expect(page.locator(".kv-headline")).to_contain_text(f"{EVIL} arrives with 13 tokens")
    assert [text for text in blocks(page) if "+" in text] == [
        *("3 + held", "6 + held", "7 + held", "8 + held")
    ]
    expect(page.locator(".kv-pool .kv-lit")).to_have_count(4)
    slider = page.get_by_role("slider", name="Event")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".kv-headline")).to_contain_text(
        "E waits: 2 blocks are needed; 1 are free."
    )
    expect(page.locator(".kv-pool .kv-lit")).to_have_count(0)
    page.keyboard.press("End")
    expect(page.locator(".kv-headline")).to_contain_text("loses what it kept")
    assert sum("!" in text for text in blocks(page)) >= 1
    expect(press(page, "Next")).to_be_disabled()
    expect(page.locator(".kvbook-explorer :is(img, script)")).to_have_count(0)
    page.keyboard.press("Home")
    expect(page.locator(".kv-headline strong")).to_have_text("No request is live: nothing is held.")
    expect(press(page, "Previous")).to_be_disabled()
    press(page, "Reset").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".kv-headline")).to_have_text(START)


@ONLY_HTTP
def test_it_plays_to_the_end_and_stops_by_hand(page: Page) -> None:
    page.clock.install()
    press(page, "Play").click()
    expect(press(page, "Pause")).to_be_visible()
    page.clock.run_for(1900)
    expect(page.get_by_text("7 of 11", exact=True)).to_be_visible()
    press(page, "Pause").click()
    page.clock.run_for(5000)
    expect(page.get_by_text("7 of 11", exact=True)).to_be_visible()
    press(page, "Play").click()
    page.clock.run_for(9000)
    expect(page.get_by_text("11 of 11", exact=True)).to_be_visible()
    expect(press(page, "Play")).to_be_visible()


@ONLY_HTTP
def test_bars_and_blocks_are_as_full_as_they_say(page: Page) -> None:
    page.wait_for_timeout(200)
    widths = "all => all.map(e => e.getBoundingClientRect().width)"
    tracks = page.locator(".kv-way-track")
    full = tracks.first.evaluate("e => e.getBoundingClientRect().width")
    fills = [tracks.nth(i).locator(".kv-fill:visible").evaluate_all(widths) for i in range(3)]
    assert np.allclose([sum(bar) / full for bar in fills], [60 / 60, 39 / 60, 24 / 60], atol=0.01)
    assert np.allclose(np.array(fills[2]) / full, [7 / 60, 12 / 60, 5 / 60], atol=0.01)
    boxes = page.locator(".kv-pool .kv-box").evaluate_all("all => all.map(e => e.clientWidth - 4)")
    rows = page.locator(".kv-pool .kv-rows").evaluate_all(widths)
    parts = np.array(rows) / np.array(boxes)
    assert np.allclose(parts, [1, 1, 1, 1 / 4, 3 / 4, 3 / 4, 0, 0, 0, 0], atol=0.06)
    label = page.locator(".kv-ways").get_attribute("aria-label") or ""
    assert label.startswith("Longest length: 2.765\xa0MB, 35\xa0% waste. Final length: 1.797")


def test_settings_presets_and_requests(page: Page) -> None:
    page.get_by_label("Sharing", exact=True).select_option("off")
    expect(page.locator(".kv-pool-figure .kv-chart-title")).to_contain_text("none shared")
    expect(page.locator(".kv-facts")).to_contain_text("start: 6 of 10")
    press(page, "Reset").click()
    press(page, "Blocks of B").first.click()
    expect(page.locator(".kv-picked")).to_have_count(3)
    page.get_by_label("Block size", exact=True).select_option("1")
    expect(page.locator(".kv-headline")).to_contain_text("Waste: 0 % of the blocks’ room")
    expect(page.locator(".kv-pool > .kv-block")).to_have_count(40)
    pool = page.get_by_label("Pool", exact=True)
    pool.fill("24")
    expect(page.locator(".kv-pool > .kv-block")).to_have_count(24)
    pool.fill("0")
    expect(page.get_by_text("A whole number from 1 to 4,096.")).to_be_visible()
    expect(page.locator(".kv-pool > .kv-block")).to_have_count(24)
    press(page, "Twelve chats").click()
    expect(page.locator(".kv-pool > .kv-block")).to_have_count(48)
    expect(page.locator(".kv-headline")).to_contain_text("of 77.")
    box = page.locator("svg.kv-chart").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] - 14, box["y"] + 80)
    expect(page.locator(".kv-headline")).to_contain_text("Event 77 of 77.")


@ONLY_HTTP
def test_every_preset_does_what_it_says(page: Page) -> None:
    for name in page.locator(".kv-hands .kv-buttons button").all_inner_texts()[:-1]:
        press(page, name).click()
        expect(press(page, name)).to_have_attribute("aria-pressed", "true")
        text = page.locator(".kvbook-explorer").inner_text()
        assert not re.search("NaN|undefined|Infinity", text), name


def test_the_address_holds_the_state_and_brings_it_back(
    page: Page, url: str, open_page: Callable[..., Page]
) -> None:
    page.get_by_role("slider", name="Event").press("ArrowRight")
    page.get_by_label("Block size", exact=True).select_option("8")
    page.wait_for_function("location.hash.includes('block=8')")
    assert page.evaluate("location.hash") == "#paging:step=6&block=8"
    again = open_page(url + "#paging:step=6&block=8")
    expect(again.locator(".kv-headline")).to_contain_text("Event 6 of 11.")
    expect(again.locator(".kv-pool > .kv-block")).to_have_count(5)
    press(again, "Reset").click()
    again.wait_for_function("location.hash === ''")


@ONLY_HTTP
@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        ("step=-1", "“step=-1”, which is not understood"),
        ("block=3", "“block=3”, which is not understood"),
        ("timeline=9", "timeline is 9; there are 2."),
        ("colour=red", "“colour”, which is no setting"),
    ],
)
def test_an_address_that_is_not_understood_is_ignored_with_a_message(
    url: str, open_page: Callable[..., Page], tail: str, sentence: str
) -> None:
    page = open_page(f"{url}#paging:{tail}")
    expect(page.locator(".kv-message")).to_contain_text(sentence)
    expect(page.locator(".kv-headline")).to_have_text(START)


@ONLY_HTTP
def test_beside_another_explorer_styles_and_addresses_do_not_meet(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    page = open_page(publish(page_of(explorer(), CapacityExplorer())) + "#kv:context=8192")
    paging, capacity = page.locator(".kvbook-explorer").all()
    expect(paging.locator(".kv-headline")).to_have_text(START)
    expect(capacity.locator(".kv-headline")).to_contain_text("15 users fit")
    press(paging, "Next").click()
    page.wait_for_timeout(500)
    assert page.evaluate("location.hash") == "#kv:context=8192"


@ONLY_HTTP
def test_the_tables_say_the_same_as_the_picture(page: Page) -> None:
    page.locator("summary").click()

    def row(caption: str, name: str) -> list[str]:
        table = page.locator("table", has_text=caption)
        cells = table.locator("tr", has=page.locator(f"th:text-is('{name}')")).locator("td")
        return [text.replace("\xa0", " ") for text in cells.all_text_contents()]

    assert row("three ways to reserve", "Paged") == ["1.106 MB", "875.5 kB", "230.4 kB", "21 %"]
    assert row("Live requests", "C") == ["15", "0", "0, 1, 2, 5"]
    assert row("The pool", "5") == ["held by one", "1", "3", "copied"]
    assert row("All events", "8")[-1] == "E waits: 2 blocks are needed; 1 are free."
    assert row("All settings", "sharing") == ["true"]
    page.emulate_media(media="print")
    for part in (".kv-main", ".kv-steer"):
        expect(page.locator(part)).to_be_hidden()
    expect(page.locator(".kv-pool")).to_be_visible()


@ONLY_HTTP
@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True)])
def test_on_a_phone_nothing_scrolls_sideways_and_fingers_hit(
    url: str, open_page: Callable[..., Page], width: int, dark: bool
) -> None:
    page = open_page(url, width=width, height=844, dark=dark)
    page.locator("summary").click()
    for name in ("Twelve chats", "Blocks of 1 token", "This lesson’s"):
        press(page, name).click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
    targets = page.locator(".kvbook-explorer :is(button, input, select, summary):visible")
    size = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    assert np.min(targets.evaluate_all(size)) >= 44


@ONLY_HTTP
@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_marks_are_seen_in_light_dark_and_print(
    publish: Callable[[str], str], open_page: Callable[..., Page], dark: bool
) -> None:
    page = open_page(publish(page_of(explorer(10))), dark=dark)
    page.locator("summary").click()
    root = page.locator(".kvbook-explorer")

    def contrast(part: str, style: str) -> float:
        colour = page.locator(part).first.evaluate(f"e => getComputedStyle(e).{style}")
        ground = root.evaluate("e => getComputedStyle(e).backgroundColor")
        low, high = sorted([luminance(colour), luminance(ground)])
        return (high + 0.05) / (low + 0.05)

    texts = [".kv-headline strong", ".kv-legend", ".kv-field label", ".kv-facts dt", "td"]
    assert (luminance(root.evaluate("e => getComputedStyle(e).backgroundColor")) < 0.1) is dark
    for part in [*texts, ".kv-formula p", ".kv-way-value", ".kv-block-name", ".kv-requests li"]:
        assert contrast(part, "color") >= 4.5, part
    for part in (".kv-held .kv-rows", ".kv-fill-rows", ".kv-swatch.kv-fill-shared"):
        assert contrast(part, "backgroundColor") >= 3, part
    for part in (".kv-free .kv-box", ".kv-kept .kv-box"):
        assert contrast(part, "borderTopColor") >= 3, part
    for part in (".kv-course-paged", ".kv-course-exact", ".kv-here"):
        assert contrast(part, "stroke") >= 3, part
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
def test_nothing_moves_under_a_finger_that_steps(
    publish: Callable[[str], str], open_page: Callable[..., Page], width: int
) -> None:
    page = open_page(publish(page_of(PagingExplorer(step=0))), width=width)
    slider = page.get_by_role("slider", name="Event")
    tops = set()
    for _ in range(77):
        slider.press("ArrowRight")
        top = slider.evaluate("e => e.getBoundingClientRect().top + window.scrollY")
        tops.add(round(top))
    expect(page.get_by_text("77 of 77", exact=True)).to_be_visible()
    assert len(tops) == 1
