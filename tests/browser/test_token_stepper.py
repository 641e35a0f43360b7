"""The token stepper on a static page, as the book publishes it: no kernel, no other host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from static_page import luminance, page_of

from kvbook.explorer.attention import AttentionExplorer
from kvbook.explorer.stepper import TokenStepper

pytestmark = pytest.mark.browser

PROMPT, STEPS = 5, 64
N = PROMPT + STEPS
EVIL = "<img src=x onerror=alert(1)></script>"
TOKENS = ["A", " cache", "\n", EVIL, *(f" word{i}" for i in range(4, N))]
WITHOUT = list(range(PROMPT, N))
WITH = [PROMPT] + [1] * (STEPS - 1)
BYTES = 46_080


def stepper(**options: Any) -> TokenStepper:
    return TokenStepper(TOKENS, PROMPT, WITHOUT, WITH, BYTES, **{"step": 12, **options})


@pytest.fixture
def page(publish: Callable[[str], str], open_page: Callable[..., Page]) -> Page:
    page = open_page(publish(page_of(stepper())))
    page.get_by_text("The same as tables").click()
    return page


def slider(root: Page | Locator) -> Locator:
    return root.get_by_label("Step", exact=True).and_(root.get_by_role("slider"))


def press(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def states(lane: Locator) -> list[str]:
    return lane.locator("> span").evaluate_all("all => all.map(e => e.className.slice(3))")


def assert_shows(root: Page | Locator, step: int) -> None:
    """Headline, text, lanes, meters, slider and tables all show this step."""
    held = PROMPT + step - 1
    headline = (
        f"Step {step}: without a cache {held} tokens are processed, {held - 1} of them again; "
    )
    if step == 1:
        headline = (
            "Step 1, the prefill: with a cache or without, 5 tokens are processed, none again."
        )
    expect(root.locator(".kv-headline")).to_have_text(headline + "with a cache 1." * (step > 1))
    expect(slider(root)).to_have_value(str(step))
    expect(slider(root)).to_have_attribute("aria-valuetext", f"{step} of {STEPS}")

    later = ["later"] * (N - held)
    without, cached, mask = root.locator(".kv-lane .kv-columns").all()
    new = WITH[step - 1]
    assert states(without) == ["computed"] * held + later
    assert states(cached) == ["read"] * (held - new) + ["computed"] * new + later
    assert states(mask) == ["seen"] * held + later
    expect(cached).to_have_attribute(
        "aria-label",
        f"K and V rows with a cache: {new} computed, {held - new} read from the cache, "
        f"{N - held} not there yet.",
    )
    words = root.locator(".kv-said bdi")
    marks = words.evaluate_all("all => all.map(e => e.className)")
    assert marks == [""] * (held - new) + ["kv-fed"] * new + ["kv-next"] + ["kv-unsaid"] * (
        N - held - 1
    )
    total, size = sum(WITHOUT[:step]), held * BYTES
    text = f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.2f} MB"
    expect(root.locator(".kv-meter-value")).to_have_text(
        [f"{total:,}", str(held), f"{text} of 3.13 MB"]
    )
    parts = root.locator(".kv-fill").evaluate_all(
        "all => all.map(e => Number(e.style.getPropertyValue('--kv-part')))"
    )
    assert np.allclose(parts, [total / 2336, held / 2336, held / 68])
    expect(root.locator(".kv-formula")).to_contain_text(f"{held} tokens × 46,080 B = {text}")

    one, every = root.locator("table").all()
    rest = [str(held), str(N - held)]
    expect(one.locator("td")).to_have_text(
        [str(held), "0", *rest, str(new), str(held - new), *rest]
    )
    row = every.locator(f"tbody tr:nth-child({step}) td:nth-child(n + 3)")
    expect(row).to_have_text([str(held), f"{total:,}", str(new), str(held), text])
    for name, can in (("Previous", step > 1), ("Next", step < STEPS)):
        button = root.get_by_role("button", name=name, exact=True)
        expect(button).to_be_enabled(enabled=can)


def test_it_starts_where_the_lesson_says(page: Page) -> None:
    assert_shows(page, 12)
    expect(press(page, "Reset")).to_be_disabled()
    page.wait_for_timeout(800)
    assert_shows(page, 12)  # it does not play by itself


def test_the_slider_by_keyboard_and_the_whole_work_at_the_end(page: Page) -> None:
    slider(page).focus()
    page.keyboard.press("ArrowRight")
    assert_shows(page, 13)
    page.keyboard.press("End")
    assert_shows(page, STEPS)
    expect(page.locator(".kv-meter-value").nth(0)).to_have_text("2,336")
    expect(page.locator(".kv-meter-value").nth(1)).to_have_text("68")
    page.keyboard.press("Home")
    assert_shows(page, 1)


def test_buttons_by_mouse_and_keyboard_keep_the_focus_at_the_ends(page: Page) -> None:
    press(page, "Next").click()
    assert_shows(page, 13)
    press(page, "Previous").click()
    press(page, "Previous").click()
    assert_shows(page, 11)
    press(page, "Reset").focus()
    page.keyboard.press("Enter")
    assert_shows(page, 12)
    slider(page).fill("63")
    press(page, "Next").focus()
    page.keyboard.press("Space")
    assert_shows(page, STEPS)
    expect(press(page, "Next")).to_be_focused()
    page.keyboard.press("Space")
    assert_shows(page, STEPS)


def test_play_runs_quietly_pauses_and_is_heard_where_it_stops(page: Page) -> None:
    headline = page.locator(".kv-headline")
    press(page, "Play").click()
    expect(headline).to_have_attribute("aria-live", "off")
    page.wait_for_function("document.querySelector('input[type=range]').value >= 14")
    press(page, "Pause").click()
    expect(headline).to_have_attribute("aria-live", "polite")
    step = int(slider(page).input_value())
    assert step >= 14
    page.wait_for_timeout(800)
    assert_shows(page, step)
    press(page, "Play").focus()
    page.keyboard.press("Space")
    press(page, "Next").click()  # a step by hand ends the playing
    expect(press(page, "Play")).to_be_visible()
    page.wait_for_timeout(500)
    assert_shows(page, step + 1)


def test_play_stops_at_the_end_and_starts_again_from_there(page: Page) -> None:
    slider(page).fill("63")
    press(page, "Play").click()
    expect(press(page, "Play")).to_be_visible(timeout=3000)
    assert_shows(page, STEPS)
    headline = page.locator(".kv-headline")
    expect(headline).to_have_attribute("aria-live", "polite")
    headline.evaluate(
        "e => { window.seen = []; new MutationObserver(() => seen.push([e.textContent.slice(0, 7),"
        " performance.now()])).observe(e, { childList: true, characterData: true }); }"
    )
    press(page, "Play").click()
    page.wait_for_function("seen.length >= 5")
    press(page, "Pause").click()
    seen = page.evaluate("seen.slice(0, 5)")
    assert [text for text, _ in seen] == ["Step 1,", *(f"Step {i}:" for i in range(2, 6))]
    assert 0.25 < (seen[4][1] - seen[0][1]) / 4000 < 0.7  # seconds a step, on a busy machine too


@pytest.mark.parametrize("publish", ["http"], indirect=True)
def test_reduced_motion_moves_without_transitions(page: Page) -> None:
    duration = "e => getComputedStyle(e).transitionDuration"
    fill = page.locator(".kv-fill").first
    assert fill.evaluate(duration) != "0s"
    page.emulate_media(reduced_motion="reduce")
    assert fill.evaluate(duration) == "0s"


def test_the_three_states_differ_in_form_as_well_as_colour(page: Page) -> None:
    def look(state: str) -> tuple[bool, bool, bool]:
        """Filled, outlined, small."""
        filled, border, width = page.locator(f".kv-lane .kv-rows .kv-{state}").first.evaluate(
            "e => { const s = getComputedStyle(e, '::before');"
            " return [s.backgroundColor, s.borderTopWidth, s.width]; }"
        )
        return filled != "rgba(0, 0, 0, 0)", border != "0px", float(width[:-2]) < 5

    assert look("computed") == (True, False, False)
    assert look("read") == (False, True, False)
    assert look("later") == (True, False, True)
    expect(page.locator(".kv-lanes > .kv-legend")).to_contain_text("computed in this step")


def test_two_views_of_one_move_together_and_styles_do_not_meet(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    weights = np.tril(np.ones((1, 1, 3, 3)))
    other = AttentionExplorer(weights / weights.sum(-1, keepdims=True), ["a", "b", "c"])
    box = "all => all.map(e => e.getBoundingClientRect().height)"
    heights = []
    for widgets in ([stepper()], [other], [stepper(), other], [other, stepper()]):
        page = open_page(publish(page_of(*widgets)))
        expect(page.locator(".kvbook-explorer .kv-formula > span").last).to_be_visible()
        heights.append(page.locator(".kvbook-explorer").evaluate_all(box))
    (alone,), (other_alone,), both, turned = heights
    assert both == [alone, other_alone]
    assert turned == [other_alone, alone]

    page = open_page(publish(page_of(stepper(), views=2)))
    press(page, "Next").first.click()
    for headline in page.locator(".kv-headline").all():
        expect(headline).to_contain_text("Step 13:")
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_markup_in_tokens_stays_text(page: Page) -> None:
    slider(page).fill("1")
    expect(page.locator(".kv-said bdi").nth(3)).to_contain_text("<img·src=x")
    expect(page.locator(".kvbook-explorer :is(img, script)")).to_have_count(0)


@pytest.mark.parametrize("publish", ["http"], indirect=True)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_nothing_scrolls_sideways_and_fingers_hit(
    publish: Callable[[str], str], open_page: Callable[..., Page], width: int, dark: bool
) -> None:
    tokens = [*(f" extraordinarily{i}" for i in range(127)), 60 * "x"]
    long = TokenStepper(tokens, 1, list(range(1, 128)), [1] * 127, 10**9, step=127)
    page = open_page(publish(page_of(stepper(), long)), width=width, height=844, dark=dark)
    for summary in page.get_by_text("The same as tables").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    targets = page.locator(".kvbook-explorer :is(button, input, summary)")
    size = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    assert np.min(targets.evaluate_all(size)) >= 44

    first = page.locator(".kvbook-explorer").first
    heights = set()
    for step in (1, 2, 12, 64):  # nothing jumps from step to step
        slider(first).fill(str(step))
        expect(first.locator(".kv-headline")).to_contain_text(f"Step {step}")
        heights.add(first.locator(".kv-lanes").evaluate("e => e.getBoundingClientRect().top"))
    assert len(heights) == 1


@pytest.mark.parametrize("publish", ["http"], indirect=True)
@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_marks_are_seen_in_light_dark_and_print(
    publish: Callable[[str], str], open_page: Callable[..., Page], dark: bool
) -> None:
    page = open_page(publish(page_of(stepper())), dark=dark)

    def contrast(selector: str, name: str, pseudo: str | None = None) -> float:
        read = "(e, [name, pseudo]) => getComputedStyle(e, pseudo)[name]"
        ground = page.locator(".kvbook-explorer").evaluate(read, ["backgroundColor", None])
        mark = page.locator(selector).first.evaluate(read, [name, pseudo])
        low, high = sorted([luminance(mark), luminance(ground)])
        return (high + 0.05) / (low + 0.05)

    def assert_seen() -> None:
        for part in (
            ".kv-headline",
            ".kv-lane-caption",
            ".kv-meter-value",
            ".kv-next",
            ".kv-legend",
        ):
            assert contrast(part, "color") >= 4.5, part
        assert contrast(".kv-fed", "backgroundColor") >= 4.5
        for state in ("computed", "seen", "later"):
            assert contrast(f".kv-{state}", "backgroundColor", "::before") >= 3, state
        assert contrast(".kv-read", "borderTopColor", "::before") >= 3
        for fill in (".kv-fill", ".kv-memory .kv-fill"):
            assert contrast(fill, "backgroundColor") >= 3

    assert_seen()
    page.emulate_media(media="print", color_scheme="dark" if dark else "light")
    ground = page.locator(".kvbook-explorer").evaluate("e => getComputedStyle(e).backgroundColor")
    assert luminance(ground) > 0.9
    expect(press(page, "Play")).to_be_hidden()
    assert_seen()


def test_keys_stay_inside(page: Page) -> None:
    page.evaluate("document.addEventListener('keydown', () => (document.title = 'heard'))")
    slider(page).press("ArrowRight")
    press(page, "Next").press("j")
    assert page.title() == "A page"
