"""An explorer for the roofline: whether compute or memory bounds prefill and decode, and by how much.

The bounds are computed in the page, from the tables that `kvbook.accounting` reads too, so it needs
no kernel. With one, the traits follow the reader's hand and `prefill` and `decode` answer from Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvbook.accounting import cache_spec, facts
from kvbook.accounting.dense import dense_weights, is_dense
from kvbook.accounting.errors import ConfigError
from kvbook.accounting.roofline import Device, Work, attention_flops, device_of, phase_of_sums
from kvbook.accounting.tables import table
from kvbook.accounting.whatif import what_if
from kvbook.explorer.checks import choice, number, whole

OWN = "own"  # the machine that own_gb_per_s and own_tflops describe
WEIGHTS = ("32", "16", "8", "4")  # bits a parameter
PHASES = ("prefill", "decode")
MAX_CONTEXT = 2**20
MAX_BATCH = 65_536
MAX_POINTS = 64
MAX_LABEL = 60  # characters


@dataclass(frozen=True)
class Bound:
    """A phase on a device: what it computes and moves, and what the device makes of it at best."""

    work: Work
    device: Device

    @property
    def tokens_per_s(self) -> float:
        """Upper bound on tokens a second, over the whole batch."""
        return self.work.tokens_per_s(self.device)

    @property
    def seconds(self) -> float:
        """Lower bound on the time of the pass."""
        return self.work.seconds(self.device)

    @property
    def bound_by(self) -> str:
        """ "compute" or "memory"."""
        return self.work.bound_by(self.device)


class RooflineExplorer(anywidget.AnyWidget):
    """Move prefill and decode on a device's roofline, and see what bounds each.

    model         an id or a name of models.json whose weights can be told: a dense model
    gpu           a name of gpus.json whose rate of operations is known, or "own"
    prompt        tokens of each sequence that the prefill feeds at once
    context       tokens of each sequence at the decode step, the fed one included
    batch         sequences
    n_kv_heads    what if it had other KV heads; None: as published
    weights       "32", "16", "8" or "4" bits a parameter
    cache_dtype   a name of dtypes.json: "float16", "fp8", "int8", "int4", ...
    own_gb_per_s  GB (10^9 bytes) a second that the reader's machine reads; own_tflops 10^12
                  operations a second that it computes: as measured, or as its maker says
    measured      the reader's points, drawn on their own machine's roofline: see `point`
    measured_with the settings under which they were measured (model, weights, cache_dtype,
                  context, ...): the button "Your machine" takes them
    link          whether the page's address follows the settings (the first explorer's only)

    Raises ValueError, one sentence, for a name that is not known or a number out of range.
    """

    _esm = Path(__file__).parent / "static/roofline.js"
    _css = Path(__file__).parent / "static/roofline.css"

    model = traitlets.Unicode().tag(sync=True)
    gpu = traitlets.Unicode().tag(sync=True)
    prompt = traitlets.Int().tag(sync=True)
    context = traitlets.Int().tag(sync=True)
    batch = traitlets.Int().tag(sync=True)
    n_kv_heads = traitlets.Int(None, allow_none=True).tag(sync=True)
    weights = traitlets.Unicode().tag(sync=True)
    cache_dtype = traitlets.Unicode().tag(sync=True)
    own_gb_per_s = traitlets.Float().tag(sync=True)
    own_tflops = traitlets.Float().tag(sync=True)
    measured = traitlets.List(traitlets.Dict()).tag(sync=True)
    measured_with = traitlets.Dict().tag(sync=True)
    link = traitlets.Bool().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        model: str = "llama-2-7b",
        gpu: str = "A100 80GB",
        prompt: int = 512,
        context: int = 1024,
        batch: int = 1,
        *,
        n_kv_heads: int | None = None,
        weights: str | int = "16",
        cache_dtype: str = "float16",
        own_gb_per_s: float = 20,
        own_tflops: float = 0.1,
        measured: Sequence[Mapping[str, Any]] = (),
        measured_with: Mapping[str, Any] | None = None,
        link: bool = True,
    ) -> None:
        found = facts.model(model)
        if not is_dense(found):
            dense = ", ".join(m.id for m in facts.models() if is_dense(m))
            raise ValueError(
                f"model is {model!r}, whose weights read per token are not told; use {dense}."
            )
        start = {
            "model": found.id,
            "gpu": gpu if gpu == OWN else device_of(facts.gpu(gpu)).name,
            "prompt": whole("prompt", prompt, 1, MAX_CONTEXT),
            "context": whole("context", context, 1, MAX_CONTEXT),
            "batch": whole("batch", batch, 1, MAX_BATCH),
            "n_kv_heads": whole("n_kv_heads", n_kv_heads, 1, 1024, optional=True),
            "weights": choice("weights", str(weights), WEIGHTS),
            "cache_dtype": choice("cache_dtype", cache_dtype, table("dtypes")["dtypes"]),
            "own_gb_per_s": number("own_gb_per_s", own_gb_per_s, 0.01, 1_000_000),
            "own_tflops": number("own_tflops", own_tflops, 0.0001, 1_000_000),
        }
        _bound(start, "decode")  # or a sentence: the settings must go together
        points = _points(measured)
        under = dict(measured_with or {})
        if odd := sorted(under.keys() - start.keys()):
            raise ValueError(f"measured_with has {odd[0]!r}; it takes {', '.join(start)}.")
        _bound({**start, **under}, "decode")
        carried = {"measured": points, "measured_with": under, "link": bool(link)}
        super().__init__(**start, start=start, **carried)

    def __repr__(self) -> str:
        return f"RooflineExplorer({self.model} on {self.gpu})"

    @staticmethod
    def point(label: str, phase: str, work: Work, seconds: float) -> dict[str, Any]:
        """A measured pass for `measured`: what it computed and moved, and how long it took."""
        return {
            "label": label,
            "phase": phase,
            "tokens": work.tokens,
            "flops": work.flops,
            "nbytes": work.nbytes,
            "seconds": seconds,
        }

    @property
    def prefill(self) -> Bound:
        """The prefill with the settings as they are now."""
        return _bound({name: getattr(self, name) for name in self.start}, "prefill")

    @property
    def decode(self) -> Bound:
        """A decode step with the settings as they are now."""
        return _bound({name: getattr(self, name) for name in self.start}, "decode")


def _bound(now: Mapping[str, Any], phase: str) -> Bound:
    """Raises ValueError (ConfigError) where the settings do not go together."""
    model = facts.model(now["model"])
    published = spec = cache_spec(model.config)
    if now["n_kv_heads"] is not None:
        spec = what_if(published, n_kv_heads=now["n_kv_heads"])
    q_len = now["prompt"] if phase == "prefill" else 1
    kv_len = now["prompt"] if phase == "prefill" else now["context"]
    batch = now["batch"]
    flops = attention_flops(spec, q_len, kv_len, batch)
    if flops is None:
        raise ConfigError(f"{model.id} does not tell what its attention computes.")
    sums = dense_weights(model).with_cache(published, spec)
    work = phase_of_sums(
        q_len,
        batch,
        layer_weights=sums.layer_weights,
        unembed_weights=sums.unembed_weights,
        attention_flops=flops,
        cache_bytes=spec.nbytes(kv_len, batch, now["cache_dtype"]),
        weight_bytes_per_value=int(now["weights"]) / 8,
    )
    if now["gpu"] == OWN:
        device = Device(now["own_tflops"] * 1e12, now["own_gb_per_s"] * 1e9, "your machine")
    else:
        device = device_of(facts.gpu(now["gpu"]))
    return Bound(work, device)


def _points(measured: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The reader's points as plain numbers. Raises ValueError."""
    if len(measured) > MAX_POINTS:
        raise ValueError(f"measured has {len(measured)} points; {MAX_POINTS} are the most.")
    points = []
    for given in measured:
        label = given.get("label")
        if not isinstance(label, str) or not 1 <= len(label) <= MAX_LABEL:
            raise ValueError(
                f"label is {label!r}; it must be a text of 1 to {MAX_LABEL} characters."
            )
        points.append(
            {
                "label": label,
                "phase": choice("phase", given.get("phase"), PHASES),
                "tokens": whole("tokens", given.get("tokens"), 1, 2**53),
                "flops": number("flops", given.get("flops"), 1, 1e30),
                "nbytes": number("nbytes", given.get("nbytes"), 1, 1e30),
                "seconds": number("seconds", given.get("seconds"), 1e-9, 1e9),
            }
        )
    return points
