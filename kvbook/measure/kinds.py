"""The kinds of cache that are measured. A cache of a later lesson joins with one line here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvbook.accounting import CacheSpec, ConfigError, cache_spec
from kvbook.accounting.errors import shown
from kvbook.accounting.facts import model
from kvbook.lessons.cache import GrowingCache, KVCache, PreallocatedCache
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.quantized import QuantizedCache

PLAIN = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """One kind of cache, and what its dtypes mean.

    `build(config, batch, capacity, dtype, device)` makes it. `dtypes` are names that the accounting
    knows. `within` is the share by which storages may differ from the prediction, beside the
    book-keeping; 0 means: to the byte. `reserves` says that a cache takes its whole capacity at once.
    `beside(spec, dtype)` are the bytes for each sequence that the accounting does not know of.
    """

    name: str
    build: Callable[[DecoderConfig, int, int, str, str], KVCache]
    dtypes: tuple[str, ...] = PLAIN
    within: float = 0.0
    reserves: bool = True
    beside: Callable[[CacheSpec, str], int] = lambda spec, dtype: 0

    def predict(self, spec: CacheSpec, context: int, batch: int, dtype: str) -> int:
        """Bytes that lesson 3's accounting expects for K and V."""
        nbytes = spec.nbytes(context, batch, cache_dtype=dtype)
        return nbytes + batch * self.beside(spec, dtype)


def plain(cls: type[KVCache]) -> Callable[[DecoderConfig, int, int, str, str], KVCache]:
    """How to build a cache class that takes a torch dtype, as those of lesson 2 do."""

    def build(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
        return cls(config, batch, capacity, dtype=getattr(torch, dtype), device=device)

    return build


def quantized(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
    """Lesson 8's cache for rows of float16, in the format that the accounting calls `dtype`."""
    return QuantizedCache(config, batch, capacity, format=dtype, dtype=torch.float16, device=device)


def tail(spec: CacheSpec, dtype: str) -> int:
    """Bytes of lesson 8's tails for one sequence: with int4, 32 keys a head in float16."""
    rows = sum(32 * layer.n_kv_heads * layer.k_dim for layer in spec.layers)
    return 2 * rows if dtype == "int4" else 0


KINDS = {
    kind.name: kind
    for kind in (
        Kind("growing", plain(GrowingCache), reserves=False),
        Kind("preallocated", plain(PreallocatedCache)),
        Kind("quantized", quantized, dtypes=("int8", "int4"), reserves=False, beside=tail),
    )
}


def shape(name: str) -> tuple[CacheSpec, DecoderConfig]:
    """The accounting of a model of models.json, and a decoder's shape with a cache like its own.

    Raises ConfigError for an unknown model, or one whose layers are not all alike: the plain caches
    cannot hold its keys and values.
    """
    spec = cache_spec(model(name).config)
    first = spec.layers[0]
    if any(layer != first or layer.kind != "full" for layer in spec.layers):
        raise ConfigError(f"model is {shown(name)}; its layers must all keep every token, alike.")
    if first.k_dim != first.v_dim:
        raise ConfigError(f"model is {shown(name)}; its keys and values must have one width.")
    heads, width = first.n_kv_heads, first.k_dim
    config = DecoderConfig(
        vocab_size=8,
        dim=8,
        n_layers=len(spec.layers),
        n_heads=heads,
        n_kv_heads=heads,
        head_dim=width,
        ffn_dim=8,
        max_seq_len=spec.max_context or 8192,
    )
    return spec, config
