"""The kinds of cache that are measured. A cache of a later lesson joins with one line here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from kvbook.accounting import CacheSpec, ConfigError, cache_spec
from kvbook.accounting.errors import shown
from kvbook.accounting.facts import model
from kvbook.accounting.latent import with_latent
from kvbook.accounting.spec import Policy
from kvbook.accounting.whatif import what_if
from kvbook.lessons.cache import GrowingCache, KVCache, PreallocatedCache
from kvbook.lessons.decoder import Attention, DecoderConfig
from kvbook.lessons.gqa import LatentAttention, LatentCache, LatentConfig
from kvbook.lessons.paged import PagedCache
from kvbook.lessons.quantized import QuantizedCache
from kvbook.lessons.window import HybridCache

PLAIN = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """One kind of cache, and what its dtypes mean.

    `build(config, batch, capacity, dtype, device)` makes it. `dtypes` are names that the accounting
    knows. `within` is the share by which storages may differ from the prediction, beside the
    book-keeping; 0 means: to the byte. `reserves` says that a cache takes its whole capacity at once.
    One that `grows` holds the rows of its tokens alone, any other those of its capacity (or window).
    `of` turns a model's accounting into that of the same model with this cache.
    `beside(spec, dtype)` are the bytes for each sequence that the accounting does not know of.
    A kind with `few` is measured at a few points only.
    """

    name: str
    build: Callable[[DecoderConfig, int, int, str, str], KVCache]
    dtypes: tuple[str, ...] = PLAIN
    within: float = 0.0
    reserves: bool = True
    grows: bool = False
    of: Callable[[CacheSpec], CacheSpec] = lambda spec: spec
    beside: Callable[[CacheSpec, str], int] = lambda spec, dtype: 0
    few: bool = False
    policy: Policy = "exact"  # how the accounting counts the tokens of a sequence
    attention: type[nn.Module] = Attention  # with which a decoder can use it

    def predict(self, spec: CacheSpec, context: int, batch: int, dtype: str) -> int:
        """Bytes that lesson 3's accounting expects for K and V."""
        nbytes = self.of(spec).nbytes(context, batch, cache_dtype=dtype, policy=self.policy)
        return nbytes + batch * self.beside(spec, dtype)


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


def quantized(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
    """Lesson 8's cache for rows of float16, in the format that the accounting calls `dtype`."""
    return QuantizedCache(config, batch, capacity, format=dtype, dtype=torch.float16, device=device)


def tail(spec: CacheSpec, dtype: str) -> int:
    """Bytes of lesson 8's tails for one sequence: with int4, 32 keys a head in float16."""
    rows = sum(32 * layer.n_kv_heads * layer.k_dim for layer in spec.layers)
    return 2 * rows if dtype == "int4" else 0


def paged(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
    """Lesson 10's cache, with blocks of 16 for `capacity` tokens of every sequence."""
    options = {"dtype": getattr(torch, dtype), "device": device}
    return PagedCache(config, batch, capacity, block_size=16, **options)


WINDOW = 1024  # tokens


def windowed(name: str, sinks: int = 0, full_every: int | None = None) -> Kind:
    """A kind of lesson 9: every layer, or all but each full_every-th, keeps WINDOW + sinks tokens.

    Its slots do not grow with its capacity, so it has no frontier.
    """

    def build(config: DecoderConfig, batch: int, capacity: int, dtype: str, device: str) -> KVCache:
        layers = [
            None if full_every and (layer + 1) % full_every == 0 else WINDOW
            for layer in range(config.n_layers)
        ]
        options = {"dtype": getattr(torch, dtype), "device": device}
        return HybridCache(config, batch, capacity, layers=layers, sinks=sinks, **options)

    def of(spec: CacheSpec) -> CacheSpec:
        return what_if(spec, window=WINDOW, sinks=sinks, full_every=full_every)

    return Kind(name, build, ("float16",), of=of, reserves=False, few=True)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("growing", plain(GrowingCache), reserves=False, grows=True),
        Kind("preallocated", plain(PreallocatedCache)),
        Kind(
            "latent",
            latent,
            ("float16",),
            of=lambda spec: with_latent(spec, LATENT, TURNED),
            attention=LatentAttention,
            few=True,
        ),
        Kind(
            "quantized", quantized, dtypes=("int8", "int4"), reserves=False, beside=tail, few=True
        ),
        Kind("paged", paged, dtypes=("float16",), reserves=False, policy="paged", few=True),
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
