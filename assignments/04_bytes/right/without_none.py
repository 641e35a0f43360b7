# What is None is taken out first, and then defaults do the rest.
def kv_bytes(config, context, batch, dtype):
    c = {key: value for key, value in config.items() if value is not None}
    heads, n_layers = c["num_attention_heads"], c["num_hidden_layers"]
    width = c.get("num_key_value_heads", heads) * c.get("head_dim", c["hidden_size"] // heads)
    kept = min(context, c.get("sliding_window", context))
    kinds = c.get("layer_types", ["sliding_attention"] * n_layers)
    tokens = sum(kept if kind.startswith("sliding") else context for kind in kinds)
    bits, group = FORMATS[dtype]
    n_values = 2 * tokens * batch * width
    return (n_values * bits + (16 * n_values // group if group else 0)) // 8
