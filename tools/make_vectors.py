"""What Python's accounting answers, for the explorer's JavaScript to be held to.

    python tools/make_vectors.py            writes tests/data/accounting_vectors.json
    python tools/make_vectors.py --check    writes nothing; exit 1 if that file is stale

Every choice comes from one seeded generator, so the file depends on the accounting alone. An answer
is a whole number (a string beyond 2**53, which JSON in JavaScript would round) or {"error": the
sentence}.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from odd_configs import Pick, odd_configs

from kvbook.accounting import ConfigError, cache_spec, fit_users, kv_head_choices, what_if
from kvbook.accounting import roofline as roof
from kvbook.accounting.dense import dense_weights, is_dense
from kvbook.accounting.facts import gpus, models
from kvbook.accounting.latent import with_latent
from kvbook.accounting.ring import kept, ring
from kvbook.accounting.spec import POLICIES, CacheSpec
from kvbook.accounting.tables import table

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/accounting_vectors.json"
CASES = ROOT / "tests/data/kv_sizes.json"
DTYPES = list(table("dtypes")["dtypes"])
CONTEXTS = [0, 1, 2, 15, 16, 17, 100, 127, 128, 129, 1000, 1500, 2048, 4095, 4096, 4097, 8192]
CONTEXTS += [10_007, 32_768, 65_537, 100_000, 128_000, 131_072, 262_144, 999_983, 1_048_576]
BATCHES = [1, 1, 1, 2, 3, 7, 32, 256]
PARALLEL = [1, 1, 1, 2, 3, 4, 8, 16, 64]
BLOCKS = [1, 16, 16, 32, 100, 256]
SETTINGS = ["model", "what_if", "context", "batch", "cache_dtype", "policy", "tensor_parallel"]
SETTINGS += ["block_size"]
FIT = ["sequence_bytes", "memory_bytes", "weights_bytes", "utilization", "tensor_parallel"]
FIT += ["overhead_bytes"]
UTILIZATIONS = ["1", "0.9", "0.95", "0.85", "0.123456789", "0.5", "1.0", ".75"]
PROBE = {"context": 5001, "batch": 3}
"""Arguments with which one number stands for a whole spec."""

Row = list[Any]


def main() -> int:
    """Write the file, or say whether it is what the accounting gives."""
    parser = argparse.ArgumentParser(description="Write the vectors that JavaScript is held to.")
    parser.add_argument("--check", action="store_true", help="change nothing, say if it is stale")
    text = render(vectors())
    if not parser.parse_args().check:
        OUT.write_text(text, encoding="utf-8")
    elif not OUT.exists() or OUT.read_text(encoding="utf-8") != text:
        name = OUT.relative_to(ROOT)
        print(f"stale: {name} (run `python tools/make_vectors.py`)", file=sys.stderr)
        return 1
    return 0


def render(content: dict[str, list[Any]]) -> str:
    """JSON with one row a line, so that a change shows which rows it touches."""
    parts = []
    for name, rows in content.items():
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def vectors() -> dict[str, list[Any]]:
    """All sections of the file; the first row of a table names its columns."""
    pick = Pick(20)
    return {
        "models": [model.id for model in models()],
        "specs": list(specs()),
        "sizes": [[*SETTINGS, "nbytes"], *sizes(pick)],
        "tokens": [
            ["model", "cache_dtype", "tensor_parallel", "policy", "below", "beyond"],
            *tokens(),
        ],
        "users": [[*FIT, "users"], *users(pick)],
        "explained": list(explained(pick)),
        "cases": list(cases()),
        "families": list(families()),
        "odd": list(odd(pick)),
        "roofline": roofline(Pick(21)),
        "latents": [
            ["model", "latent_width", "rope_width", "context", "nbytes"],
            *latents(Pick(22)),
        ],
        "rings": [["tokens", "window", "sinks", "slots", "kept"], *rings(Pick(23))],
    }


def answer(compute: Callable[[], Any]) -> Any:
    """What it gives, or the sentence that it raises."""
    try:
        result = compute()
    except ConfigError as error:
        return {"error": str(error)}
    return str(result) if isinstance(result, int) and abs(result) >= 2**53 else result


def described(spec: CacheSpec) -> dict[str, Any]:
    """A spec with equal neighbours among its layers counted, not repeated."""
    layers = [[len(list(run)), *asdict(layer).values()] for layer, run in groupby(spec.layers)]
    rest = {key: value for key, value in asdict(spec).items() if key != "layers"}
    return {**rest, "layers": layers}


def specs() -> Iterator[dict[str, Any]]:
    """Every preset's spec, with its choices of KV heads."""
    for model in models():
        spec = cache_spec(model.config)
        yield {**described(spec), "kv_head_choices": kv_head_choices(spec)}


def sizes(pick: Pick) -> Iterator[Row]:
    """Bytes of every preset over settings, around its windows too, as it is and under what-ifs."""
    for index, model in enumerate(models()):
        plain = cache_spec(model.config)
        for turn in range(80):
            change = None if turn < 45 else changes(pick, plain)
            try:
                spec = plain if change is None else what_if(plain, **change)
            except ConfigError as error:
                yield [index, change, *settings(pick, plain), {"error": str(error)}]
                continue
            chosen = settings(pick, spec)
            yield [index, change, *chosen, answer(lambda spec=spec, c=chosen: spec.nbytes(*c))]


def settings(pick: Pick, spec: CacheSpec) -> Row:
    """Arguments of `nbytes`, in its order."""
    near = [max(0, window + step) for window in spec.windows for step in (-1, 0, 1, 5)]
    context = pick.one(near) if near and pick.random() < 0.3 else pick.one(CONTEXTS)
    if pick.random() < 0.02:
        context, batch = 2**40, 10**9
    else:
        batch = pick.one(BATCHES)
    dtype = "bfloat16" if pick.random() < 0.3 else pick.one(DTYPES)
    policy = pick.one(["exact", *POLICIES])
    return [context, batch, dtype, policy, pick.one(PARALLEL), pick.one(BLOCKS)]


def changes(pick: Pick, spec: CacheSpec) -> dict[str, int]:
    """Arguments of `what_if`; some of them are refused."""
    change: dict[str, int] = {}
    if pick.random() < 0.5:
        change["n_kv_heads"] = pick.one([*kv_head_choices(spec), 1, 5])
    if pick.random() < 0.7:
        change["window"] = pick.one([1, 128, 1000, 1024, 4096, 2**40])
    if pick.random() < 0.4:
        change["sinks"] = pick.one([0, 1, 4, 64])
    if pick.random() < 0.4:
        change["full_every"] = pick.one([1, 2, 3, 4, 6, 100])
    if pick.random() < 0.03:
        change[pick.one(["n_kv_heads", "window", "full_every"])] = 0
    return change


def tokens() -> Iterator[Row]:
    """Bytes per token below and beyond the windows, over cache types, policies and GPUs."""
    for index, model in enumerate(models()):
        spec = cache_spec(model.config)
        for dtype in DTYPES:
            for parallel, policy in (
                (1, "exact"),
                (2, "all_layers_full"),
                (8, "paged"),
                (32, "exact"),
            ):
                chosen = [dtype, parallel, policy]
                each = [
                    answer(
                        lambda s=spec, c=chosen, b=beyond: s.bytes_per_token(c[0], c[1], b, c[2])
                    )
                    for beyond in (False, True)
                ]
                yield [index, *chosen, *each]


def users(pick: Pick) -> Iterator[Row]:
    """Users of every preset on every kind of memory, exact at the edges too."""
    cards = [gpu.memory_bytes_nominal for gpu in gpus()]
    cards += [gpu.memory_bytes_reported for gpu in gpus() if gpu.memory_bytes_reported]
    rows: list[Row] = []
    for model in models():
        spec = cache_spec(model.config)
        for _ in range(9):
            one = spec.nbytes(pick.one(CONTEXTS), cache_dtype=pick.one(DTYPES))
            weights = model.parameters * pick.one([1, 2])
            free = pick.one([0, 0, 0, 10**9, 1_234_567_891])
            share = pick.one(UTILIZATIONS)
            rows.append([one, pick.one(cards), weights, share, pick.one(PARALLEL), free])
    seven = [2**31, 80 * 10**9, 13_476_831_232]
    rows += [
        [*seven[:1], memory, seven[2], share, 1, 0] for memory in cards for share in UTILIZATIONS
    ]
    exact = 13_476_831_232 + 30 * 2**31
    rows += [[*seven[:1], exact + step, seven[2], "1", 1, 0] for step in (-1, 0, 1)]
    rows += [[10, 100, 7, "1", parallel, 3] for parallel in (1, 2, 3, 7, 8)]
    rows += [[1, 2**53 - 1, 1, "0.999999999999999999999999999999", 1, 0]]
    rows += [
        [*seven, share, 1, 0] for share in ("0", "1.01", "90", "", "-1", "1e-3", "0.9 ", "nan")
    ]
    rows += [[-1, *seven[1:], "1", 1, 0], [1, 0, 1, "1", 1, 0], [1, 1, 2**61, "1", 1, 0]]
    rows += [[*seven, "1", 0, 0], [*seven, "1", 2**17, 0], [*seven, "1", 1, -1]]
    for row in rows:
        yield [*row, answer(lambda row=row: fit_users(*row))]


def explained(pick: Pick) -> Iterator[Row]:
    """The sum in words: [model, arguments of `explain`, its text]."""
    for index, model in enumerate(models()):
        spec = cache_spec(model.config)
        half_way = [128, 1, "float16", "exact", 1, 16]  # 0.0625 GiB for a 7B model: a tie to round
        for chosen in (half_way, settings(pick, spec), settings(pick, spec)):
            yield [index, chosen, answer(lambda spec=spec, c=chosen: spec.explain(*c))]


def cases() -> Iterator[Row]:
    """The real models with published sizes: [id, answer]; a text that is no object has its own test."""
    keys = ("context", "batch", "cache_dtype", "policy", "tensor_parallel")
    for case in json.loads(CASES.read_text(encoding="utf-8"))["cases"]:
        if isinstance(case["config"], dict):
            chosen = {key: case[key] for key in keys}
            yield [
                case["id"],
                answer(lambda c=case, a=chosen: cache_spec(c["config"]).nbytes(**a)),
            ]


def families() -> Iterator[Row]:
    """Each family with the usual fields, and nested with nothing but its name: [text, outcome]."""
    usual = {"num_hidden_layers": 12, "num_attention_heads": 8, "hidden_size": 512}
    more = {"num_key_value_heads": 2, "head_dim": 48, "sliding_window": 700}
    for name in table("families")["families"]:
        for config in (
            {"model_type": name, **usual},
            {"model_type": name, **usual, **more},
            {"model_type": "outer", "text_config": {"model_type": name}},
        ):
            yield [json.dumps(config), outcome(config)]


def outcome(config: dict[str, Any]) -> Any:
    """All that a spec says, with one number for its layers."""

    def compute() -> Any:
        spec = cache_spec(config)
        parts = [spec.state_values, spec.max_context, spec.n_heads, spec.family, *spec.notes]
        beyond = spec.bytes_per_token(beyond=True)
        found = [spec.nbytes(**PROBE), spec.bytes_per_token(), beyond, *parts]
        return [answer(lambda item=item: item) for item in found]

    return answer(compute)


def odd(pick: Pick) -> Iterator[Row]:
    """Presets, cases and small kinds with something wrong or hostile in them: [text, outcome]."""
    read = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    sources = [model.config for model in models()]
    sources += [case["config"] for case in read if isinstance(case["config"], dict)]
    for text in odd_configs(pick, sources, 600):
        yield [text, outcome(json.loads(text))]


def roofline(pick: Pick) -> list[Row]:
    """All rows of the roofline; each begins with what it asks."""
    return [
        *(["pairs", *row] for row in pair_rows(pick)),
        *(["phase", *row] for row in phase_rows(pick)),
        *(["sums", *row] for row in sum_rows(pick)),
        *(["dense", *row] for row in dense_rows(pick)),
        *(["bounds", *row] for row in bound_rows(pick)),
    ]


def pair_rows(pick: Pick) -> Iterator[Row]:
    """[q_len, kv_len, window, chunked, pairs]"""
    for turn in range(120):
        kv_len = pick.one([*CONTEXTS, 2**40])
        window = pick.one([None, 1, 7, 128, 1000, 4096, 2**40])
        chosen = [
            pick.one([1, 1, 2, 100, kv_len, kv_len, 2 * kv_len]),
            kv_len,
            window,
            turn % 3 == 0,
        ]
        yield [*chosen, answer(lambda chosen=chosen: roof.pairs(*chosen))]
    for chosen in ([1, 0], [0, 5], [1, 2**40 + 1], [3, 5, 0], [3, 5, -1, True]):
        chosen = [*chosen, *[None, False][len(chosen) - 2 :]]
        yield [*chosen, answer(lambda chosen=chosen: roof.pairs(*chosen))]


SHAPES = [
    [32, 32, 32, 128, 4096, 11_008, 32_000],
    [32, 32, 8, 128, 4096, 14_336, 128_256],
    [126, 128, 8, 128, 16_384, 53_248, 128_256],
    [30, 9, 3, 64, 576, 1536, 49_152],
    [3, 6, 2, 5, 7, 11, 13],
]
WIDTHS = [4, 2, 1, 0.5, 0.5625, 1.0625, 0.1]


def phase_rows(pick: Pick) -> Iterator[Row]:
    """[shape, [q_len, kv_len, batch], [bytes of a weight, of a cached value, logits], counts]"""
    for turn in range(150):
        shape = pick.one(SHAPES)
        kv_len = max(1, pick.one(CONTEXTS))
        lengths = [pick.one([1, kv_len, 1 + kv_len // 3]), kv_len, pick.one(BATCHES)]
        options = [pick.one(WIDTHS), pick.one(WIDTHS), pick.one(["last", "all"])]
        if turn % 50 == 49:
            broken = pick.one([[0, 1, 1], [9, 8, 1], [1, 8, 0]])
            lengths = broken
        if turn % 50 == 29:
            options = pick.one([[0, 2, "last"], [2, -1, "last"], [2, 2, "some"]])
        yield [
            shape,
            lengths,
            options,
            counts(lambda s=shape, n=lengths, o=options: _phase(s, n, o)),
        ]
    for shape in ([0, *SHAPES[0][1:]], [*SHAPES[0][:2], 5, *SHAPES[0][3:]]):
        broken = [1, 8, 1], [2, 2, "last"]
        yield [shape, *broken, counts(lambda s=shape, n=broken[0], o=broken[1]: _phase(s, n, o))]


def _phase(shape: Row, lengths: Row, options: Row) -> roof.Work:
    names = ("weight_bytes_per_value", "cache_bytes_per_value", "logits")
    return roof.phase(roof.Shape(*shape), *lengths, **dict(zip(names, options, strict=True)))


def counts(compute: Callable[[], roof.Work]) -> Any:
    """All whole numbers of a pass, or the sentence."""
    found = answer(compute)
    return (
        found
        if isinstance(found, dict)
        else [answer(lambda n=n: n) for n in asdict(found).values()]
    )


def sum_rows(pick: Pick) -> Iterator[Row]:
    """[model, [q_len, kv_len, batch], its attention_flops]: windows, chunks, and what is not told."""
    for index, model in enumerate(models()):
        spec = cache_spec(model.config)
        for _ in range(4):
            kv_len = max(1, pick.one(CONTEXTS))
            chosen = [pick.one([1, kv_len, 1 + kv_len // 3]), kv_len, pick.one(BATCHES)]
            found = answer(lambda spec=spec, chosen=chosen: roof.attention_flops(spec, *chosen))
            yield [index, chosen, found]


def dense_rows(pick: Pick) -> Iterator[Row]:
    """[model, n_kv_heads or null, its weights] and, for a dense one, a pass of its sums."""
    for index, model in enumerate(models()):
        if not is_dense(model):
            yield [index, None, answer(lambda model=model: dense_weights(model))]
            continue
        spec = cache_spec(model.config)
        for heads in (None, *kv_head_choices(spec)):
            changed = spec if heads is None else what_if(spec, n_kv_heads=heads)
            yield [index, heads, [*asdict(dense_weights(model).with_cache(spec, changed)).values()]]


def bound_rows(pick: Pick) -> Iterator[Row]:
    """[counts, [flops_per_s, bytes_per_s], bytes of a weight, what follows]"""
    rates = [[card.fp16_flops_dense, card.bandwidth_bytes_per_s] for card in gpus()]
    rates = [rate for rate in rates if rate[0]] + [[1.5e11, 2.25e10], [0.1, 3]]
    for _ in range(120):
        kv_len = max(1, pick.one(CONTEXTS))
        lengths = [pick.one([1, 1, kv_len]), kv_len, pick.one(BATCHES)]
        options = [pick.one(WIDTHS), pick.one(WIDTHS), "last"]
        work, rate = _phase(pick.one(SHAPES), lengths, options), pick.one(rates)
        device = roof.Device(*rate)
        found = [
            work.intensity,
            device.ridge,
            device.attainable(work.intensity),
            work.compute_seconds(device),
            work.memory_seconds(device),
            work.seconds(device),
            work.tokens_per_s(device),
            work.bound_by(device),
            roof.weight_knee(device, options[0]),
            roof.decode_knee(work, device),
            roof.decode_ceiling(work, device),
        ]
        yield [counts(lambda work=work: work), rate, options[0], found]
    for rate in ([0, 1], [1, -2]):
        yield [[1, 2, 0, 4, 0], rate, 2, answer(lambda rate=rate: roof.Device(*rate))]


def latents(pick: Pick) -> Iterator[Row]:
    """Every preset with a latent: its bytes, or why it cannot have one."""
    for index, model in enumerate(models()):
        spec = cache_spec(model.config)
        for turn in range(4):
            widths = [pick.one([1, 100, 256, 512, 2**16]), pick.one([1, 32, 64, 128])]
            if turn == 3:
                widths = pick.one([[0, 64], [512, 0], [2**16 + 1, 64]])
            context = pick.one(CONTEXTS)
            found = answer(lambda s=spec, w=widths, c=context: with_latent(s, *w).nbytes(c))
            yield [index, *widths, context, found]


def rings(pick: Pick) -> Iterator[Row]:
    """What a window and sinks keep, and where, around the moments at which the ring is full."""
    for turn in range(120):
        window, sinks = pick.one([1, 2, 3, 5, 8, 16]), pick.one([0, 0, 1, 2, 4, 7])
        around = [sinks, window, window + sinks, 2 * window + sinks, 40]
        chosen = [max(0, pick.one(around) + pick.one([-1, 0, 1])), window, sinks]
        if turn % 40 == 39:
            chosen = pick.one([[-1, 8, 4], [5, 0, 4], [5, 8, -1]])
        both = [answer(lambda c=chosen, f=f: f(*c)) for f in (ring, kept)]
        yield [*chosen, *both]


if __name__ == "__main__":
    sys.exit(main())
