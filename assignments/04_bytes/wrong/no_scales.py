# The scales are forgotten.
# score: 8  fails: test_scales
def kv_bytes(config, context, batch, dtype):
    n_heads, window = config["num_attention_heads"], config.get("sliding_window")
    n_kv_heads = config.get("num_key_value_heads") or n_heads
    head_dim = config.get("head_dim") or config["hidden_size"] // n_heads
    n_layers = config["num_hidden_layers"]
    kinds = config.get("layer_types") or ["sliding_attention"] * n_layers
    tokens = 0
    for kind in kinds:
        has_window = bool(window) and kind == "sliding_attention"
        tokens += min(context, window) if has_window else context
    values = 2 * tokens * batch * n_kv_heads * head_dim
    bits, _ = FORMATS[dtype]
    nbytes = values * bits // 8
    return nbytes
