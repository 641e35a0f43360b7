"""Caches that forget equal full attention under the band mask; each known bug is caught by a check."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM
from transformers.cache_utils import DynamicCache, StaticCache

from kvbook.accounting import cache_spec
from kvbook.accounting.facts import model as facts
from kvbook.accounting.whatif import what_if
from kvbook.lessons.cache import GrowingCache, KVCache
from kvbook.lessons.decoder import Decoder, DecoderConfig, generate
from kvbook.lessons.gqa import LatentConfig
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.lessons.window import (
    HybridCache,
    WindowCache,
    held_positions,
    slot_of,
    window_mask,
)

CONFIG = DecoderConfig(
    vocab_size=97,
    dim=24,
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    ffn_dim=40,
    max_seq_len=48,
)
ROW = 2 * 3 * 4 * 8  # bytes of a token in one layer: K and V, 3 heads, 4 values of 8 bytes
KEPT = [(1, 0), (2, 0), (7, 0), (8, 0), (60, 0), (1, 1), (5, 2), (4, 4), (3, 60)]
kept = pytest.mark.parametrize(("window", "sinks"), KEPT)


def make_model(config: DecoderConfig = CONFIG) -> Decoder:
    model = Decoder(config).double().requires_grad_(False)
    random = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=random) / 4)
    return model


MODEL = make_model()


class Banded(GrowingCache):
    """Keeps every row, and lets each query of a layer see that layer's window and the sinks."""

    def __init__(self, *arguments, windows: list[int], sinks: int = 0, **options) -> None:
        super().__init__(*arguments, **options)
        self.windows, self.sinks = windows, sinks

    def mask(self, layer: int, q_len: int) -> Tensor:
        slots = torch.arange(self.end + q_len)
        return window_mask(self.positions(q_len), slots[None], self.windows[layer], self.sinks)


def band(ids: Tensor, window: int, sinks: int = 0, model: Decoder = MODEL) -> Tensor:
    """Full attention under the band mask, in one pass."""
    windows = [window] * model.config.n_layers
    return model(
        ids, Banded(model.config, len(ids), windows=windows, sinks=sinks, dtype=torch.float64)
    )


def make(window: int, sinks: int = 0, batch: int = 1, kind=WindowCache, **options) -> WindowCache:
    options = {"dtype": torch.float64, **options}
    return kind(CONFIG, batch, window=window, sinks=sinks, **options)


def random_ids(batch: int, n: int, seed: int = 0) -> Tensor:
    return torch.randint(97, (batch, n), generator=torch.Generator().manual_seed(seed))


def feed(cache: KVCache, ids: Tensor, pieces: list[int], model: Decoder = MODEL) -> Tensor:
    return torch.cat([model(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def differ(found: Tensor, expected: Tensor) -> bool:
    """Whether they differ by far more than rounding; NaN differs."""
    return not bool((found - expected).abs().max() < 1e-4)


def poison(cache: WindowCache) -> None:
    """NaN into every slot whose row no later query may see."""
    held = held_positions(cache.lengths, cache.slots, cache.window, cache.sinks)
    seen = window_mask(cache.lengths[:, None], held, cache.window, cache.sinks)[:, 0, 0]
    for rows in (cache.k, cache.v):
        rows.masked_fill_(~seen[:, None, :, None], float("nan"))


# Book-keeping


@kept
def test_slots_and_positions_are_each_other_s_inverse(window: int, sinks: int) -> None:
    """Against a plain simulation: tokens are written one by one, slots remember the last."""
    slots = min(window + sinks, 48)
    memory = [-1] * slots
    for length in range(48):
        held = held_positions(torch.tensor([length]), slots, window, sinks)
        assert held.tolist() == [memory]
        alive = {p for p in range(length) if p < sinks or p >= length - window}
        assert {p for p in memory if p >= 0} == alive
        memory[int(slot_of(torch.tensor(length), window, sinks))] = length


def test_the_mask_by_hand() -> None:
    at, keys = (
        torch.tensor([[2, 5], [0, 3]]),
        torch.tensor([[4, 5, 0, 1, 2, 3], [-1, -1, 0, 1, 2, 3]]),
    )
    assert window_mask(at, keys, window=2).int().tolist() == [
        [[[0, 0, 0, 1, 1, 0], [1, 1, 0, 0, 0, 0]]],
        [[[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1]]],
    ]
    assert window_mask(at, keys, window=2, sinks=1).int().tolist() == [
        [[[0, 0, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]],
        [[[0, 0, 1, 0, 0, 0], [0, 0, 1, 0, 1, 1]]],
    ]


def test_window_8_prefill_6_decode_4() -> None:
    """The write goes to 6, then 7; nothing rolls before the 9th token."""
    cache = make(8)
    ids = random_ids(1, 10)
    MODEL(ids[:, :6], cache)
    for expected in (6, 7, 0, 1):
        before = cache.k.clone().nan_to_num()
        step = int(cache.lengths[0])
        MODEL(ids[:, step : step + 1], cache)
        changed = (cache.k.nan_to_num() != before).any(-1).any(2).any(1).any(0)
        assert changed.nonzero()[:, 0].tolist() == [expected]


# Equal to full attention under the band mask


@kept
@pytest.mark.parametrize("pieces", [[30], [1] * 30, [13, 17], [6, *[1] * 24], [2, 20, 1, 7]])
def test_piece_by_piece(window: int, sinks: int, pieces: list[int]) -> None:
    ids = random_ids(2, 30)
    expected, cache = band(ids, window, sinks), make(window, sinks, 2)
    poison(cache)
    for piece, right in zip(ids.split(pieces, 1), expected.split(pieces, 1), strict=True):
        same(MODEL(piece, cache), right)
        poison(cache)


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 12), min_size=1, max_size=8).filter(lambda p: sum(p) <= 40),
    window=st.integers(1, 13),
    sinks=st.sampled_from([0, 0, 1, 2, 4, 9]),
    capacity=st.integers(40, 48),
    batch=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_split_equals_the_band_mask(pieces, window, sinks, capacity, batch, seed) -> None:
    ids = random_ids(batch, sum(pieces), seed)
    cache = make(window, sinks, batch, capacity=capacity)
    same(feed(cache, ids, pieces), band(ids, window, sinks))
    assert cache.lengths.tolist() == [sum(pieces)] * batch


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=6).filter(
        lambda steps: sum(max(1, *counts) for counts in steps) <= 40
    ),
    window=st.integers(1, 9),
    sinks=st.sampled_from([0, 0, 1, 3]),
    seed=st.integers(0, 99),
)
def test_rows_of_unequal_length_wrap_by_themselves(steps, window, sinks, seed) -> None:
    """Padding overwrites no row that is needed, and is not seen: each row equals itself run alone."""
    texts = random_ids(3, 48, seed)
    expected = [band(text[None], window, sinks)[0] for text in texts]
    cache = make(window, sinks, 3)
    poison(cache)
    for counts in steps:
        ids = torch.zeros(3, max(1, *counts), dtype=torch.long)
        before = cache.lengths.tolist()
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            ids[row, :count] = texts[row, start : start + count]
        logits = MODEL(ids, cache, counts=torch.tensor(counts))
        poison(cache)
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            same(logits[row, :count], expected[row][start : start + count])
    assert cache.lengths.tolist() == [sum(column) for column in zip(*steps, strict=True)]


@pytest.mark.parametrize("pieces", [[30], [7, 4, 5, 6, 7, 1], [5, *[1] * 25]])
def test_transformers_mistral_sees_the_same_window(pieces: list[int]) -> None:
    """Random weights; their window counts the token itself, too: 6 would differ."""
    theirs = MistralForCausalLM(
        MistralConfig(
            vocab_size=97,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=3,
            head_dim=4,
            max_position_embeddings=48,
            sliding_window=5,
            rope_parameters={"rope_type": "default", "rope_theta": CONFIG.rope_theta},
            rms_norm_eps=CONFIG.norm_eps,
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
    )
    theirs = theirs.double().eval()
    names = {
        "model.": "",
        "embed_tokens": "embed",
        "layers.": "blocks.",
        "self_attn": "attention",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "mlp_norm",
    }
    for name, weight in theirs.named_parameters():
        for old, new in names.items():
            name = name.replace(old, new)
        weight.data.copy_(MODEL.state_dict()[name])
    ids = random_ids(2, 30)
    with torch.no_grad():
        expected = theirs(ids).logits
    found = feed(make(5, batch=2), ids, pieces)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)  # their norms are float32
    assert differ(feed(make(6, batch=2), ids, pieces), expected)


def test_transformers_keeps_one_row_less_or_as_many() -> None:
    """What lesson 9 says of engines: window - 1 between steps in a growing cache, window in a fixed one."""
    config = MistralConfig(
        vocab_size=97,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=4,
        sliding_window=5,
    )
    theirs = MistralForCausalLM(config).eval()
    for cache, rows in (
        (DynamicCache(config=config), 4),
        (StaticCache(config, max_cache_len=30), 5),
    ):
        with torch.no_grad():
            theirs(random_ids(2, 30), cache=cache)
        assert cache.layers[0].keys.shape[2] == rows


# Known bugs, each written down and caught


def test_trimming_before_attending_is_caught() -> None:
    class TrimFirst(WindowCache):
        def update(self, layer, k, v):
            keys, values = super().update(layer, k, v)
            return keys[:, :, -self.window :], values[:, :, -self.window :]

        def mask(self, layer, q_len):
            mask = super().mask(layer, q_len)
            return None if mask is None else mask[..., -self.window :]

    ids = random_ids(1, 20)
    assert differ(feed(make(4, kind=TrimFirst), ids, [20]), band(ids, 4))
    assert differ(feed(make(4, kind=TrimFirst), ids, [3, 17]), band(ids, 4))
    same(feed(make(4, kind=TrimFirst), ids, [1] * 20), band(ids, 4))  # a test by steps is blind


def test_a_long_prompt_stored_from_slot_0_is_caught() -> None:
    """Its last rows go to slots 0, 1, ...; then past % window overwrites a row still needed."""

    class FromSlot0(WindowCache):
        def advance(self, counts):
            asides = {
                layer: pair for layer, pair in self.aside.items() if pair[0].shape[2] > self.window
            }
            super().advance(counts)
            for layer, (k, v) in asides.items():
                self.k[layer], self.v[layer] = k[:, :, -self.window :], v[:, :, -self.window :]

    ids = random_ids(1, 20)
    assert differ(feed(make(4, kind=FromSlot0), ids, [6, *[1] * 14]), band(ids, 4))
    same(feed(make(4, kind=FromSlot0), ids, [8, *[1] * 12]), band(ids, 4))  # by luck: 8 % 4 is 0
    same(feed(make(4), ids, [6, *[1] * 14]), band(ids, 4))


def test_a_short_prompt_and_a_wrap_with_sinks() -> None:
    """The slot counts from the first token behind the sinks; past % window would hit a sink."""
    positions = torch.arange(20)
    wrong = positions % 6
    right = slot_of(positions, window=6, sinks=2)
    assert (wrong[6:12] < 2).any()
    assert right[2:].min() == 2
    assert right.tolist() == [0, 1, *[2 + n % 6 for n in range(18)]]
    ids = random_ids(1, 30)
    same(feed(make(6, 2), ids, [3, *[1] * 27]), band(ids, 6, 2))


def test_a_window_of_128_reads_128_rows() -> None:
    config = replace(CONFIG, n_layers=1, max_seq_len=300)
    cache = WindowCache(config, window=128, dtype=torch.float64)
    rows = torch.ones(1, 3, 127, 4, dtype=torch.float64)
    cache.update(0, rows, rows)
    cache.advance(127)
    for _ in range(140):
        keys, values = cache.update(0, rows[:, :, :1], rows[:, :, :1])
        assert keys.shape[2] == values.shape[2] == 128
        assert cache.mask(0, 1) is None
        assert keys.data_ptr() == cache.k.data_ptr()  # read where they lie, not copied
        cache.advance(1)
    ids = random_ids(1, 20)
    assert differ(band(ids, 8), band(ids, 9))  # one more would show


@pytest.mark.parametrize(
    ("window", "sinks", "rows"), [(60, 0, 48), (9, 0, 9), (40, 30, 48), (9, 4, 13)]
)
def test_no_more_than_may_pass_is_allocated(window: int, sinks: int, rows: int) -> None:
    cache = make(window, sinks, batch=2)
    assert cache.slots == rows
    assert cache.nbytes == 2 * 2 * rows * ROW
    assert held_nbytes(cache) == cache.nbytes + 2 * 8
    feed(cache, random_ids(2, 48), [20, 28])
    assert cache.nbytes == cache.nbytes_used == 2 * 2 * rows * ROW
    assert held_nbytes(cache) == cache.nbytes + 2 * 8


def test_padding_written_at_once_is_caught() -> None:
    """A row of 2 real tokens of 5 would lose three rows that it still needs."""

    class WriteAll(WindowCache):
        def advance(self, counts):
            start, asides = self.lengths, dict(self.aside)
            super().advance(counts)
            for layer, (k, _) in asides.items():
                for row in range(self.batch):
                    new = start[row] + torch.arange(k.shape[2])
                    self.k[layer, row, :, slot_of(new, self.window)] = k[row]

    def run(kind) -> Tensor:
        cache = make(6, batch=2, kind=kind)
        texts = random_ids(2, 20)
        MODEL(texts[:, :10], cache)
        MODEL(texts[:, 10:15], cache, counts=torch.tensor([2, 5]))
        return MODEL(torch.stack([texts[0, 12:13], texts[1, 15:16]]), cache)[0, -1]

    expected = band(random_ids(2, 20)[:1], 6)[0, 12]
    assert differ(run(WriteAll), expected)
    same(run(WindowCache), expected)


def test_one_length_for_all_rows_is_caught() -> None:
    class OneLength(WindowCache):
        def seen(self, q_len):
            held, new = super().seen(q_len)
            return held[:1].expand_as(held), new

    def run(kind) -> Tensor:
        cache = make(4, batch=2, kind=kind)
        texts = random_ids(2, 20)
        MODEL(texts[:, :9], cache, counts=torch.tensor([9, 3]))
        for step in range(5):
            ids = torch.stack([texts[0, 9 + step : 10 + step], texts[1, 3 + step : 4 + step]])
            logits = MODEL(ids, cache)
        return logits[1, -1]

    expected = band(random_ids(2, 20)[1:], 4)[0, 7]
    assert differ(run(OneLength), expected)
    same(run(WindowCache), expected)


def test_heads_are_cached_as_they_are() -> None:
    """n_kv_heads, never n_heads; and expanded by repeat_interleave, not by repeat."""
    cache = make(5)
    assert cache.k.shape == cache.v.shape == (2, 1, 3, 5, 4)
    rows = torch.ones(1, 6, 1, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="k has shape"):
        cache.update(0, rows, rows)

    class Repeating(WindowCache):
        def attend(self, layer, q, k, v):
            keys, values = self.update(layer, k, v)
            mask = self.mask(layer, q.shape[2])
            keys, values = keys.repeat(1, 2, 1, 1), values.repeat(1, 2, 1, 1)
            return torch.nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    ids = random_ids(1, 12)
    assert differ(feed(make(5, kind=Repeating), ids, [7, 5]), band(ids, 5))


def test_generate_twice_with_one_cache() -> None:
    ids = random_ids(1, 9)
    expected = generate(MODEL, ids, 20, Banded(CONFIG, windows=[5, 5], dtype=torch.float64))
    cache = make(5)
    for _ in range(2):
        cache.reset()
        poison(cache)
        assert generate(MODEL, ids, 20, cache).equal(expected)
        assert cache.lengths.tolist() == [28]

    class ForgetsToForget(WindowCache):
        def reset(self):
            self.aside.clear()

    stale = make(5, kind=ForgetsToForget, capacity=48)
    feed(stale, ids, [9])
    stale.reset()
    assert not torch.allclose(MODEL(ids, stale), band(ids, 5))


# The seam


@kept
def test_a_pass_that_breaks_off_can_be_tried_again(window: int, sinks: int) -> None:
    ids, cache = random_ids(2, 14), make(window, sinks, 2)
    MODEL(ids[:, :9], cache, counts=torch.tensor([9, 8]))
    refuse = MODEL.blocks[1].register_forward_pre_hook
    for wrong in (random_ids(2, 4, seed=7), random_ids(2, 1, seed=8)):
        hook = refuse(lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
        with pytest.raises(RuntimeError, match="out of memory"):
            MODEL(wrong, cache)
        hook.remove()
    again = MODEL(torch.stack([ids[0, 9:14], ids[1, 8:13]]), cache)
    expected = band(ids, window, sinks)
    same(again[0], expected[0, 9:])
    same(again[1], expected[1, 8:13])
    assert cache.aside == {}


def test_a_refused_count_changes_nothing() -> None:
    cache = make(4, batch=2)
    feed(cache, random_ids(2, 6), [6])
    before = cache.k.clone(), cache.lengths
    rows = torch.ones(2, 3, 3, 4, dtype=torch.float64)
    cache.update(0, rows, rows)
    with pytest.raises(ValueError, match="counts is"):
        cache.advance(43)
    assert cache.k.equal(before[0])
    assert cache.lengths is before[1]
    assert cache.nbytes == 2 * 2 * 4 * ROW + 2 * rows.nbytes  # what is set aside counts
    cache.reset()
    assert cache.nbytes == 2 * 2 * 4 * ROW


def test_rows_set_aside_do_not_see_later_changes_of_the_caller_s_tensors() -> None:
    cache = make(4)
    rows = torch.ones(1, 3, 3, 4, dtype=torch.float64)
    for layer in range(2):
        cache.update(layer, rows, rows)
    rows.zero_()
    cache.advance(3)
    assert cache.k[:, :, :, :3].eq(1).all()


@pytest.mark.parametrize("window", [0, -1, 1.5, True, "8", None, 2**63])
def test_windows_that_cannot_be_are_refused(window: object) -> None:
    with pytest.raises(ValueError, match=f"window is {window!r}; it must be an int from 1"):
        make(window)


@pytest.mark.parametrize("sinks", [-1, 0.5, True, None, 2**63])
def test_sinks_that_cannot_be_are_refused(sinks: object) -> None:
    with pytest.raises(ValueError, match=f"sinks is {sinks!r}; it must be an int from 0"):
        make(8, sinks)


def test_no_more_than_the_capacity_passes() -> None:
    cache = make(4, capacity=12)
    feed(cache, random_ids(1, 12), [5, 7])
    with pytest.raises(ValueError, match=r"13 tokens, padding included, exceed .* capacity 12"):
        MODEL(random_ids(1, 1), cache)


def test_everything_stays_on_the_cache_s_device() -> None:
    """On "meta" nothing has a value, so any mix-up of devices is an error; lengths are real."""
    model = Decoder(CONFIG).to("meta").requires_grad_(False)
    for cache in (
        WindowCache(CONFIG, 2, window=4, sinks=1, device="meta"),
        HybridCache(CONFIG, 2, layers=[4, None], device="meta"),
    ):
        for counts in ([9, 3], [1, 1], [2, 4], [0, 1]):
            ids = torch.zeros(2, max(counts), dtype=torch.long, device="meta")
            assert model(ids, cache, counts=torch.tensor(counts)).device.type == "meta"
        assert cache.lengths.tolist() == [12, 9]
    with torch.device("meta"):
        cache = make(4, batch=2, device="cpu")
        assert cache.positions(2).device.type == "cpu"
    same(feed(cache, random_ids(2, 9), [4, 1, 4]), band(random_ids(2, 9), 4))


def test_no_autograd_history_stays() -> None:
    cache = make(4)
    model = Decoder(CONFIG).double()
    for n in (6, 1):
        assert model(random_ids(1, n), cache).requires_grad
    assert not any(rows.requires_grad for rows in (cache.k, cache.v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_cache_keeps_the_dtype_it_was_made_for(dtype: torch.dtype) -> None:
    cache = make(4, 2, dtype=dtype)
    ids, model = random_ids(1, 20), make_model().to(dtype)
    found = feed(cache, ids, [9, *[1] * 11], model).double()
    tolerance = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.6}[dtype]
    torch.testing.assert_close(found, band(ids, 4, 2), atol=tolerance, rtol=0)
    assert cache.nbytes == 2 * 6 * 2 * 3 * 4 * dtype.itemsize


# Memory


def test_memory_is_flat_once_full_and_rows_are_written_once() -> None:
    cache, seen = make(8, 2, batch=2), []
    rows = torch.ones(2, 3, 1, 4, dtype=torch.float64)
    with Watch(cache) as watch:
        for _ in range(40):
            for layer in range(2):
                cache.update(layer, rows, rows)
            cache.advance(1)
            seen.append((held_nbytes(cache), cache.nbytes_used))
    assert {held for held, _ in seen} == {2 * 2 * 10 * ROW + 16}
    assert [used for _, used in seen] == [2 * 2 * min(n, 10) * ROW for n in range(1, 41)]
    assert watch.written == 2 * 2 * 40 * ROW
    assert watch.live == held_nbytes(cache)  # nothing is left behind


@pytest.mark.parametrize("context", [3, 12, 13, 40])
@pytest.mark.parametrize(("window", "sinks"), [(12, 0), (9, 3), (60, 0)])
def test_the_accounting_says_what_is_held(context: int, window: int, sinks: int) -> None:
    smol = facts("smollm2-135m").config
    spec = what_if(cache_spec(smol), window=window, sinks=sinks)
    shape = replace(CONFIG, n_layers=30, n_kv_heads=3, n_heads=9, head_dim=64)
    cache = WindowCache(shape, 2, context, window=window, sinks=sinks, device="meta")
    assert cache.nbytes == spec.nbytes(context, 2, cache_dtype="float32")
    assert held_nbytes(cache) == cache.nbytes + held_nbytes(cache.lengths)


# Two kinds of layers


def hybrid(layers: list[int | None], batch: int = 1, config=CONFIG, **options) -> HybridCache:
    return HybridCache(config, batch, layers=layers, dtype=torch.float64, **options)


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6).filter(lambda p: sum(p) <= 40),
    layers=st.lists(st.sampled_from([None, 1, 3, 8]), min_size=3, max_size=3),
    sinks=st.sampled_from([0, 2]),
)
def test_a_hybrid_equals_a_mask_per_layer(pieces, layers, sinks) -> None:
    config = replace(CONFIG, n_layers=3)
    model, ids = make_model(config), random_ids(2, sum(pieces))
    windows = [48 if window is None else window for window in layers]
    expected = model(ids, Banded(config, 2, windows=windows, sinks=sinks, dtype=torch.float64))
    cache = hybrid(layers, 2, config, sinks=sinks)
    for _ in range(2):
        same(feed(cache, ids, pieces, model), expected)
        assert all(part.lengths is cache.lengths for part in cache.parts)
        cache.reset()


def test_a_hybrid_with_unequal_rows() -> None:
    texts, cache = random_ids(2, 30), hybrid([4, None], 2)
    expected = MODEL(texts, Banded(CONFIG, 2, windows=[4, 48], dtype=torch.float64))
    done = [0, 0]
    for counts in ([7, 2], [1, 0], [3, 6], [1, 1], [5, 9]):
        ids = torch.zeros(2, max(counts), dtype=torch.long)
        for row, count in enumerate(counts):
            ids[row, :count] = texts[row, done[row] : done[row] + count]
        logits = MODEL(ids, cache, counts=torch.tensor(counts))
        for row, count in enumerate(counts):
            same(logits[row, :count], expected[row, done[row] : done[row] + count])
            done[row] += count
    assert cache.lengths.tolist() == done


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b", "gemma-3-27b", "gemma-2-27b"])
@pytest.mark.parametrize("context", [100, 5000])
def test_real_hybrids_hold_what_the_accounting_says(name: str, context: int) -> None:
    spec = cache_spec(facts(name).config)
    layer = spec.layers[0]
    shape = replace(
        CONFIG,
        n_layers=len(spec.layers),
        n_heads=layer.n_kv_heads,
        n_kv_heads=layer.n_kv_heads,
        head_dim=layer.k_dim,
        max_seq_len=context,
    )
    layers = [layer.window for layer in spec.layers]
    assert set(layers) == {None, *spec.windows}
    cache = HybridCache(shape, 3, context, layers=layers, dtype=torch.bfloat16, device="meta")
    assert cache.nbytes == spec.nbytes(context, 3)
    assert held_nbytes(cache) == cache.nbytes + 3 * 8


@pytest.mark.parametrize("layers", [[], [4], [4, None, 4]])
def test_an_entry_a_layer(layers: list) -> None:
    with pytest.raises(ValueError, match=f"layers has {len(layers)} entries; it must have 2"):
        hybrid(layers)


def test_a_hybrid_refuses_what_its_parts_would() -> None:
    rows = torch.ones(1, 3, 1, 4, dtype=torch.float64)
    for layer in (-1, 2):
        with pytest.raises(ValueError, match=f"layer is {layer}; the cache has 0 to 1"):
            hybrid([4, None]).update(layer, rows, rows)
    with pytest.raises(ValueError, match="window is 0"):
        hybrid([0, None])
    cache = hybrid([4, None])
    feed(cache, random_ids(1, 9), [9])
    with pytest.raises(ValueError, match="counts is 40"):
        cache.advance(40)
    assert [part.lengths.tolist() for part in cache.parts] == [[9], [9]]
    assert cache.nbytes_used == (4 + 9) * ROW


# What slipped through once


def break_off(cache: KVCache, ids: Tensor) -> None:
    """A pass whose second layer fails: the first has stored its rows."""
    hook = MODEL.blocks[1].register_forward_pre_hook(
        lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory"))
    )
    with pytest.raises(RuntimeError, match="out of memory"):
        MODEL(ids, cache)
    hook.remove()


@pytest.mark.parametrize("layers", [None, [4, 4], [4, 6]])
def test_a_single_token_after_a_broken_pass_of_several(layers: list[int] | None) -> None:
    ids = random_ids(1, 16)
    cache = make(4) if layers is None else hybrid(layers)
    windows = layers or [4, 4]
    expected = MODEL(ids, Banded(CONFIG, windows=windows, dtype=torch.float64))
    same(feed(cache, ids[:, :9], [9]), expected[:, :9])
    break_off(cache, random_ids(1, 4, seed=7))
    same(feed(cache, ids[:, 9:], [1] * 7), expected[:, 9:])


def test_reset_forgets_rows_set_aside_in_every_part() -> None:
    for cache in (make(4), hybrid([4, None])):
        before = cache.nbytes
        break_off(cache, random_ids(1, 5))
        assert cache.nbytes > before
        cache.reset()
        assert cache.nbytes == before


def test_a_failed_update_leaves_aside_as_it_was() -> None:
    cache = make(4)
    rows = torch.ones(1, 3, 3, 4, dtype=torch.float64)
    cache.update(1, rows, rows)
    before = dict(cache.aside)
    for wrong in (rows, rows[:, :, :1]):
        with pytest.raises(ValueError, match=r"layer is 1\.0"):
            cache.update(1.0, wrong, wrong)  # type: ignore[arg-type]
        assert list(cache.aside) == [1]
        assert cache.aside[1] is before[1]
        assert cache.fed == {1: 3}


@pytest.mark.parametrize("layers", [None, [4, None], [None, None], [4, 6]])
def test_no_more_is_counted_than_was_fed(layers: list[int | None] | None) -> None:
    cache = make(4, batch=2) if layers is None else hybrid(layers, 2)
    for fed in (3, 1):
        start = cache.end
        rows = torch.full((2, 3, fed, 4), 1.0 + fed, dtype=torch.float64)
        cache.update(0, rows, rows)
        with pytest.raises(ValueError, match=r"counts is 1; each layer got 0 tokens"):
            cache.advance(1)
        cache.update(1, rows, rows)
        for counts in (fed + 2, torch.tensor([fed, fed + 1])):
            with pytest.raises(ValueError, match=rf"counts is .*; each layer got {fed} tokens"):
                cache.advance(counts)
        assert cache.lengths.tolist() == [start] * 2
        for part in getattr(cache, "parts", []):
            assert part.lengths.tolist() == [start] * 2
        cache.advance(fed)
        assert cache.lengths.tolist() == [start + fed] * 2
    with pytest.raises(ValueError, match="each layer got 0 tokens"):
        cache.advance(1)


@pytest.mark.parametrize("layers", [None, [4, None], [None, None], [4, 6]])
@pytest.mark.parametrize("second", [3, 1, 5])
def test_a_pass_takes_nothing_over_from_one_that_broke_off(layers, second: int) -> None:
    """The first pass got through and was not counted; the second ends after one of two layers."""
    cache = make(4, batch=2) if layers is None else hybrid(layers, 2)
    empty = cache.nbytes
    for n, upto in ((3, 2), (second, 1)):
        rows = torch.full((2, 3, n, 4), float(n), dtype=torch.float64)
        for layer in range(upto):
            cache.update(layer, rows, rows)
    with pytest.raises(ValueError, match="each layer got 0 tokens"):
        cache.advance(1)
    if layers is None:
        assert cache.nbytes == empty + (2 * rows.nbytes if second > 1 else 0)
    cache.update(1, rows, rows)
    cache.advance(second)
    assert cache.lengths.tolist() == [second] * 2


def test_keys_and_values_may_differ_in_width() -> None:
    config = LatentConfig(
        97, 24, 2, 6, 1, 4, 40, 48, latent_dim=8, content_dim=4
    )  # rows of 12 and 8 values
    for cache, rows in (
        (WindowCache(config, 2, window=5, dtype=torch.float64), 2 * 5),
        (HybridCache(config, 2, 48, layers=[5, None], dtype=torch.float64), 5 + 48),
    ):
        assert cache.nbytes == 2 * rows * (12 + 8) * 8
        for piece in (3, 4, 1):
            k, v = (torch.randn(2, 1, piece, d, dtype=torch.float64) for d in (12, 8))
            for layer in range(2):
                keys, values = cache.update(layer, k, v)
                assert (keys.shape[-1], values.shape[-1]) == (12, 8)
                assert keys[:, :, -piece:].equal(k) or piece == 1
            cache.advance(piece)
        used = 2 * 5 if len(getattr(cache, "parts", [])) < 2 else 5 + 8
        assert cache.nbytes_used == 2 * used * (12 + 8) * 8


@pytest.mark.parametrize(
    ("layers", "sinks", "sentence"),
    [
        ([4, 4.0], 0, "window is 4.0; it must be an int"),
        ([1, True], 0, "window is True; it must be an int"),
        ([[4], None], 0, r"window is \[4\]; it must be an int"),
        ([None, None], -5, "sinks is -5; it must be an int"),
        ([None, 2**63], 0, "window is 9223372036854775808; it must be an int"),
    ],
)
def test_every_entry_of_a_hybrid_is_checked(layers: list, sinks: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        hybrid(layers, sinks=sinks)


def test_the_parts_of_a_hybrid_have_its_capacity() -> None:
    cache = hybrid([40, None], capacity=12)
    window_part, full_part = cache.parts
    assert (window_part.slots, window_part.capacity, full_part.capacity) == (12, 12, 12)
    assert cache.nbytes == 2 * 12 * ROW


def test_book_keeping_refuses_what_cannot_be() -> None:
    at = torch.arange(3)
    for call in (
        lambda: slot_of(at, window=0),
        lambda: window_mask(at[None], at[None], window=0),
        lambda: held_positions(at, slots=1, window=0),
    ):
        with pytest.raises(ValueError, match="window is 0; it must be an int from 1"):
            call()
    with pytest.raises(ValueError, match="slots is 7; window 4 and 2 sinks fill no more"):
        held_positions(at, slots=7, window=4, sinks=2)
    huge = make(2**62, 2**62, capacity=12)
    same(feed(huge, random_ids(1, 12), [7, 1, 4]), band(random_ids(1, 12), 48))


@kept
def test_each_slot_is_written_once_and_holds_what_the_book_keeping_says(
    window: int, sinks: int
) -> None:
    """Each row carries its position; a pass writes the rows that stay, and no others."""

    class Noting(WindowCache):
        def advance(self, counts):
            before = self.k.clone()
            start = self.lengths
            super().advance(counts)
            for row in range(self.batch):
                changed = (self.k != before)[0, row, 0, :, 0].nonzero()[:, 0].tolist()
                new = range(int(start[row]), int(self.lengths[row]))
                end = int(self.lengths[row])
                stay = [p for p in new if p < sinks or p >= end - window]
                slots = [int(slot_of(torch.tensor(p), window, sinks)) for p in stay]
                assert len(set(slots)) == len(slots)
                assert changed == sorted(slots)

    cache = make(window, sinks, 2, kind=Noting)
    for rows in (cache.k, cache.v):
        rows.fill_(-1)
    for counts in ([3, 5], [9, 2], [4, 9], [0, 6]):
        q_len = max(counts)
        at = cache.positions(q_len).double()
        rows = at[:, None, :, None].expand(2, 3, q_len, 4)
        for layer in range(2):
            cache.update(layer, rows, rows)
        cache.advance(torch.tensor(counts))
        held = held_positions(cache.lengths, cache.slots, window, sinks)
        for stored in (cache.k, cache.v):
            assert stored[1, :, 0, :, 0][held >= 0].equal(held[held >= 0].double())
