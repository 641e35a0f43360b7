"""Lesson 7: heads shared without copies; pooling; one latent row for all heads, behind the seam."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

from kvbook.accounting import cache_spec
from kvbook.accounting.facts import model as facts
from kvbook.accounting.latent import with_latent
from kvbook.lessons.cache import GrowingCache, KVCache, PreallocatedCache, attention, put
from kvbook.lessons.decoder import (
    Attention,
    Decoder,
    DecoderConfig,
    generate,
    rope_angles,
    rotate,
)
from kvbook.lessons.gqa import (
    ExpandedLatentAttention,
    LatentAttention,
    LatentCache,
    LatentConfig,
    grouped_attention,
    with_kv_heads,
)
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.measure import points, record
from kvbook.measure.kinds import KINDS, shape

CONFIG = DecoderConfig(97, 24, 2, 12, 6, 4, 40, 32)  # a group of 2
LATENT = LatentConfig(97, 24, 2, 6, 1, 4, 40, 32, latent_dim=10, content_dim=8)
FORMS = [LatentAttention, ExpandedLatentAttention]
CACHES = [LatentCache, PreallocatedCache, GrowingCache]
forms = pytest.mark.parametrize("form", FORMS)
caches = pytest.mark.parametrize("kind", CACHES)


def make_model(config: DecoderConfig, attention: type[torch.nn.Module] = Attention) -> Decoder:
    model = Decoder(config, attention=attention).double().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator) / 4)
    return model


MODELS = {form: make_model(LATENT, form) for form in FORMS}
PLAIN = make_model(CONFIG)


def make(kind: type[KVCache], batch: int = 1, **options) -> KVCache:
    return kind(LATENT, batch, dtype=torch.float64, **options)


def random(*size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def random_ids(batch: int, n: int, seed: int = 0) -> Tensor:
    return torch.randint(97, (batch, n), generator=torch.Generator().manual_seed(seed))


def feed(model: Decoder, cache: KVCache, ids: Tensor, pieces: list[int]) -> Tensor:
    return torch.cat([model(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def poison(cache: KVCache) -> None:
    """NaN into every slot that no live token fills."""
    held = [cache.rows] if isinstance(cache, LatentCache) else [*cache.k, *cache.v]
    for rows in held:
        for row, length in zip(
            rows.unbind(1) if rows.ndim == 5 else rows, cache.lengths.tolist(), strict=True
        ):
            row[..., length:, :] = float("nan")


# Sharing heads


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, owner: list[int]) -> Tensor:
    """Head by head, with the KV head that each query head owns."""
    heads = []
    for head, kv_head in enumerate(owner):
        scores = q[:, head] @ k[:, kv_head].mT / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~mask[:, 0], float("-inf")).softmax(-1)
        heads.append(weights @ v[:, kv_head])
    return torch.stack(heads, dim=1)


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_query_heads_find_their_kv_head(n_kv_heads: int) -> None:
    q, k, v = random(2, 6, 5, 8), random(2, n_kv_heads, 7, 8, seed=1), random(2, n_kv_heads, 7, 3)
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool).tril(2)
    mask[1, :, :, 0] = False  # rows of a batch have masks of their own
    mask[1, :, 0, 1] = True
    group = 6 // n_kv_heads
    owner = [head // group for head in range(6)]
    expected = by_hand(q, k, v, mask, owner)
    same(grouped_attention(q, k, v, mask), expected)
    same(grouped_attention(q, k, v, mask[:1])[0], expected[0])
    other = [head % n_kv_heads for head in range(6)]  # what `repeat` gives
    wrong = by_hand(q, k, v, mask, other)
    repeated = [x.repeat(1, group, 1, 1) for x in (k, v)]
    same(F.scaled_dot_product_attention(q, *repeated, attn_mask=mask), wrong)
    assert (owner == other) == (n_kv_heads in (1, 6)), "such shapes cannot tell"
    assert ((wrong - expected).abs().max() < 1e-10) == (owner == other)


def test_without_a_mask_every_query_sees_every_key() -> None:
    q, k, v = random(2, 6, 3, 8), random(2, 2, 7, 8, seed=1), random(2, 2, 7, 5, seed=2)
    copies = (x.repeat_interleave(3, dim=1) for x in (k, v))
    same(grouped_attention(q, k, v), F.scaled_dot_product_attention(q, *copies))


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="k has 4 heads; they must divide the 6 of q"):
        grouped_attention(random(1, 6, 1, 8), random(1, 4, 3, 8), random(1, 4, 3, 8))


def test_a_group_is_served_without_a_copy() -> None:
    q, k, v = random(2, 8, 1, 32), random(2, 2, 500, 32), random(2, 2, 500, 16)

    def beside(way) -> int:
        with Watch(q, k, v) as watch:
            way()
        return watch.peak - held_nbytes([q, k, v])

    assert beside(lambda: grouped_attention(q, k, v)) < held_nbytes([k, v]) / 2
    copies = beside(lambda: grouped_attention(q, *(x.repeat_interleave(4, dim=1) for x in (k, v))))
    assert copies >= 4 * held_nbytes([k, v])


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 6, 1, 8), (2, 2, 3, 8), (2, 1, 3, 8)),  # V with other heads would be broadcast
        ((2, 6, 1, 8), (2, 2, 3, 8), (1, 2, 3, 8)),
        ((1, 6, 1, 8), (2, 2, 3, 8), (2, 2, 3, 8)),
        ((2, 6, 1, 8), (2, 2, 3, 8), (2, 2, 4, 8)),
        ((2, 6, 1, 8), (2, 2, 3, 6), (2, 2, 3, 8)),
        ((2, 6, 1, 8), (2, 0, 3, 8), (2, 0, 3, 8)),
        ((2, 6, 0, 8), (2, 2, 3, 8), (2, 2, 3, 8)),
        ((2, 6, 1, 8), (2, 2, 0, 8), (2, 2, 0, 8)),
        ((6, 1, 8), (2, 2, 3, 8), (2, 2, 3, 8)),
    ],
)
def test_shapes_that_do_not_go_together_are_refused(
    q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]
) -> None:
    with pytest.raises(
        ValueError, match=r"q, k, v have shapes .*; they must be full \[batch"
    ) as told:
        grouped_attention(random(*q), random(*k), random(*v))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 1, 2, 4, dtype=torch.bool),
        torch.ones(3, 1, 2, 3, dtype=torch.bool),
        torch.ones(2, 3, dtype=torch.bool),
        torch.ones(2, 1, 2, 3, dtype=torch.long),
        torch.ones((), dtype=torch.bool),
    ],
)
def test_a_mask_of_another_shape_or_dtype_is_refused(mask: Tensor) -> None:
    q, k = random(2, 6, 2, 8), random(2, 2, 3, 8)
    with pytest.raises(ValueError, match=r"mask is .*; it must be torch.bool \[2 or 1, 1, 2, 3\]"):
        grouped_attention(q, k, k, mask)


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    q, k = random(1, 6, 2, 8), random(1, 2, 3, 8, seed=1)
    mask = torch.tensor([[False] * 3, [True, False, True]])[None, None]
    y = grouped_attention(q, k, k, mask)
    assert bool((y[:, :, 0] == 0).all())
    same(y[:, :, 1:], by_hand(q[:, :, 1:], k, k, mask[:, :, 1:], [0, 0, 0, 1, 1, 1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_few_bits_are_computed_in_float32(dtype: torch.dtype) -> None:
    q, k = random(1, 4, 3, 64).to(dtype), random(1, 2, 300, 64, seed=1).to(dtype)
    asked = []

    class Asked(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "softmax" in str(function):
                asked.append(args[0].dtype)
            return function(*args, **(kwargs or {}))

    with Asked():
        y = grouped_attention(q, k, k)
    assert (asked, y.dtype) == ([torch.float32], dtype)


@pytest.mark.parametrize(("v_dim", "most"), [(32, 0.5), (16, 1)])  # copies of heads would be 4
def test_lesson_2_s_step_copies_no_head_and_is_pytorch_s(v_dim: int, most: float) -> None:
    q, k, v = random(2, 8, 1, 32), random(2, 2, 500, 32, seed=1), random(2, 2, 500, v_dim, seed=2)
    with Watch(q, k, v) as watch:
        y = attention(q, k, v, None)
    assert watch.peak - held_nbytes([q, k, v]) < most * held_nbytes([k, v])
    copies = (x.repeat_interleave(4, dim=1) for x in (k, v))
    same(y, F.scaled_dot_product_attention(q, *copies))


@pytest.mark.parametrize("lengths", [[2, 2], [1, 3]])
def test_what_lies_behind_new_rows_is_cleared(lengths: list[int]) -> None:
    rows, new = torch.full((2, 1, 9, 3), float("nan")), torch.ones(2, 1, 2, 3)
    for row, length in zip(rows, lengths, strict=True):
        row[:, :length] = 7
    put(rows, new, torch.tensor(lengths))
    for row, length in zip(rows, lengths, strict=True):
        assert row[0, :, 0].tolist() == [7] * length + [1] * 2 + [0] * (7 - length)


class RepeatsTooEarly(Attention):
    """Expands the heads before the cache gets them: the trap."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache=None) -> Tensor:
        heads = (-1, self.head_dim)
        q = rotate(self.q_proj(x).unflatten(-1, heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).unflatten(-1, heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).unflatten(-1, heads).transpose(1, 2)
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], dim=1) for y in (k, v))
        return self.o_proj(cache.attend(self.layer, q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", [PreallocatedCache, GrowingCache])
def test_heads_expanded_before_caching_are_refused_and_a_cache_holds_kv_heads(
    kind: type[KVCache],
) -> None:
    ids = random_ids(2, 7)
    cache = kind(CONFIG, 2, 7, dtype=torch.float64)
    expected = feed(PLAIN, cache, ids, [4, 3])
    assert {rows.shape for rows in [*cache.k, *cache.v]} == {(2, 6, 7, 4)}
    early = make_model(CONFIG, RepeatsTooEarly)
    with pytest.raises(ValueError, match=r"k has shape \[2, 12, 7, 4\]; .* \[2, 6, q_len, 4\]"):
        early(ids, kind(CONFIG, 2, 7, dtype=torch.float64))
    told = DecoderConfig(**{**vars(CONFIG), "n_kv_heads": 12})
    wasteful = kind(told, 2, 7, dtype=torch.float64)
    same(feed(early, wasteful, ids, [4, 3]), expected)  # no test of the output can tell
    assert wasteful.nbytes == 2 * cache.nbytes


# Other numbers of KV heads in a trained model


@pytest.mark.parametrize("n_kv_heads", [6, 12])
def test_more_heads_are_the_same_model(n_kv_heads: int) -> None:
    model = with_kv_heads(PLAIN, n_kv_heads)
    assert model.config.n_kv_heads == n_kv_heads
    ids = random_ids(2, 9)
    same(model(ids), PLAIN(ids))
    cache = PreallocatedCache(model.config, 2, dtype=torch.float64)
    same(feed(model, cache, ids, [4, 5]), PLAIN(ids))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
def test_fewer_heads_are_means_of_neighbours(n_kv_heads: int) -> None:
    pooled = with_kv_heads(PLAIN, n_kv_heads)
    for name in ("k_proj", "v_proj"):
        old, new = (getattr(m.blocks[1].attention, name).weight for m in (PLAIN, pooled))
        group = 6 // n_kv_heads
        for head in range(n_kv_heads):
            each = [old[4 * i : 4 * i + 4] for i in range(head * group, head * group + group)]
            same(new[4 * head : 4 * head + 4], torch.stack(each).mean(0))
    assert pooled.embed.weight is not PLAIN.embed.weight
    assert pooled.embed.weight.data_ptr() == PLAIN.embed.weight.data_ptr()
    assert not any(weight.requires_grad for weight in pooled.parameters())
    assert (pooled(random_ids(1, 9)) - PLAIN(random_ids(1, 9))).abs().max() > 1e-3
    back = with_kv_heads(with_kv_heads(pooled, 6), n_kv_heads)
    same(back(random_ids(1, 9)), pooled(random_ids(1, 9)))  # copies have their mean


@pytest.mark.parametrize("n_kv_heads", [0, -1, 4, 5, 18])
def test_other_numbers_of_heads_are_refused(n_kv_heads: int) -> None:
    with pytest.raises(ValueError, match=f"n_kv_heads .*{n_kv_heads}.* must divide"):
        with_kv_heads(PLAIN, n_kv_heads)


@pytest.mark.parametrize("n_kv_heads", [3.0, True, "3", None])
def test_a_number_of_heads_that_is_no_int_is_refused(n_kv_heads: Any) -> None:
    sentence = f"n_kv_heads is {n_kv_heads!r}; it must divide 6 or be a multiple, as an int."
    with pytest.raises(ValueError, match=re.escape(sentence)):
        with_kv_heads(PLAIN, n_kv_heads)


@pytest.mark.parametrize("training", [True, False])
def test_the_kind_of_attention_and_the_mode_stay(training: bool) -> None:
    early = make_model(CONFIG, RepeatsTooEarly).train(training)
    pooled = with_kv_heads(early, 3)
    assert {type(block.attention) for block in pooled.blocks} == {RepeatsTooEarly}
    assert {module.training for module in pooled.modules()} == {training}


def test_a_model_without_kv_heads_has_none_to_take() -> None:
    with pytest.raises(
        ValueError, match=r"^LatentAttention has no k_proj and v_proj to take .*\.$"
    ):
        with_kv_heads(MODELS[LatentAttention], 1)


# The latent


def test_both_forms_are_one_function() -> None:
    ids = random_ids(2, 12)
    same(MODELS[LatentAttention](ids), MODELS[ExpandedLatentAttention](ids))
    assert MODELS[LatentAttention](ids).std() > 0.1


@forms
@pytest.mark.parametrize("scale", [1.0, 1e-3])  # a small latent shows the norm's eps
def test_both_forms_are_deepseek_s_attention(form: type[LatentAttention], scale: float) -> None:
    """transformers' own, with the same weights: turned query, turned key, norm, scale and mask."""
    eps = 1e-6  # as its layer norms have
    ours = make_model(LatentConfig(**{**vars(LATENT), "norm_eps": eps}), form).blocks[0].attention
    ours.down_proj.weight *= scale
    config = DeepseekV3Config(
        hidden_size=24,
        num_attention_heads=6,
        num_key_value_heads=6,
        q_lora_rank=None,
        kv_lora_rank=10,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=8,
        rope_interleave=False,
    )
    config._attn_implementation = "eager"
    theirs = DeepseekV3Attention(config, 0).double().eval().requires_grad_(False)
    assert theirs.kv_a_layernorm.variance_epsilon == eps
    up = torch.cat([ours.k_up, ours.v_up], dim=1).flatten(0, 1)  # a head's K, then its V
    for weight, value in (
        (theirs.q_proj.weight, ours.q_proj.weight),
        (theirs.kv_a_proj_with_mqa.weight, ours.down_proj.weight),
        (theirs.kv_a_layernorm.weight, ours.latent_norm.weight),
        (theirs.kv_b_proj.weight, up),
        (theirs.o_proj.weight, ours.o_proj.weight),
    ):
        weight.copy_(value)
    x = random(2, 9, 24)
    cos, sin = rope_angles(torch.arange(3, 12).expand(2, -1), 4, 1e4)
    twice = [torch.cat([part, part], dim=-1)[:, 0] for part in (cos, sin)]
    hidden = torch.full((9, 9), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    expected = theirs(x, tuple(twice), hidden)[0]
    torch.testing.assert_close(ours(x, cos, sin), expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 1e-4


def test_a_step_makes_no_row_for_each_head() -> None:
    config = LatentConfig(97, 24, 1, 16, 1, 8, 40, 600, latent_dim=64, content_dim=8)
    cache = LatentCache(config, 1, 501, dtype=torch.float64)
    row = random(1, 1, 500, 72)
    cache.update(0, row, row[..., :64])
    cache.advance(500)
    q, row = random(1, 16, 1, 72), row[:, :, :1]
    with Watch(q, row, cache) as watch:
        cache.attend(0, q, row, row[..., :64])
    assert watch.peak - held_nbytes([q, row, cache]) < cache.nbytes  # copies: 16 times that


@forms
def test_no_token_sees_a_later_one(form: type[LatentAttention]) -> None:
    ids = random_ids(1, 9)
    changed = ids.clone()
    changed[:, 6] = (ids[:, 6] + 1) % 97
    moved = (MODELS[form](ids) - MODELS[form](changed)).abs().amax(-1)[0]
    assert moved[:6].max() < 1e-10 < 1e-4 < moved[6:].min()


@forms
def test_positions_matter(form: type[LatentAttention]) -> None:
    """The turned part carries the order: without it the last token would not notice a swap."""
    ids = random_ids(1, 9)
    swapped = ids[:, [1, 0, *range(2, 9)]]
    one_layer = make_model(LatentConfig(**{**vars(LATENT), "n_layers": 1}), form)
    assert (one_layer(ids) - one_layer(swapped))[:, -1].abs().max() > 1e-4


@forms
@caches
@settings(max_examples=25, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6).filter(lambda p: sum(p) <= 20),
    batch=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_any_split_equals_no_cache(
    form: type[LatentAttention],
    kind: type[KVCache],
    pieces: list[int],
    batch: int,
    seed: int,
) -> None:
    ids = random_ids(batch, sum(pieces), seed)
    cache = make(kind, batch, capacity=20)
    same(feed(MODELS[form], cache, ids, pieces), MODELS[LatentAttention](ids))
    assert cache.lengths.tolist() == [sum(pieces)] * batch


@forms
@caches
@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_rows_of_unequal_length(
    form: type[LatentAttention],
    kind: type[KVCache],
    steps: list[tuple[int, int, int]],
    seed: int,
) -> None:
    model, texts = MODELS[form], random_ids(3, 20, seed)
    expected = [model(text[None])[0] for text in texts]
    cache = make(kind, 3)
    poison(cache)
    for counts in steps:
        ids = torch.zeros(3, max(1, *counts), dtype=torch.long)
        before = cache.lengths.tolist()
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            ids[row, :count] = texts[row, start : start + count]
        logits = model(ids, cache, counts=torch.tensor(counts))
        poison(cache)
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            same(logits[row, :count], expected[row][start : start + count])


def test_reset_and_generate_twice() -> None:
    model, ids = MODELS[LatentAttention], random_ids(1, 5)
    expected, cache = generate(model, ids, 8), make(LatentCache)
    for _ in range(2):
        cache.reset()
        poison(cache)
        assert generate(model, ids, 8, cache).equal(expected)
        assert cache.lengths.tolist() == [12]


def test_nothing_is_stored_twice() -> None:
    cache = make(LatentCache, 3, capacity=11)
    assert (cache.k_dim, cache.v_dim) == (14, 10)
    assert cache.rows.shape == (2, 3, 1, 11, 14)
    assert cache.nbytes == 2 * 3 * 11 * 14 * 8 == held_nbytes(cache) - 3 * 8
    MODELS[LatentAttention](random_ids(3, 7), cache, counts=torch.tensor([2, 7, 0]))
    assert cache.nbytes_used == 9 * 2 * 14 * 8
    row = random(3, 1, 2, 14)
    keys, values = cache.update(1, row, row[..., :10])
    assert values.data_ptr() == keys.data_ptr() == cache.rows[1].data_ptr()
    assert values.equal(keys[..., :10])
    plain = make(PreallocatedCache, 3, capacity=11)
    assert plain.nbytes == 2 * 3 * 11 * (14 + 10) * 8
    MODELS[LatentAttention](random_ids(3, 7), plain, counts=torch.tensor([2, 7, 0]))
    assert plain.nbytes_used == 9 * 2 * 24 * 8


def test_rows_that_do_not_fit_are_refused_and_change_nothing() -> None:
    cache = make(LatentCache, 2, capacity=3)
    cache.rows.fill_(7)
    row = random(2, 1, 2, 14)
    wrong = [
        (row, random(2, 1, 2, 10), r"v is not a view of k; it must be k\[\.\.\., :10\]"),
        (row, row[..., 4:], "v is not a view of k"),
        (row, row.flatten()[:40].view(2, 1, 2, 10), "v is not a view of k"),  # other strides
        (row, row, r"v has shape \[2, 1, 2, 14\]; the cache takes \[2, 1, q_len, 10\]"),
        (row[..., :13], row[..., :10], r"k has shape .* \[2, 1, q_len, 14\]"),
        (row[:1], row[:1, ..., :10], r"k has shape .* \[2, 1, q_len, 14\]"),
        (row.float(), row.float()[..., :10], "k is torch.float32"),
        (random(2, 1, 4, 14), random(2, 1, 4, 14)[..., :10], "4 tokens, padding included, exceed"),
    ]
    for k, v, message in wrong:
        with pytest.raises(ValueError, match=message):
            cache.update(0, k, v)
    with pytest.raises(ValueError, match="layer is 2"):
        cache.update(2, row, row[..., :10])
    assert bool((cache.rows == 7).all())


def test_a_query_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    cache = make(LatentCache, 2, capacity=3)
    cache.rows.fill_(7)
    row, q = random(2, 1, 2, 14), random(2, 6, 2, 14)
    for wrong in (q[:1], q[:, :, :1], q[..., :13], q[:, :0], q[0], q.float(), q.to("meta")):
        with pytest.raises(
            ValueError, match=r"q is .*; it must be torch.float64 \[2, n_heads"
        ) as told:
            cache.attend(0, wrong, row, row[..., :10])
        assert "\n" not in str(told.value)
    assert bool((cache.rows == 7).all())
    assert cache.attend(0, q, row, row[..., :10]).shape == (2, 6, 2, 10)


@pytest.mark.parametrize("name", ["latent_dim", "content_dim"])
@pytest.mark.parametrize("value", [10.5, float("inf"), True, "8", None, -1])
def test_a_width_that_is_no_whole_number_is_refused(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    sentence = f"{name} is {value!r}; it must be an int, 1 or more."
    with pytest.raises(ValueError, match=re.escape(sentence)):
        LatentConfig(97, 24, 2, 6, 1, 4, 40, 32, **options)


def test_more_than_one_latent_is_refused() -> None:
    with pytest.raises(ValueError, match="n_kv_heads is 2; with a latent it must be 1"):
        LatentConfig(97, 24, 2, 6, 2, 4, 40, 32)
    with pytest.raises(ValueError, match="latent_dim is 0"):
        LatentConfig(97, 24, 2, 6, 1, 4, 40, 32, latent_dim=0)


@forms
def test_everything_stays_on_the_cache_s_device(form: type[LatentAttention]) -> None:
    model = Decoder(LATENT, attention=form).to("meta").requires_grad_(False)
    cache = LatentCache(LATENT, 2, 20, device="meta")
    for counts in ([5, 3], [1, 1], [2, 4]):
        ids = torch.zeros(2, max(counts), dtype=torch.long, device="meta")
        assert model(ids, cache, counts=torch.tensor(counts)).device.type == "meta"
    assert cache.lengths.tolist() == [8, 8]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_cache_keeps_the_dtype_it_was_made_for(dtype: torch.dtype) -> None:
    cache = LatentCache(LATENT, 2, 7, dtype=dtype)
    model = make_model(LATENT, LatentAttention).to(dtype)
    ids = random_ids(2, 7)
    tolerance = {torch.float32: 1e-4, torch.float16: 0.05, torch.bfloat16: 0.3}[dtype]
    found = feed(model, cache, ids, [4, 1, 2])
    torch.testing.assert_close(found, model(ids), atol=tolerance, rtol=0)
    assert cache.nbytes == cache.nbytes_used == 14 * 2 * 14 * dtype.itemsize


@forms
def test_no_autograd_history_stays_in_a_cache_but_training_works(
    form: type[LatentAttention],
) -> None:
    model, cache = Decoder(LATENT, attention=form).double(), make(LatentCache)
    for _ in range(2):
        assert model(random_ids(1, 3), cache).requires_grad
    assert not cache.rows.requires_grad
    model(random_ids(1, 5)).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_deepseek_v3_by_the_accounting() -> None:
    spec = cache_spec(facts("deepseek-v3").config)
    config = LatentConfig(129_280, 7168, 61, 128, 1, 64, 18_432, 163_840)
    cache = LatentCache(config, 2, 4096, dtype=torch.bfloat16, device="meta")
    assert cache.nbytes == spec.nbytes(4096, 2) == 2 * 4096 * 70_272
    fields = facts("deepseek-v3").config
    assert (config.latent_dim, config.head_dim, config.content_dim) == tuple(
        fields[name] for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim")
    )
    assert config.content_dim == fields["v_head_dim"]


def test_a_latent_joins_the_measurements() -> None:
    spec, _ = shape("smollm2-135m")
    assert KINDS["latent"].predict(spec, 96, 3, "float16") == 3 * 96 * 30 * 576 * 2
    assert with_latent(spec, 512, 64).bytes_per_token("float16") == 30 * 576 * 2
    job = {"model": "smollm2-135m", "kind": "latent", "dtype": "float16", "device": "cpu"}
    job |= {"context": 96, "batch": 3}
    found = points.grid(**job)
    assert found["held"] == found["predicted"] + 3 * 8
    assert record.unexplained({"what": "grid", **job}, found) == []
    assert points.written(**job) == {"written": 3 * 96 * 30 * 576 * 2}


def test_a_model_of_one_layer_can_have_other_heads() -> None:
    model = Decoder(DecoderConfig(97, 24, 1, 12, 6, 4, 40, 32))
    assert with_kv_heads(model, 3).config.n_kv_heads == 3


def test_new_latent_weights_keep_the_size_of_what_they_multiply() -> None:
    torch.manual_seed(0)
    attention = LatentAttention(LatentConfig(97, 24, 1, 4, 1, 4, 40, 32, latent_dim=64), 0)
    for up in (attention.k_up, attention.v_up):
        assert up.std().item() == pytest.approx(64**-0.5, rel=0.1)
