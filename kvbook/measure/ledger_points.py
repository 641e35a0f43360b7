"""The record `ledger`: decode steps per second after each change that the lessons make, in turns.

One model, one context, batch 1. A round times every way once, so that noise meets all alike, and each
way comes first as often as the others. A part is a process of its own; every part times all ways.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from kvbook.accounting import CacheSpec, ConfigError, LayerCache
from kvbook.accounting.errors import shown
from kvbook.lessons.cache import GrowingCache, KVCache, PreallocatedCache
from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.lessons.gqa import with_kv_heads
from kvbook.lessons.paged import PagedCache
from kvbook.lessons.quantized import QuantizedCache
from kvbook.lessons.roofline import seconds
from kvbook.lessons.window import WindowCache
from kvbook.measure.benches.bench import spread
from kvbook.measure.benches.models import CONFIGS, decoder
from kvbook.measure.registry import MODEL, Recipe, parts, refuse_options

WINDOW, SINKS, BLOCK = 128, 4, 16  # tokens
APART = 1e-3  # of logits that must be the same, as a share of the largest
SHAPES = {MODEL: CONFIGS[MODEL], "narrow": DecoderConfig(211, 48, 2, 6, 2, 32, 80, 1024)}
"""`narrow` has random weights: it tries the record out and says nothing about speed."""
WHOLE = {"model": MODEL, "context": 1024, "rounds": 4, "steps": 4}
QUICK = {"model": "narrow", "context": 160, "rounds": 2, "steps": 2}
PARTS = 3
Predict = Callable[[CacheSpec, int, int], int]


@dataclass(frozen=True)
class Way:
    """A change of a lesson: how it builds a cache, and the bytes that the cache then must hold.

    `build(config, capacity, options)` makes it; None stands for no cache at all.
    `predict(spec, tokens, capacity)` are its bytes, with float32 rows. An `exact` way computes what
    the others of this kind compute. `n_kv_heads` gives the model another number of heads.
    """

    words: str
    build: Callable[[DecoderConfig, int, dict[str, Any]], KVCache] | None
    predict: Predict
    exact: bool = False
    n_kv_heads: int | None = None


def _bytes(spec: CacheSpec, tokens: int, dtype: str = "float32") -> int:
    return spec.nbytes(tokens, cache_dtype=dtype)


def _tail(spec: CacheSpec) -> int:
    """Bytes of the 32 keys of each head that wait uncoded."""
    return sum(32 * layer.n_kv_heads * layer.k_dim * 4 for layer in spec.layers)


def _paged(spec: CacheSpec, tokens: int, capacity: int) -> int:
    """The pool, and a row of the block table: an int64 for each block in use."""
    return _bytes(spec, capacity) + 8 * -(-tokens // BLOCK)


WAYS = {
    "none": Way("no cache, the whole text again", None, lambda s, n, c: 0, exact=True),
    "growing": Way(
        "a cache that grows",
        lambda config, capacity, o: GrowingCache(config, 1, capacity, **o),
        lambda s, n, c: _bytes(s, n),
        exact=True,
    ),
    "preallocated": Way(
        "a cache reserved at once",
        lambda config, capacity, o: PreallocatedCache(config, 1, capacity, **o),
        lambda s, n, c: _bytes(s, c),
        exact=True,
    ),
    "one head": Way(
        "1 KV head",
        lambda config, capacity, o: PreallocatedCache(config, 1, capacity, **o),
        lambda s, n, c: _bytes(s, c),
        n_kv_heads=1,
    ),
    "int8": Way(
        "int8",
        lambda config, capacity, o: QuantizedCache(config, 1, capacity, format="int8", **o),
        lambda s, n, c: _bytes(s, c, "int8"),
    ),
    "int4": Way(
        "int4, keys per channel",
        lambda config, capacity, o: QuantizedCache(config, 1, capacity, format="int4", **o),
        lambda s, n, c: _bytes(s, c, "int4") + _tail(s),
    ),
    "window": Way(
        f"window {WINDOW}, {SINKS} sinks",
        lambda config, capacity, o: WindowCache(
            config, 1, capacity, window=WINDOW, sinks=SINKS, **o
        ),
        lambda s, n, c: _bytes(s, WINDOW + SINKS),
    ),
    "paged": Way(
        f"blocks of {BLOCK}",
        lambda config, capacity, o: PagedCache(config, 1, capacity, block_size=BLOCK, **o),
        _paged,
        exact=True,
    ),
}


def plan(device: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """A job for each part; quick: one part, with a small decoder. Raises ConfigError for options."""
    refuse_options("ledger", settings)
    size, parts = (QUICK, 1) if settings["quick"] else (WHOLE, PARTS)
    return [{"what": "ledger", "device": device, **size, "part": part} for part in range(parts)]


def tokens(job: dict[str, Any]) -> tuple[int, int]:
    """How many tokens a cache holds at the end of a part, and the capacity: a multiple of 32."""
    held = job["context"] + 1 + job["rounds"] * job["steps"]
    return held, -(-held // 32) * 32


@torch.no_grad()
def ledger(
    device: str, model: str, context: int, rounds: int, steps: int, part: int
) -> dict[str, Any]:
    """Seconds per decode step, by way and round, in float32; `steps` steps a round, without a cache 1.

    The first round begins at `context` tokens, and each goes on where the one before it ended.
    `nbytes` is what each cache holds at the end. `apart` is how far the logits of each exact way are
    from the preallocated cache's, after the prompt and at the end, as a share of the largest. Raises
    ValueError where that is more than APART.
    """
    held, capacity = tokens({"context": context, "rounds": rounds, "steps": steps})
    passes, caches = contenders(model, device, capacity)
    ids = torch.arange(held, device=device)[None] * 7 % 199
    apart = {name: 0.0 for name, way in WAYS.items() if way.exact}
    last: dict[str, Tensor] = {}

    def go(name: str, start: int, end: int) -> None:
        if name in caches:
            for at in range(start, end):
                last[name] = passes[name](ids[:, at : at + 1])
        else:
            last[name] = passes[name](ids[:, :end])

    def compare() -> None:
        top = last["preallocated"].abs().max()
        for name in apart:
            off = float((last[name] - last["preallocated"]).abs().max() / top)
            if not off <= APART:
                raise ValueError(f"{name}'s logits are {off:.2%} from preallocated's.")
            apart[name] = max(apart[name], off)

    for name in WAYS:
        last[name] = passes[name](ids[:, :context])
    compare()
    for name in caches:
        go(name, context, context + 1)  # warms up
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(rounds):
        start = context + 1 + turn * steps
        shift = (part * rounds + turn) % len(WAYS)
        for name in [*WAYS][shift:] + [*WAYS][:shift]:
            each = steps if name in caches else 1
            times[name].append(seconds(partial(go, name, start, start + steps)) / each)
    compare()
    nbytes = {name: caches[name].nbytes if name in caches else 0 for name in WAYS}
    return {"seconds": times, "nbytes": nbytes, "apart": apart}


def contenders(
    model: str, device: str, capacity: int
) -> tuple[dict[str, Callable[[Tensor], Tensor]], dict[str, Any]]:
    """By way: what takes the next ids [1, q_len] and gives the last one's logits; and the caches."""
    if model == MODEL:
        ours = decoder(model, "float32", device)
    else:
        torch.manual_seed(0)
        ours = Decoder(SHAPES[model]).to(device).eval().requires_grad_(False)
    passes: dict[str, Callable[[Tensor], Tensor]] = {}
    caches: dict[str, Any] = {}
    options: dict[str, Any] = {"dtype": torch.float32, "device": device}
    for name, way in WAYS.items():
        changed = with_kv_heads(ours, way.n_kv_heads) if way.n_kv_heads else ours
        if way.build:
            caches[name] = way.build(changed.config, capacity, options)
        passes[name] = partial(_logits, changed, caches.get(name))
    return passes, caches


def _logits(model: Decoder, cache: Any, ids: Tensor) -> Tensor:
    return model(ids, cache, last_only=True)[:, -1]


def unexplained(job: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """A sentence for each way whose cache does not hold the bytes that the accounting expects."""
    held, capacity = tokens(job)
    found = []
    for name, way in WAYS.items():
        shape = SHAPES[job["model"]]
        heads = way.n_kv_heads or shape.n_kv_heads
        layer = LayerCache("full", heads, shape.head_dim, shape.head_dim)
        expected = way.predict(CacheSpec("llama", (layer,) * shape.n_layers), held, capacity)
        if result["nbytes"][name] != expected:
            holds = f"{shown(result['nbytes'][name])} bytes, not {expected:,}"
            found.append(f"{label(job)}: {way.words} holds {holds}.")
    return found


def label(job: dict[str, Any]) -> str:
    """A job in a few words."""
    return f"ledger, {job['context']:,} tokens, part {job['part'] + 1}"


def check(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless the result is sound and explained."""
    tables = {"seconds": {*WAYS}, "nbytes": {*WAYS}, "apart": {n for n in WAYS if WAYS[n].exact}}
    job, result = parts(point, tables)
    for table, ways in tables.items():
        if not isinstance(result[table], dict) or result[table].keys() != ways:
            raise ConfigError(f"{label(job)}: {table} is {shown(result[table])}, not one a way.")
    for name, times in result["seconds"].items():
        if not isinstance(times, list) or len(times) != job["rounds"]:
            raise ConfigError(f"{label(job)}: {name} has not the {job['rounds']} rounds' times.")
        for number in times:
            if type(number) is not float or not isfinite(number) or number <= 0:
                raise ConfigError(f"{label(job)}: {name} has {shown(number)}, which is no time.")
    for name, number in result["apart"].items():
        if type(number) is not float or not 0 <= number <= APART:
            raise ConfigError(f"{label(job)}: {name} is {shown(number)} apart, over {APART}.")
    for name, number in result["nbytes"].items():
        if type(number) is not int:
            raise ConfigError(f"{label(job)}: {name} holds {shown(number)}, which is no int.")
    for sentence in unexplained(job, result):
        raise ConfigError(sentence)


def rates(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Decode steps per second of each way: median and quartiles over the rounds of all parts."""
    return {
        name: spread(
            [1 / s for point in record["points"] for s in point["result"]["seconds"][name]]
        )
        for name in WAYS
    }


def answer(record: dict[str, Any]) -> str:
    """A line for each way: tokens per second and the bytes that it holds."""
    job, results = record["points"][0]["job"], [point["result"] for point in record["points"]]
    threads = record["device"].get("threads")
    lines = [record["device"]["name"] + (f", {threads} threads" if threads else "")]
    if record["settings"]["quick"]:
        lines[0] += "; a quick run on a small decoder, which says nothing about speed"
    lines.append(
        f"tokens per second, batch 1, from {job['context']:,} tokens on: "
        f"median (quartiles) of {len(results) * job['rounds']} rounds; bytes held at the end"
    )
    for name, rate in rates(record).items():
        quartiles = f"({rate['low']:.2f} to {rate['high']:.2f})"
        lines.append(
            f"  {WAYS[name].words:32}{rate['median']:8.2f} {quartiles:20}"
            f"{results[-1]['nbytes'][name]:14,}"
        )
    return "\n".join(lines)


RECIPE = Recipe(
    plan=plan,
    measure={"ledger": ledger},
    check=check,
    label=label,
    answer=answer,
    unexplained=unexplained,
)
