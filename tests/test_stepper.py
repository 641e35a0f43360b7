"""The token stepper's Python side: what it keeps and what it refuses."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import torch

from kvbook.explorer.stepper import MAX_TOKENS, TokenStepper

GIVEN = {
    "tokens": ["The", " cat", "\n", " <b>", " cat", "", "."],
    "prompt_len": 3,
    "without_cache": [3, 4, 5, 6],
    "with_cache": [3, 1, 1, 1],
    "bytes_per_token": 720,
}


def make(**changes: Any) -> TokenStepper:
    return TokenStepper(**{**GIVEN, **changes})


def test_it_keeps_the_record_as_given() -> None:
    stepper = make(step=2)
    assert {name: getattr(stepper, name) for name in GIVEN} == GIVEN
    assert (stepper.step, stepper.start) == (2, 2)
    assert (make().step, make().start) == (1, 1)
    assert repr(stepper) == "TokenStepper(3 + 4 tokens)"


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    counts = {
        "without_cache": np.array([3, 4, 5, 6]),
        "with_cache": torch.tensor([3, 1, 1, 1]),
        "bytes_per_token": np.int64(720),
        "prompt_len": torch.tensor(3),
    }
    state = make(**counts).get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-stepper" in state["_css"]
    plain = {key: value for key, value in state.items() if key != "layout"}
    assert {name: json.loads(json.dumps(plain))[name] for name in GIVEN} == GIVEN


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens": "The cat"}, "tokens must be a list of strings"),
        ({"tokens": [1, 2, 3]}, "tokens must be a list of strings"),
        ({"tokens": ["a"]}, f"tokens has 1 strings; it must have 2 to {MAX_TOKENS}."),
        ({"tokens": ["a"] * 129}, "tokens has 129 strings; it must have 2 to 128."),
        ({"prompt_len": 0}, "prompt_len is 0; it must be 1 to 6."),
        ({"prompt_len": 7}, "prompt_len is 7; it must be 1 to 6."),
        ({"prompt_len": 2.0}, "prompt_len is 2.0; it must be 1 to 6."),
        ({"prompt_len": 4}, "without_cache has 4 counts, but 3 tokens were generated"),
        ({"step": 0}, "step is 0; it must be 1 to 4."),
        ({"step": 5}, "step is 5; it must be 1 to 4."),
        ({"bytes_per_token": 0}, "bytes_per_token is 0; it must be a whole number from 1 up."),
        ({"bytes_per_token": 1.5}, "bytes_per_token is 1.5"),
        ({"without_cache": [3, 4, 5]}, "without_cache has 3 counts, but 4 tokens were generated"),
        ({"with_cache": [3, 1, 1, 1, 1]}, "with_cache has 5 counts"),
        ({"with_cache": [3, 1, -1, 3]}, "with_cache at step 3 is -1; it must be a whole number"),
        ({"without_cache": [3, 4, 5.5, 6]}, "without_cache at step 3 is 5.5"),
        (
            {"without_cache": [3, 4, 1, 6]},
            "without_cache has 1 at step 3, but the text has 5 tokens then.",
        ),
        (
            {"with_cache": [3, 1, 2, 0]},
            "with_cache sums to 6 after step 3, but the text has 5 tokens then.",
        ),
        ({"with_cache": [2, 1, 1, 1]}, "with_cache sums to 2 after step 1, but the text has 3"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(**changes)
