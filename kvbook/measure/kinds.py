"""The kinds of cache that are measured. A cache of a later lesson joins with one line here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvbook.accounting import CacheSpec, ConfigError, cache_spec
from kvbook.accounting.errors import shown
from kvbook.accounting.facts import model
from kvbook.accounting.whatif import what_if
from kvbook.lessons.cache import GrowingCache, KVCache, PreallocatedCache
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.window import HybridCache

PLAIN = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """One kind of cache, and what its dtypes mean.

    `build(config, batch, capacity, dtype, device)` makes it. `dtypes` are names that the accounting
    knows. `within` is the share by which storages may differ from the prediction, beside the
    book-keeping; 0 means: to the byte. `reserves` says that a cache takes its whole capacity at once.
    `few` asks for a few points only.
    """

    name: str
    build: Callable[[DecoderConfig, int, int, str, str], KVCache]
    dtypes: tuple[str, ...] = PLAIN
    within: float = 0.0
    reserves: bool = True
    few: bool = False

    def predict(self, spec: CacheSpec, context: int, batch: int, dtype: str) -> int:
        """Bytes that lesson 3's accounting expects for K and V."""
        return spec.nbytes(context, batch, cache_dtype=dtype)


def plain(cls: type[KVCache]) -> Callable[[DecoderConfig, int, int, str, str], KVCache]:
    """How to build a cache class that takes a torch dtype, as those of lesson 2 do."""

    def build(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
        return cls(config, batch, capacity, dtype=getattr(torch, dtype), device=device)

    return build


@dataclass(frozen=True)
class Windowed(Kind):
    """A kind of lesson 9: every layer, or all but each `full_every`-th, keeps window + sinks tokens.

    Its slots do not grow with its capacity, so it has no frontier.
    """

    window: int = 1024
    sinks: int = 0
    full_every: int | None = None
    reserves: bool = False
    few: bool = True

    def predict(self, spec: CacheSpec, context: int, batch: int, dtype: str) -> int:
        kept = what_if(spec, window=self.window, sinks=self.sinks, full_every=self.full_every)
        return kept.nbytes(context, batch, cache_dtype=dtype)


def windowed(name: str, sinks: int = 0, full_every: int | None = None) -> Windowed:
    """A kind with windows, measured in one dtype."""

    def build(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
        layers = [
            None if full_every and (layer + 1) % full_every == 0 else kind.window
            for layer in range(config.n_layers)
        ]
        options = {"dtype": getattr(torch, dtype), "device": device}
        return HybridCache(config, batch, capacity, layers=layers, sinks=sinks, **options)

    kind = Windowed(name, build, dtypes=("float16",), sinks=sinks, full_every=full_every)
    return kind


KINDS = {
    kind.name: kind
    for kind in (
        Kind("growing", plain(GrowingCache), reserves=False),
        Kind("preallocated", plain(PreallocatedCache)),
        windowed("window"),
        windowed("sinks", sinks=4),
        windowed("hybrid", full_every=2),
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
