# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 4 — The bill
#
# **Read first:** lesson 3, *What a token costs* (`notebooks/03_cost.ipynb`), to the end of
# "Fewer bits, and what comes with them".
#
# `kv_bytes(config, context, batch, dtype)` says how many bytes the KV cache takes: `batch` sequences of
# `context` tokens each, for a model whose `config.json` has become a dictionary.
#
# | Key | If it is missing or `None` |
# |---|---|
# | `num_hidden_layers`, `hidden_size`, `num_attention_heads` | always there |
# | `num_key_value_heads` | as many as `num_attention_heads` |
# | `head_dim` | `hidden_size // num_attention_heads` |
# | `sliding_window` | every layer keeps every token |
# | `layer_types` | if there is a window, every layer has it |
#
# - A layer with a window keeps at most `sliding_window` tokens of each sequence.
# - `layer_types` has an entry for each layer, `"sliding_attention"` or `"full_attention"`, in any order and
#   number. A sliding layer without a `sliding_window` keeps every token.
# - `dtype` is a key of `FORMATS`. In some formats a fixed number of values share one scale, a float16.
#   Scales take room as well, for the values that are kept.
# - The result is an `int`.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need no GPU.

# %% tags=["given"]
FORMATS = {  # bits of a value; how many values share a float16 scale, None for no scale
    "float32": (32, None),
    "bfloat16": (16, None),
    "q8_0": (8, 32),
    "q4_0": (4, 32),
}
LLAMA_2_7B = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
SMOLLM2_135M = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}

# %% [raw]
# # BEGIN QUESTION
# name: kv_bytes

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write this function.
def kv_bytes(config, context, batch, dtype):
    """Bytes of the KV cache of `batch` sequences with `context` tokens each."""
    # BEGIN SOLUTION
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
    bits, group = FORMATS[dtype]
    nbytes = values * bits // 8
    if group:
        nbytes += values // group * 2
    return nbytes
    # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS

# %% tags=["secret"]
EXTRA = SEED and 1 + SEED % 50  # layers more than the model has, where the teacher has a secret
TALL = LLAMA_2_7B | {"num_hidden_layers": 32 + 2 * EXTRA}
THIN = SMOLLM2_135M | {"num_hidden_layers": 30 + EXTRA}

# %% tags=["check"] points=1 title="Llama-2-7B in bfloat16 takes 524,288 bytes per token."
got = kv_bytes(LLAMA_2_7B, 1, 1, "bfloat16")
assert got == 524_288, (
    f"Llama-2-7B takes 524,288 bytes for one token, not {got}: keys and values, "
    "32 layers, 32 heads of 128 values, 2 bytes each."
)

# %% tags=["check"] points=1 title="SmolLM2-135M in float32 takes 46,080 bytes per token."
got = kv_bytes(SMOLLM2_135M, 1, 1, "float32")
assert got == 46_080, (
    f"SmolLM2-135M takes 46,080 bytes for one token in float32, not {got}. It has 9 heads, "
    "but 3 KV heads."
)


# %% points=1 title="The result is an int, proportional to tokens and users."
def test_linear(kv_bytes):
    one = kv_bytes(THIN, 100, 1, "bfloat16")
    assert type(one) is int, f"the result is a {type(one).__name__}"
    assert kv_bytes(THIN, 200, 1, "bfloat16") == 2 * one, "twice the context"
    assert kv_bytes(THIN, 100, 7, "bfloat16") == 7 * one, "seven users"
    assert kv_bytes(THIN, 100, 1, "float32") == 2 * one > 0, "float32"


# %% points=2 title="head_dim counts where the config names it."
def test_head_dim(kv_bytes):
    qwen3 = {"num_hidden_layers": 28 + 28 * EXTRA, "hidden_size": 1024, "num_attention_heads": 16}
    qwen3 |= {"num_key_value_heads": 8, "head_dim": 128}  # Qwen3-0.6B
    assert kv_bytes(qwen3, 10, 3, "bfloat16") == 30 * 114_688 * (1 + EXTRA), "Qwen3-0.6B"
    qwen3["head_dim"] = 32
    assert kv_bytes(qwen3, 10, 3, "bfloat16") == 30 * 28_672 * (1 + EXTRA), "head_dim is 32"


# %% points=2 title="Layers with a window keep no more tokens than it has."
def test_window(kv_bytes):
    config = TALL | {"sliding_window": 4096}
    most = kv_bytes(TALL, 4096, 2, "bfloat16")
    assert kv_bytes(config, 4096, 2, "bfloat16") == most, "a context as long as the window"
    assert kv_bytes(config, 10_000, 2, "bfloat16") == most, "a context beyond the window"
    assert kv_bytes(config, 512, 2, "bfloat16") == most // 8, "a short context"
    n_layers = TALL["num_hidden_layers"]
    layer = kv_bytes(TALL, 1, 1, "bfloat16") // n_layers  # bytes of a token in a layer
    for every in (2, 6):  # each second layer, or each sixth, keeps everything
        full = n_layers // every
        kinds = ["sliding_attention"] * n_layers
        kinds[every - 1 :: every] = ["full_attention"] * full
        config = TALL | {"sliding_window": 8, "layer_types": kinds}
        tokens = 100 * full + 8 * (n_layers - full)
        assert kv_bytes(config, 100, 1, "bfloat16") == layer * tokens, f"{full} full layers"
        assert kv_bytes(config, 5, 1, "bfloat16") == layer * 5 * n_layers, "a short context"


# %% points=1 title="What may be missing may be None, too."
def test_missing(kv_bytes):
    qwen3 = {"num_hidden_layers": 28 + 28 * EXTRA, "hidden_size": 1024, "num_attention_heads": 16}
    for config in (qwen3, qwen3 | {"num_key_value_heads": None, "head_dim": None}):
        got = kv_bytes(config, 10, 3, "bfloat16")
        assert got == 30 * 114_688 * (1 + EXTRA), f"{[*config][3:]} given as None, others missing"
    n_layers = TALL["num_hidden_layers"]
    kinds = {"layer_types": ["sliding_attention", "full_attention"] * (n_layers // 2)}
    plain = kv_bytes(TALL, 100, 1, "bfloat16")
    assert kv_bytes(TALL | kinds, 100, 1, "bfloat16") == plain, "no sliding_window, yet layer_types"
    for no_window in ({"sliding_window": None}, {"sliding_window": None, "layer_types": None}):
        assert kv_bytes(TALL | kinds | no_window, 100, 1, "bfloat16") == plain, f"{no_window}"
    config = TALL | {"sliding_window": 10, "layer_types": None}
    assert kv_bytes(config, 100, 1, "bfloat16") == plain // 10, "layer_types is None"


# %% points=2 title="Scales take room."
def test_scales(kv_bytes):
    plain = kv_bytes(TALL, 64, 3, "bfloat16") // 64  # of 32 values
    assert kv_bytes(TALL, 64, 3, "q8_0") == plain * 34, "q8_0: 32 values in 34 bytes"
    assert kv_bytes(TALL, 64, 3, "q4_0") == plain * 18, "q4_0: 32 values in 18 bytes"
    short = TALL | {"sliding_window": 16}
    plain = kv_bytes(short, 64, 3, "bfloat16") // 64
    assert kv_bytes(short, 64, 3, "q8_0") == plain * 34, "scales of tokens that the window let go"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
