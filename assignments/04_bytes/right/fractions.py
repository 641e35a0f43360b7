# Bytes of a value as a fraction, scale included.
from fractions import Fraction


def kv_bytes(config, context, batch, dtype):
    bits, group = FORMATS[dtype]
    per_value = Fraction(bits, 8) + (Fraction(2, group) if group else 0)
    n, window = config["num_attention_heads"], config.get("sliding_window")
    width = config.get("num_key_value_heads") or n
    width *= config.get("head_dim") or config["hidden_size"] // n
    total, kinds = 0, config.get("layer_types")
    for i in range(config["num_hidden_layers"]):
        slides = window is not None and (kinds is None or kinds[i] == "sliding_attention")
        total += min(context, window) if slides else context
    return int(2 * batch * total * width * per_value)
