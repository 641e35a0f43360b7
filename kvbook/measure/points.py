"""Measure one thing, in this process: a point of the grid, a growth, a line of the frontier, a pass.

Each function takes a job's own fields and returns plain numbers. Bytes are int, times in seconds.
Run them in a fresh process: what another job left behind would be counted too.
"""

import ctypes
import gc
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kvbook.lessons.cache import KVCache
from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.lessons.measure import Watch, cuda_nbytes, held_nbytes, resident_nbytes, storages
from kvbook.measure.kinds import KINDS, shape
from kvbook.measure.machine import driver_used_nbytes
from kvbook.models import smollm2

ROUNDING = 512  # PyTorch's CUDA allocator gives memory in multiples of this many bytes
SPLIT = 2**20  # and leaves no rest of this size or less behind a tensor that is larger than it
STEPS = 5  # timed, of one token each
LEAD = 40  # tokens before those, one by one as well: the process gets its holes
PIECES = 4  # in which the caches of the grid are filled, as by a prompt that comes in four


def fill(cache: KVCache, context: int, piece: int) -> None:
    """Write ones into the cache until it holds `context` tokens, `piece` tokens at a time.

    A cache whose values are narrower than its keys gets the first part of the keys as values.
    Raises ValueError, before it writes, for a piece below 1 or a context beyond the capacity.
    """
    if piece < 1:
        raise ValueError(f"piece is {piece}; it must be 1 or more.")
    if context > cache.capacity:
        raise ValueError(f"context is {context}; the cache's capacity is {cache.capacity}.")
    config = cache.config
    while cache.end < context:
        q_len = min(piece, context - cache.end)
        rows = (cache.batch, config.n_kv_heads, q_len, cache.k_dim)
        for layer in range(config.n_layers):
            k, v = (torch.ones(rows, dtype=cache.dtype, device=cache.device) for _ in range(2))
            cache.update(layer, k, v if cache.v_dim == cache.k_dim else k[..., : cache.v_dim])
        cache.advance(q_len)


def grid(
    model: str, kind: str, dtype: str, context: int, batch: int, device: str
) -> dict[str, Any]:
    """One cache, filled: predicted and held bytes, and what the process or the GPU took for it."""
    spec, config = shape(model)

    def make(batch: int, context: int) -> KVCache:
        cache = KINDS[kind].build(config, batch, context, dtype, device)
        fill(cache, context, -(-context // PIECES))
        return cache

    make(2, 8)  # what PyTorch sets up once is not the cache's
    _collect()
    before, used = _process(device), driver_used_nbytes() if device == "cuda" else None
    cache = make(batch, context)
    gc.collect()
    result = {
        "predicted": KINDS[kind].predict(spec, context, batch, dtype),
        "held": held_nbytes(cache),
        "bookkeeping": held_nbytes([cache.lengths, getattr(cache, "block_table", None)]),
    }
    if device == "cpu":
        raw = resident_nbytes() - before["resident"]
        return result | {
            "resident_raw": raw,
            "resident": _process("cpu")["resident"] - before["resident"],
        }
    after, used_after = cuda_nbytes(), driver_used_nbytes()
    torch.cuda.empty_cache()
    sizes = [part.nbytes() for part in storages(cache) if part.device.type == "cuda"]
    most = sum(-(-n // ROUNDING) * ROUNDING + (SPLIT if n > SPLIT else 0) for n in sizes)
    return result | {
        "most": most,
        **{
            name: after[name] - before[name]
            for name in ("requested", "allocated", "reserved", "used")
        },
        "peak": after["peak"] - before["allocated"],
        "reserved_after_empty_cache": torch.cuda.memory_reserved() - before["reserved"],
        "driver_used": None if used is None or used_after is None else used_after - used,
    }


def written(
    model: str, kind: str, dtype: str, context: int, batch: int, device: str
) -> dict[str, Any]:
    """Bytes of rows written while a cache is filled token by token: counted on one layer, times all."""
    _, config = shape(model)
    cache = KINDS[kind].build(replace(config, n_layers=1), batch, context, dtype, device)
    with Watch() as watch:
        fill(cache, context, 1)
    return {"written": watch.written * config.n_layers}


def step(
    model: str, kind: str, dtype: str, context: int, batch: int, device: str
) -> dict[str, Any]:
    """The last tokens of a cache, one at a time: the transient over the cache, and the time.

    `process` is the most that the process (on a GPU: PyTorch's allocator, reserved) took after any
    of LEAD steps, above what it had without the cache. `transient` is the peak of one step over what
    is held after it. `seconds` are those of the last STEPS steps, each by itself.
    """
    _, config = shape(model)
    taken = "reserved" if device == "cuda" else "resident"
    fill(KINDS[kind].build(config, 2, 8, dtype, device), 8, 4)
    _collect()
    before = _process(device)[taken]
    cache = KINDS[kind].build(config, batch, context, dtype, device)
    fill(cache, context - LEAD - STEPS - 1, -(-context // PIECES))
    _collect()
    process = 0
    while cache.end < context - STEPS - 1:
        fill(cache, cache.end + 1, 1)
        now = cuda_nbytes()["reserved"] if device == "cuda" else resident_nbytes()
        process = max(process, now - before)
    with Watch(cache) as watch:
        fill(cache, context - STEPS, 1)
    transient, held = watch.peak - watch.live, held_nbytes(cache)
    seconds = []
    for tokens in range(context - STEPS + 1, context + 1):
        start = time.perf_counter()
        fill(cache, tokens, 1)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return {
        "tokens": context - STEPS,
        "held": held,
        "process": process,
        "transient": transient,
        "seconds": seconds,
    }


def frontier(
    model: str, kind: str, dtype: str, batch: int, device: str, budget: int | None
) -> dict[str, Any]:
    """The longest context that fits, found by allocating, and the predicted one.

    For a kind that reserves its capacity at once, so that allocating is enough to find out. The
    longest is filled as well; where that fails a thousandth is taken off until it works. On a CPU
    the process may take `budget` bytes more than it has: RLIMIT_AS, which this process then keeps.
    On a GPU without a budget: all that is free, up to its real out-of-memory error. `per_token` is
    the cost of one more token in every sequence.
    """
    spec, config = shape(model)
    build = KINDS[kind].build

    def allocate(context: int) -> KVCache:
        return build(config, batch, context, dtype, device)

    if device == "cpu":
        one_arena()
    fill(allocate(64), 64, 64)
    torch.ones(2**20, device=device).sum().item()  # starts PyTorch's threads: they map memory, too
    _fits(allocate, 2**50 // KINDS[kind].predict(spec, 1, batch, dtype))  # as does a first error
    _collect()
    small = torch.ones(1, device=device)  # on a GPU: a piece for small tensors, reserved beforehand
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        budget = free if budget is None else min(budget, free)
        allowed = (torch.cuda.memory_reserved() + budget) / total
        if budget < free:
            torch.cuda.set_per_process_memory_fraction(allowed)
    elif budget is None:
        raise ValueError("budget is None; on a CPU it must be a number of bytes.")
    else:
        limit_address_space(budget)
    per_token = KINDS[kind].predict(spec, 1, batch, dtype)
    predicted = budget // per_token
    last = longest(lambda context: _fits(allocate, context), 2 * predicted + 2)
    while last and not _fits(
        lambda context: fill(allocate(context), context, 1 + context // 256), last
    ):
        last -= 1 + last // 1000  # every page must be usable, beside the rows on their way in
    del small
    return {"budget": budget, "per_token": per_token, "predicted": predicted, "last": last}


def longest(fits: Callable[[int], bool], beyond: int) -> int:
    """The largest n that fits, by halving; 0 if none. Raises ValueError where `beyond` fits too."""
    if fits(beyond):
        raise ValueError(f"beyond is {beyond}; it must be more than fits.")
    low, high = 0, beyond
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def one_arena() -> None:
    """Keep the C library from mapping 64 MB of address space for each thread (glibc only)."""
    if hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(-8, 1)  # M_ARENA_MAX


def limit_address_space(budget: int) -> None:
    """Let this process map `budget` bytes more than it has mapped now, and never more again."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + budget, mapped + budget))


def forward(dtype: str, prompt: int, last_only: bool, device: str) -> dict[str, Any]:
    """One pass of a decoder of SmolLM2's shape, all weights 0: what is alive beside the cache.

    `activations` is the peak over weights and cache, the logits among it.
    """
    config = DecoderConfig(**smollm2.CONFIG)
    with torch.device("meta"):
        decoder = Decoder(config).to(getattr(torch, dtype)).requires_grad_(False)
    decoder.to_empty(device=device)
    for weight in decoder.parameters():
        weight.zero_()
    ids = torch.zeros(1, prompt, dtype=torch.long, device=device)
    cache = KINDS["preallocated"].build(config, 1, prompt, dtype, device)
    if device == "cuda":
        decoder(ids, cache, last_only=last_only)  # what PyTorch sets up once
    _collect()
    steady = cuda_nbytes().get("allocated", 0)
    cache.reset()
    with Watch(decoder, cache, ids) as watch:
        before = watch.live
        logits = decoder(ids, cache, last_only=last_only)
    return {
        "weights": held_nbytes(decoder),
        "cache": held_nbytes(cache),
        "logits": held_nbytes(logits),
        "activations": watch.peak - before,
        "cuda_peak": cuda_nbytes()["peak"] - steady if device == "cuda" else None,
    }


MEASURE: dict[str, Callable[..., dict[str, Any]]] = {
    "grid": grid,
    "written": written,
    "step": step,
    "frontier": frontier,
    "pass": forward,
}
"""What a job's `what` runs."""


def _fits(allocate: Callable[[int], object], context: int) -> bool:
    try:
        allocate(context)
        fits = True
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if "memory" not in str(error):
            raise
        fits = False
    _give_back()  # where mmap fails, the C library may have grown its heap instead
    return fits


def _collect() -> None:
    """Give back what is no longer used, and forget earlier peaks."""
    _give_back()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _give_back() -> None:
    gc.collect()
    resident_nbytes(trim=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _process(device: str) -> dict[str, int]:
    return cuda_nbytes() if device == "cuda" else {"resident": resident_nbytes(trim=True)}
