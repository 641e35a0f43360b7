"""What a cache does to a model's predictions: losses through it, and their change with its error."""

from dataclasses import dataclass
from itertools import pairwise
from math import exp

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbook.lessons.cache import KVCache
from kvbook.lessons.decoder import Decoder


@torch.no_grad()
def token_losses(
    model: Decoder, ids: Tensor, cache: KVCache | None = None, chunk: int = 256
) -> Tensor:
    """-log p of each token given all before it, in nats: ids [batch, n] -> float64 [batch, n - 1].

    Teacher-forced: whatever the model would say, it is fed the text, `chunk` tokens in a pass. With
    a cache each pass reads what the cache gives back, so its losses are those of decoding through
    it; chunk 1 is decoding itself. The cache is reset first. Without one, one pass does it all.
    Raises ValueError for fewer than 2 tokens, a chunk below 1, and a cache that n - 1 do not fit:
    such a cache is not reset.
    """
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise ValueError(f"ids has shape {list(ids.shape)}; it must be [batch, n], n at least 2.")
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; it must be 1 or more.")
    if cache is not None:
        if ids.shape[1] - 1 > cache.capacity:
            raise ValueError(
                f"the cache's capacity is {cache.capacity}; {ids.shape[1] - 1} tokens are fed."
            )
        cache.reset()
    fed, losses = ids[:, :-1], []
    for start in range(0, fed.shape[1], fed.shape[1] if cache is None else chunk):
        end = fed.shape[1] if cache is None else start + chunk
        logits = model(fed[:, start:end], cache).double()
        target = ids[:, start + 1 : end + 1]
        losses.append(F.cross_entropy(logits.transpose(1, 2), target, reduction="none").cpu())
    return torch.cat(losses, dim=1)


@dataclass(frozen=True)
class Change:
    """How a perplexity differs from another one on the same tokens.

    `perplexity` is exp of the mean loss; `ratio` is it over the baseline's, minus 1 (0.02 is +2 %).
    `error` is the standard error of that ratio.
    """

    perplexity: float
    ratio: float
    error: float


def change(losses: Tensor, baseline: Tensor, block: int = 32) -> Change:
    """Compare two runs token by token: float64 [batch, n] each, the same text.

    The differences are paired, so that hard and easy tokens cancel. Neighbours are alike, so the
    standard error comes from the means of blocks of `block` tokens, as if those were independent
    (batch means; the last block takes the rest). It tells how far another text of this kind may
    differ, not how far another model may. Raises ValueError for other shapes, for a block
    below 1, and where there are fewer than two blocks.
    """
    if losses.shape != baseline.shape:
        raise ValueError(f"losses {list(losses.shape)} and baseline {list(baseline.shape)} differ.")
    if losses.ndim != 2:
        raise ValueError(f"losses has shape {list(losses.shape)}; it must be [batch, n].")
    if block < 1:
        raise ValueError(f"block is {block}; it must be 1 or more.")
    difference = losses - baseline
    count = difference.shape[1] // block
    if count * len(difference) < 2:
        raise ValueError(f"{difference.shape[1]} losses are too few for blocks of {block}.")
    edges = [*range(0, count * block, block), difference.shape[1]]
    means = torch.stack([difference[:, a:b].mean(1) for a, b in pairwise(edges)])
    mean, spread = float(difference.mean()), float(means.std()) / means.numel() ** 0.5
    return Change(exp(float(losses.mean())), exp(mean) - 1, exp(mean) * spread)
