"""What a KV cache costs: config.json -> CacheSpec -> bytes -> users. Standard library only.

>>> spec = cache_spec({"model_type": "llama", "num_hidden_layers": 32,
...                    "num_attention_heads": 32, "hidden_size": 4096})
>>> spec.nbytes(context=4096, cache_dtype="float16")
2147483648
"""

from kvbook.accounting.errors import ConfigError
from kvbook.accounting.fit import fit_users
from kvbook.accounting.reader import cache_spec
from kvbook.accounting.spec import CacheSpec, LayerCache
from kvbook.accounting.weights import parameter_count
from kvbook.accounting.whatif import kv_head_choices, what_if

__all__ = [
    "CacheSpec",
    "ConfigError",
    "LayerCache",
    "cache_spec",
    "fit_users",
    "kv_head_choices",
    "parameter_count",
    "what_if",
]
