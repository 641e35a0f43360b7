"""The kinds of cache that are measured. A cache of a later lesson joins with one line here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvbook.accounting import CacheSpec, ConfigError, cache_spec
from kvbook.accounting.errors import shown
from kvbook.accounting.facts import model
from kvbook.accounting.latent import with_latent
from kvbook.lessons.cache import GrowingCache, KVCache, PreallocatedCache
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.gqa import LatentCache, LatentConfig

PLAIN = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """One kind of cache, and what its dtypes mean.

    `build(config, batch, capacity, dtype, device)` makes it. `dtypes` are names that the accounting
    knows. `within` is the share by which storages may differ from the prediction, beside the
    book-keeping; 0 means: to the byte. `reserves` says that a cache takes its whole capacity at once.
    `of` turns a model's accounting into that of the same model with this cache.
    """

    name: str
    build: Callable[[DecoderConfig, int, int, str, str], KVCache]
    dtypes: tuple[str, ...] = PLAIN
    within: float = 0.0
    reserves: bool = True
    of: Callable[[CacheSpec], CacheSpec] = lambda spec: spec

    def predict(self, spec: CacheSpec, context: int, batch: int, dtype: str) -> int:
        """Bytes that lesson 3's accounting expects for K and V."""
        return self.of(spec).nbytes(context, batch, cache_dtype=dtype)


def plain(cls: type[KVCache]) -> Callable[[DecoderConfig, int, int, str, str], KVCache]:
    """How to build a cache class that takes a torch dtype, as those of lesson 2 do."""

    def build(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
        return cls(config, batch, capacity, dtype=getattr(torch, dtype), device=device)

    return build


LATENT, TURNED = 512, 64  # values of a row: DeepSeek-V3's


def latent(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
    """Lesson 7's cache: in each of the config's layers one row as wide as DeepSeek-V3's."""
    one_row = {**vars(config), "n_kv_heads": 1, "head_dim": TURNED}
    row = LatentConfig(**one_row, latent_dim=LATENT)
    return LatentCache(row, batch, capacity, dtype=getattr(torch, dtype), device=device)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("growing", plain(GrowingCache), reserves=False),
        Kind("preallocated", plain(PreallocatedCache)),
        Kind("latent", latent, ("float16",), of=lambda spec: with_latent(spec, LATENT, TURNED)),
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
