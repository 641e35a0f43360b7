"""The record `codes`: how fast one decode step's attention reads int8 codes, in four ways.

One layer's cache of random rows; each round times every way once, so that noise meets all alike.
`torch.compile` needs a C++ compiler on a CPU (Triton on a GPU); where it fails its times are null.
"""

import time
from collections.abc import Callable
from math import isfinite
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.quantized import QuantizedCache, attend_codes, attend_sums
from kvbook.measure.registry import Recipe, parts, refuse_options

ROUNDS = 15
HEADS, GROUP, WIDTH = 3, 3, 64  # SmolLM2-135M: KV heads, query heads to each, head_dim
WAYS = {
    "float32": "float32 rows, no codes",
    "bfloat16": "bfloat16 rows, no codes",
    "read_back": "read back, then attend",
    "outside": "scales outside",
    "tiles": "scales outside, 256 tokens at a time",
    "compiled": "compiled into loops over the codes",
}
FIELDS = (*WAYS, "read", "compile_seconds", "nbytes")


def plan(device: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """A job for each context; the model is not used but for SmolLM2's shape."""
    refuse_options("codes", settings)
    contexts = (256,) if settings["quick"] else (2048, 8192)
    base = {"what": "codes", "device": device, "batch": 2 if settings["quick"] else 8}
    return [{**base, "context": context} for context in contexts]


@torch.no_grad()
def codes(device: str, batch: int, context: int) -> dict[str, Any]:
    """Seconds of each round for each way; null for a way that is not to be had here.

    `read` are the seconds in which the float32 rows are summed up: the rate at which memory is read.
    `nbytes` are those of the int8 codes with their scales.
    """
    config = DecoderConfig(8, 8, 1, HEADS * GROUP, HEADS, WIDTH, 8, context)
    random = torch.Generator().manual_seed(0)
    size = (batch, HEADS, context, WIDTH)
    k, v = (torch.randn(size, generator=random).to(device) for _ in range(2))
    q = torch.randn(batch, HEADS * GROUP, 1, WIDTH, generator=random).to(device)
    cache = QuantizedCache(config, batch, context, format="int8", device=device)
    cache.update(0, k, v)
    cache.advance(context)
    coded_k, coded_v = ([part[0] for part in store.parts] for store in (cache.k, cache.v))
    half = [x.bfloat16() for x in (q, k, v)]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def read_back() -> torch.Tensor:
        keys = cache.k.codec.decode(coded_k, q.dtype)
        return attend(q, keys, cache.v.codec.decode(coded_v, q.dtype))

    ways: dict[str, Callable[[], torch.Tensor]] = {
        "float32": lambda: attend(q, k, v),
        "bfloat16": lambda: attend(*half),
        "read_back": read_back,
        "outside": lambda: attend_codes(q, coded_k, coded_v, tile=context),
        "tiles": lambda: attend_codes(q, coded_k, coded_v, tile=256),
        "read": lambda: k.sum() + v.sum(),
    }
    exact, compile_seconds = read_back(), None
    try:
        start = time.perf_counter()
        compiled = torch.compile(attend_sums, dynamic=False)
        torch.testing.assert_close(compiled(q, coded_k, coded_v), exact)
        compile_seconds = time.perf_counter() - start
        ways["compiled"] = lambda: compiled(q, coded_k, coded_v)
    except AssertionError:
        raise
    except Exception:  # no compiler, or one that fails: there are many reasons and no common type
        pass
    for name in ("outside", "tiles"):
        torch.testing.assert_close(ways[name](), exact)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for round in range(-1, ROUNDS):  # the first one only warms up
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            if device == "cuda":
                torch.cuda.synchronize()
            if round >= 0:
                seconds[name].append(time.perf_counter() - start)
    found: dict[str, Any] = {name: seconds.get(name) for name in (*WAYS, "read")}
    return {**found, "compile_seconds": compile_seconds, "nbytes": cache.nbytes}


def label(job: dict[str, Any]) -> str:
    """A job in a few words."""
    return f"codes, {job['batch']} x {job['context']:,} tokens"


def check(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless these are sound times."""
    job, result = parts(point, FIELDS)
    expected = job["batch"] * job["context"] * HEADS * 2 * (WIDTH + 2)
    if result["nbytes"] != expected:
        raise ConfigError(f"{label(job)}: nbytes is {shown(result['nbytes'])}, not {expected}.")
    for name in (*WAYS, "read", "compile_seconds"):
        value = result[name]
        if value is None and name in ("compiled", "compile_seconds"):
            continue
        times = [value] if name == "compile_seconds" else value
        if not isinstance(times, list) or len(times) != (1 if times == [value] else ROUNDS):
            raise ConfigError(f"{label(job)}: {name} is {shown(value)}, not {ROUNDS} times.")
        for number in times:
            if type(number) is not float or not isfinite(number) or number <= 0:
                raise ConfigError(f"{label(job)}: {name} has {shown(number)}, which is no time.")


def rows(result: dict[str, Any]) -> list[tuple[str, float | None, int, float | None]]:
    """Each way: its words, its median in ms, the bytes it must read, their rate over the read rate."""
    plain = result["nbytes"] * WIDTH * 4 // (WIDTH + 2)
    rate, found = plain / median(result["read"]), []
    for way, words in WAYS.items():
        nbytes = {"float32": plain, "bfloat16": plain // 2}.get(way, result["nbytes"])
        middle = None if result[way] is None else median(result[way])
        share = None if middle is None else nbytes / middle / rate
        found.append((words, None if middle is None else 1e3 * middle, nbytes, share))
    return found


def answer(record: dict[str, Any]) -> str:
    """A table for each context: ms, bytes that must be read, the share of the read rate."""
    lines = []
    for point in record["points"]:
        lines.append(f"{label(point['job'])}: ms, MB to read, share of the rate of reading")
        for words, middle, nbytes, share in rows(point["result"]):
            times = "could not be compiled" if middle is None else f"{middle:8.2f}"
            rate = "" if share is None else f"{nbytes / 1e6:8.1f}{share:8.0%}"
            lines.append(f"  {words:38}{times}{rate}")
    return "\n".join(lines)


RECIPE = Recipe(
    plan=plan,
    measure={"codes": codes},
    check=check,
    label=label,
    answer=answer,
    bfloat16=True,
)
