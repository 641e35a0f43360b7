"""Lesson 6 — Two phases. Generated from notebooks/06_roofline.py by `make lessons`: edit that."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kvbook.accounting.roofline import Device, Work
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.decoder import Decoder


class CountingCache(PreallocatedCache):
    """Counts attention as it happens: pairs from the mask used, bytes from the rows returned.

    In a decode step all rows but the newest are old and are read. In a prefill all are new and
    are written. Either way each row is counted once.
    """

    attention_flops = cache_bytes = 0

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().update(layer, k, v)
        self.cache_bytes += keys.nbytes + values.nbytes
        return keys, values

    def mask(self, layer: int, q_len: int) -> Tensor | None:
        mask = super().mask(layer, q_len)
        every = self.batch * q_len * (self.end + q_len)
        seen = every if mask is None else int(mask.sum())
        self.attention_flops += 4 * self.config.n_heads * self.config.head_dim * seen
        return mask


@torch.no_grad()
def count_pass(model: Decoder, ids: Tensor, cache: CountingCache) -> Work:
    """What a pass over ids [batch, q_len] computes and moves, by hooks; logits of the last.

    Raises ValueError for a cache that does not count.
    """
    if not hasattr(cache, "attention_flops"):
        raise ValueError(f"cache is a {type(cache).__name__}; it must be a CountingCache.")
    cache.attention_flops = cache.cache_bytes = flops = nbytes = 0
    weights: dict[nn.Module, Tensor] = {
        layer: layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)
    }

    def linear(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal flops, nbytes
        flops += 2 * inputs[0][..., 0].numel() * weights[module].numel()
        nbytes += weights[module].nbytes

    def unembedding(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal flops, nbytes
        flops += 2 * output[..., 0].numel() * model.embed.weight.numel()
        nbytes += model.embed.weight.nbytes

    hooks = [layer.register_forward_hook(linear) for layer in weights]
    hooks.append(model.norm.register_forward_hook(unembedding))
    try:
        model(ids, cache, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    return Work(ids.numel(), flops, cache.attention_flops, nbytes, cache.cache_bytes)


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call; waits until a GPU, if there is one, has done what it was given."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else bool
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


class Probe:
    """Measures the two rates of a device, in float32: matrix × vector and matrix × matrix.

    The tall matrix takes read_nbytes: more than the processor's own cache holds, or the rate is
    that of this cache. `width` is the side of the square ones. Raises ValueError for sizes below
    32,768 bytes and 1.
    """

    def __init__(self, device: str, read_nbytes: int = 2**29, width: int = 1024) -> None:
        is_int = type(read_nbytes) is type(width) is int
        if not is_int or read_nbytes < 2**15 or width < 1:
            raise ValueError(
                f"read_nbytes is {read_nbytes} and width {width}; int, at least 32768 and 1."
            )
        self.tall = torch.ones(read_nbytes // 2**15, 2**13, device=device)
        self.vector = torch.ones(2**13, device=device)
        self.square = torch.ones(width, width, device=device)
        self.bytes_per_s: list[float] = []
        self.flops_per_s: list[float] = []

    def run(self) -> None:
        """Measure each rate once more."""
        self.bytes_per_s.append(self.tall.nbytes / seconds(lambda: self.tall @ self.vector))
        flops = 2 * len(self.square) ** 3
        self.flops_per_s.append(flops / seconds(lambda: self.square @ self.square))

    def best(self) -> Device:
        """The roof: the fastest that was seen, since other work can only slow a run down."""
        if not self.bytes_per_s:
            raise ValueError("Nothing was measured yet; call run() first.")
        return Device(max(self.flops_per_s), max(self.bytes_per_s), "this machine")
