# Every layer keeps every token.
# score: 7  fails: test_window
def kv_bytes(config, context, batch, dtype):
    n_heads = config["num_attention_heads"]
    n_kv_heads = config.get("num_key_value_heads") or n_heads
    head_dim = config.get("head_dim") or config["hidden_size"] // n_heads
    n_layers = config["num_hidden_layers"]
    tokens = n_layers * context
    values = 2 * tokens * batch * n_kv_heads * head_dim
    bits, group = FORMATS[dtype]
    nbytes = values * bits // 8
    if group:
        nbytes += values // group * 2
    return nbytes
