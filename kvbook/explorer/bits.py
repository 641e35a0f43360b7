"""An explorer for a cache of fewer bits: what a format takes, what it costs in quality, where its error sits.

The page computes bytes and users from the tables that `kvbook.accounting` reads too, and quantises the
sample itself, so it needs no kernel. What was measured comes from outside and is shown as it is: between
two measured combinations nothing is made up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvbook.accounting import cache_spec, facts, fit_users
from kvbook.accounting.spec import LayerCache
from kvbook.explorer.checks import choice, number, whole

HALVES = ("keys", "values")  # of a cache, where only one is coded
PLAIN = "float16"  # what is not coded is kept in, and the tail too
PLAIN_BYTES = 2  # of one of its values
MAX_CONTEXT = 2**20
MAX_TOKENS = 128  # of the sample
MAX_CHANNELS = 256
MAX_NAME = 60  # characters of measured_on


@cache
def formats() -> dict[str, dict[str, Any]]:
    """The formats by name, as formats.json describes them: a label, and how keys and values are kept."""
    text = (Path(__file__).parent / "formats.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)["formats"]
    return found


class BitsExplorer(anywidget.AnyWidget):
    """Choose how a cache's values are coded, and see bytes, users, measured quality and the error.

    measured     the record: one dict for each combination that was measured, with "format", "only"
                 (None, "keys" or "values"), "bits_per_value", "perplexity", "change" (0.02 is + 2 %) and
                 "error", the change's standard error; further keys are left out
    channels     a sample of keys of one head, [tokens][channels] numbers; quantised in the page
    format       a name of formats(); only: None codes keys and values, "keys" or "values" one half
    compare      the format that everything is compared with
    channel      the channel that is drawn; None: the smallest one, which an outlier's scale hurts most
    model        an id or a name of models.json, whose layers are all alike; gpu: a name of gpus.json
    context      tokens of each user
    measured_on  the model that perplexity was measured on
    link         whether the page's address follows the settings (the first explorer's only)

    Raises ValueError, one sentence, for a name that is not known or a number out of range.
    """

    _esm = Path(__file__).parent / "static/bits.js"
    _css = Path(__file__).parent / "static/bits.css"

    format = traitlets.Unicode().tag(sync=True)
    only = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    compare = traitlets.Unicode().tag(sync=True)
    channel = traitlets.Int().tag(sync=True)
    model = traitlets.Unicode().tag(sync=True)
    gpu = traitlets.Unicode().tag(sync=True)
    context = traitlets.Int().tag(sync=True)
    measured = traitlets.List(traitlets.Dict()).tag(sync=True)
    channels = traitlets.List(traitlets.List(traitlets.Float())).tag(sync=True)
    measured_on = traitlets.Unicode().tag(sync=True)
    link = traitlets.Bool().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        measured: Sequence[Mapping[str, Any]] = (),
        channels: Sequence[Sequence[float]] = (),
        *,
        format: str = "int4",
        only: str | None = None,
        compare: str = "int4_token",
        channel: int | None = None,
        model: str = "llama-2-7b",
        gpu: str = "A100 80GB",
        context: int = 4096,
        measured_on: str = "SmolLM2 135M",
        link: bool = True,
    ) -> None:
        sample = _sample(channels)
        n_channels = len(sample[0]) if sample else 1
        start = {
            "format": choice("format", format, formats()),
            "only": None if only is None else choice("only", only, HALVES),
            "compare": choice("compare", compare, formats()),
            "channel": _smallest(sample)
            if channel is None
            else whole("channel", channel, 0, n_channels - 1),
            "model": _uniform(model).id,
            "gpu": facts.gpu(gpu).name,
            "context": whole("context", context, 1, MAX_CONTEXT),
        }
        if not isinstance(measured_on, str) or not 1 <= len(measured_on) <= MAX_NAME:
            raise ValueError(
                f"measured_on is {measured_on!r}; it must be a text of 1 to {MAX_NAME} characters."
            )
        super().__init__(
            **start,
            start=start,
            measured=_rows(measured),
            channels=sample,
            measured_on=measured_on,
            link=bool(link),
        )

    def __repr__(self) -> str:
        half = "" if self.only is None else f", {self.only} alone"
        return f"BitsExplorer({self.format}{half}, {len(self.measured)} measured)"

    @property
    def bits_per_value(self) -> float:
        """Bits of a value with its share of the scales, over keys and values, tails left out."""
        k_dim, v_dim = self._layer.k_dim, self._layer.v_dim
        keys, values = _codings(self.format, self.only)
        return (_bits(keys, k_dim) * k_dim + _bits(values, v_dim) * v_dim) / (k_dim + v_dim)

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token takes, over many: the scales of a block are shared by its tokens."""
        width = self._n_heads * (self._layer.k_dim + self._layer.v_dim)
        return self.bits_per_value * width / 8

    @property
    def sequence_nbytes(self) -> int:
        """Bytes that a user's cache of `context` tokens takes, with scales, minima and tails."""
        keys, values = _codings(self.format, self.only)
        k_rows = _rows_nbytes(keys, self.context, self._layer.k_dim)
        return self._n_heads * (k_rows + _rows_nbytes(values, self.context, self._layer.v_dim))

    @property
    def users(self) -> int | None:
        """Users that fit beside weights of 16 bits. None: without limit."""
        return fit_users(
            self.sequence_nbytes,
            facts.gpu(self.gpu).memory_bytes_nominal,
            2 * facts.model(self.model).parameters,
        )

    @property
    def _layer(self) -> LayerCache:
        return cache_spec(facts.model(self.model).config).layers[0]

    @property
    def _n_heads(self) -> int:
        """KV heads of all layers."""
        return len(cache_spec(facts.model(self.model).config).layers) * self._layer.n_kv_heads


def _uniform(name: str) -> facts.Model:
    """The model, whose layers must be alike and hold the keys and values of every token."""
    model = facts.model(name)
    if not is_uniform(model):
        ids = ", ".join(m.id for m in facts.models() if is_uniform(m))
        raise ValueError(f"model is {name!r}, whose layers are not all alike; use {ids}.")
    return model


def is_uniform(model: facts.Model) -> bool:
    """Whether all layers are the same and hold the keys and values of every token."""
    first, *others = cache_spec(model.config).layers
    plain = first.kind == "full" and first.tokens is None and first.n_kv_heads > 0
    return plain and all(layer == first for layer in others)


def _codings(format: str, only: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """How keys and how values are kept."""
    table = formats()
    keys, values = (table[format if only in (None, half) else PLAIN][half] for half in HALVES)
    return keys, values


def _extra(coding: Mapping[str, Any]) -> int:
    """Bytes of a group's scale and minimum."""
    return 4 if coding["minimum"] else 2


def _bits(coding: Mapping[str, Any], dim: int) -> float:
    bits: int = coding["bits"]
    if "cast" in coding:
        return bits
    return bits + 8 * _extra(coding) / (coding["tokens"] * (coding["width"] or dim))


def _rows_nbytes(coding: Mapping[str, Any], tokens: int, dim: int) -> int:
    """Bytes of the rows of one head; in blocks of several tokens with the room of a tail, one block."""
    bits: int = coding["bits"]
    if "cast" in coding:
        return tokens * dim * bits // 8
    long, width = coding["tokens"], coding["width"] or dim
    block = coding.get("waits", long)  # tokens that are coded together
    group = math.ceil(long * width * bits / 8) + _extra(coding)
    tail = block * dim * PLAIN_BYTES if block > 1 else 0
    return tokens // block * (block // long) * math.ceil(dim / width) * group + tail


def _listed(name: str, given: Any, of: str) -> list[Any]:
    """What was given as a list. Raises ValueError for what is none: a number, a text, a dict."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ValueError(f"{name} is {given!r}; it must be a list of {of}.")
    return list(given)


def _rows(measured: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The record's rows as plain values. Raises ValueError; a combination may come once."""
    rows: list[dict[str, Any]] = []
    for given in _listed("measured", measured, "dicts"):
        if not isinstance(given, Mapping):
            raise ValueError(f"measured holds {given!r}; it must be a list of dicts.")
        only = given.get("only")
        row = {
            "format": choice("format", given.get("format"), formats()),
            "only": None if only is None else choice("only", only, HALVES),
            "bits_per_value": number("bits_per_value", given.get("bits_per_value"), 1, 32),
            "perplexity": number("perplexity", given.get("perplexity"), 1, 1e12),
            "change": number("change", given.get("change"), -1, 1e12),
            "error": number("error", given.get("error"), 0, 1e12),
        }
        if any((row["format"], only) == (one["format"], one["only"]) for one in rows):
            raise ValueError(f"measured has {row['format']!r} with only {only!r} twice.")
        rows.append(row)
    return rows


def _sample(channels: Sequence[Sequence[float]]) -> list[list[float]]:
    """The sample as floats. Raises ValueError where it is not a table of numbers, or too large."""
    listed = _listed("channels", channels, "lists of numbers")
    rows = [_listed("a token of channels", row, "numbers") for row in listed]
    widths = {len(row) for row in rows}
    if rows and (len(widths) != 1 or not 1 <= min(widths) <= MAX_CHANNELS):
        raise ValueError(
            f"channels has rows of {sorted(widths)} numbers; all must have as many, 1 to {MAX_CHANNELS}."
        )
    if len(rows) > MAX_TOKENS:
        raise ValueError(f"channels has {len(rows)} tokens; {MAX_TOKENS} are the most.")
    return [[number("a key of channels", x, -65_504, 65_504) for x in row] for row in rows]


def _smallest(sample: list[list[float]]) -> int:
    """The channel whose largest key is the smallest in size; 0 without a sample."""
    if not sample:
        return 0
    sizes = [max(map(abs, column)) for column in zip(*sample, strict=True)]
    return sizes.index(min(sizes))
