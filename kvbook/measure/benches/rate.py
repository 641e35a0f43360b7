"""Decode steps per second: lesson 1's decoder beside transformers', on the same weights, in turns."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from kvbook.lessons.cache import GrowingCache, PreallocatedCache
from kvbook.lessons.roofline import Probe, seconds
from kvbook.measure.benches.bench import DTYPES, Bench, Point, ratio, spread
from kvbook.measure.benches.models import CONFIGS, by_columns, decoder, llama
from kvbook.measure.plan import Job

OURS = ("growing", "preallocated", "by columns")  # the last: preallocated, each weight turned
THEIRS = ("DynamicCache", "StaticCache")
APART = {"float32": 1e-3, "bfloat16": 0.1}  # logits, as a share of the largest
READ_NBYTES = {"smollm2-135m": 2**29, "small": 2**20}  # that the probe reads


@torch.no_grad()
def rate(
    model: str, dtype: str, prompt: int, rounds: int, steps: int, device: str
) -> dict[str, Any]:
    """Seconds per decode step and round, each of `steps` steps of batch 1 that go on from a prompt.

    `apart` is how far each one's logits are from `preallocated`'s, as a share of the largest, after
    the prompt and at the end. `bytes` are the weights and the rows that a step in the middle reads.
    `read` is the probe's bytes per second in that round. Raises ValueError where logits disagree.
    """
    ours = decoder(model, dtype, device)
    capacity = prompt + 1 + rounds * steps
    passes = contenders(ours, capacity)
    ids = torch.arange(prompt + 1 + rounds * steps, device=device)[None] * 7 % 199
    first = {name: run(ids[:, :prompt]) for name, run in passes.items()}
    apart = {name: _apart(logits, first["preallocated"]) for name, logits in first.items()}
    for run in passes.values():
        run(ids[:, prompt : prompt + 1])  # warms up
    probe = Probe(device, READ_NBYTES[model], 256)
    probe.run()
    probe.bytes_per_s.clear()
    times: dict[str, list[float]] = {name: [] for name in passes}
    last: dict[str, Tensor] = {}

    def go(name: str, start: int) -> None:
        for at in range(start, start + steps):
            last[name] = passes[name](ids[:, at : at + 1])

    for turn in range(rounds):
        probe.run()
        start = prompt + 1 + turn * steps
        shift = turn % len(passes)  # each comes first, and after each, as often as the others
        for name in [*passes][shift:] + [*passes][:shift]:
            times[name].append(seconds(partial(go, name, start)) / steps)
    for name, logits in last.items():
        apart[name] = max(apart[name], _apart(logits, last["preallocated"]))
        if not apart[name] <= APART[dtype]:
            raise ValueError(f"{name}'s logits are {apart[name]:.2%} from preallocated's.")
    row = 2 * ours.config.n_layers * ours.config.n_kv_heads * ours.config.head_dim
    rows = (prompt + 1 + rounds * steps // 2) * row * getattr(torch, dtype).itemsize
    nbytes = sum(weight.nbytes for weight in ours.parameters()) + rows
    return {"bytes": nbytes, "apart": apart, "seconds": times, "read": probe.bytes_per_s}


def contenders(ours: Any, capacity: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """By name, what takes the next ids [1, q_len] and gives the last one's logits [1, vocab_size]."""
    import transformers

    weight = ours.embed.weight
    options: dict[str, Any] = {"dtype": weight.dtype, "device": weight.device}
    turned, theirs = by_columns(ours), llama(ours)

    def own(model: Any, cls: type) -> Callable[[Tensor], Tensor]:
        cache = cls(model.config, 1, capacity, **options)
        return lambda ids: model(ids, cache, last_only=True)[:, -1]

    def foreign(cache: Any) -> Callable[[Tensor], Tensor]:
        # the cache by its place: its name has changed from past_key_values
        return lambda ids: theirs(ids, None, None, cache, logits_to_keep=1).logits[:, -1]

    return {
        "growing": own(ours, GrowingCache),
        "preallocated": own(ours, PreallocatedCache),
        "by columns": own(turned, PreallocatedCache),
        "DynamicCache": foreign(transformers.DynamicCache(config=theirs.config)),
        "StaticCache": foreign(
            transformers.StaticCache(config=theirs.config, max_cache_len=capacity)
        ),
    }


def figures(job: Job, result: dict[str, Any]) -> dict[str, Any]:
    """Steps per second with quartiles, times as fast as transformers' caches, share of read rate."""
    times, nbytes = result["seconds"], result["bytes"]
    if {len(turns) for turns in [*times.values(), result["read"]]} != {job["rounds"]}:
        raise ValueError("not everyone has as many rounds as the job")
    return {
        "steps_per_s": {name: spread([1 / t for t in turns]) for name, turns in times.items()},
        "times_as_fast": {
            name: {other: ratio(times[other], times[name]) for other in THEIRS} for name in OURS
        },
        "of_read": {
            name: median(nbytes / t / r for t, r in zip(turns, result["read"], strict=True))
            for name, turns in times.items()
        },
    }


def jobs(device: str, quick: bool) -> list[Job]:
    """A prompt of 64 and of 512 tokens, in float32 and bfloat16."""
    size = {"model": "small", "rounds": 3, "steps": 2} if quick else FULL
    prompts = (16,) if quick else (64, 512)
    cells = [(dtype, prompt) for dtype in DTYPES for prompt in prompts]
    return [{"dtype": d, "prompt": n, **size, "device": device} for d, n in cells]


FULL = {"model": "smollm2-135m", "rounds": 20, "steps": 3}


def table(points: list[Point]) -> list[str]:
    """A line for each cell and contender."""
    lines = [
        "decode steps per second, batch 1: median (quartiles); times as fast as transformers'",
        f"{'dtype':9}{'prompt':>7}  {'cache':13}{'steps/s':>8} {'':17}"
        f"{'DynamicCache':>13}{'StaticCache':>12}{'of read rate':>13}",
    ]
    for job, result in points:
        found = result["figures"]
        for name, rates in found["steps_per_s"].items():
            quartiles = f"({rates['low']:.1f} to {rates['high']:.1f})"
            fast = found["times_as_fast"].get(name)
            both = f"{fast[THEIRS[0]]:13.2f}{fast[THEIRS[1]]:12.2f}" if fast else f"{'':25}"
            lines.append(
                f"{job['dtype']:9}{job['prompt']:7}  {name:13}{rates['median']:8.1f} "
                f"{quartiles:17}{both}{found['of_read'][name]:13.2f}"
            )
    return lines


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


RATE = Bench(
    jobs=jobs,
    run=rate,
    fields={"model": CONFIGS, "dtype": DTYPES, "prompt": int, "rounds": int, "steps": int},
    raw={
        "bytes": int,
        "apart": dict.fromkeys(OURS + THEIRS, float),
        "seconds": {name: [float] for name in OURS + THEIRS},
        "read": [float],
    },
    figures=figures,
    table=table,
)
