"""An explorer for attention weights: which token looks at which, in every layer and head.

It plays a table that a cell has computed, so it needs no kernel; with one, and with `compute`, it also
takes a sentence of the reader's. It does not know the model that the weights come from.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import ArrayLike, NDArray

MAX_TOKENS = 32  # more would neither fit the picture nor be small enough to store in a notebook
MAX_CHARS = 300  # of a reader's sentence


class AttentionExplorer(anywidget.AnyWidget):
    """Look at attention weights, one layer, head and query at a time.

    weights  [n_layers, n_heads, n, n] tensor or array: row i is how query i shares its attention among
             the keys 0..i. Kept to 8 bits, so within 1/510 of what was given.
    tokens   n strings, as the tokenizer cuts the text: ["The", " cat", ...]
    presets  dicts with a "label" and any of "layer", "head" and "query"
    compute  text -> (weights, tokens): lets the reader try a sentence while a kernel runs. A ValueError
             that it raises is shown to the reader.
    layer, head, query  where to start; by default the last token is the query
    head_dim            numbers per head, for the formula

    Raises ValueError when the weights are not causal attention or anything does not fit them.
    """

    _esm = Path(__file__).parent / "static/attention.js"
    _css = Path(__file__).parent / "static/attention.css"

    weights = traitlets.Unicode().tag(
        sync=True
    )  # base64 of uint8 [n_layers, n_heads, n (n + 1) / 2]
    shape = traitlets.List(traitlets.Int()).tag(sync=True)  # n_layers, n_heads, n
    tokens = traitlets.List(traitlets.Unicode()).tag(sync=True)
    presets = traitlets.List(traitlets.Dict()).tag(sync=True)
    layer = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    query = traitlets.Int().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads
    head_dim = traitlets.Int().tag(sync=True)

    def __init__(
        self,
        weights: ArrayLike,
        tokens: Sequence[str],
        presets: Sequence[Mapping[str, Any]] = (),
        compute: Callable[[str], tuple[ArrayLike, Sequence[str]]] | None = None,
        layer: int = 0,
        head: int = 0,
        query: int | None = None,
        head_dim: int = 64,
    ) -> None:
        table = _table(weights, tokens)
        if head_dim < 1:
            raise ValueError(f"head_dim is {head_dim}; it must be at least 1.")
        start = {"layer": layer, "head": head}
        start["query"] = len(tokens) - 1 if query is None else query
        _check_place(start, table["shape"], "The start")
        for preset in presets:
            place = set(preset) - {"label"}
            known = place and place <= {"layer", "head", "query"}
            if not isinstance(preset.get("label"), str) or not known:
                raise ValueError(
                    f"Preset {dict(preset)} needs a label and one of layer, head, query."
                )
            _check_place(preset, table["shape"], f"Preset {preset['label']!r}")
        self._compute = compute
        self._first = {**table, **start, "presets": [dict(preset) for preset in presets]}
        super().__init__(**self._first, start=start, head_dim=head_dim)
        self.on_msg(self._answer)

    def __repr__(self) -> str:
        n_layers, n_heads, n = self.shape
        return f"AttentionExplorer({n_layers} layers × {n_heads} heads × {n} tokens)"

    def _answer(self, _: Any, message: Mapping[str, Any], __: Any) -> None:
        """hello -> hello. text or reset, with an id -> new traits, then done or error with the same id."""
        if self._compute is None:
            return
        kind, reply = message.get("type"), {"id": message.get("id")}
        if kind == "hello":
            self.send({"type": "hello"})
        elif kind == "reset":
            self._show(self._first)
            self.send({"type": "done", **reply})
        elif kind == "text":
            try:
                self._show(self._of_text(message.get("text")))
            except ValueError as error:
                self.send({"type": "error", "message": str(error), **reply})
            except Exception as error:  # whatever happens in compute, the reader is told
                text = f"{type(error).__name__}: {error}".removesuffix(": ")
                self.send({"type": "error", "message": text, **reply})
            else:
                self.send({"type": "done", **reply})

    def _of_text(self, text: Any) -> dict[str, Any]:
        """The traits for a reader's sentence. Presets lose their query, which meant another text."""
        assert self._compute is not None
        if not isinstance(text, str) or not text.strip():
            raise ValueError("Type a sentence first.")
        if len(text) > MAX_CHARS:
            raise ValueError(
                f"The sentence has {len(text)} characters; {MAX_CHARS} are the most that fit."
            )
        table = _table(*self._compute(text))
        if table["shape"][:2] != self.shape[:2]:
            raise ValueError(
                "compute gave another number of layers or heads than the explorer has."
            )
        presets = [{k: v for k, v in p.items() if k != "query"} for p in self._first["presets"]]
        presets = [preset for preset in presets if len(preset) > 1]
        return {**table, "query": table["shape"][2] - 1, "presets": presets}

    def _show(self, traits: dict[str, Any]) -> None:
        with (
            self.hold_sync()
        ):  # one message, so that no view ever draws one text's weights on another
            for name, value in traits.items():
                setattr(self, name, value)


def quantise(weights: ArrayLike) -> NDArray[np.uint8]:
    """Causal weights [n_layers, n_heads, n, n] -> round(255 w), uint8 [n_layers, n_heads, n (n + 1) / 2].

    The lower triangle alone, row after row. Raises ValueError for what is not causal attention.
    """
    if hasattr(weights, "detach"):  # a tensor: on any device, of any precision
        weights = weights.detach().float().cpu().numpy()
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 4 or w.shape[2] != w.shape[3] or 0 in w.shape:
        raise ValueError(
            f"weights has shape {list(w.shape)}; it must be [n_layers, n_heads, n, n]."
        )
    if not np.isfinite(w).all():
        raise ValueError("weights holds NaN or infinity.")
    if w.min() < 0:
        raise ValueError(f"weights holds {w.min():.3g}; no share of attention is below 0.")
    if np.triu(w, 1).any():
        raise ValueError("weights is not causal: a query gives attention to a later key.")
    if (worst := np.abs(w.sum(-1) - 1).max()) > 0.01:
        raise ValueError(f"A row of weights misses the sum 1 by {worst:.2g}.")
    rows, columns = np.tril_indices(w.shape[2])
    return np.rint(255 * w[:, :, rows, columns].clip(max=1)).astype(np.uint8)


def _table(weights: ArrayLike, tokens: Sequence[str]) -> dict[str, Any]:
    """The traits that hold a text's attention. Raises ValueError when weights and tokens do not fit."""
    codes = quantise(weights)
    n = len(tokens)
    if codes.shape[2] != n * (n + 1) // 2:
        given = int((2 * codes.shape[2]) ** 0.5)
        raise ValueError(f"weights is for {given} tokens, but tokens has {n}.")
    if not all(isinstance(token, str) for token in tokens):
        raise ValueError("tokens must be strings, as the tokenizer cuts the text.")
    if n > MAX_TOKENS:
        raise ValueError(f"The text has {n} tokens; {MAX_TOKENS} are the most that fit.")
    return {
        "weights": base64.b64encode(codes.tobytes()).decode("ascii"),
        "shape": [*codes.shape[:2], n],
        "tokens": list(tokens),
    }


def _check_place(place: Mapping[str, Any], shape: Sequence[int], whose: str) -> None:
    """Raise ValueError when a place names a layer, head or query that the table does not have."""
    for name, count in zip(("layer", "head", "query"), shape, strict=True):
        value = place.get(name, 0)
        if not isinstance(value, int) or not 0 <= value < count:
            raise ValueError(f"{whose} has {name} {value!r}; it must be 0 to {count - 1}.")
