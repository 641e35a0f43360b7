"""Attention alone, in a decode step: what share of the read rate it reaches over a long cache."""

from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.roofline import Probe, seconds
from kvbook.measure.benches.bench import DTYPES, Bench, Point
from kvbook.measure.benches.models import CONFIGS
from kvbook.measure.benches.rate import READ_NBYTES
from kvbook.measure.plan import Job
from kvbook.measure.points import fill

FORMS = ("attend", "enable_gqa", "grouped", "products", "K by columns")
"""`attend` is lesson 2's, the new row's writing included; the others only read.

`enable_gqa` is the call in it. `grouped` gives the query heads of a group as rows of one query, so
that each row of K and V is read once. `products` does the same with two matrix products and a
softmax. `K by columns` is that with keys kept as [head_dim, kv_len].
"""


def grouped(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one query per head: q [batch, n_heads, 1, d], each row of K and V read once.

    The n_heads // n_kv_heads query heads that share a KV head become the rows of one query; all see
    every key, so no mask is needed.
    """
    rows = q.view(len(q), keys.shape[1], -1, q.shape[-1])  # [batch, n_kv_heads, group, d]
    return F.scaled_dot_product_attention(rows, keys, values).view_as(q)


def products(q: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """The same by hand, with keys as columns [batch, n_kv_heads, d, kv_len]."""
    rows = q.view(len(q), columns.shape[1], -1, q.shape[-1]) * q.shape[-1] ** -0.5
    return ((rows @ columns).softmax(-1) @ values).view_as(q)


@torch.no_grad()
def attention(
    model: str, dtype: str, context: int, batch: int, layers: int, rounds: int, device: str
) -> dict[str, Any]:
    """Seconds per form and round for `layers` layers of a decode step, over `context` tokens.

    Each layer reads rows of its own, `bytes` of K and V in all, so that a processor's own cache does
    not hold them. Raises ValueError where two forms disagree.
    """
    config = replace(CONFIGS[model], n_layers=layers)
    kind = getattr(torch, dtype)
    cache = PreallocatedCache(config, batch, context + 8, dtype=kind, device=device)
    fill(cache, context - 1, 512)
    generator = torch.Generator().manual_seed(0)
    one_layer = torch.randn(cache.k[0].shape, generator=generator).to(device, kind)
    cache.k[:], cache.v[:] = one_layer, one_layer.roll(1, 3)
    new = torch.ones(batch, config.n_kv_heads, 1, config.head_dim, dtype=kind, device=device)
    for layer in range(layers):
        cache.update(layer, new, new)
    keys, values = cache.k[..., :context, :], cache.v[..., :context, :]
    columns = keys.transpose(-1, -2).contiguous()
    q = torch.randn(batch, config.n_heads, 1, config.head_dim, generator=generator)
    q = q.to(device, kind)

    def go(form: str, layer: int) -> Tensor:
        k, v = keys[layer], values[layer]
        if form == "attend":
            return cache.attend(layer, q, new, new)
        if form == "enable_gqa":
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        if form == "grouped":
            return grouped(q, k, v)
        return products(q, columns[layer] if form == "K by columns" else k.transpose(-1, -2), v)

    def step(form: str) -> None:
        for layer in range(layers):
            go(form, layer)

    right = go("attend", 0)
    for form in FORMS:
        apart = float((go(form, 0) - right).abs().max() / right.abs().max())
        if not apart < (1e-4 if dtype == "float32" else 5e-2):
            raise ValueError(f"{form} is {apart:.2%} from attend.")
    probe = Probe(device, READ_NBYTES[model], 256)
    probe.run()
    probe.bytes_per_s.clear()
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    for turn in range(rounds):
        probe.run()
        for form in FORMS[turn % len(FORMS) :] + FORMS[: turn % len(FORMS)]:
            times[form].append(seconds(partial(step, form)))
    return {"bytes": keys.nbytes + values.nbytes, "seconds": times, "read": probe.bytes_per_s}


def figures(job: Job, result: dict[str, Any]) -> dict[str, Any]:
    """The share of the read rate, form by form: the median over rounds."""
    if {len(turns) for turns in [*result["seconds"].values(), result["read"]]} != {job["rounds"]}:
        raise ValueError("not everyone has as many rounds as the job")
    shares = {
        form: median(result["bytes"] / t / r for t, r in zip(turns, result["read"], strict=True))
        for form, turns in result["seconds"].items()
    }
    return {"of_read": shares}


def jobs(device: str, quick: bool) -> list[Job]:
    """8,192 tokens in each of 8 sequences; in bfloat16 twice the layers, so as many bytes."""
    full = {"model": "smollm2-135m", "context": 8192, "batch": 8, "rounds": 7}
    size = {"model": "small", "context": 128, "batch": 2, "rounds": 2} if quick else full
    layers = {"float32": 6, "bfloat16": 12}
    return [{"dtype": d, **size, "layers": layers[d], "device": device} for d in DTYPES]


def table(points: list[Point]) -> list[str]:
    """A line for each dtype."""
    lines = [
        "decode attention alone: share of the measured read rate",
        f"{'dtype':9}{'context':>8}{'batch':>6}" + "".join(f"{form:>14}" for form in FORMS),
    ]
    for job, result in points:
        shares = result["figures"]["of_read"]
        cells = "".join(f"{shares[form]:14.2f}" for form in FORMS)
        lines.append(f"{job['dtype']:9}{job['context']:8,}{job['batch']:6}{cells}")
    return lines


ATTENTION = Bench(
    jobs=jobs,
    run=attention,
    fields={
        "model": CONFIGS,
        "dtype": DTYPES,
        **dict.fromkeys(("context", "batch", "layers", "rounds"), int),
    },
    raw={"bytes": int, "seconds": {form: [float] for form in FORMS}, "read": [float]},
    figures=figures,
    table=table,
)
