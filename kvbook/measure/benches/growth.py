"""How the time of a step grows with the context, with a cache and without one."""

from functools import partial
from statistics import median
from typing import Any

import torch

from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.roofline import seconds
from kvbook.measure.benches.bench import Bench, Point, exponents
from kvbook.measure.benches.models import CONFIGS, decoder
from kvbook.measure.plan import Job
from kvbook.measure.points import fill

STEPS = 5  # cached, in each round


@torch.no_grad()
def growth(model: str, dtype: str, contexts: list[int], rounds: int, device: str) -> dict[str, Any]:
    """Seconds per context and round for the next token's logits, batch 1.

    `cached`: one token in, with all but the last of `context` tokens in a PreallocatedCache, STEPS
    times. `uncached`: all tokens in, no cache, the logits of the last.
    """
    ours = decoder(model, dtype, device)
    options: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": device}
    cache = PreallocatedCache(CONFIGS[model], 1, max(contexts) + 1, **options)
    fill(cache, max(contexts), 512)
    ids = torch.arange(max(contexts), device=device)[None] * 7 % 199
    cached: list[list[float]] = [[] for _ in contexts]
    uncached: list[list[float]] = [[] for _ in contexts]

    def step(context: int) -> None:
        cache.lengths = torch.full_like(cache.lengths, context - 1)
        ours(ids[:, :1], cache, last_only=True)

    def steps(context: int) -> None:
        for _ in range(STEPS):
            step(context)

    step(contexts[0])
    ours(ids[:, : contexts[0]], last_only=True)
    for _ in range(rounds):
        for at, context in enumerate(contexts):
            cached[at].append(seconds(partial(steps, context)) / STEPS)
            uncached[at].append(seconds(partial(ours, ids[:, :context], last_only=True)))
    return {"cached": cached, "uncached": uncached}


def figures(job: Job, result: dict[str, Any]) -> dict[str, Any]:
    """Medians, and the exponents between neighbouring contexts."""
    rounds = [[len(turns) for turns in result[name]] for name in ("cached", "uncached")]
    if rounds != [[job["rounds"]] * len(job["contexts"])] * 2:
        raise ValueError("not every context has as many rounds as the job")
    medians = {name: [median(turns) for turns in result[name]] for name in ("cached", "uncached")}
    slopes = {name: exponents(job["contexts"], times) for name, times in medians.items()}
    return {"median": medians, "exponents": slopes}


def jobs(device: str, quick: bool) -> list[Job]:
    """Contexts that double."""
    full = {"model": "smollm2-135m", "contexts": [2**n for n in range(6, 13)], "rounds": 3}
    size = {"model": "small", "contexts": [32, 64, 128], "rounds": 2} if quick else full
    return [{"dtype": "float32", **size, "device": device}]


def table(points: list[Point]) -> list[str]:
    """A line for each context, with the exponent since the one before."""
    lines = [
        "milliseconds for the next token, and the exponent since the context before",
        f"{'dtype':9}{'context':>8}{'cached':>10}{'exponent':>10}{'uncached':>11}{'exponent':>10}",
    ]
    for job, result in points:
        times, slopes = result["figures"]["median"], result["figures"]["exponents"]
        for at, context in enumerate(job["contexts"]):
            line = f"{job['dtype']:9}{context:8,}"
            for name, width in (("cached", 10), ("uncached", 11)):
                slope = f"{slopes[name][at - 1]:.2f}" if at else ""
                line += f"{1e3 * times[name][at]:{width},.1f}{slope:>10}"
            lines.append(line)
    return lines


GROWTH = Bench(
    jobs=jobs,
    run=growth,
    fields={"model": CONFIGS, "dtype": ("float32", "bfloat16"), "contexts": [int], "rounds": int},
    raw={"cached": [[float]], "uncached": [[float]]},
    figures=figures,
    table=table,
)
