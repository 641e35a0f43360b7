"""The record `quality`: perplexity of SmolLM2-135M read through caches of fewer bits.

Each point holds the losses of one way to keep the cache, as means of blocks of tokens, so that any
two points can be compared, pair by pair. `rows` compares all of them with the float32 cache.
Blocks may be alike within a stretch of text, so a change's error is not below what stretches show.
"""

from dataclasses import replace
from math import exp, isfinite
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.lessons.cache import KVCache, PreallocatedCache
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.quantized import FORMATS, QuantizedCache
from kvbook.measure.quality import Change, change, token_losses
from kvbook.measure.registry import MODEL, Recipe, parts, refuse_options
from kvbook.models import smollm2
from kvbook.models.text import devils_dictionary

PLAIN = "float32"
"""The format of the point that all others are compared with: lesson 2's cache."""
BLOCK = 32  # tokens whose losses are averaged; also the tokens of a block of per-channel keys
CHUNK = 32  # tokens in a pass: what is read is then what decoding one token at a time reads
ONLY = (None, "keys", "values")
WHOLE, QUICK = {"tokens": 1024, "stretches": 4}, {"tokens": 128, "stretches": 2}


def plan(device: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """A job for each format, and for keys alone and values alone; quick: three formats.

    Raises ConfigError for a model other than SmolLM2-135M (the losses need its weights), or a budget.
    """
    refuse_options("quality", settings)
    quick = settings["quick"]
    names = ("float16", "int8", "int4") if quick else tuple(FORMATS)
    pairs = [(PLAIN, None), *((name, only) for name in names for only in ONLY)]
    base = {"what": "quality", "model": MODEL, "device": device, **(QUICK if quick else WHOLE)}
    return [
        {**base, "format": name, "only": only}
        for name, only in pairs
        if only is None or name not in (PLAIN, "float16")  # the half left alone is float16 anyway
    ]


def build(config: DecoderConfig, batch: int, capacity: int, job: dict[str, Any]) -> KVCache:
    """The cache of a job, for rows in float32."""
    if job["format"] == PLAIN:
        return PreallocatedCache(config, batch, capacity, device=job["device"])
    name, only = job["format"], job["only"]
    return QuantizedCache(config, batch, capacity, format=name, only=only, device=job["device"])


def bytes_per_token(job: dict[str, Any]) -> int:
    """Bytes that one more token takes in the job's cache, scales and minima counted, in full blocks."""
    config = DecoderConfig(**smollm2.CONFIG)
    cache = build(config, 1, BLOCK, {**job, "device": "meta"})
    cache.lengths = torch.tensor([BLOCK])
    return cache.nbytes_used // BLOCK


def bytes_at(job: dict[str, Any], tokens: int) -> float:
    """Bytes a token in a sequence of so many, with the room of a tail, its rows in float16."""
    if job["format"] == PLAIN:
        return bytes_per_token(job)
    options = {"format": job["format"], "only": job["only"], "dtype": torch.float16}
    cache = QuantizedCache(DecoderConfig(**smollm2.CONFIG), 1, tokens, device="meta", **options)
    return cache.nbytes / tokens


def pieces(count: int, tokens: int) -> Tensor:
    """Pieces of the text, int64 [count, tokens + 1], spread evenly over it.

    Raises ValueError for less than one piece or token, and for pieces longer than the text.
    """
    ids = torch.tensor(smollm2.tokenizer().encode(devils_dictionary()).ids)
    if count < 1 or not 1 <= tokens < len(ids):
        raise ValueError(
            f"count is {count} and tokens {tokens:,}; "
            f"they must be 1 or more, with tokens at most {len(ids) - 1:,}."
        )
    step = (len(ids) - tokens - 1) // max(1, count - 1)
    return torch.stack([ids[i * step : i * step + tokens + 1] for i in range(count)])


def quality(
    model: str, device: str, tokens: int, stretches: int, format: str, only: str | None
) -> dict[str, Any]:
    """Teacher-forced losses through one cache, in means of BLOCK tokens, and what a token takes.

    The model computes in float32; every pass of CHUNK tokens reads what the cache gives back.
    """
    job = {"format": format, "only": only, "device": device}
    decoder, _ = smollm2.load(device)
    ids = pieces(stretches, tokens).to(device)
    cache = build(decoder.config, stretches, tokens, job)
    losses = token_losses(decoder, ids, cache, CHUNK).unflatten(1, (-1, BLOCK)).mean(-1)
    per_token, values = bytes_per_token(job), bytes_per_token({**job, "format": PLAIN}) // 4
    return {
        "bits_per_value": 8 * per_token / values,
        "bytes_per_token": per_token,
        "perplexity": exp(float(losses.mean())),
        "losses": [[round(loss, 6) for loss in row] for row in losses.tolist()],
    }


def compared(losses: list[list[float]], baseline: list[list[float]]) -> Change:
    """Two points' losses, means of blocks [stretches][blocks], pair by pair.

    `error` is the larger of two standard errors: of all blocks as if they were independent, and of
    the stretches' means. With few stretches the second is rough; with one there is none.
    """
    one, other = (torch.tensor(means, dtype=torch.float64) for means in (losses, baseline))
    by_block = change(one, other, block=1)  # each already is the mean of a block
    if len(one) < 2:
        return by_block
    spread = float((one - other).mean(1).std()) / len(one) ** 0.5
    return replace(by_block, error=max(by_block.error, (1 + by_block.ratio) * spread))


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict for each point but the float32 one: what it takes, and its change against that one.

    `format`, `only`, `bits_per_value`, `bytes_per_token`, `perplexity`, `change` (0.02 is +2 %) and
    `error`, the standard error of the change (see `compared`). Empty without the float32 point.
    """
    points = [(point["job"], point["result"]) for point in record["points"]]
    base = [result["losses"] for job, result in points if job["format"] == PLAIN]
    if not base:
        return []
    found = []
    for job, result in points:
        if job["format"] != PLAIN:
            versus = compared(result["losses"], base[0])
            found.append(
                {
                    **{name: job[name] for name in ("format", "only")},
                    **{name: result[name] for name in ("bits_per_value", "bytes_per_token")},
                    "perplexity": result["perplexity"],
                    "change": versus.ratio,
                    "error": versus.error,
                }
            )
    return found


def label(job: dict[str, Any]) -> str:
    """A job in a few words."""
    which = f"{job['only']} only" if job["only"] else "keys and values"
    return f"{job['format']}, {which}, {job['stretches']} x {job['tokens']:,} tokens"


def check(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless these are sound numbers."""
    names = {"bits_per_value", "bytes_per_token", "perplexity", "losses"}
    job, result = parts(point, names)
    losses = result["losses"]
    shape = [job["tokens"] // BLOCK] * job["stretches"]
    if (
        not isinstance(losses, list)
        or [len(r) if isinstance(r, list) else 0 for r in losses] != shape
    ):
        raise ConfigError(f"{label(job)}: losses has another shape than {shape}.")
    means = [mean for row in losses for mean in row]
    numbers = [*(result[name] for name in sorted(names - {"losses"})), *means]
    for number in numbers:
        if type(number) not in (int, float) or not isfinite(number):
            raise ConfigError(f"{label(job)}: {shown(number)} is not a number.")
    per_token = bytes_per_token(job)
    expected = {
        "bytes_per_token": per_token,
        "bits_per_value": 32 * per_token / bytes_per_token({**job, "format": PLAIN}),
        "perplexity": exp(fmean(means)),
    }
    for name, value in expected.items():
        if abs(result[name] / value - 1) > 1e-5:
            raise ConfigError(f"{label(job)}: {name} is {result[name]}, not {value}.")


def answer(record: dict[str, Any]) -> str:
    """A table: bits a value, bytes a token, perplexity and its change, with its standard error.

    The bytes of a token stand without and with its share of a tail, in a sequence of the record's length.
    """
    lines = [f"{'':29}{'bits':>5}{'bytes':>7}{'with tail':>10}{'perplexity':>11}{'change':>8}"]
    for row in rows(record):
        name = row["format"] + (f", {row['only']} only" if row["only"] else "")
        tokens = record["points"][0]["job"]["tokens"]
        numbers = (
            f"{row['bits_per_value']:5.2f}{row['bytes_per_token']:7,}"
            f"{bytes_at(row, tokens):10,.0f}{row['perplexity']:11.3f}"
        )
        lines.append(f"{name:29}{numbers}{row['change']:+8.2%} ± {row['error']:.2%}")
    return "\n".join(lines)


RECIPE = Recipe(plan=plan, measure={"quality": quality}, check=check, label=label, answer=answer)
