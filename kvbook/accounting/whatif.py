"""The same model with fewer KV heads, or with a window: what a technique would save."""

from collections.abc import Iterator
from dataclasses import replace

from kvbook.accounting.errors import ConfigError
from kvbook.accounting.spec import CacheSpec, Kind, LayerCache, check_count


def what_if(
    spec: CacheSpec,
    *,
    n_kv_heads: int | None = None,
    window: int | None = None,
    sinks: int = 0,
    full_every: int | None = None,
) -> CacheSpec:
    """The cache that the model would have with other KV heads or windows; both need training.

    `n_kv_heads` replaces the KV heads of every layer that caches keys and values by heads. Latents
    have no heads, and cross caches keep theirs. `window` lets every full layer, latents included,
    keep min(context, window + sinks) tokens; layers that slide already keep their own window.
    With `full_every` k, each k-th of the full layers (the k-th, the 2k-th, ...) stays full.

    Raises ConfigError, which names the argument, where n_kv_heads does not divide the attention
    heads, or sinks or full_every come without a window.
    """
    layers: tuple[LayerCache, ...] = spec.layers
    if n_kv_heads is not None:
        check_count("n_kv_heads", n_kv_heads)
        if spec.n_heads is not None and spec.n_heads % n_kv_heads:
            raise ConfigError(
                f"n_kv_heads is {n_kv_heads}, which does not divide {spec.n_heads} attention heads."
            )
        layers = tuple(
            replace(layer, n_kv_heads=n_kv_heads) if has_kv_heads(layer) else layer
            for layer in layers
        )
    check_count("sinks", sinks, low=0)
    if full_every is not None:
        check_count("full_every", full_every)
    if window is not None:
        check_count("window", window)
        layers = tuple(_sliding(layers, window + sinks, full_every))
    elif sinks:
        raise ConfigError(f"sinks is {sinks}, but there is no window that they would stay beside.")
    elif full_every is not None:
        raise ConfigError(f"full_every is {full_every}, but no window makes the others slide.")
    return replace(spec, layers=layers)


def has_kv_heads(layer: LayerCache) -> bool:
    """Whether n_kv_heads applies: the layer attends to its own tokens, and by heads."""
    return layer.kind in ("full", "sliding", "chunked")


def is_full(layer: LayerCache) -> bool:
    """Whether a window applies: the layer keeps every token of the context so far."""
    return layer.kind in ("full", "latent") and layer.window is None


def kv_head_choices(spec: CacheSpec) -> list[int]:
    """The divisors of the attention heads; none where the heads are not known or not cached."""
    if spec.n_heads is None or not any(has_kv_heads(layer) for layer in spec.layers):
        return []
    return [count for count in range(1, spec.n_heads + 1) if spec.n_heads % count == 0]


def _sliding(
    layers: tuple[LayerCache, ...], kept: int, full_every: int | None
) -> Iterator[LayerCache]:
    seen = 0
    for layer in layers:
        if is_full(layer):
            seen += 1
            if full_every is None or seen % full_every:
                kind: Kind = "latent" if layer.kind == "latent" else "sliding"
                layer = replace(layer, kind=kind, window=kept)
        yield layer
