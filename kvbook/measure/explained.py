"""Whether a point of the memory record is whole, and what of it the prediction does not explain."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.lessons.decoder import DecoderConfig
from kvbook.measure.kinds import KINDS, shape
from kvbook.measure.plan import Job, label
from kvbook.measure.points import STEPS
from kvbook.measure.registry import parts
from kvbook.models import smollm2

RESULTS = {
    "grid cpu": ("predicted", "held", "bookkeeping", "resident_raw", "resident"),
    "grid cuda": (
        *("predicted", "held", "bookkeeping", "requested", "most", "allocated", "reserved"),
        *("used", "peak", "reserved_after_empty_cache", "driver_used"),
    ),
    "written": ("written",),
    "step": ("tokens", "held", "process", "transient", "seconds"),
    "frontier": ("budget", "per_token", "predicted", "last"),
    "pass": ("weights", "cache", "logits", "activations", "cuda_peak"),
}
STORAGE, RESIDENT = 0.01, 0.05  # what may be left unexplained
SURE = 64 * 10**6  # bytes; below, resident memory says too little
TRANSIENTS: dict[str, Callable[[int, Job], int]] = {
    "growing": lambda half_a_layer, job: half_a_layer,  # the K or V that torch.cat replaces
    "preallocated": lambda half_a_layer, job: (8 + job["batch"]) * job["context"],  # slots, a mask
}
"""Bytes that a step may take beside the cache and its new rows."""
WRITTEN: dict[str, Callable[[int], int]] = {
    "growing": lambda tokens: tokens * (tokens + 1) // 2,  # all rows, anew for each token
    "preallocated": lambda tokens: tokens,
}
"""Rows that are written while a cache is filled token by token."""
FOREIGN = "driver_used"  # the one figure that other processes can make negative


def unexplained(job: Job, result: dict[str, Any]) -> list[str]:
    """What of a point's result the prediction does not explain, a sentence each."""
    found: list[str] = []

    def near(name: str, value: float, expected: float, within: float) -> None:
        if abs(value - expected) > within * expected:
            much = f" to within {within:.0%}" if within else ""
            found.append(f"{label(job)}: {name} is {value:,}, not {expected:,}{much}.")

    what = job["what"]
    if what == "pass":
        config = DecoderConfig(**smollm2.CONFIG)
        size = getattr(torch, job["dtype"]).itemsize
        rows = 2 * config.n_layers * config.n_kv_heads * config.head_dim * job["prompt"]
        near("cache", result["cache"], rows * size + 8, 0)  # and the length, int64
        logits = config.vocab_size * (1 if job["last_only"] else job["prompt"])
        near("logits", result["logits"], logits * size, 0)
        return found
    spec, config = shape(job["model"])
    kind = KINDS[job["kind"]]
    per_token = kind.predict(spec, 1, job["batch"], job["dtype"])
    if what == "grid":
        exact = kind.predict(spec, job["context"], job["batch"], job["dtype"])
        near("predicted", result["predicted"], exact, 0)
        near("held", result["held"] - result["bookkeeping"], exact, min(kind.within, STORAGE))
        near("held with its book-keeping", result["held"], exact, STORAGE)
        if "allocated" in result:
            near("requested", result["requested"], exact, STORAGE)
            if not result["requested"] <= result["allocated"] <= result["most"]:
                ends = f"{result['requested']:,} to {result['most']:,}"
                found.append(f"{label(job)}: allocated is {result['allocated']:,}, not {ends}.")
        elif exact > SURE:
            near("resident", result["resident"], exact, RESIDENT)
    elif what == "written" and kind.name in WRITTEN:
        near("written", result["written"], WRITTEN[kind.name](job["context"]) * per_token, 0)
    elif what == "frontier":
        budget, given = result["budget"], job["budget"]
        if given is not None and (budget > given or (job["device"] == "cpu" and budget < given)):
            found.append(f"{label(job)}: budget is {budget:,}, not {given:,}.")
        near("per_token", result["per_token"], per_token, 0)
        near("predicted", result["predicted"], result["budget"] // per_token, 0)
        near("last", result["last"], result["predicted"], STORAGE)
    elif what == "step":
        near("tokens", result["tokens"], job["context"] - STEPS, 0)
        holds = result["tokens"] if kind.grows else job["context"]
        near("held", result["held"], kind.predict(spec, holds, job["batch"], job["dtype"]), STORAGE)
    if what == "step" and kind.name in TRANSIENTS:
        most = TRANSIENTS[kind.name](result["held"] // (2 * config.n_layers), job)
        most += 2 * per_token // config.n_layers + 4096  # the rows on their way in, the counts
        if result["transient"] > most:
            found.append(f"{label(job)}: the transient is {result['transient']:,}, above {most:,}.")
    return found


def check(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless the result is sound and explained."""
    what = point["job"]["what"]
    key = f"grid {record['device']['type']}" if what == "grid" else what
    job, result = parts(point, RESULTS[key])
    for name, value in result.items():
        if not _is_sound(name, value):
            raise ConfigError(f"{label(job)}: {name} is {shown(value)}, which cannot be.")
    if odd := unexplained(job, result):
        raise ConfigError(odd[0])


def _is_sound(name: str, value: Any) -> bool:
    """Whether a result's field can be what was measured: bytes and tokens are int, 0 or more."""
    if name == "seconds":
        return (
            isinstance(value, list)
            and len(value) == STEPS
            and all(type(s) in (int, float) and isfinite(s) and s > 0 for s in value)
        )
    if value is None:
        return name in ("cuda_peak", FOREIGN)
    return type(value) is int and (value >= 0 or name == FOREIGN)
