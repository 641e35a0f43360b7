"""An explorer for windows and sinks: which rows a cache keeps over a text, and what was measured.

What is kept is computed in the page, so it needs no kernel; it plays the perplexities that the cell
above measured. With a kernel, the traits follow the reader's hand and `kept` answers from Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvbook.accounting.ring import kept, ring
from kvbook.explorer.checks import number, whole

MAX_TOKENS = 128  # more would not fit the picture
MAX_WINDOW = 4096
MAX_SINKS = 64
MAX_MEASURED = 64


class WindowExplorer(anywidget.AnyWidget):
    """Drag a window and sinks over a text and see which rows are kept, and what that costs.

    tokens           strings, as the tokenizer cuts the text: 2 to 128 of them
    measured         of each pair that was measured {"window", "sinks", "nbytes", "perplexity",
                     "change", "error"}: bytes that the cache holds, perplexity through it, its change
                     against the full cache (0.02 is +2 %) and that change's standard error; all over
                     the whole text, and perplexity within 1 % of baseline × (1 + change)
    baseline         perplexity with the full cache, on the same tokens
    window, sinks    tokens that a query sees, itself included; first tokens that stay beside them
    position         of the newest token, from 0; None: the last
    bytes_per_token  bytes of one token's rows, K and V over all layers; the default is SmolLM2 135M's
                     in float32
    measured_tokens  tokens of the text that was measured
    link             whether the page's address follows the settings (the first explorer's only)

    Raises ValueError, one sentence, for what is out of range.
    """

    _esm = Path(__file__).parent / "static/window.js"
    _css = Path(__file__).parent / "static/window.css"

    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    measured = traitlets.List(traitlets.Dict()).tag(sync=True)
    baseline = traitlets.Float().tag(sync=True)  # 0 where nothing was measured
    bytes_per_token = traitlets.Int().tag(sync=True)
    measured_tokens = traitlets.Int().tag(sync=True)
    window = traitlets.Int().tag(sync=True)
    sinks = traitlets.Int().tag(sync=True)
    position = traitlets.Int().tag(sync=True)
    link = traitlets.Bool().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        tokens: Sequence[str],
        measured: Sequence[Mapping[str, Any]] = (),
        baseline: float | None = None,
        window: int = 8,
        sinks: int = 4,
        position: int | None = None,
        *,
        bytes_per_token: int = 46_080,
        measured_tokens: int = 1024,
        link: bool = True,
    ) -> None:
        if (
            isinstance(tokens, str)
            or not isinstance(tokens, Sequence)
            or not all(isinstance(token, str) for token in tokens)
        ):
            raise ValueError("tokens must be a list of strings, as the tokenizer cuts the text.")
        n = len(tokens)
        if not 2 <= n <= MAX_TOKENS:
            raise ValueError(f"tokens has {n} strings; it must have 2 to {MAX_TOKENS}.")
        start = {
            "window": whole("window", window, 1, MAX_WINDOW),
            "sinks": whole("sinks", sinks, 0, MAX_SINKS),
            "position": n - 1 if position is None else whole("position", position, 0, n - 1),
        }
        points = _points(measured)
        if points and baseline is None:
            raise ValueError("baseline is missing; measured needs it to be compared with.")
        level = 0.0 if baseline is None else number("baseline", baseline, 1, 1e9)
        for point in points:
            _agree(point, level)
        super().__init__(
            **start,
            start=start,
            tokens=list(tokens),
            measured=points,
            baseline=level,
            bytes_per_token=whole("bytes_per_token", bytes_per_token, 1, 2**40),
            measured_tokens=whole("measured_tokens", measured_tokens, 2, 2**40),
            link=bool(link),
        )

    def __repr__(self) -> str:
        return f"WindowExplorer({len(self.tokens)} tokens, {len(self.measured)} measured)"

    @property
    def _fed(self) -> int:
        """Tokens fed; as in the page, the text may have become shorter than `position`."""
        return min(self.position, len(self.tokens) - 1) + 1

    @property
    def kept(self) -> list[int]:
        """Positions whose rows are in the cache once the token at `position` has been fed."""
        return kept(self._fed, self.window, self.sinks)

    @property
    def slots(self) -> list[int | None]:
        """The position that each slot holds then, the sinks' slots first; None: empty."""
        return ring(self._fed, self.window, self.sinks)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are kept then."""
        return len(self.kept) * self.bytes_per_token


def _points(measured: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was measured as plain numbers, by rising window and sinks. Raises ValueError."""
    if not isinstance(measured, Sequence) or not all(isinstance(one, Mapping) for one in measured):
        raise ValueError("measured must be a list of dicts, one for each pair that was measured.")
    if len(measured) > MAX_MEASURED:
        raise ValueError(f"measured has {len(measured)} rows; {MAX_MEASURED} are the most.")
    points = [
        {
            "window": whole("window", given.get("window"), 1, MAX_WINDOW),
            "sinks": whole("sinks", given.get("sinks"), 0, MAX_SINKS),
            "nbytes": whole("nbytes", given.get("nbytes"), 1, 2**53),
            "perplexity": number("perplexity", given.get("perplexity"), 1, 1e9),
            "change": number("change", given.get("change"), -1, 1e9),
            "error": number("error", given.get("error"), 0, 1e9),
        }
        for given in measured
    ]
    pairs = [(point["window"], point["sinks"]) for point in points]
    twice = next((pair for pair in pairs if pairs.count(pair) > 1), None)
    if twice is not None:
        raise ValueError(f"measured has window {twice[0]} with {twice[1]} sinks twice.")
    return sorted(points, key=lambda point: (point["window"], point["sinks"]))


def _agree(point: Mapping[str, Any], baseline: float) -> None:
    """Raise ValueError unless a point's change is its perplexity's against the baseline."""
    expected = baseline * (1 + point["change"])
    if abs(point["perplexity"] - expected) > 0.01 * expected:
        raise ValueError(
            f"perplexity is {point['perplexity']} for window {point['window']} with "
            f"{point['sinks']} sinks; baseline {baseline} and its change give {expected:.4g}."
        )
