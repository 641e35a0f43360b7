"""Lesson 3 — What a token costs. Generated from notebooks/03_cost.py by `make lessons`: edit that."""

def token_nbytes(n_layers: int, n_kv_heads: int, head_dim: int, bytes_per_value: int) -> int:
    """Bytes that one token leaves in the cache: a key and a value for each layer and KV head.

    Right where every layer keeps every token, with keys and values of one width, unquantised.
    Raises ValueError for a term that is not a whole number of at least 1.
    """
    terms = dict(locals())
    for name, value in terms.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} is {value!r}; it must be a whole number, at least 1.")
    return 2 * n_layers * n_kv_heads * head_dim * bytes_per_value
