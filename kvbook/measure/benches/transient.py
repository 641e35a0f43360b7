"""Bytes that a decode step takes for a moment, beside the cache and the weights."""

from typing import Any

import torch

from kvbook.lessons.decoder import Attention, Decoder
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.measure.benches.bench import Bench, Point
from kvbook.measure.benches.models import CONFIGS, decoder
from kvbook.measure.kinds import KINDS
from kvbook.measure.plan import Job
from kvbook.measure.points import fill


@torch.no_grad()
def transient(model: str, kind: str, dtype: str, context: int, device: str) -> dict[str, Any]:
    """The peak of a whole decode step, batch 1, over what is held after it, by lesson 4's Watch.

    `layer` is one layer's share of K, the rows of `context` tokens as this cache stores them.
    `logits` is the part of the step that no cache changes. What an operation takes inside and gives
    back is not seen.
    """
    cache = KINDS[kind].build(CONFIGS[model], 1, context, dtype, device)
    if KINDS[kind].attention is Attention:
        ours = decoder(model, str(cache.dtype).removeprefix("torch."), device)
    else:  # no weights were trained for it
        ours = Decoder(cache.config, KINDS[kind].attention).to(device, cache.dtype)
    fill(cache, context - 2, -(-context // 4))
    token = torch.ones(1, 1, dtype=torch.long, device=device)
    ours(token, cache)  # what PyTorch sets up once
    with Watch(ours, cache, token) as watch:
        logits = ours(token, cache)
        after = watch.live - logits.nbytes
    layer = (held_nbytes(cache) - held_nbytes(cache.lengths)) // (2 * ours.config.n_layers)
    return {"layer": layer, "transient": watch.peak - after, "logits": logits.nbytes}


def figures(job: Job, result: dict[str, Any]) -> dict[str, float]:
    """The transient as a share of one layer's K or V."""
    return {"layers": result["transient"] / result["layer"]}


def jobs(device: str, quick: bool) -> list[Job]:
    """Every kind of cache, in its first dtype."""
    model, contexts = ("small", (256,)) if quick else ("smollm2-135m", (512, 4096))
    return [
        {"model": model, "kind": kind.name, "dtype": kind.dtypes[0], "context": n, "device": device}
        for kind in KINDS.values()
        for n in contexts
    ]


def table(points: list[Point]) -> list[str]:
    """A line for each cache and context."""
    lines = [
        "bytes that a decode step takes for a moment, batch 1, against one layer's K or V",
        f"{'cache':14}{'dtype':9}{'context':>8}{'transient':>13}{'K of a layer':>14}{'share':>7}",
    ]
    for job, found in points:
        lines.append(
            f"{job['kind']:14}{job['dtype']:9}{job['context']:8,}{found['transient']:13,}"
            f"{found['layer']:14,}{found['figures']['layers']:7.2f}"
        )
    return lines


TRANSIENT = Bench(
    jobs=jobs,
    run=transient,
    fields={
        "model": CONFIGS,
        "kind": KINDS,
        "dtype": {dtype for kind in KINDS.values() for dtype in kind.dtypes},
        "context": int,
    },
    raw={"layer": int, "transient": int, "logits": int},
    figures=figures,
    table=table,
)
