"""The window explorer's Python side, and that its page keeps the rows that Python keeps."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbook.accounting import ConfigError, cache_spec, facts, what_if
from kvbook.accounting.ring import kept, ring, slot_of
from kvbook.explorer.window import WindowExplorer

ROOT = Path(__file__).parent.parent
TOKENS = [f" word{i}" for i in range(48)]
POINT = {
    **{"window": 64, "sinks": 4, "nbytes": 3_133_440},
    **{"perplexity": 33.1, "change": 0.26, "error": 0.03},
}

ASK = """
import { readFileSync } from "node:fs";
import { figures, record } from "./kvbook/explorer/src/window/figures.js";
import { fromTraits } from "./kvbook/explorer/src/window/state.js";
const answers = JSON.parse(readFileSync(0, "utf8")).map((traits) => {
  const get = (name) => traits[name];
  const { kept, slots, bytes } = figures(fromTraits(get), record(get));
  return [kept, slots, bytes];
});
console.log(JSON.stringify(answers));
"""


def ask(code: str, given: Any = None) -> Any:
    """What a piece of the page's JavaScript answers."""
    node = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "--eval", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return json.loads(node.stdout)


def test_it_starts_where_the_lesson_s_point_is() -> None:
    explorer = WindowExplorer(TOKENS)
    assert repr(explorer) == "WindowExplorer(48 tokens, 0 measured)"
    assert explorer.kept == [0, 1, 2, 3, *range(40, 48)]
    assert explorer.nbytes == 12 * 46_080
    assert explorer.slots == [0, 1, 2, 3, 44, 45, 46, 47, 40, 41, 42, 43]
    explorer.sinks, explorer.position = 0, 3  # as the page sets them
    assert explorer.kept == [0, 1, 2, 3]
    assert explorer.slots == [0, 1, 2, 3, None, None, None, None]


def test_the_ring_keeps_what_a_mask_lets_be_seen() -> None:
    for window, sinks in [(1, 0), (2, 0), (7, 0), (8, 4), (5, 1), (64, 4)]:
        slots: list[int | None] = [None] * (window + sinks)
        for position in range(40):
            slots[slot_of(position, window, sinks)] = position
            mask = [k for k in range(position + 1) if k < sinks or k > position - window]
            assert kept(position + 1, window, sinks) == mask
            assert ring(position + 1, window, sinks) == slots


def test_what_is_kept_is_what_the_accounting_counts() -> None:
    spec = cache_spec(facts.model("smollm2-135m").config)
    for window, sinks in [(64, 0), (64, 4), (2048, 8)]:
        changed = what_if(spec, window=window, sinks=sinks)
        for tokens in (1, 63, 64, 65, 68, 69, 1024, 4096):
            rows = len(kept(tokens, window, sinks))
            assert changed.nbytes(tokens, cache_dtype="float32") == rows * 46_080


@pytest.mark.parametrize("arguments", [(-1, 8, 0), (5, 0, 0), (5, 8, -1), (5.0, 8, 0)])
def test_a_ring_refuses_what_is_no_count(arguments: tuple[int, int, int]) -> None:
    for ask_it in (ring, kept, slot_of):
        with pytest.raises(ConfigError, match="must be a whole number"):
            ask_it(*arguments)


def test_the_page_s_rows_are_python_s() -> None:
    rng = random.Random(9)
    explorers = [
        WindowExplorer(
            TOKENS[: rng.randint(2, 48)],
            window=rng.choice([1, 2, 3, 8, 16, 47, 48, 64]),
            sinks=rng.choice([0, 0, 1, 4, 64]),
            bytes_per_token=rng.randint(1, 10**6),
        )
        for _ in range(200)
    ]
    for one in explorers:
        one.position = rng.randrange(128)  # beyond the text, too: it may have become shorter
    assert any(one.position >= len(one.tokens) for one in explorers)
    names = [*explorers[0].start, "tokens", "bytes_per_token", "baseline", "measured"]
    states = [{name: getattr(one, name) for name in names} for one in explorers]
    assert ask(ASK, states) == [[one.kept, one.slots, one.nbytes] for one in explorers]


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    measured = [{**POINT, "window": np.int64(128)}, {**POINT, "change": np.float64(0.25)}]
    explorer = WindowExplorer(TOKENS, measured, np.float64(26.3), np.int64(64), 0, 5)
    state = explorer.get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-window" in state["_css"]
    plain = json.loads(json.dumps({key: v for key, v in state.items() if key != "layout"}))
    assert plain["start"] == {"window": 64, "sinks": 0, "position": 5}
    assert [row["window"] for row in plain["measured"]] == [64, 128]
    assert plain["measured"][0] == {**POINT, "change": 0.25}
    names = {"tokens", "measured", "baseline", "bytes_per_token", "measured_tokens", "link"}
    assert set(explorer.start) | names | {"start"} == {
        name for name in explorer.trait_names(sync=True) if not name.startswith("_")
    } - {"layout", "tabbable", "tooltip", "comm"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens": "abc"}, "tokens must be a list of strings, as the tokenizer cuts the text."),
        ({"tokens": [1, 2]}, "tokens must be a list of strings"),
        ({"tokens": ["a"]}, "tokens has 1 strings; it must have 2 to 128."),
        ({"tokens": ["a"] * 129}, "tokens has 129 strings; it must have 2 to 128."),
        ({"window": 0}, "window is 0; it must be a whole number from 1 to 4096."),
        ({"sinks": -1}, "sinks is -1; it must be a whole number from 0 to 64."),
        ({"position": 48}, "position is 48; it must be a whole number from 0 to 47."),
        ({"bytes_per_token": 0}, "bytes_per_token is 0; it must be a whole number from 1"),
        ({"measured": [POINT]}, "baseline is missing; measured needs it to be compared with."),
        ({"baseline": 0.5}, "baseline is 0.5; it must be a number from 1 to"),
        ({"measured": [POINT] * 65}, "measured has 65 rows; 64 are the most."),
        ({"measured": [POINT] * 2}, "measured has window 64 with 4 sinks twice."),
        ({"measured": [{**POINT, "error": -1}]}, "error is -1; it must be a number from 0 to"),
        ({"measured": None}, "measured must be a list of dicts, one for each pair"),
        ({"measured": [1]}, "measured must be a list of dicts"),
        ({"measured": (point for point in [POINT])}, "measured must be a list of dicts"),
        ({"measured": POINT}, "measured must be a list of dicts"),
        ({"tokens": None}, "tokens must be a list of strings"),
        ({"tokens": (token for token in TOKENS)}, "tokens must be a list of strings"),
        (
            {"measured": [POINT], "baseline": 30},
            "perplexity is 33.1 for window 64 with 4 sinks; baseline 30.0 and its change give 37.8.",
        ),
        ({"measured": [{**POINT, "change": -0.26}], "baseline": 26.3}, "its change give 19.46."),
        ({"measured": [{"window": 4, "sinks": 0}]}, "nbytes is None; it must be a whole number"),
    ],
)
def test_what_is_out_of_range_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        WindowExplorer(**{"tokens": TOKENS, **changes})
    assert "\n" not in str(told.value)
