"""Operations and bytes of a pass: against PyTorch's counter, real tensors, and figures by hand."""

from __future__ import annotations

import doctest
import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kvbook.accounting import CacheSpec, ConfigError, LayerCache, cache_spec, facts, roofline
from kvbook.accounting.roofline import (
    Device,
    Shape,
    Work,
    attention_flops,
    decode_ceiling,
    decode_knee,
    decode_step,
    device_of,
    pairs,
    phase,
    phase_of_sums,
    prefill,
    ridge,
    time_per_token,
    time_to_first_token,
    weight_knee,
)
from kvbook.lessons.cache import GrowingCache, PreallocatedCache, causal_mask
from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.lessons.roofline import CountingCache, Probe, count_pass, seconds

LLAMA = Shape(32, 32, 32, 128, 4096, 11_008, 32_000)
A100 = Device(312e12, 2.039e12)
SHAPES = [  # every size differs from every other of its shape
    Shape(2, 6, 3, 4, 20, 44, 97),
    Shape(3, 10, 5, 6, 28, 36, 101),
    Shape(1, 8, 4, 2, 22, 30, 89),
    Shape(5, 7, 1, 8, 26, 34, 83),
]
shapes = st.sampled_from([*SHAPES, LLAMA, Shape(32, 32, 8, 128, 4096, 14_336, 128_256)])
tiny = pytest.mark.parametrize("shape", SHAPES, ids=str)


def config_of(shape: Shape) -> DecoderConfig:
    return DecoderConfig(**vars(shape), max_seq_len=64)


def ids(batch: int, n: int) -> Tensor:
    return torch.ones(batch, n, dtype=torch.long)


# Against PyTorch's own counter, which counts what the mask hides, too


@tiny
@pytest.mark.parametrize("logits", ["last", "all"])
@pytest.mark.parametrize(("batch", "pieces"), [(1, [1, 1]), (3, [9, 1]), (2, [5, 7, 1])])
def test_pytorchs_counter_agrees(
    shape: Shape, batch: int, pieces: list[int], logits: roofline.Logits
) -> None:
    model = Decoder(config_of(shape)).requires_grad_(False)
    cache = GrowingCache(config_of(shape), batch)
    for q_len in pieces:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            model(ids(batch, q_len), cache, last_only=logits == "last")
        work = phase(shape, q_len, cache.end, batch, logits=logits)
        hidden = batch * (q_len * cache.end - pairs(q_len, cache.end))
        assert counter.get_total_flops() == (
            work.flops + hidden * 4 * shape.n_layers * shape.n_heads * shape.head_dim
        )


# Against real tensors


@tiny
def test_weights_are_those_of_the_linear_layers_and_the_table(shape: Shape) -> None:
    model = Decoder(config_of(shape)).double()
    layers = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    assert shape.layer_weights == sum(weight.numel() for weight in layers)
    assert shape.unembed_weights == model.embed.weight.numel()
    assert decode_step(shape, 5, weight_bytes_per_value=8).weight_bytes == (
        sum(weight.nbytes for weight in layers) + model.embed.weight.nbytes
    )


@tiny
@pytest.mark.parametrize("batch", [1, 3])
def test_bytes_of_the_cache_are_those_of_a_real_one(shape: Shape, batch: int) -> None:
    cache = PreallocatedCache(config_of(shape), batch, capacity=13, dtype=torch.float64)
    work = decode_step(shape, 13, batch, cache_bytes_per_value=8)
    assert work.cache_bytes == cache.nbytes
    assert prefill(shape, 13, batch, cache_bytes_per_value=8).cache_bytes == cache.nbytes


@tiny
@pytest.mark.parametrize("batch", [1, 3])
def test_the_lessons_hooks_agree(shape: Shape, batch: int) -> None:
    model = Decoder(config_of(shape)).requires_grad_(False)
    cache = CountingCache(config_of(shape), batch, capacity=13)
    for q_len in (7, 5, 1):
        counted = count_pass(model, ids(batch, q_len), cache)
        assert counted == phase(
            shape,
            q_len,
            cache.end,
            batch,
            weight_bytes_per_value=4,
            cache_bytes_per_value=4,
        )
    assert not any(module._forward_hooks for module in model.modules())


def test_the_lessons_hooks_count_a_model_of_width_one() -> None:
    shape = Shape(2, 3, 1, 4, 1, 5, 7)
    model = Decoder(config_of(shape)).requires_grad_(False)
    counted = count_pass(model, ids(2, 3), CountingCache(config_of(shape), 2, capacity=3))
    widths = {"weight_bytes_per_value": 4, "cache_bytes_per_value": 4}
    assert counted == phase(shape, 3, 3, 2, **widths)


def test_a_cache_that_counts_changes_nothing_else() -> None:
    shape = SHAPES[0]
    model = Decoder(config_of(shape)).double().requires_grad_(False)
    cache = CountingCache(config_of(shape), 2, capacity=9, dtype=torch.float64)
    assert (cache.attention_flops, cache.cache_bytes) == (0, 0)
    text = torch.arange(18).view(2, 9) % shape.vocab_size
    found = torch.cat([model(piece, cache) for piece in text.split([5, 3, 1], dim=1)], dim=1)
    torch.testing.assert_close(found, model(text), atol=1e-10, rtol=0)
    seen = 2 * sum(range(1, 10))
    assert cache.attention_flops == seen * 2 * (4 * 6 * 4)
    assert cache.cache_bytes == 2 * (5 + 8 + 9) * 2 * (2 * 3 * 4) * 8


def test_the_lessons_hooks_are_gone_after_an_error() -> None:
    model = Decoder(config_of(SHAPES[0]))
    with pytest.raises(ValueError, match="capacity"):
        count_pass(model, ids(1, 4), CountingCache(config_of(SHAPES[0]), capacity=3))
    assert not any(module._forward_hooks for module in model.modules())


@given(st.integers(1, 30), st.integers(0, 30), st.none() | st.integers(1, 40), st.booleans())
def test_pairs_are_those_of_a_mask(q_len: int, past: int, window: int | None, chunk: bool) -> None:
    kv_len = past + q_len
    q, k = torch.arange(past, kv_len), torch.arange(kv_len)
    seen = causal_mask(q[None], k[None])[0, 0]
    if window is not None and chunk:
        seen &= q[:, None] // window == k[None] // window
    elif window is not None:
        seen &= q[:, None] - k[None] < window
    assert pairs(q_len, kv_len, window, chunk) == int(seen.sum())


# By hand


def test_llama_2_7b_by_hand() -> None:
    matrices = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008) + 32_000 * 4096
    assert LLAMA.weights == matrices == 6_607_077_376
    parameters = matrices + 32_000 * 4096 + (2 * 32 + 1) * 4096  # the embedding, the norms
    assert parameters == facts.model("llama-2-7b").parameters
    assert decode_step(LLAMA, 4096) == Work(
        tokens=1,
        weight_flops=2 * matrices,
        attention_flops=4 * 32 * 32 * 128 * 4096,
        weight_bytes=2 * matrices,
        cache_bytes=524_288 * 4096,
    )
    step = decode_step(LLAMA, 4096)
    assert step.intensity == 1
    assert step.seconds(A100) == step.nbytes / 2.039e12
    assert math.isclose(step.tokens_per_s(A100), 132.7, abs_tol=0.1)
    whole = prefill(LLAMA, 4096)
    assert whole.weight_flops == 2 * (4096 * (matrices - 32_000 * 4096) + 32_000 * 4096)
    assert whole.attention_flops == 4 * 32 * 32 * 128 * (4096 * 4097 // 2)
    assert whole.bound_by(A100) == "compute"
    assert time_to_first_token(LLAMA, 4096, A100) == whole.flops / 312e12
    assert time_per_token(LLAMA, 4096, A100, 3) == decode_step(LLAMA, 4096, 3).seconds(A100)


def test_the_roof_of_a_card() -> None:
    card = facts.gpu("A100 80GB")
    assert device_of(card) == replace(A100, name="A100 80GB")
    assert ridge(card) == weight_knee(device_of(card)) == 312e12 / 2.039e12
    assert weight_knee(A100, 1) == A100.ridge / 2
    assert A100.attainable(1) == 2.039e12
    assert A100.attainable(A100.ridge * 2) == 312e12
    at_ridge = Work(1, 6, 2, 1, 1)
    assert at_ridge.bound_by(Device(8, 2)) == "compute"
    assert at_ridge.bound_by(Device(8.1, 2)) == "memory"


def test_the_knee_and_the_ceiling_by_hand() -> None:
    one = Work(1, 60, 20, 35, 6)  # at 10 operations and 3 bytes a second: 8 s, 35/3 s and 2 s
    assert decode_knee(one, Device(10, 3)) == pytest.approx(35 / 3 / (8 - 2))
    assert decode_ceiling(one, Device(10, 3)) == 1 / 8
    assert decode_knee(one, Device(50, 3)) is None  # 1.6 s: below those of the cache
    assert decode_ceiling(one, Device(50, 3)) == 1 / 2
    assert decode_knee(one, Device(40, 3)) is None  # as long as the cache: never more than it


@pytest.mark.parametrize("gpu", facts.gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_has_a_ridge_or_a_refusal(gpu: facts.Gpu) -> None:
    if gpu.fp16_flops_dense is None:
        with pytest.raises(ConfigError, match=f"fp16_flops_dense of {gpu.name}"):
            ridge(gpu)
    else:
        assert ridge(gpu) == gpu.fp16_flops_dense / gpu.bandwidth_bytes_per_s


def test_sums_give_what_the_shape_gives() -> None:
    model = facts.model("llama-2-7b")
    spec = cache_spec(model.config)
    table = 32_000 * 4096
    for q_len, kv_len, batch in ((1, 700, 3), (7, 7, 1), (5, 12, 2)):
        flops = attention_flops(spec, q_len, kv_len, batch)
        assert flops is not None
        found = phase_of_sums(
            q_len,
            batch,
            layer_weights=model.parameters - 2 * table - 65 * 4096,
            unembed_weights=table,
            attention_flops=flops,
            cache_bytes=spec.nbytes(kv_len, batch),
        )
        assert found == phase(LLAMA, q_len, kv_len, batch)


def test_windows_and_chunks_bound_attention() -> None:
    gemma = cache_spec(facts.model("gemma-3-27b").config)
    full = sum(layer.kind == "full" for layer in gemma.layers)
    per_pair = 4 * 32 * 128
    expected = per_pair * (full * 5000 + (len(gemma.layers) - full) * 1024)
    assert attention_flops(gemma, 1, 5000) == expected
    scout = cache_spec(facts.model("llama-4-scout").config)
    assert attention_flops(scout, 1, 8193) == 4 * 40 * 128 * (12 * 8193 + 36)


def test_layers_without_keys_and_values_take_no_operations_of_attention() -> None:
    jamba = cache_spec(facts.model("jamba-v0.1").config)
    assert [layer.kind for layer in jamba.layers].count("full") == 4
    assert attention_flops(jamba, 3, 10, 5) == 5 * 4 * (4 * 32 * 128) * (8 + 9 + 10)
    nothing = CacheSpec("test", (LayerCache("none"), LayerCache("state")), n_heads=3)
    assert attention_flops(nothing, 1, 10) == 0
    with pytest.raises(ConfigError, match="batch is 0"):
        attention_flops(nothing, 1, 10, 0)


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3n-e4b", "whisper-large-v3"])
def test_attention_that_cannot_be_told_has_no_number(name: str) -> None:
    assert attention_flops(cache_spec(facts.model(name).config), 1, 10) is None


def test_experts_are_read_but_not_all_used() -> None:
    sums = {"layer_weights": 30, "unembed_weights": 7, "attention_flops": 0, "cache_bytes": 0}
    work = phase_of_sums(
        2, 3, **sums, layer_weights_read=100, weight_bytes_per_value=Fraction(1, 2)
    )
    assert work == Work(6, 2 * (6 * 30 + 3 * 7), 0, 54, 0)  # 107 halves, rounded up
    with pytest.raises(ConfigError, match="attention without a cache"):
        _ = work.attention_intensity


# What must hold for every shape

lengths = st.integers(1, 5000)
batches = st.integers(1, 500)
widths = st.sampled_from([0.5, 0.5625, 1, 2, 4])


@given(shapes, lengths, batches, batches)
def test_decode_batches_serve_weights_but_not_attention(
    shape: Shape, kv_len: int, batch: int, more: int
) -> None:
    few, many = decode_step(shape, kv_len, batch), decode_step(shape, kv_len, batch + more)
    assert few.weight_intensity == batch
    assert many.weight_intensity == batch + more
    assert few.attention_intensity == many.attention_intensity == shape.group_size
    assert few.weight_bytes == many.weight_bytes
    assert many.tokens_per_s(A100) >= few.tokens_per_s(A100) * (1 - 1e-12)


@given(shapes, st.lists(st.integers(1, 600), min_size=1, max_size=6), batches)
def test_a_prompt_in_pieces_takes_the_same_operations(
    shape: Shape, pieces: list[int], batch: int
) -> None:
    ends = [sum(pieces[: n + 1]) for n in range(len(pieces))]
    parts = [
        phase(shape, q_len, end, batch, logits="all")
        for q_len, end in zip(pieces, ends, strict=True)
    ]
    whole, together = (
        phase(shape, ends[-1], ends[-1], batch, logits="all"),
        sum(parts[1:], parts[0]),
    )
    assert (together.flops, together.tokens) == (whole.flops, whole.tokens)
    assert together.attention_flops == whole.attention_flops
    assert together.weight_bytes == len(pieces) * whole.weight_bytes
    assert together.cache_bytes >= whole.cache_bytes


@given(shapes, lengths, lengths, widths, widths)
def test_bounds_grow_with_the_text(
    shape: Shape, shorter: int, more: int, weight: float, cache: float
) -> None:
    precision = {"weight_bytes_per_value": weight, "cache_bytes_per_value": cache}
    for bound in (time_to_first_token, time_per_token):
        assert bound(shape, shorter, A100, **precision) <= bound(
            shape, shorter + more, A100, **precision
        )
    work = prefill(shape, shorter, **precision)
    assert work.seconds(A100) >= max(work.compute_seconds(A100), work.memory_seconds(A100))
    attained = work.flops / work.seconds(A100)
    assert math.isclose(attained, A100.attainable(work.intensity), rel_tol=1e-9)


@settings(max_examples=200)
@given(shapes, lengths, st.floats(0.1, 1000))
def test_the_knee_is_where_the_bound_changes(shape: Shape, kv_len: int, peak: float) -> None:
    device, one = Device(3 * peak, 3.0), decode_step(shape, kv_len)
    knee = decode_knee(one, device)
    ceiling = decode_ceiling(one, device)
    if knee is None:
        assert one.flops / one.cache_bytes <= device.ridge * (1 + 1e-9)
        assert decode_step(shape, kv_len, 10**6).bound_by(device) == "memory"
    else:
        before, after = math.floor(knee * (1 - 1e-9)), math.ceil(knee * (1 + 1e-9))
        if before >= 1:
            assert decode_step(shape, kv_len, before).intensity <= device.ridge * (1 + 1e-9)
        assert decode_step(shape, kv_len, max(after, 1)).intensity >= device.ridge * (1 - 1e-9)
    for batch in (1, 17, 1000):
        rate = decode_step(shape, kv_len, batch).tokens_per_s(device)
        assert rate <= ceiling * (1 + 1e-9)
    assert math.isclose(
        decode_step(shape, kv_len, 2**39).tokens_per_s(device), ceiling, rel_tol=1e-3
    )


def test_bytes_are_rounded_up_once() -> None:
    odd = Shape(1, 1, 1, 1, 1, 1, 1)
    assert odd.weights == 8
    assert decode_step(odd, 3, cache_bytes_per_value=0.0625).cache_bytes == 1  # 6 values
    assert decode_step(odd, 3, 3, cache_bytes_per_value=Fraction(1, 3)).cache_bytes == 6


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 0}, "n_layers is 0"),
        ({"dim": 2.5}, "dim is 2.5"),
        ({"vocab_size": True}, "vocab_size is true"),
        ({"n_kv_heads": 5}, "n_kv_heads is 5, which does not divide 6"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(SHAPES[0], **change)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"q_len": 0}, "q_len is 0"),
        ({"kv_len": 2}, "q_len is 3; it must be at most kv_len, 2"),
        ({"kv_len": "9"}, 'kv_len is "9"'),
        ({"batch": 0}, "batch is 0"),
        ({"weight_bytes_per_value": 0}, "weight_bytes_per_value is 0"),
        ({"weight_bytes_per_value": math.nan}, "weight_bytes_per_value is NaN"),
        ({"cache_bytes_per_value": -1}, "cache_bytes_per_value is -1"),
        ({"cache_bytes_per_value": math.inf}, "cache_bytes_per_value is Infinity"),
        ({"cache_bytes_per_value": "2"}, 'cache_bytes_per_value is "2"'),
        ({"logits": "first"}, 'logits is "first"; it must be one of last, all'),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        phase(**{"shape": SHAPES[0], "q_len": 3, "kv_len": 4} | arguments)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("q_len", 1, 2**40),
        ("batch", 1, 2**40),
        ("layer_weights", 1, 2**60),
        ("unembed_weights", 0, 2**60),
        ("layer_weights_read", 3, 2**60),
        ("attention_flops", 0, 2**200),
        ("cache_bytes", 0, 2**200),
    ],
)
def test_sums_are_allowed_up_to_their_bounds(name: str, least: int, most: int) -> None:
    sums: dict = {"q_len": 1, "batch": 1, "layer_weights": 3, "unembed_weights": 0}
    sums |= {"attention_flops": 0, "cache_bytes": 0}
    if name == "layer_weights":
        sums["layer_weights_read"] = most
    for value in (least, most):
        phase_of_sums(**sums | {name: value})
    for value in (least - 1, most + 1, 1.5, "3"):
        with pytest.raises(ConfigError, match=rf"^{name} is "):
            phase_of_sums(**sums | {name: value})


def test_other_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="window is 0"):
        pairs(1, 1, 0)
    with pytest.raises(ConfigError, match="flops_per_s is 0"):
        Device(0, 1)
    with pytest.raises(ConfigError, match="bytes_per_s is NaN"):
        Device(1, math.nan)
    sums = {"layer_weights": 30, "unembed_weights": 7, "attention_flops": 0, "cache_bytes": 0}
    with pytest.raises(ConfigError, match="layer_weights_read is 29"):
        phase_of_sums(1, 1, **sums, layer_weights_read=29)
    with pytest.raises(ValueError, match="read_nbytes is 5 and width 1;"):
        Probe("cpu", read_nbytes=5, width=1)


def test_the_probe_measures_rates_and_the_roof_is_the_best() -> None:
    probe = Probe("cpu", read_nbytes=2**17, width=16)
    for _ in range(3):
        probe.run()
    assert len(probe.bytes_per_s) == len(probe.flops_per_s) == 3
    assert probe.best() == Device(max(probe.flops_per_s), max(probe.bytes_per_s), "this machine")
    called = []
    assert seconds(lambda: called.append(1)) > 0
    assert called == [1]


def test_seconds_are_those_between_two_waits_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    clock = iter([10.0, 12.5])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("wait"))
    monkeypatch.setattr("time.perf_counter", lambda: (order.append("clock"), next(clock))[1])
    found = seconds(lambda: order.append("work"))
    monkeypatch.undo()
    assert found == 2.5
    assert order == ["wait", "clock", "work", "wait", "clock"]


def test_a_probe_reads_half_a_gibibyte_unless_one_says_so() -> None:
    probe = Probe("meta")
    assert (probe.tall.nbytes, probe.square.shape) == (2**29, (1024, 1024))


def test_rates_are_bytes_and_operations_by_the_seconds_that_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = Probe("cpu", read_nbytes=3 * 2**15 + 5, width=6)
    done, times = [], iter([0.5, 0.25, 4.0, 2.0])
    monkeypatch.setattr(
        "kvbook.lessons.roofline.seconds", lambda work: (done.append(work()), next(times))[1]
    )
    probe.run()
    probe.run()
    assert probe.bytes_per_s == [3 * 2**15 / 0.5, 3 * 2**15 / 4]
    assert probe.flops_per_s == [2 * 6 * 6 * 6 / 0.25, 2 * 6 * 6 * 6 / 2]
    assert [result.tolist() for result in done[:2]] == [[8192.0] * 3, [[6.0] * 6] * 6]
    assert probe.best() == Device(2 * 6 * 6 * 6 / 0.25, 3 * 2**15 / 0.5, "this machine")


@pytest.mark.parametrize(
    ("nbytes", "width"), [(2**15, 1), (2**15 - 1, 1), (2**15, 0), (2**15, 1.0)]
)
def test_a_probe_has_a_least_size(nbytes: int, width: int) -> None:
    if (nbytes, width) == (2**15, 1) and type(width) is int:
        Probe("cpu", nbytes, width).run()
    else:
        with pytest.raises(ValueError, match=rf"^read_nbytes is {nbytes} and width {width}; int"):
            Probe("cpu", nbytes, width)


def test_the_docstring_tells_the_truth() -> None:
    assert doctest.testmod(roofline) == (doctest.TestResults(0, 5))


def test_a_count_needs_a_cache_that_counts_and_leaves_no_hook_behind() -> None:
    model = Decoder(DecoderConfig(31, 12, 2, 3, 1, 4, 8, 16))
    cache = PreallocatedCache(model.config)
    with pytest.raises(
        ValueError, match="cache is a PreallocatedCache; it must be a CountingCache"
    ):
        count_pass(model, torch.ones(1, 3, dtype=torch.long), cache)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_probe_is_run_before_it_is_asked() -> None:
    with pytest.raises(ValueError, match="run\\(\\) first"):
        Probe("cpu", 2**15, 2).best()
    with pytest.raises(ValueError, match=r"read_nbytes is 32768\.0"):
        Probe("cpu", 2**15 / 1.0, 2)
