"""A stepper through a generation: what each step computes without a cache, and what with one.

It plays what was counted on a model, so it needs no kernel. It does not know the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import Any

import anywidget
import traitlets

MAX_TOKENS = 128  # more columns would not fit the picture


class TokenStepper(anywidget.AnyWidget):
    """Step through a generation and see which K and V rows each step computes.

    tokens           strings, prompt and generated text, as the tokenizer cuts it
    prompt_len       how many of them are the prompt; each of the others took one step, the first the prefill
    without_cache    tokens that the model processed at each step, as hooks counted them: all so far
    with_cache       the same with a cache: the prompt, then one token a step; the last is never fed
    bytes_per_token  bytes of cache that a token takes, K and V over all layers
    step             where to start, from 1

    Raises ValueError when the counts do not fit the tokens.
    """

    _esm = Path(__file__).parent / "static/stepper.js"
    _css = Path(__file__).parent / "static/stepper.css"

    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    prompt_len = traitlets.Int().tag(sync=True)
    without_cache = traitlets.List(traitlets.Int()).tag(sync=True)
    with_cache = traitlets.List(traitlets.Int()).tag(sync=True)
    bytes_per_token = traitlets.Int().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    start = traitlets.Int().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        tokens: Sequence[str],
        prompt_len: int,
        without_cache: Sequence[int],
        with_cache: Sequence[int],
        bytes_per_token: int,
        step: int = 1,
    ) -> None:
        if isinstance(tokens, str) or not all(isinstance(token, str) for token in tokens):
            raise ValueError("tokens must be a list of strings, as the tokenizer cuts the text.")
        n = len(tokens)
        if not 2 <= n <= MAX_TOKENS:
            raise ValueError(f"tokens has {n} strings; it must have 2 to {MAX_TOKENS}.")
        prompt_len = _whole(prompt_len, "prompt_len", 1, n - 1)
        n_steps = n - prompt_len
        step = _whole(step, "step", 1, n_steps)
        bytes_per_token = _whole(bytes_per_token, "bytes_per_token", 1)
        without, cached = (
            _counts(counts, name, n_steps)
            for counts, name in ((without_cache, "without_cache"), (with_cache, "with_cache"))
        )
        held = 0
        for i in range(n_steps):
            so_far, held = prompt_len + i, held + cached[i]
            if without[i] != so_far:
                raise ValueError(
                    f"without_cache has {without[i]} at step {i + 1}, but the text has {so_far} tokens then."
                )
            if held != so_far:
                raise ValueError(
                    f"with_cache sums to {held} after step {i + 1}, but the text has {so_far} tokens then."
                )
        super().__init__(
            tokens=list(tokens),
            prompt_len=prompt_len,
            without_cache=without,
            with_cache=cached,
            bytes_per_token=bytes_per_token,
            step=step,
            start=step,
        )

    def __repr__(self) -> str:
        return f"TokenStepper({self.prompt_len} + {len(self.without_cache)} tokens)"


def _whole(value: Any, name: str, low: int, high: int | None = None) -> int:
    """A whole number (NumPy's and one-element tensors too) within low..high. Raises ValueError."""
    wanted = f"a whole number from {low} up" if high is None else f"{low} to {high}"
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or number < low or (high is not None and number > high):
        raise ValueError(f"{name} is {value!r}; it must be {wanted}.")
    return number


def _counts(counts: Sequence[int], name: str, n_steps: int) -> list[int]:
    """One count a step, none below 0. Raises ValueError."""
    if len(counts) != n_steps:
        raise ValueError(
            f"{name} has {len(counts)} counts, but {n_steps} tokens were generated, one a step."
        )
    return [_whole(count, f"{name} at step {i}", 0) for i, count in enumerate(counts, 1)]
