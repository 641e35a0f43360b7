"""Quantised caches: codes against arithmetic by hand, reading back against a plain list, every byte."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kvbook.accounting import cache_spec
from kvbook.accounting.facts import model as facts
from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.lessons.measure import held_nbytes
from kvbook.lessons.quantized import (
    FORMATS,
    Cast,
    CodedTokens,
    Integers,
    QuantizedCache,
    Waiting,
    attend_codes,
    attend_sums,
    pack,
    unpack,
)
from kvbook.models import smollm2

CONFIG = DecoderConfig(
    vocab_size=97,
    dim=24,
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=32,
    ffn_dim=40,
    max_seq_len=128,
)
formats = pytest.mark.parametrize("name", FORMATS)
CODECS = {f"{name} {half}": FORMATS[name][i] for name in FORMATS for i, half in enumerate("kv")}
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def make_model() -> Decoder:
    torch.manual_seed(0)
    model = Decoder(CONFIG).double().requires_grad_(False)
    for weight in model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) / 4)
    return model


MODEL = make_model()


def make(name: str, batch: int = 1, **options) -> QuantizedCache:
    return QuantizedCache(CONFIG, batch, format=name, dtype=torch.float64, **options)


def random_rows(batch: int, n: int, seed: int = 0, heads: int = 3, layers: int = 2) -> Tensor:
    """Keys or values of all layers, float64 [layers, batch, heads, n, 32], with channels far out."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(layers, batch, heads, n, 32, generator=generator, dtype=torch.float64)
    rows[..., 5] = 20 + rows[..., 5]
    rows[..., 17] *= 9
    return rows


def read_back(codec, rows: Tensor) -> Tensor:
    return codec.decode(codec.encode(rows), rows.dtype)


def expected_rows(codec, rows: Tensor, coded: int) -> Tensor:
    """What attention reads of one sequence [heads, n, d] of which the first `coded` tokens are codes."""
    if codec.tokens == 1:
        return read_back(codec, rows)
    whole = coded // codec.tokens * codec.tokens
    return torch.cat([read_back(codec, rows[:, :whole]), rows[:, whole:]], dim=1)


def poison(cache: QuantizedCache) -> None:
    """All bits set in every slot that no live token fills: NaN in scales and tails."""
    for half in (cache.k, cache.v):
        tokens = half.codec.tokens
        for row, length in enumerate(cache.lengths.tolist()):
            for part in half.parts:
                part.view(torch.uint8)[:, row, :, length // tokens :] = 255
            if tokens > 1:
                half.tail[:, row, :, length % tokens :] = float("nan")


def feed(cache: QuantizedCache, ids: Tensor, pieces: list[int]) -> Tensor:
    return torch.cat([MODEL(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


# Codes


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_packing_is_undone_and_says_its_order(bits: int) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(pack(unpack(every[None], bits), bits), every[None])
    codes = torch.randint(2**bits, (3, 5, 24), generator=torch.Generator().manual_seed(2))
    packed = pack(codes.to(torch.uint8), bits)
    assert packed.shape == (3, 5, 24 * bits // 8)
    assert torch.equal(unpack(packed, bits).long(), codes)
    assert (unpack(packed, bits).data_ptr() == packed.data_ptr()) == (bits == 8)  # no copy


def test_the_first_code_lies_lowest() -> None:
    assert pack(torch.tensor([1, 15], dtype=torch.uint8), 4).tolist() == [0xF1]
    assert pack(torch.tensor([1, 2, 3, 0], dtype=torch.uint8), 2).tolist() == [0b00111001]


def by_hand(codec: Integers, values: list[float]) -> list[float]:
    """One group, in plain Python."""

    def half(x: float) -> float:
        return float(torch.tensor(x, dtype=torch.float64).half())

    levels = 2**codec.bits - 1 if codec.minimum else 2 ** (codec.bits - 1) - 1
    low = half(min(values)) if codec.minimum else 0.0
    reach = max(0.0, max(values) - low) if codec.minimum else max(map(abs, values))
    scale = half(reach / levels)
    least = 0 if codec.minimum else -levels
    codes = [min(levels, max(least, round((x - low) / scale))) if scale else 0 for x in values]
    return [code * scale + low for code in codes]


@codecs
def test_every_group_by_hand(codec) -> None:
    rows = random_rows(1, 64)[0, 0, 0]  # [64, 32]
    found = read_back(codec, rows)
    assert found.shape == rows.shape
    if isinstance(codec, Cast):
        assert torch.equal(found, rows.to(codec.dtype).double())
        return
    codec = codec.codec if isinstance(codec, Waiting) else codec  # the groups are those of a row
    width = codec.width or 32
    for t in range(0, 64, codec.tokens):
        for c in range(0, 32, width):
            group = rows[t : t + codec.tokens, c : c + width]
            expected = by_hand(codec, group.flatten().tolist())
            got = found[t : t + codec.tokens, c : c + width].flatten().tolist()
            assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)


@codecs
@pytest.mark.parametrize("value", [0.0, 1.0, -3.3, 100.25, 1e-9, -1e-7])
def test_a_constant_group_reads_back(codec, value: float) -> None:
    """All zero would divide 0 by 0; a constant has no range to divide."""
    found = read_back(codec, torch.full((1, 32, 32), value))
    step = 2.0**-2 if codec is FORMATS["fp8_e5m2"][0] else 2.0**-3
    assert found.isfinite().all()
    assert (found - value).abs().max() <= max(step * abs(value), 1e-6)
    if value == 0:
        assert torch.equal(found, torch.zeros_like(found))


@formats
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_is_read_back_stays_within_the_rows_own_range(name: str, dtype: torch.dtype) -> None:
    """A scale that rounds up, or bfloat16, may lead beyond the largest float16."""
    for top in (65504.0, 65420.0, 65280.0, 64001.0):
        rows = torch.full((1, 32, 32), top)
        rows[:, :, ::2] *= -1
        rows = rows.clamp(-65504, 65504).to(dtype)
        if rows.double().abs().max() > 65504:  # bfloat16 rounded up: a cache refuses it
            continue
        for codec in FORMATS[name]:
            for source in (rows, rows.float()):  # coded from either, read back in dtype
                found = codec.decode(codec.encode(source), dtype)
                assert found.isfinite().all()
                if not name.startswith("fp8_e4m3"):
                    assert (found.double() / source.double() - 1).abs().max() < 0.15


def test_tiny_rows_meet_the_smallest_scale_and_are_clamped() -> None:
    """float16 scales end at 2^-24: codes are cut at 127, none wraps round."""
    for top in (1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 0.0078, 0.1):
        row = torch.linspace(-1, 1, 32)[None, None] * top
        codes, scale = Integers(8).encode(row)
        assert codes.view(torch.int8).abs().max() <= 127
        assert codes.view(torch.int8).abs().max() == (
            0 if top == 1e-8 else codes.max().clamp(0, 127)
        )
        back = Integers(8).decode([codes, scale], torch.float32)
        coarse = max(0.0, top - 127 * float(scale))  # what a scale too small cuts off
        assert (back - row).abs().max() <= (max(float(scale), 2**-24) / 2 + coarse) * 1.001
        assert (back * row >= 0).all()  # no sign turned
    codes, _ = Integers(8).encode(torch.tensor([[[1e-5, -1e-5]]]))
    assert codes.view(torch.int8).flatten().tolist() == [127, -127]


def test_a_narrow_group_far_from_zero_is_off_by_its_minimum() -> None:
    codec = Integers(4, width=32, minimum=True)
    for least in (1000.0, 1000.1, 1000.3, 1000.49):
        row = torch.linspace(least, least + 0.4, 32)[None, None]
        _, scale, low = codec.encode(row)
        up = max(0.0, float(low) - least)  # float16 knows steps of a half there
        assert up <= 0.25
        assert (read_back(codec, row) - row).abs().max() <= float(scale) / 2 + up + 1e-3


def test_wide_rows_are_coded_in_their_own_precision() -> None:
    codes, scale = Integers(8).encode(torch.tensor([[[127, 2.5 + 1e-9]]], dtype=torch.float64))
    assert (codes.view(torch.int8).flatten().tolist(), scale.item()) == ([127, 3], 1)


@pytest.mark.parametrize("tile", [1, 7, 45, 64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_attention_over_codes_is_attention_over_what_is_read_back(tile: int, dtype) -> None:
    generator = torch.Generator().manual_seed(11)
    q = torch.randn(2, 6, 1, 32, generator=generator, dtype=torch.float64)
    k, v = (torch.randn(2, 3, 45, 32, generator=generator, dtype=torch.float64) for _ in "kv")
    k *= torch.linspace(0.1, 3, 45)[:, None].double()  # scales differ from row to row,
    v *= 50 * torch.linspace(2, 0.1, 45)[:, None].double()  # and K's from V's
    coded = [Integers(8).encode(x) for x in (k, v)]
    keys, values = (Integers(8).decode(parts, torch.float64) for parts in coded)
    expected = torch.empty(2, 6, 1, 32, dtype=torch.float64)
    for b in range(2):
        for head in range(6):
            scores = keys[b, head // 2] @ q[b, head, 0] / 32**0.5
            expected[b, head, 0] = scores.softmax(0) @ values[b, head // 2]
    bound = 1e-9 if dtype == torch.float64 else 1e-3
    for found in (attend_codes(q.to(dtype), *coded, tile), attend_sums(q.to(dtype), *coded)):
        assert found.shape == q.shape
        assert found.dtype == dtype
        assert (found.double() - expected).abs().max() < bound
    assert expected.abs().max() > 1


def test_a_group_of_one_range_meets_its_ends() -> None:
    for codec in (*FORMATS["int4"], FORMATS["int4_token"][0]):
        rows = torch.arange(32.0)[:, None].expand(32, 32)
        rows = rows if codec.tokens > 1 else rows.T
        found = read_back(codec, rows[None].contiguous())[0]
        assert (found.min(), found.max().round()) == (0, 31)
        assert (found - rows).abs().max() <= 31 / 15 / 2 * 1.01


def test_int8_codes_stay_within_127() -> None:
    """-128 has no positive partner: a scale that rounds down must not reach it, nor wrap at 127."""
    codec = FORMATS["int8"][0]
    for top in (1.0, 0.3337, 5.4321, 65504.0):
        for sign in (1, -1):
            row = torch.linspace(-1, 1, 32)[None, None] * top * sign
            codes, scale = codec.encode(row)
            assert codes.view(torch.int8).abs().max() == 127
            assert (read_back(codec, row) - row).abs().max() <= 0.51 * scale.max()
    extreme = torch.tensor([[[-128.0, 127.0] * 16]])
    assert (read_back(codec, extreme) - extreme).abs().max() < 0.6


@pytest.mark.parametrize(("name", "largest"), [("fp8_e4m3", 448.0), ("fp8_e5m2", 57344.0)])
def test_fp8_is_clamped_before_it_is_cast(name: str, largest: float) -> None:
    codec = FORMATS[name][0]
    rows = torch.tensor([[[largest, -largest, largest * 1.1, -65504.0, 65504.0, 1e30, 0.0, 1.0]]])
    ends = [largest, -largest, largest, -largest, largest, largest, 0.0, 1.0]
    assert read_back(codec, rows).flatten().tolist() == ends


@codecs
def test_outliers_in_one_channel_hurt_only_per_token_groups(codec) -> None:
    """The reason for per-channel keys: an outlier widens the range of those that share its scale."""
    rows = random_rows(1, 32)[0, 0]
    calm = rows.clone()
    calm[..., 5] -= 20
    calm[..., 17] /= 9
    others = [c for c in range(32) if c not in (5, 17)]

    def error(x: Tensor) -> float:
        return float((read_back(codec, x) - x)[..., others].abs().mean())

    shares = isinstance(codec, Waiting) or (isinstance(codec, Integers) and codec.tokens == 1)
    assert (error(rows) > 2 * error(calm)) == shares


# A real cache: fills, flushes, reads back


@formats
@settings(max_examples=25, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 40), min_size=1, max_size=6).filter(lambda p: sum(p) <= 128),
    only=st.sampled_from([None, "keys", "values"]),
)
def test_what_is_read_is_a_plain_list_coded(name: str, pieces: list[int], only) -> None:
    cache = make(name, 2, only=only)
    rows = [random_rows(2, sum(pieces), seed) for seed in (1, 2)]
    start = 0
    for piece in pieces:
        poison(cache)
        for layer in range(2):
            k, v = (x[layer, :, :, start : start + piece] for x in rows)
            found = cache.update(layer, k, v)
            for half, x, got in zip((cache.k, cache.v), rows, found, strict=True):
                for i in range(2):
                    expected = expected_rows(half.codec, x[layer, i, :, : start + piece], start)
                    assert torch.equal(got[i], expected)
        cache.advance(piece)
        start += piece


@formats
@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(*[st.integers(0, 37)] * 3), min_size=1, max_size=5).filter(
        lambda steps: max(map(sum, zip(*steps, strict=True))) + 37 <= 128
    )
)
def test_sequences_of_unequal_length(name: str, steps: list[tuple[int, int, int]]) -> None:
    cache = make(name, 3)
    rows = [random_rows(3, 128, seed) for seed in (3, 4)]
    for counts in steps:
        poison(cache)
        before, q_len = cache.lengths.tolist(), max(1, *counts)
        for layer in range(2):
            new = []
            for x in rows:
                padded = torch.full((3, 3, q_len, 32), 777.0, dtype=torch.float64)
                for i, (start, count) in enumerate(zip(before, counts, strict=True)):
                    padded[i, :, :count] = x[layer, i, :, start : start + count]
                new.append(padded)
            found = cache.update(layer, *new)
            for half, x, got in zip((cache.k, cache.v), rows, found, strict=True):
                assert got.shape == (3, 3, max(before) + q_len, 32)
                for i, (start, count) in enumerate(zip(before, counts, strict=True)):
                    expected = expected_rows(half.codec, x[layer, i, :, : start + count], start)
                    assert torch.equal(got[i, :, : start + count], expected)
                    assert torch.equal(got[i, :, start + q_len :], 0 * got[i, :, start + q_len :])
        cache.advance(torch.tensor(counts))
    assert cache.lengths.tolist() == [sum(column) for column in zip(*steps, strict=True)]


@pytest.mark.parametrize("name", ["int4_group_tail", "int4", "int2"])
@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65])
@pytest.mark.parametrize("how", ["at once", "one by one"])
def test_block_boundaries(name: str, length: int, how: str) -> None:
    """Decoding past the tail codes old tokens: the count is cumulative, not that of the pass."""
    cache, rows = make(name), random_rows(1, length)
    piece = length if how == "at once" else 1
    for start in range(0, length, piece):
        for layer in range(2):
            new = rows[layer, :, :, start : start + piece]
            cache.update(layer, new, new)
        cache.advance(piece)
    full, rest = divmod(length, 32)
    whole = cache.k.codec.encode(rows[:, :, :, : 32 * full])
    for part, expected in zip(cache.k.parts, whole, strict=True):
        assert torch.equal(part[:, :, :, :full], expected)
    assert torch.equal(cache.k.tail[:, :, :, :rest], rows[:, :, :, 32 * full :])
    row = 32 * (2 if name == "int2" else 4) // 8 + 4  # a value's bytes per 32, scale and minimum
    per_block = 2 * 3 * 32 * row
    assert cache.nbytes_used == full * per_block + rest * 2 * 3 * 32 * 8 + length * 2 * 3 * row


@formats
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_of_rows(name: str, dtype: torch.dtype) -> None:
    """Read back in the rows' own precision, as coding them in float64 gives, but for rounding."""
    cache = QuantizedCache(CONFIG, 2, format=name, dtype=dtype)
    rows = random_rows(2, 40).to(dtype)
    for layer in range(2):
        cache.update(layer, rows[layer], rows[layer])
    cache.advance(40)
    found = cache.update(0, rows[0, :, :, :1], rows[0, :, :, :1])
    for half, got in zip((cache.k, cache.v), found, strict=True):
        assert got.dtype == dtype
        for i in range(2):
            expected = expected_rows(half.codec, rows[0, i].double(), 40)
            wrong = (got[i, :, :40].double() - expected).abs() > 0.01 * (expected.abs() + 1)
            assert wrong.float().mean() < 0.01  # a code may flip where rounding decides


def test_a_tail_changes_when_keys_are_coded_and_nothing_else() -> None:
    """`int4_group_tail` differs from `int4_group` in the tail alone, from `int4` in the groups alone."""
    rows = random_rows(1, 70)
    read = {}
    for name in ("int4_group", "int4_group_tail", "int4"):
        cache = make(name)
        for layer in range(2):
            cache.update(layer, rows[layer, :, :, :69], rows[layer, :, :, :69])
        cache.advance(69)
        read[name] = cache.update(0, rows[0, :, :, 69:], rows[0, :, :, 69:])
        read[name] += (cache.nbytes, cache.nbytes_used)
    group, tail, channel = read.values()
    assert torch.equal(group[0][:, :, :64], tail[0][:, :, :64])
    assert torch.equal(tail[0][:, :, 64:], rows[0, :, :, 64:])
    assert not torch.isclose(group[0][:, :, 64:], tail[0][:, :, 64:]).all()
    assert torch.equal(group[1], tail[1])
    assert torch.equal(tail[0][:, :, 64:], channel[0][:, :, 64:])
    assert tail[2:] == channel[2:]  # to the byte


@formats
def test_each_block_is_coded_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, rows = make(name, 2), random_rows(2, 100)
    coded: list[int] = []
    for kind in (Integers, Cast):
        original = kind.encode

        def counting(self, x, original=original):
            coded.append(x.shape[-2])
            return original(self, x)

        monkeypatch.setattr(kind, "encode", counting)
    for start, end in pairwise([0, 40, 41, 42, 64, 95, 96, 97, 100]):
        for layer in range(2):
            new = rows[layer, :, :, start:end]
            cache.update(layer, new, new)
        cache.advance(end - start)
    halves = [96 if half.codec.tokens == 32 else 100 for half in (cache.k, cache.v)]
    assert sum(coded) == 2 * sum(halves)


@formats
def test_passes_of_32_are_decoding_one_by_one(name: str) -> None:
    """In float64: in float32 a rounding error would flip codes, and no tolerance would hold."""
    ids = torch.randint(97, (2, 96), generator=torch.Generator().manual_seed(5))
    slow = feed(make(name, 2), ids, [1] * 96)
    torch.testing.assert_close(feed(make(name, 2), ids, [32] * 3), slow, atol=1e-9, rtol=0)
    exact = MODEL(ids)
    assert (slow - exact).abs().max() > 1e-6  # and it is not the plain cache in disguise
    assert slow.isfinite().all()


@formats
def test_finer_codes_come_closer(name: str) -> None:
    ids = torch.randint(97, (1, 96), generator=torch.Generator().manual_seed(6))
    error = float((feed(make(name), ids, [32] * 3) - MODEL(ids)).std())
    bound = {"float16": 0.01, "bfloat16": 0.05, "int8": 0.2, "fp8_e4m3": 0.5}
    assert error < bound.get(name, 20)


@formats
def test_reordering_moves_codes_scales_and_tail_together(name: str) -> None:
    lengths, order = torch.tensor([70, 33, 64]), torch.tensor([2, 0, 0])
    rows = random_rows(3, 80)
    cache, moved = make(name, 3), make(name, 3)

    def write(cache: QuantizedCache, rows: Tensor, counts: Tensor) -> list[Tensor]:
        read = []
        for layer in range(2):
            read += cache.update(layer, rows[layer], rows[layer].flip(-1))
        cache.advance(counts)
        return read

    write(cache, rows[:, :, :, :70], lengths)
    cache.reorder(order)
    write(moved, rows[:, order, :, :70], lengths[order])
    assert cache.lengths.tolist() == moved.lengths.tolist() == [64, 70, 70]
    for step in range(3):
        new = random_rows(3, 9, seed=step + 7)
        one, other = (write(c, new, torch.tensor([9, 3, 5])) for c in (cache, moved))
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@formats
def test_reset_and_reuse(name: str) -> None:
    ids = torch.randint(97, (2, 70), generator=torch.Generator().manual_seed(9))
    cache = make(name, 2)
    first = feed(cache, ids, [40, 30])
    cache.reset()
    poison(cache)
    assert cache.nbytes_used == 0
    assert torch.equal(feed(cache, ids, [40, 30]), first)


@formats
def test_reset_forgets_the_pass_under_way(name: str) -> None:
    cache, rows = make(name), random_rows(1, 7)
    for layer in range(2):
        cache.update(layer, rows[layer], rows[layer])
    cache.reset()
    with pytest.raises(ValueError, match=r"counts is \[7\]; the pass stored 0"):
        cache.advance(7)
    assert held_nbytes(cache) == cache.nbytes + 8
    assert cache.lengths.tolist() == [0]


@formats
def test_reordering_waits_for_the_end_of_the_pass(name: str) -> None:
    cache, rows, swap = make(name, 2), random_rows(2, 40), torch.tensor([1, 0])
    cache.update(0, rows[0], rows[0])
    with pytest.raises(ValueError, match="A pass of 40 rows is under way; advance first") as told:
        cache.reorder(swap)
    assert "\n" not in str(told.value)
    cache.update(1, rows[1], rows[1])
    cache.advance(40)
    cache.reorder(swap)
    found, _ = cache.update(0, rows[0, :, :, :1], rows[0, :, :, :1])
    assert torch.equal(found[0, :, :40], expected_rows(cache.k.codec, rows[0, 1], 40))
    cache.advance(0)  # gives the pass up
    cache.reorder(swap)


@formats
def test_rows_that_wait_for_advance_are_counted(name: str) -> None:
    cache, rows = make(name), random_rows(1, 40)
    empty = cache.nbytes
    for layer in range(2):
        cache.update(layer, rows[layer].clone(), rows[layer].clone())
        waiting = (layer + 1) * 3 * 40 * 32 * 8 if cache.k.codec.tokens > 1 else 0
        assert cache.nbytes == empty + waiting
        assert held_nbytes(cache) == cache.nbytes + 8
    cache.advance(40)
    assert held_nbytes(cache) == cache.nbytes + 8 == empty + 8


@formats
def test_on_meta_only_shapes_move(name: str) -> None:
    cache = QuantizedCache(CONFIG, 2, format=name, device="meta")
    rows = torch.empty(2, 3, 40, 32, device="meta")
    for layer in range(2):
        assert cache.update(layer, rows, rows)[0].shape == rows.shape
    cache.advance(torch.tensor([40, 33]))
    keys, values = cache.update(0, rows[:, :, :1], rows[:, :, :1])
    assert keys.shape == values.shape == (2, 3, 41, 32)


@dataclass(frozen=True)
class WideConfig(DecoderConfig):
    """Keys of 64 values, values of 32, as the seam of lesson 7 allows."""

    k_dim: int = 64
    v_dim: int = 32


@formats
def test_keys_and_values_may_differ_in_width(name: str) -> None:
    config = WideConfig(**vars(CONFIG))
    cache = QuantizedCache(config, 1, format=name, dtype=torch.float64)
    k = torch.cat([random_rows(1, 40), random_rows(1, 40, 1)], dim=-1)
    v = random_rows(1, 40, 2)
    for layer in range(2):
        cache.update(layer, k[layer], v[layer])
    cache.advance(40)
    keys, values = cache.update(0, k[0, :, :, :1], v[0, :, :, :1])
    assert torch.equal(keys[0, :, :40], expected_rows(cache.k.codec, k[0, 0], 40))
    assert torch.equal(values[0, :, :40], expected_rows(cache.v.codec, v[0, 0], 40))


def test_one_look_at_the_device_for_each_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each look waits for all that was asked of it."""
    cache, rows, looks = make("int8"), random_rows(1, 3), []
    tolist, truth = Tensor.tolist, Tensor.__bool__

    def look(original):
        return lambda x: (looks.append(x) if x.is_floating_point() else None, original(x))[1]

    monkeypatch.setattr(Tensor, "tolist", look(tolist))
    monkeypatch.setattr(Tensor, "__bool__", look(truth))
    cache.update(0, rows[0], rows[0])
    assert len(looks) == 1


@formats
def test_a_pass_that_breaks_off_leaves_nothing(name: str) -> None:
    cache, rows = make(name), random_rows(1, 96)
    for layer in range(2):
        cache.update(layer, rows[layer, :, :, :40], rows[layer, :, :, :40])
    cache.advance(40)
    cache.update(0, *(2 * rows[0, :, :, 40:90] for _ in range(2)))  # no layer 1, no advance
    with pytest.raises(ValueError, match=r"counts is \[50\]; the pass stored 0"):
        cache.advance(50)
    assert cache.lengths.tolist() == [40]
    for layer in range(2):
        new = rows[layer, :, :, 40:41]
        keys, values = cache.update(layer, new, new)
        for half, got in ((cache.k, keys), (cache.v, values)):
            assert torch.equal(got[0], expected_rows(half.codec, rows[layer, 0, :, :41], 40))


@formats
@pytest.mark.parametrize("second", [40, 7, 50])
def test_a_pass_takes_nothing_over_from_one_that_broke_off(name: str, second: int) -> None:
    """The first pass got through and was not counted; the second ends after one of two layers."""
    cache, rows = make(name), random_rows(1, 50)
    empty = cache.nbytes
    for layer in range(2):
        cache.update(layer, *(2 * rows[layer, :, :, :40] for _ in "kv"))
    cache.update(0, *(rows[0, :, :, :second].clone() for _ in "kv"))
    with pytest.raises(ValueError, match=r"counts is \[7\]; the pass stored 0"):
        cache.advance(7)
    waiting = 3 * second * 32 * 8 if cache.k.codec.tokens > 1 else 0  # of the second pass alone
    assert cache.nbytes == empty + waiting
    cache.update(1, *(rows[1, :, :, :second].clone() for _ in "kv"))
    cache.advance(second)
    found = cache.update(1, *(rows[1, :, :, :1] for _ in "kv"))
    for half, got in zip((cache.k, cache.v), found, strict=True):
        expected = expected_rows(half.codec, rows[1, 0, :, :second], second)
        assert torch.equal(got[0, :, :second], expected)


@pytest.mark.parametrize("capacity", [1, 31, 32, 33, 65])
@formats
def test_any_capacity_can_be_filled_to_the_last_token(name: str, capacity: int) -> None:
    cache, rows = make(name, capacity=capacity), random_rows(1, capacity + 1)
    for start in range(capacity):
        for layer in range(2):
            new = rows[layer, :, :, start : start + 1]
            cache.update(layer, new, new)
        cache.advance(1)
    before = cache.nbytes_used
    with pytest.raises(ValueError, match="exceed the cache's capacity"):
        cache.update(0, rows[0, :, :, :1], rows[0, :, :, :1])
    assert cache.nbytes_used == before


# Bytes


@pytest.mark.parametrize(
    ("name", "dtype"), [("int8", "int8"), ("int4", "int4"), ("fp8_e4m3", "fp8")]
)
@pytest.mark.parametrize(("context", "batch"), [(32, 1), (256, 3)])
def test_bytes_are_the_accountings_and_a_tail(
    name: str, dtype: str, context: int, batch: int
) -> None:
    config = DecoderConfig(**smollm2.CONFIG)
    cache = QuantizedCache(config, batch, context, format=name, dtype=torch.float16)
    spec = cache_spec(facts("smollm2-135m").config)
    tail = 30 * batch * 3 * 32 * 64 * 2 if name == "int4" else 0
    assert cache.nbytes == spec.nbytes(context, batch, cache_dtype=dtype) + tail
    assert held_nbytes(cache) == cache.nbytes + 8 * batch


@formats
@pytest.mark.parametrize("only", [None, "keys", "values"])
def test_every_byte_that_is_held_is_counted(name: str, only: str | None) -> None:
    cache = make(name, 3, capacity=70, only=only)
    rows = random_rows(3, 65)
    for layer in range(2):
        cache.update(layer, rows[layer], rows[layer])
    cache.advance(65)
    assert held_nbytes(cache) == cache.nbytes + 3 * 8  # nothing of the pass is kept
    assert 0 < cache.nbytes_used <= cache.nbytes
    if only:
        plain = 3 * 2 * 3 * 70 * 32 * 2  # the other half, in float16
        other = cache.v if only == "keys" else cache.k
        assert type(other) is CodedTokens
        assert sum(part.nbytes for part in other.parts) == plain


# Refused


@formats
@pytest.mark.parametrize("half", ["k", "v"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 65505.0, -1e30])
def test_what_no_scale_fits_is_refused_whole(name: str, half: str, value: float) -> None:
    cache, rows = make(name), random_rows(1, 33)
    for layer in range(2):
        cache.update(layer, rows[layer], rows[layer])
    cache.advance(33)
    before = [
        part[:, :, :, : 33 // half.codec.tokens].clone()
        for half in (cache.k, cache.v)
        for part in half.parts
    ]
    bad, good = rows[0, :, :, :1].clone(), rows[0, :, :, :1]
    bad[0, 1, 0, 3] = value
    k, v = (bad, good) if half == "k" else (good, bad)
    with pytest.raises(ValueError, match=f"{half} holds NaN or a value beyond") as caught:
        cache.update(0, k, v)
    assert "\n" not in str(caught.value)
    after = [
        part[:, :, :, : 33 // half.codec.tokens]
        for half in (cache.k, cache.v)
        for part in half.parts
    ]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_limit_holds_in_bfloat16_too() -> None:
    """bfloat16 has no 65,504: compared in it, 65,536 would pass."""
    cache = QuantizedCache(CONFIG, 1, dtype=torch.bfloat16)
    rows = torch.full((1, 3, 2, 32), 65536.0).bfloat16()
    with pytest.raises(ValueError, match="k holds NaN or a value beyond ±65,504"):
        cache.update(0, rows, rows)
    cache.update(0, *(torch.full_like(rows, 65280) for _ in range(2)))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="format is 'int5'; it must be one of float16, "):
        make("int5")
    with pytest.raises(ValueError, match="only is 'k'"):
        make("int4", only="k")
    narrow = DecoderConfig(97, 24, 2, 6, 3, 24, 40, 32)
    with pytest.raises(ValueError, match="v_dim is 24; int4 takes a multiple of 32"):
        QuantizedCache(narrow, format="int4")
    QuantizedCache(narrow, format="int4", only="keys")  # per channel any width will do
    odd = WideConfig(**{**vars(CONFIG), "k_dim": 3})
    with pytest.raises(ValueError, match="k_dim is 3; int4_token takes a multiple of 2"):
        QuantizedCache(odd, format="int4_token")
    cache = make("int4", 3)
    for order in ([0, 1], [0, 1, 3], [0, 1, -1], [0.0, 1.0, 2.0]):
        with pytest.raises(ValueError, match="order is"):
            cache.reorder(torch.tensor(order))
    rows = random_rows(3, 5)
    with pytest.raises(ValueError, match="layer is 2"):
        cache.update(2, rows[0], rows[0])
    with pytest.raises(ValueError, match=r"k is torch\.float32"):
        cache.update(0, rows[0].float(), rows[0].float())
