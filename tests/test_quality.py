"""Losses through a cache against one pass and against transformers' own arithmetic in float64."""

from math import exp, log

import pytest
import torch
from torch import Tensor

from kvbook.lessons.cache import GrowingCache, PreallocatedCache
from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.measure.quality import change, token_losses

CONFIG = DecoderConfig(
    vocab_size=37,
    dim=24,
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    ffn_dim=20,
    max_seq_len=64,
)


@pytest.fixture(scope="module")
def model() -> Decoder:
    torch.manual_seed(7)
    return Decoder(CONFIG).double().requires_grad_(False)


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(37, (2, 23), generator=torch.Generator().manual_seed(8))


def test_losses_are_those_of_the_next_token(model: Decoder, ids: Tensor) -> None:
    losses = token_losses(model, ids)
    p = model(ids).softmax(-1)
    assert losses.shape == (2, 22)
    for row in range(2):
        for n in range(22):
            expected = -log(p[row, n, ids[row, n + 1]])
            assert losses[row, n].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("chunk", [1, 5, 22, 100])
@pytest.mark.parametrize("kind", [GrowingCache, PreallocatedCache])
def test_a_cache_in_chunks_changes_nothing(model: Decoder, ids: Tensor, kind, chunk: int) -> None:
    cache = kind(CONFIG, 2, 30, dtype=torch.float64)
    expected = token_losses(model, ids)
    for _ in range(2):  # it is reset before each run
        torch.testing.assert_close(token_losses(model, ids, cache, chunk), expected)


def test_the_change_is_a_ratio_of_perplexities() -> None:
    base = torch.rand(1, 96, dtype=torch.float64) + 1
    found = change(base + log(1.5), base)
    assert found.ratio == pytest.approx(0.5)
    assert found.error == pytest.approx(0, abs=1e-12)
    assert found.perplexity == pytest.approx(1.5 * exp(base.mean()))


def test_the_error_comes_from_blocks() -> None:
    base = torch.zeros(1, 70, dtype=torch.float64)
    losses = base.clone()
    losses[0, :32] = 0.2  # two blocks, of 32 and 38: means 0.2 and 0
    found = change(losses, base)
    mean = 0.2 * 32 / 70
    assert found.ratio == pytest.approx(exp(mean) - 1)
    assert found.error == pytest.approx(exp(mean) * 0.1)  # std 0.1414 over sqrt(2)


def test_bad_input_is_named(model: Decoder, ids: Tensor) -> None:
    with pytest.raises(ValueError, match=r"ids has shape \[2, 1\]"):
        token_losses(model, ids[:, :1])
    with pytest.raises(ValueError, match="chunk is 0"):
        token_losses(model, ids, chunk=0)
    with pytest.raises(ValueError, match=r"\[2, 22\] and baseline \[1, 22\]"):
        change(torch.zeros(2, 22), torch.zeros(1, 22))
    with pytest.raises(ValueError, match="22 losses are too few for blocks of 32"):
        change(torch.zeros(2, 22), torch.zeros(2, 22))
    for block in (0, -1):
        with pytest.raises(ValueError, match=f"block is {block}"):
            change(torch.zeros(2, 64), torch.zeros(2, 64), block)
    with pytest.raises(ValueError, match=r"losses has shape \[64\]"):
        change(torch.zeros(64), torch.zeros(64))


def test_a_cache_that_is_too_small_is_left_as_it_is(model: Decoder, ids: Tensor) -> None:
    cache = PreallocatedCache(CONFIG, 2, 21, dtype=torch.float64)
    cache.advance(5)
    with pytest.raises(ValueError, match="capacity is 21; 22 tokens"):
        token_losses(model, ids, cache)
    assert cache.lengths.tolist() == [5, 5]
