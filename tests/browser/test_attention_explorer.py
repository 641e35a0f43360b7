"""The attention explorer on a static page, as the book publishes it: no kernel, no other host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect
from static_page import luminance, page_of

from kvbook.explorer.attention import AttentionExplorer

pytestmark = pytest.mark.browser

TOKENS = [*"The cat sat on the mat because it was".replace(" ", "| ").split("|"), " tired", "\n"]
N_LAYERS, N_HEADS, N = 4, 3, len(TOKENS)
PRESETS = [{"label": "Far back", "layer": 2, "head": 2, "query": 6}, {"label": "Head 1", "head": 1}]


def causal(seed: int) -> np.ndarray:
    w = np.tril(np.exp(2 * np.random.RandomState(seed).randn(N_LAYERS, N_HEADS, N, N)))
    return w / w.sum(-1, keepdims=True)


WEIGHTS = causal(0)


def explorer(**options: Any) -> AttentionExplorer:
    return AttentionExplorer(WEIGHTS, TOKENS, presets=PRESETS, **options)


@pytest.fixture
def page(publish: Callable[[str], str], open_page: Callable[..., Page]) -> Page:
    page = open_page(publish(page_of(explorer())))
    page.get_by_text("The same as tables").click()
    return page


def percent(share: float) -> str:
    value = 100 * round(255 * share) / 255
    return "<1 %" if value < 1 else f"{int(value + 0.5)} %"


def assert_shows(root: Page | Locator, layer: int, head: int, query: int) -> None:
    """Headline, strip, map, sliders and tables all show this place of WEIGHTS."""
    shares = WEIGHTS[layer, head]
    expect(root.locator(".kv-headline")).to_contain_text(f"Layer {layer}, head {head}: “")
    texts = [percent(share) for share in shares[query, : query + 1]]
    expect(root.locator(".kv-share")).to_have_text(texts + ["later"] * (N - 1 - query))
    expect(root.locator("[aria-pressed=true] .kv-token")).to_have_text(
        re.sub(r"^ ", "·", TOKENS[query]).replace("\n", "⏎")
    )
    values = [root.get_by_label(name, exact=True) for name in ("Layer", "Head", "Query token")]
    for control, value in zip(values, (layer, head, query), strict=True):
        expect(control).to_have_value(str(value))
    expect(root.locator(".kv-map")).to_have_attribute(
        "aria-label", re.compile(f"layer {layer}, head {head};")
    )
    opacities = root.locator(".kv-cell").evaluate_all("all => all.map(c => c.style.fillOpacity)")
    codes = np.rint(255 * shares[np.tril_indices(N)])
    assert np.allclose([float(o) for o in opacities], np.sqrt(codes / 255), atol=1e-3)
    outline = root.locator(".kv-outline")
    y = root.locator(".kv-hit").nth(query).get_attribute("y")
    expect(outline).to_have_attribute("y", y or "")
    one, every = root.locator("table").all()
    expect(one.locator("td:nth-child(2)")).to_have_text(texts)
    expect(every.locator(f"tbody tr:nth-child({query + 1}) td")).to_have_text(
        texts + ["–"] * (N - 1 - query)
    )


def test_it_starts_at_the_last_token_and_says_one_thing(page: Page) -> None:
    assert_shows(page, 0, 0, N - 1)
    key = int(WEIGHTS[0, 0, -1].argmax())
    share = WEIGHTS[0, 0, -1, key]
    to = "itself" if key == N - 1 else f"“{TOKENS[key].strip()}”"
    expect(page.locator(".kv-headline")).to_have_text(
        f"Layer 0, head 0: “⏎” gives {percent(share)} of its attention to {to}, "
        f"{round(255 * share) / 255 * N:.1f} times an even share."
    )
    expect(page.locator(".kv-formula")).to_contain_text(f"over {N} visible keys, √64 = 8")
    expect(page.locator(".kv-formula")).to_contain_text(f"even share: 1/{N} = 9 %")


def test_each_slider_by_keyboard(page: Page) -> None:
    page.get_by_label("Layer", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert_shows(page, 1, 0, N - 1)
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert_shows(page, 1, 2, N - 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    assert_shows(page, 1, 2, N - 3)
    page.keyboard.press("Home")
    assert_shows(page, 1, 2, 0)
    expect(page.locator(".kv-headline")).to_contain_text("“The” comes first")


def test_each_slider_by_mouse(page: Page) -> None:
    for name, part in (("Layer", 0.99), ("Head", 0.5), ("Query token", 0.5)):
        slider = page.get_by_label(name, exact=True)
        box = slider.bounding_box()
        assert box
        slider.click(position={"x": part * box["width"], "y": box["height"] / 2})
    assert_shows(page, 3, 1, N // 2)


def test_presets_and_reset(page: Page) -> None:
    far, head = (page.get_by_role("button", name=name) for name in ("Far back", "Head 1"))
    expect(far).to_have_attribute("aria-pressed", "false")
    far.click()
    assert_shows(page, 2, 2, 6)
    expect(far).to_have_attribute("aria-pressed", "true")
    head.focus()
    page.keyboard.press("Enter")
    assert_shows(page, 2, 1, 6)
    expect(far).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="Reset").click()
    assert_shows(page, 0, 0, N - 1)


def test_a_token_a_row_and_a_cell_select_the_query(page: Page) -> None:
    page.locator(".kv-strip button").nth(3).click()
    assert_shows(page, 0, 0, 3)
    page.locator(".kv-hit").nth(7).click(position={"x": 20, "y": 10})  # the row's name
    assert_shows(page, 0, 0, 7)
    page.locator(".kv-cell").nth(0).click()
    assert_shows(page, 0, 0, 0)


def test_no_control_that_does_nothing(page: Page) -> None:
    expect(page.locator(".kv-cell").first).to_be_visible()
    page.wait_for_timeout(1200)  # past the second hello
    expect(page.get_by_role("textbox")).to_have_count(0)


def test_two_explorers_are_independent_and_two_views_of_one_are_not(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    page = open_page(publish(page_of(explorer(), explorer(head=1), views=2)))
    page.get_by_label("Layer", exact=True).nth(2).fill("3")
    headlines = page.locator(".kv-headline")
    for i, start in enumerate(["Layer 0, head 0", "Layer 0, head 0", "Layer 3, head 1"]):
        expect(headlines.nth(i)).to_contain_text(start)
    expect(headlines.nth(3)).to_contain_text("Layer 3, head 1")
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    assert len(ids) == len(set(ids))
    expect(page.locator("style")).to_have_count(1)


def test_the_view_stands_where_the_output_stood(page: Page) -> None:
    expect(page.locator("section > script + div > .kvbook-explorer")).to_have_count(1)


def test_markup_in_tokens_and_labels_stays_text(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    evil = "<img src=x onerror=alert(1)></script><b>"
    tokens = [*TOKENS[:-1], evil]
    widget = AttentionExplorer(WEIGHTS, tokens, presets=[{"label": evil, "layer": 1}])
    page = open_page(publish(page_of(widget)))
    page.get_by_text("The same as tables").click()
    expect(page.locator(".kv-headline")).to_contain_text("“<img·src=x·onerror=alert(1)>")
    expect(page.get_by_role("button", name=evil, exact=True)).to_be_visible()
    expect(page.locator(".kvbook-explorer :is(img, script)")).to_have_count(0)


@pytest.mark.parametrize("publish", ["http"], indirect=True)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_nothing_scrolls_sideways_and_fingers_hit(
    publish: Callable[[str], str], open_page: Callable[..., Page], width: int, dark: bool
) -> None:
    tokens = [*(f" extraordinarily{i}" for i in range(31)), " " + 60 * "x"]
    w = np.tril(np.ones((1, 1, 32, 32)))
    widget = AttentionExplorer(w / w.sum(-1, keepdims=True), tokens, presets=PRESETS[1:1])
    page = open_page(publish(page_of(explorer(), widget)), width=width, height=844, dark=dark)
    page.get_by_text("The same as tables").first.click()
    page.get_by_text("The same as tables").last.click()
    expect(page.locator(".kv-map")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    targets = page.locator(".kvbook-explorer :is(button, input, summary)")
    size = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
    assert np.min(targets.evaluate_all(size)) >= 44
    assert np.min(page.locator(".kv-hit").evaluate_all(size)) >= 24


@pytest.mark.parametrize("publish", ["http"], indirect=True)
@pytest.mark.parametrize("theme", ["none", "data-theme", "jupyterlab"])
@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_follow_the_page_and_else_the_system(
    publish: Callable[[str], str], open_page: Callable[..., Page], theme: str, dark: bool
) -> None:
    # Where the page names a theme, the system says the opposite, and the page must win.
    page = open_page(publish(page_of(explorer())), dark=dark if theme == "none" else not dark)
    if theme == "data-theme":
        page.evaluate(
            "theme => (document.documentElement.dataset.theme = theme)", dark * "dark" or "light"
        )
    elif theme == "jupyterlab":
        page.evaluate(
            "light => (document.body.dataset.jpThemeLight = light)", str(not dark).lower()
        )
    ground = page.locator(".kvbook-explorer").evaluate("e => getComputedStyle(e).backgroundColor")
    assert (luminance(ground) < 0.1) is dark
    for part in (".kv-headline", ".kv-legend", ".kv-value", "label", ".kv-button", ".kv-token"):
        colour = page.locator(part).first.evaluate("e => getComputedStyle(e).color")
        low, high = sorted([luminance(colour), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, part


def test_keys_stay_inside(page: Page) -> None:
    page.evaluate("document.addEventListener('keydown', () => (document.title = 'heard'))")
    page.get_by_label("Head", exact=True).press("ArrowRight")
    assert page.title() == "A page"


def test_an_explorer_that_fails_says_so_and_the_others_show(
    publish: Callable[[str], str], open_page: Callable[..., Page]
) -> None:
    page = open_page(publish(page_of(explorer(), broken=True)))
    expect(page.get_by_text("This interactive figure could not be shown")).to_be_visible()
