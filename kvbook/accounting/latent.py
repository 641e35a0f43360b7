"""A model's cache as multi-head latent attention (MLA) would keep it: one row a token in each layer.

Source: DeepSeek-V2, https://arxiv.org/abs/2405.04434, section 2.1.
"""

from dataclasses import replace

from kvbook.accounting.errors import ConfigError
from kvbook.accounting.spec import CacheSpec, check_count
from kvbook.accounting.whatif import has_kv_heads, is_full

WIDEST = 2**16  # values of a latent, or of its part with positions


def with_latent(spec: CacheSpec, latent_width: int, rope_width: int) -> CacheSpec:
    """The cache with latent_width + rope_width values a token in each layer, all heads sharing them.

    `latent_width` values give K and V of every head when multiplied up; `rope_width` values are the
    part of K that carries the position, which cannot be compressed with the rest. A model has to be
    trained so. Raises ConfigError for a width out of range, and where not every layer keeps K and V
    of the whole context by heads.

    >>> from kvbook.accounting import cache_spec, facts
    >>> llama = cache_spec(facts.model("llama-2-7b").config)
    >>> with_latent(llama, 512, 64).bytes_per_token("float16")  # 32 layers, 576 values, 2 bytes
    36864
    """
    check_count("latent_width", latent_width, high=WIDEST)
    check_count("rope_width", rope_width, high=WIDEST)
    if not all(has_kv_heads(layer) and is_full(layer) for layer in spec.layers):
        raise ConfigError("Not every layer keeps K and V of the whole context by heads.")
    width = latent_width + rope_width
    layers = tuple(
        replace(layer, kind="latent", n_kv_heads=1, k_dim=width, v_dim=0) for layer in spec.layers
    )
    return replace(spec, layers=layers)
