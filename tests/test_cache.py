"""Every cache of lesson 2 gives what the decoder gives without one; what does not fit is refused whole."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kvbook.lessons.cache import (
    GrowingCache,
    KVCache,
    PreallocatedCache,
    TokenCount,
    attention,
    causal_mask,
    put,
)
from kvbook.lessons.decoder import Decoder, DecoderConfig, generate

CONFIG = DecoderConfig(
    vocab_size=97,
    dim=24,
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    ffn_dim=40,
    max_seq_len=32,
)
KINDS = [GrowingCache, PreallocatedCache]
kinds = pytest.mark.parametrize("kind", KINDS)


def make_model(config: DecoderConfig = CONFIG) -> Decoder:
    torch.manual_seed(0)
    model = Decoder(config).double().requires_grad_(False)
    for weight in model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) / 4)
    return model


MODEL = make_model()


def make(kind: type[KVCache], batch: int = 1, **options) -> KVCache:
    return kind(CONFIG, batch, dtype=torch.float64, **options)


@kinds
def test_without_a_batch_a_cache_is_for_one_sequence(kind: type[KVCache]) -> None:
    assert kind(CONFIG).batch == 1


def random_ids(batch: int, n: int, seed: int = 0) -> Tensor:
    return torch.randint(97, (batch, n), generator=torch.Generator().manual_seed(seed))


def feed(cache: KVCache, ids: Tensor, pieces: list[int]) -> Tensor:
    return torch.cat([MODEL(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def poison(cache: KVCache) -> None:
    """NaN into every slot that no live token fills."""
    for held in (cache.k, cache.v):
        for rows in held:  # per layer [batch, n_kv_heads, slots, head_dim]
            for row, length in zip(rows, cache.lengths.tolist(), strict=True):
                row[:, length:] = float("nan")


@kinds
@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6).filter(lambda p: sum(p) <= 20),
    batch=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_split_equals_no_cache(
    kind: type[KVCache], pieces: list[int], batch: int, seed: int
) -> None:
    ids = random_ids(batch, sum(pieces), seed)
    cache = make(kind, batch, capacity=20)
    same(feed(cache, ids, pieces), MODEL(ids))
    assert cache.lengths.tolist() == [sum(pieces)] * batch


@kinds
@pytest.mark.parametrize("pieces", [[11], [1] * 11, [5, 6], [1, 3, 7]])
def test_piece_by_piece(kind: type[KVCache], pieces: list[int]) -> None:
    ids = random_ids(2, 11)
    cache = make(kind, 2)
    expected = MODEL(ids)
    for end, piece in zip(accumulate(pieces), ids.split(pieces, dim=1), strict=True):
        same(MODEL(piece, cache), expected[:, end - piece.shape[1] : end])
        poison(cache)


@kinds
@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_rows_of_unequal_length(
    kind: type[KVCache], steps: list[tuple[int, int, int]], seed: int
) -> None:
    """Each row gets its own number of tokens per pass; every real position equals the row run alone."""
    texts = random_ids(3, 20, seed)
    expected = [MODEL(text[None])[0] for text in texts]
    cache = make(kind, 3)
    poison(cache)
    for counts in steps:
        q_len = max(1, *counts)
        ids = torch.zeros(3, q_len, dtype=torch.long)
        before = cache.lengths.tolist()
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            ids[row, :count] = texts[row, start : start + count]
        logits = MODEL(ids, cache, counts=torch.tensor(counts))
        poison(cache)
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            same(logits[row, :count], expected[row][start : start + count])
    assert cache.lengths.tolist() == [sum(column) for column in zip(*steps, strict=True)]


@kinds
def test_reset_and_reuse(kind: type[KVCache]) -> None:
    cache = make(kind, 2, capacity=12)
    feed(cache, random_ids(2, 12, seed=1), [7, 5])
    cache.reset()
    assert cache.lengths.tolist() == [0, 0]
    poison(cache)
    ids = random_ids(2, 9, seed=2)
    same(feed(cache, ids, [4, 1, 4]), MODEL(ids))


@kinds
def test_generate_twice_with_one_cache(kind: type[KVCache]) -> None:
    ids = random_ids(1, 5)
    expected = generate(MODEL, ids, 8)
    cache = make(kind)
    for _ in range(2):
        cache.reset()
        assert generate(MODEL, ids, 8, cache).equal(expected)
        assert cache.lengths.tolist() == [12]  # the last token is never fed


@kinds
def test_the_cache_holds_kv_heads_and_counts_its_bytes(kind: type[KVCache]) -> None:
    cache = make(kind, 2, capacity=11)
    feed(cache, random_ids(2, 7), [3, 4])
    token = 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim * 8
    assert cache.nbytes_used == 2 * 7 * token
    assert cache.nbytes == 2 * token * (7 if kind is GrowingCache else 11)
    assert cache.k[0].shape[1] == CONFIG.n_kv_heads


def contents(cache: KVCache) -> list[Tensor]:
    n = cache.end
    return [rows[:, :, :n].clone() for held in (cache.k, cache.v) for rows in held]


@kinds
def test_a_full_cache_refuses_and_keeps_its_rows(kind: type[KVCache]) -> None:
    cache = make(kind, 2, capacity=6)
    feed(cache, random_ids(2, 5), [5])
    before, lengths = contents(cache), cache.lengths.clone()
    with pytest.raises(
        ValueError, match="7 tokens, padding included, exceed the cache's capacity 6"
    ):
        MODEL(random_ids(2, 2), cache)
    assert all(a.equal(b) for a, b in zip(before, contents(cache), strict=True))
    assert cache.lengths.equal(lengths)
    feed(cache, random_ids(2, 1), [1])  # the last slot can still be filled
    with pytest.raises(ValueError, match="capacity 6"):
        feed(cache, random_ids(2, 1), [1])


WRONG = {
    "more rows than the batch": ((3, 3, 2, 4), torch.float64),
    "heads expanded": ((2, 6, 2, 4), torch.float64),
    "another head_dim": ((2, 3, 2, 5), torch.float64),
    "three axes": ((3, 2, 4), torch.float64),
    "one axis": ((4,), torch.float64),
    "a number": ((), torch.float64),
    "another dtype": ((2, 3, 2, 4), torch.float32),
}


@kinds
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("which", ["k", "v"])
def test_rows_that_do_not_fit_are_refused_whole(kind: type[KVCache], what: str, which: str) -> None:
    shape, dtype = WRONG[what]
    cache = make(kind, 2)
    feed(cache, random_ids(2, 3), [3])
    before = contents(cache)
    rows = {name: torch.ones(2, 3, 2, 4, dtype=torch.float64) for name in ("k", "v")}
    rows[which] = torch.ones(shape, dtype=dtype)
    with pytest.raises(ValueError, match=r"the cache (takes|holds)"):
        cache.update(0, **rows)
    assert all(a.equal(b) for a, b in zip(before, contents(cache), strict=True))


@kinds
def test_keys_and_values_come_in_equal_number(kind: type[KVCache]) -> None:
    two, three = (torch.zeros(1, 3, n, 4, dtype=torch.float64) for n in (2, 3))
    for k, v in ((two, three), (three, two)):
        with pytest.raises(ValueError, match="v has shape"):
            make(kind).update(0, k, v)


@kinds
def test_another_device_is_refused(kind: type[KVCache]) -> None:
    rows = torch.ones(1, 3, 2, 4, dtype=torch.float64, device="meta")
    with pytest.raises(ValueError, match="on meta; the cache holds"):
        make(kind).update(0, rows, rows)


COUNTS = [-1, 33, [1, -1], [0, 33], 2.0, True, [1.0, 2.0], [1], [1, 2, 3], [[1, 2]], [[1], [2]]]


@pytest.mark.parametrize("counts", COUNTS)
def test_counts_that_cannot_be_are_refused(counts: object) -> None:
    count = TokenCount(batch=2, capacity=32)
    with pytest.raises(
        ValueError, match=r"counts is .* int64 \[2\], 0 or more, and fit capacity 32"
    ):
        count.advance(torch.tensor(counts))
    assert count.lengths.tolist() == [0, 0]
    assert count.lengths.dtype == torch.long


@pytest.mark.parametrize(
    ("batch", "capacity"), [(0, 5), (-1, 5), (2, 0), (1.5, 5), (2, 2.5), (True, 5), ("2", 5)]
)
@kinds
def test_a_cache_of_nothing_is_refused(kind: type[KVCache], batch: int, capacity: int) -> None:
    with pytest.raises(ValueError, match=f"batch is {batch} and capacity {capacity}"):
        kind(CONFIG, batch, capacity=capacity)


@kinds
def test_without_a_capacity_a_cache_takes_what_the_model_takes(kind: type[KVCache]) -> None:
    cache = make(kind)
    assert cache.capacity == CONFIG.max_seq_len == 32
    feed(cache, random_ids(1, 32), [31, 1])
    with pytest.raises(ValueError, match="33"):
        feed(cache, random_ids(1, 1), [1])


@kinds
def test_a_capacity_beyond_the_model_does_not_widen_the_model(kind: type[KVCache]) -> None:
    cache = make(kind, 2, capacity=50)
    feed(cache, random_ids(2, 30), [30])
    before = contents(cache)
    with pytest.raises(ValueError, match="33 tokens do not fit max_seq_len, 32"):
        MODEL(random_ids(2, 3), cache)
    ids = random_ids(2, 33)
    last = MODEL(ids[:, 30:], cache, counts=torch.tensor([2, 1]))  # 3 slots, but 2 tokens
    same(last[:, 0], MODEL(torch.cat([random_ids(2, 30), ids[:, 30:31]], 1))[:, -1])
    assert cache.lengths.tolist() == [32, 31]
    after = [rows[:, :, :30] for rows in contents(cache)]
    assert all(a.equal(b) for a, b in zip(before, after, strict=True))


@kinds
def test_padding_needs_room_too_and_the_error_says_so(kind: type[KVCache]) -> None:
    cache = make(kind, 2, capacity=12)
    MODEL(random_ids(2, 9), cache, counts=torch.tensor([2, 9]))
    with pytest.raises(ValueError, match=r"13 tokens, padding included, exceed .* capacity 12"):
        MODEL(random_ids(2, 4), cache, counts=torch.tensor([4, 1]))
    assert cache.lengths.tolist() == [2, 9]
    MODEL(random_ids(2, 3), cache, counts=torch.tensor([3, 1]))
    assert cache.lengths.tolist() == [5, 10]


@kinds
def test_bytes_used_count_every_sequence_by_its_own_length(kind: type[KVCache]) -> None:
    cache = make(kind, 3)
    MODEL(random_ids(3, 7), cache, counts=torch.tensor([2, 7, 0]))
    assert cache.nbytes_used == 9 * 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim * 8


@kinds
def test_a_pass_that_breaks_off_can_be_tried_again(kind: type[KVCache]) -> None:
    """Layer 0 has stored its rows and layer 1 fails: nothing counts as held, and a retry is right."""
    ids, cache = random_ids(2, 9), make(kind, 2)
    MODEL(ids[:, :4], cache, counts=torch.tensor([4, 3]))
    lengths, refuse = cache.lengths, MODEL.blocks[1].register_forward_pre_hook
    hook = refuse(lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        MODEL(random_ids(2, 5, seed=7), cache)
    hook.remove()
    assert cache.lengths is lengths
    assert lengths.tolist() == [4, 3]
    again = MODEL(torch.stack([ids[0, 4:9], ids[1, 3:8]]), cache)
    same(again[0], MODEL(ids)[0, 4:])
    same(again[1], MODEL(ids)[1, 3:8])


def test_advance_and_reset_leave_an_earlier_reading_as_it_was() -> None:
    count = TokenCount(batch=2, capacity=9)
    before = count.lengths
    count.advance(torch.tensor([2, 3]))
    after = count.lengths
    count.reset()
    assert [x.tolist() for x in (before, after, count.lengths)] == [[0, 0], [2, 3], [0, 0]]


def test_what_is_held_counts_for_each_sequence() -> None:
    count = TokenCount(batch=2, capacity=9)
    count.advance(torch.tensor([2, 7]))
    for counts in ([0, 3], [8, 0], 3, 2**63 - 1):
        with pytest.raises(ValueError, match=r"fit capacity 9 beside the \[2, 7\] tokens held"):
            count.advance(torch.tensor(counts))
    count.advance(torch.tensor([7, 2]))
    assert count.lengths.tolist() == [9, 9]


@kinds
def test_a_cache_of_one_slot(kind: type[KVCache]) -> None:
    cache = make(kind, 2, capacity=1)
    ids = random_ids(2, 1)
    same(MODEL(ids, cache), MODEL(ids))
    assert (cache.lengths.tolist(), cache.nbytes) == ([1, 1], cache.nbytes_used)


@kinds
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16])
def test_a_cache_keeps_the_dtype_it_was_made_for(
    kind: type[KVCache], dtype: torch.dtype | None
) -> None:
    cache = kind(CONFIG, 2, 7, **({} if dtype is None else {"dtype": dtype}))
    dtype = dtype or torch.float32
    assert cache.k[0].dtype == cache.v[0].dtype == dtype
    model = make_model().to(dtype)
    ids = random_ids(2, 7)
    logits = torch.cat([model(piece, cache) for piece in ids.split([4, 1, 2], dim=1)], dim=1)
    tolerance = {torch.float32: 1e-4, torch.float16: 0.05, torch.bfloat16: 0.3}[dtype]
    torch.testing.assert_close(logits, model(ids), atol=tolerance, rtol=0)
    assert cache.nbytes == cache.nbytes_used == 14 * 2 * 2 * 3 * 4 * dtype.itemsize
    other = torch.zeros(2, 3, 1, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match=f"k is .* the cache holds {dtype} on cpu"):
        kind(CONFIG, 2, dtype=dtype).update(0, other, other)


@kinds
def test_everything_stays_on_the_cache_s_device(kind: type[KVCache]) -> None:
    """On "meta" nothing has a value, so any mix-up of devices is an error; lengths are real."""
    model = Decoder(CONFIG).to("meta").requires_grad_(False)
    cache = kind(CONFIG, 2, 20, device="meta")
    for counts in ([5, 3], [1, 1], [2, 4]):
        ids = torch.zeros(2, max(counts), dtype=torch.long, device="meta")
        assert model(ids, cache, counts=torch.tensor(counts)).device.type == "meta"
    assert cache.lengths.tolist() == [8, 8]
    assert (cache.lengths.device.type, cache.k[0].device.type) == ("cpu", "meta")
    assert model(ids[:, :1], cache, last_only=True).shape == (2, 1, 97)
    with pytest.raises(
        ValueError, match="ids has 2 rows on cpu, but the cache 2 sequences on meta"
    ):
        MODEL(random_ids(2, 1), cache)
    with pytest.raises(
        ValueError, match="ids has 2 rows on meta, but the cache 2 sequences on cpu"
    ):
        model(ids, make(kind, 2))


@kinds
def test_a_default_device_does_not_move_the_book_keeping(kind: type[KVCache]) -> None:
    with torch.device("meta"):
        cache = kind(CONFIG, 2, 20, dtype=torch.float64, device="cpu")
        assert cache.positions(3).device.type == "cpu"
    ids = random_ids(2, 9)
    same(feed(cache, ids, [4, 5]), MODEL(ids))


def test_one_token_of_level_rows_needs_no_mask() -> None:
    cache = KVCache(CONFIG, 2)
    assert cache.mask(0, 1) is None
    cache.advance(1)
    assert cache.mask(0, 1) is None
    cache.reset()
    cache.advance(torch.tensor([1, 2]))
    assert cache.mask(0, 1).tolist() == [[[[True, True, False]]], [[[True, True, True]]]]


def test_one_token_of_level_rows_reads_each_row_once_for_its_whole_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queries of a group are rows of one product; keys and values are not repeated for them."""
    product, shapes = torch.nn.functional.scaled_dot_product_attention, []

    def watched(q: Tensor, keys: Tensor, values: Tensor, **options) -> Tensor:
        shapes.append((list(q.shape), list(keys.shape), list(values.shape), sorted(options)))
        return product(q, keys, values, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    q = torch.randn(5, 6, 1, 4)
    keys, values = torch.randn(5, 3, 7, 4), torch.randn(5, 3, 7, 2)
    found = attention(q, keys, values, None)
    assert shapes == [([5, 3, 2, 4], [5, 3, 7, 4], [5, 3, 7, 2], [])]
    assert found.shape == (5, 6, 1, 2)
    for row in range(5):
        for head in range(6):
            weights = (keys[row, head // 2] @ q[row, head, 0] / 4**0.5).softmax(0)
            torch.testing.assert_close(found[row, head, 0], weights @ values[row, head // 2])


@pytest.mark.parametrize("lengths", [[2, 2], [3, 1], [0, 4]])
def test_putting_rows_clears_what_is_behind_them(lengths: list[int]) -> None:
    rows = torch.full((2, 3, 7, 5), float("nan"))
    old = torch.randn(2, 3, 7, 5)
    new = torch.randn(2, 3, 3, 5)
    for row, length in enumerate(lengths):
        rows[row, :, :length] = old[row, :, :length]
    put(rows, new, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        behind = torch.zeros(3, 4 - length, 5)
        expected = torch.cat([old[row, :, :length], new[row], behind], dim=1)
        assert torch.equal(rows[row], expected)


def test_a_cache_without_a_store_says_so() -> None:
    rows = torch.zeros(1, 3, 2, 4)
    with pytest.raises(TypeError, match=r"KVCache .* stores no rows"):
        KVCache(CONFIG).update(0, rows, rows)


@kinds
@pytest.mark.parametrize("layer", [-1, 2, 0.5, 1.0, True])
def test_a_layer_that_is_not_there(kind: type[KVCache], layer: int) -> None:
    rows = torch.zeros(1, 3, 2, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match=f"layer is {layer}; the cache has 0 to 1"):
        make(kind).update(layer, rows, rows)


@kinds
def test_no_autograd_history_stays_in_a_cache(kind: type[KVCache]) -> None:
    model = Decoder(CONFIG).double()
    cache = make(kind)
    for _ in range(2):
        assert model(random_ids(1, 3), cache).requires_grad
    assert cache.lengths.tolist() == [6]
    assert not any(rows.requires_grad for held in (cache.k, cache.v) for rows in held)


def test_the_mask_is_right_for_a_piece_in_the_middle() -> None:
    mask = causal_mask(torch.tensor([[2, 3], [0, 1]]), torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1]]))
    assert mask.int().tolist() == [
        [[[1, 1, 1, 0], [1, 1, 1, 1]]],
        [[[1, 0, 0, 0], [1, 1, 0, 0]]],
    ]


def test_a_held_cache_does_not_see_later_changes_of_the_caller_s_tensors() -> None:
    for kind in KINDS:
        cache = make(kind)
        k = torch.ones(1, 3, 2, 4, dtype=torch.float64)
        cache.update(0, k, k)
        cache.advance(2)
        k.zero_()
        keys, _ = cache.update(0, torch.ones_like(k), torch.ones_like(k))
        assert keys.count_nonzero() == keys.numel()
