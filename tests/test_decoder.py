"""Lesson 1's decoder against transformers' Llama, sampling against plain Python, bad inputs."""

import copy
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from kvbook.lessons import decoder
from kvbook.lessons.decoder import Decoder, DecoderConfig, generate, sample

SHAPES = {  # every size differs from every other, so that no two can be swapped unnoticed
    "mha": {"n_heads": 4, "n_kv_heads": 4, "head_dim": 14, "dim": 48},
    "gqa": {"n_heads": 6, "n_kv_heads": 2, "head_dim": 10, "dim": 42},
    "mqa": {"n_heads": 5, "n_kv_heads": 1, "head_dim": 8, "dim": 35},
}
NAMES = {
    "input_layernorm": "attention_norm",
    "self_attn": "attention",
    "post_attention_layernorm": "mlp_norm",
}


def shape(name: str) -> DecoderConfig:
    """One of the shapes; theta and eps are unusual, so that a forgotten one shows."""
    return DecoderConfig(
        vocab_size=97,
        n_layers=3,
        ffn_dim=68,
        max_seq_len=64,
        rope_theta=777.0,
        norm_eps=0.01,
        **SHAPES[name],
    )


def pair(config: DecoderConfig, seed: int = 0) -> tuple[Decoder, LlamaForCausalLM]:
    """Our decoder and transformers' with the same random weights, norms included."""
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.dim,
            intermediate_size=config.ffn_dim,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_seq_len,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            rms_norm_eps=config.norm_eps,
            tie_word_embeddings=True,
            attn_implementation="eager",
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    ).eval()
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, weight in theirs.named_parameters():
        mean, std = (1.0, 0.5) if "norm" in name else (0.0, 1.5 / math.sqrt(weight.shape[-1]))
        weight.data = torch.randn(weight.shape, generator=random) * std + mean
        weights[ours_name(name)] = weight.data.clone()
    ours = Decoder(config).eval()
    ours.load_state_dict(weights)
    return ours, theirs


def ours_name(name: str) -> str:
    """transformers' name of a parameter -> the decoder's."""
    name = (
        name.removeprefix("model.").replace("embed_tokens", "embed").replace("layers.", "blocks.")
    )
    for theirs, ours in NAMES.items():
        name = name.replace(theirs, ours)
    return name


def some_ids(config: DecoderConfig, *size: int, seed: int = 1) -> Tensor:
    """Random token ids."""
    return torch.randint(config.vocab_size, size, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module", params=SHAPES)
def models(request: pytest.FixtureRequest) -> tuple[Decoder, LlamaForCausalLM]:
    return pair(shape(request.param))


@pytest.mark.parametrize(("batch", "q_len"), [(1, 1), (2, 3), (3, 31), (1, 64)])
@torch.no_grad()
def test_logits_are_those_of_transformers(models: Any, batch: int, q_len: int) -> None:
    ours, theirs = models
    ids = some_ids(ours.config, batch, q_len)
    expected = theirs(ids).logits
    got = ours(ids)
    assert got.shape == (batch, q_len, ours.config.vocab_size)
    assert expected.std() > 0.5  # weights that leave the logits flat would prove nothing
    assert (got - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("change", [{"rope_theta": 778.0}, {"norm_eps": 0.011}])
@torch.no_grad()
def test_the_comparison_notices_a_small_change(change: dict[str, float]) -> None:
    ours, theirs = pair(shape("gqa"))
    other = Decoder(replace(ours.config, **change)).eval()
    other.load_state_dict(ours.state_dict())
    ids = some_ids(ours.config, 2, 31)
    assert (other(ids) - theirs(ids).logits).abs().max() > 1e-3


@torch.no_grad()
def test_greedy_text_is_that_of_transformers(models: Any) -> None:
    ours, theirs = models
    ids = some_ids(ours.config, 3, 5)
    expected = theirs.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=37, do_sample=False
    )
    got = generate(ours, ids, 37)
    assert got.shape == (3, 42)
    assert got.tolist() == expected.tolist()
    assert len(set(got[0].tolist())) > 8  # a constant answer would prove little


@torch.no_grad()
def test_last_only_gives_the_last_logits(models: Any) -> None:
    ours, _ = models
    ids = some_ids(ours.config, 2, 7)
    torch.testing.assert_close(ours(ids, last_only=True), ours(ids)[:, -1:])


@torch.no_grad()
def test_a_padded_row_gives_its_own_last_logits(models: Any) -> None:
    ours, _ = models
    ids, counts = some_ids(ours.config, 3, 7), torch.tensor([4, 7, 1])
    got = ours(ids, counts=counts, last_only=True)
    assert got.shape == (3, 1, ours.config.vocab_size)
    for row, count in enumerate(counts.tolist()):
        torch.testing.assert_close(got[row, 0], ours(ids[row : row + 1, :count])[0, -1])


def test_state_dict_has_the_names_that_loaders_use() -> None:
    config = replace(shape("gqa"), n_layers=1)
    kinds = ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert set(Decoder(config).state_dict()) == {
        "embed.weight",
        "norm.weight",
        "blocks.0.attention_norm.weight",
        "blocks.0.mlp_norm.weight",
        *(f"blocks.0.attention.{kind}.weight" for kind in kinds),
        *(f"blocks.0.mlp.{kind}_proj.weight" for kind in ("gate", "up", "down")),
    }


# --- sampling ---


def distribution(logits: Tensor, **sampling: Any) -> Tensor:
    """The exact distribution that `sample` draws from: [batch, vocab_size] -> the same.

    Draws every index in turn in place of torch.multinomial, and adds up the weights by token.
    """
    result = torch.zeros_like(logits, dtype=torch.float64)
    rows = torch.arange(len(logits))
    seen: list[Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        for index in range(logits.shape[-1]):

            def draw(p: Tensor, n: int, *_: Any, at: int = index, **__: Any) -> Tensor:
                assert n == 1
                seen.append(p)
                return torch.full((len(p), 1), at)

            patch.setattr(torch, "multinomial", draw)
            token = sample(logits, generator=torch.Generator(), **sampling)
            assert token.shape == (len(logits), 1)
            result[rows, token[:, 0]] += seen[-1][:, index].double()
    assert len(seen) == logits.shape[-1], "sample no longer draws with torch.multinomial"
    return result / result.sum(-1, keepdim=True)


def plain_distribution(logits: list[float], temperature: float, top_p: float) -> list[float]:
    """The same by the definition: fewest likeliest tokens that hold top_p of the probability."""
    highest = max(logits)
    weights = [math.exp((x - highest) / temperature) for x in logits]
    p = [weight / sum(weights) for weight in weights]
    held, kept = 0.0, set()
    for token in sorted(range(len(p)), key=lambda t: -p[t]):
        assume(abs(held - top_p) > 1e-5)  # float32 may decide a tie either way
        if held >= top_p:
            break
        kept.add(token)
        held += p[token]
    return [p[token] / held if token in kept else 0.0 for token in range(len(p))]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(2, 17).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(-60, 60), min_size=n, max_size=n, unique=True),
            min_size=1,
            max_size=3,
        )
    ),
    temperature=st.floats(0.25, 5),
    top_p=st.floats(0.01, 1),
)
def test_sampling_draws_from_the_distribution_by_definition(
    rows: list[list[int]], temperature: float, top_p: float
) -> None:
    logits = torch.tensor(rows, dtype=torch.float32) / 10
    expected = [plain_distribution(row, temperature, top_p) for row in logits.tolist()]
    got = distribution(logits, temperature=temperature, top_p=top_p)
    torch.testing.assert_close(got, torch.tensor(expected).double(), atol=1e-5, rtol=0)


def test_temperature_alone_is_the_softmax() -> None:
    logits = torch.randn(3, 23, generator=torch.Generator().manual_seed(5))
    got = distribution(logits, temperature=0.7)
    torch.testing.assert_close(got, (logits.double() / 0.7).softmax(-1), atol=1e-6, rtol=0)


def test_a_tiny_top_p_leaves_the_likeliest_token() -> None:
    logits = torch.randn(4, 23, generator=torch.Generator().manual_seed(6))
    got = sample(logits, temperature=3.0, top_p=1e-9, generator=torch.Generator().manual_seed(1))
    assert got.tolist() == logits.argmax(-1, keepdim=True).tolist()


def test_temperature_zero_is_greedy_and_needs_no_generator() -> None:
    logits = torch.randn(4, 23, generator=torch.Generator().manual_seed(7))
    assert sample(logits).tolist() == logits.argmax(-1, keepdim=True).tolist()


def test_the_same_seed_gives_the_same_text_and_another_seed_another() -> None:
    ours, _ = pair(shape("gqa"))
    ids = some_ids(ours.config, 2, 5)

    def text(seed: int) -> list[list[int]]:
        random = torch.Generator().manual_seed(seed)
        return generate(ours, ids, 20, temperature=1.0, top_p=0.9, generator=random).tolist()

    assert text(3) == text(3)
    assert text(3) != text(4)
    assert text(3) != generate(ours, ids, 20).tolist()


# --- bad inputs: a ValueError with one sentence that names the value ---


def complains(*names: str) -> Any:
    """Expect a ValueError whose message is one line and names all of these."""
    parts = "".join(rf"(?=.*(?<![\w.]){re.escape(name)}(?![\w]))" for name in names)
    return pytest.raises(ValueError, match=rf"\A{parts}[^\n]+\.\Z")


@pytest.fixture(scope="module")
def model() -> Decoder:
    return pair(shape("gqa"))[0]


@pytest.mark.parametrize("name", [*SHAPES["gqa"], "vocab_size", "n_layers", "ffn_dim"])
@pytest.mark.parametrize("value", [0, -3])
def test_a_size_below_one(name: str, value: int) -> None:
    with complains(name, str(value)):
        replace(shape("gqa"), **{name: value})


@pytest.mark.parametrize("name", ["max_seq_len", "rope_theta", "norm_eps"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_that_is_not_positive(name: str, value: float) -> None:
    with complains(name, str(value)):
        replace(shape("gqa"), **{name: value})


def test_heads_that_do_not_divide() -> None:
    with complains("n_heads", "7", "n_kv_heads", "2"):
        replace(shape("gqa"), n_heads=7)


def test_an_odd_head_dim() -> None:
    with complains("head_dim", "11"):
        replace(shape("gqa"), head_dim=11)


def test_a_prompt_longer_than_the_model(model: Decoder) -> None:
    with complains("65", "max_seq_len", "64"):
        model(some_ids(model.config, 1, 65))
    with complains("65", "64"):
        generate(model, some_ids(model.config, 1, 65), 1)


def test_a_text_that_fits_exactly(model: Decoder) -> None:
    assert generate(model, some_ids(model.config, 1, 60), 4).shape == (1, 64)
    assert generate(model, some_ids(model.config, 1, 60), 0).shape == (1, 60)


def test_an_answer_that_does_not_fit_is_refused_before_anything_runs(
    model: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    with complains("60", "5", "64"):
        generate(model, some_ids(model.config, 1, 60), 5)


@pytest.mark.parametrize("size", [(1, 0), (0, 3)])
def test_an_empty_prompt(model: Decoder, size: tuple[int, int]) -> None:
    ids = torch.zeros(size, dtype=torch.long)
    with complains("ids", str(list(size))):
        model(ids)
    with complains("ids", str(list(size))):
        generate(model, ids, 3)


def test_ids_of_one_dimension(model: Decoder) -> None:
    with complains("ids", "[3]"):
        model(torch.tensor([1, 2, 3]))
    with complains("ids", "[3]"):
        generate(model, torch.tensor([1, 2, 3]), 3)


@pytest.mark.parametrize("bad", [-1, 97, 12345])
def test_ids_outside_the_vocabulary(model: Decoder, bad: int) -> None:
    with complains(str(bad), "96"):
        generate(model, torch.tensor([[5, bad, 7]]), 3)


def test_a_negative_number_of_new_tokens(model: Decoder) -> None:
    with complains("-2"):
        generate(model, some_ids(model.config, 1, 4), -2)


@pytest.mark.parametrize("temperature", [-0.5, math.nan])
def test_a_bad_temperature(temperature: float) -> None:
    with complains("temperature", str(temperature)):
        sample(torch.randn(1, 5), temperature, 1.0, torch.Generator())


@pytest.mark.parametrize("top_p", [0.0, -0.1, 1.5, math.nan])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_bad_top_p(temperature: float, top_p: float) -> None:
    with complains("top_p", str(top_p)):
        sample(torch.randn(1, 5), temperature, top_p, torch.Generator())


def test_sampling_without_a_generator(model: Decoder) -> None:
    with complains("temperature", "torch.Generator"):
        sample(torch.randn(1, 5), temperature=0.8)
    with complains("temperature", "torch.Generator"):
        generate(model, some_ids(model.config, 1, 4), 3, temperature=0.8)


def test_a_row_without_tokens_has_no_last_one(model: Decoder) -> None:
    with complains("counts", "[4, 0]", "1 to 7"):
        model(some_ids(model.config, 2, 7), counts=torch.tensor([4, 0]), last_only=True)


@pytest.mark.parametrize("temperature", [1e-40, 5e-324, 1e-7])
def test_so_cold_that_float32_would_overflow_is_greedy(temperature: float) -> None:
    logits, generator = torch.tensor([[0.0, 3.0, 2.0]]), torch.Generator().manual_seed(0)
    assert sample(logits, temperature, 0.9, generator).tolist() == [[1]]


def test_a_tie_at_the_edge_of_top_p_keeps_one() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = {sample(torch.zeros(1, 2), 1.0, 0.5, generator).item() for _ in range(50)}
    assert len(drawn) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_stay_near_and_keep_their_type(model: Decoder, dtype: torch.dtype) -> None:
    ids = some_ids(model.config, 2, 9)
    expected, found = model(ids), copy.deepcopy(model).to(dtype)(ids)
    assert found.dtype == dtype
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()


def test_generate_leaves_no_graph(model: Decoder) -> None:
    seen = []
    hook = model.norm.register_forward_hook(lambda *args: seen.append(args[2].requires_grad))
    generate(model.requires_grad_(True), some_ids(model.config, 1, 3), 2)
    hook.remove()
    assert seen == [False, False]


class PlainCache:
    """The least that the decoder can be given: lists of rows, joined; rows of the batch may differ."""

    def __init__(self, batch: int) -> None:
        self.lengths, self.capacity = torch.zeros(batch, dtype=torch.long), 1000
        self.rows: dict[int, list[list[Tensor]]] = {}  # layer -> per sequence [k, v], [heads, n, d]

    def positions(self, q_len: int) -> Tensor:
        return self.lengths[:, None] + torch.arange(q_len)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        held = self.rows.setdefault(layer, [[k[i, :, :0], v[i, :, :0]] for i in range(len(q))])
        out = torch.zeros_like(q)
        for i, n in enumerate(self.lengths.tolist()):
            held[i] = [
                torch.cat([old[:, :n], new[i]], 1) for old, new in zip(held[i], (k, v), strict=True)
            ]
            group = q.shape[1] // k.shape[1]
            keys, values = (rows.repeat_interleave(group, 0) for rows in held[i])
            scores = q[i] @ keys.mT / q.shape[-1] ** 0.5
            ahead = torch.ones_like(scores, dtype=torch.bool).triu(n + 1)
            out[i] = scores.masked_fill(ahead, -math.inf).softmax(-1) @ values
        return out

    def advance(self, counts: Tensor) -> None:
        self.lengths = self.lengths + counts


def test_with_a_cache_pieces_of_unequal_rows_give_the_same_logits(model: Decoder) -> None:
    texts = some_ids(model.config, 2, 12)
    expected, cache = model(texts), PlainCache(2)
    for counts in ([3, 5], [4, 1], [1, 1], [2, 4]):
        starts = cache.lengths.tolist()
        ids = torch.zeros(2, max(counts), dtype=torch.long)
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            ids[row, :count] = texts[row, start : start + count]
        logits = model(ids, cache, counts=torch.tensor(counts))
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            torch.testing.assert_close(logits[row, :count], expected[row, start : start + count])
    assert cache.lengths.tolist() == [10, 11]


def test_with_a_cache_generate_feeds_the_newest_token_alone(model: Decoder) -> None:
    ids, cache, fed = some_ids(model.config, 1, 5), PlainCache(1), []
    expected = generate(model, ids, 6)
    hook = model.embed.register_forward_hook(lambda module, args, out: fed.append(args[0].shape[1]))
    assert generate(model, ids, 6, cache).equal(expected)
    hook.remove()
    assert fed == [5, 1, 1, 1, 1, 1]
    assert cache.lengths.tolist() == [10]


def test_with_a_cache_the_whole_text_must_fit(model: Decoder) -> None:
    limit, cache = model.config.max_seq_len, PlainCache(2)
    cache.lengths = torch.tensor([3, limit - 2])
    with complains(str(limit + 1), str(limit)):
        model(some_ids(model.config, 2, 3), cache)


COUNTS = [[4, 8], [-1, 3], 8, -1, [4.0, 3.0], 3.0, True, [4], [4, 3, 2], [[4, 3]], [[4], [3]]]


@pytest.mark.parametrize("counts", COUNTS)
def test_counts_that_a_row_cannot_have(model: Decoder, counts: object) -> None:
    for cache in (None, PlainCache(2)):
        with complains("counts", str(counts), "int64 [2]", "0 to 7"):
            model(some_ids(model.config, 2, 7), cache, counts=torch.tensor(counts))
        assert cache is None or (cache.lengths.tolist(), cache.rows) == ([0, 0], {})


@pytest.mark.parametrize("wrong", [{"temperature": 0.8}, {"top_p": 2.0}, {"temperatur": 0.8}])
def test_sampling_that_cannot_be_is_refused_before_anything_runs(
    model: Decoder, wrong: dict[str, float]
) -> None:
    cache = PlainCache(1)
    with pytest.raises((ValueError, TypeError), match=r"temperature|top_p|temperatur"):
        generate(model, some_ids(model.config, 1, 4), 3, cache, **wrong)
    assert (cache.lengths.tolist(), cache.rows) == ([0], {})


def test_checking_the_sampling_draws_nothing(model: Decoder) -> None:
    one, other = (torch.Generator().manual_seed(5) for _ in range(2))
    generate(model, some_ids(model.config, 1, 4), 0, temperature=0.8, top_p=0.9, generator=one)
    assert one.get_state().equal(other.get_state())


def test_every_row_of_a_batch_is_continued_by_its_own_token(model: Decoder) -> None:
    ids = some_ids(model.config, 3, 5)
    expected = torch.cat([generate(model, row[None], 6) for row in ids])
    assert expected[:, 5:].unique(dim=0).shape[0] > 1
    assert generate(model, ids, 6, PlainCache(3)).equal(expected)
    cache = PlainCache(3)
    cache.capacity, cache.lengths = 12, torch.tensor([0, 3, 7])
    with complains("12 + 2", "13"):
        generate(model, ids, 2, cache)


def test_a_pass_that_fails_after_the_last_layer_does_not_count(model: Decoder) -> None:
    cache, ids = PlainCache(1), some_ids(model.config, 1, 4)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = model.norm.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        model(ids, cache)
    hook.remove()
    assert cache.lengths.tolist() == [0]
    torch.testing.assert_close(model(ids, cache), model(ids))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_ids_of_another_type(model: Decoder, dtype: torch.dtype) -> None:
    with complains("ids", str(dtype), "int64"):
        model(some_ids(model.config, 2, 3).to(dtype))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch_that_is_not_the_cache_s(model: Decoder, batch: int) -> None:
    cache = PlainCache(batch)
    with complains("ids has 2 rows on cpu", f"cache {batch} sequences on cpu"):
        model(some_ids(model.config, 2, 7), cache)
    assert cache.rows == {}


def test_what_is_held_and_what_counts_decide_together_what_fits(model: Decoder) -> None:
    """60 held and 4 of 5 tokens real: 64 fit. Neither q_len nor the longest row alone decides."""
    limit, cache = model.config.max_seq_len, PlainCache(2)
    for held, counts, end in (
        ([60, 2], [4, 5], None),
        ([60, 2], [5, 1], 65),
        ([2, 63], [5, 2], 65),
    ):
        cache.lengths, cache.rows = torch.tensor(held), {}
        rows = torch.zeros(2, 3, max(held), 8)
        shape = (model.config.n_kv_heads, max(held), model.config.head_dim)
        for layer in range(model.config.n_layers):
            cache.rows[layer] = [[torch.zeros(shape), torch.zeros(shape)] for _ in rows]
        ids = some_ids(model.config, 2, 5)
        if end is None:
            model(ids, cache, counts=torch.tensor(counts))
            assert cache.lengths.tolist() == [64, 7]
        else:
            with complains(str(end), str(limit)):
                model(ids, cache, counts=torch.tensor(counts))


def test_last_only_with_unequal_rows_through_a_cache(model: Decoder) -> None:
    texts = some_ids(model.config, 2, 12)
    expected, cache = model(texts), PlainCache(2)
    for counts in ([3, 5], [4, 1]):
        starts = cache.lengths.tolist()
        ids = torch.zeros(2, max(counts), dtype=torch.long)
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            ids[row, :count] = texts[row, start : start + count]
        last = model(ids, cache, counts=torch.tensor(counts), last_only=True)
        assert last.shape == (2, 1, model.config.vocab_size)
        for row, end in enumerate(cache.lengths.tolist()):
            torch.testing.assert_close(last[row, 0], expected[row, end - 1])


@pytest.mark.parametrize(("held", "capacity", "new"), [(0, 10, 7), (3, 13, 7), (3, 1000, 58)])
def test_generate_with_a_cache_looks_at_the_room_first(
    model: Decoder, monkeypatch: pytest.MonkeyPatch, held: int, capacity: int, new: int
) -> None:
    """The last token is never fed, so a cache of 10 takes a prompt of 5 and 6 new tokens."""
    cache, ids = PlainCache(1), some_ids(model.config, 1, held + 5)
    model(ids[:, :held], cache) if held else None
    cache.capacity = capacity
    for too_many in (new, new + 1):
        with monkeypatch.context() as patched:
            patched.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
            with complains(f"{held + 5} + {too_many}", str(min(capacity + 1, 64))):
                generate(model, ids[:, held:], too_many, cache)
    assert cache.lengths.tolist() == [held]
    text = generate(model, ids[:, held:], min(new - 1, 6), cache)  # continues what it holds
    assert text[0, 5:].equal(generate(model, ids, min(new - 1, 6))[0, held + 5 :])


def test_the_module_exports_what_later_lessons_import() -> None:
    names = (
        "DecoderConfig RMSNorm rope_angles rotate Attention SwiGLU Block Decoder sample generate"
    )
    assert all(hasattr(decoder, name) for name in names.split())
