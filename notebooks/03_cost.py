# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 3 — What a token costs
#
# **The question.** A conversation grows by one token. How many bytes of GPU memory does that take, in
# whatever model you serve?
#
# You need the answer before you buy a GPU, and a wrong one is expensive. Published figures are off by
# factors of 2, 8 and 32; you will take five of them apart at the end. First you write the formula term
# by term. Then you meet the models for which it fails, and a small library that reads a model's
# `config.json`.

# %% [markdown]
# ## What you need
#
# [Lesson 2](02_cache.ipynb): each layer keeps a key and a value for every token, in each KV head
# (key/value head). You need no GPU. The last measurement loads SmolLM2-135M, a download of
# 93 MB the first time; the rest runs in seconds.

# %% [markdown]
# ## Predict
#
# Llama 2 7B has 32 layers. Each has 32 KV heads of 128 values, kept in 2 bytes each. (A MB is $10^6$
# bytes, a GB $10^9$.)
#
# 1. How many bytes does one token take in the cache?
# 2. Its weights take 13.48 GB. After how many tokens does the cache of one conversation weigh more?
# 3. DeepSeek-V3 has a hundred times as many weights. Does a token cost more there, or less?
# 4. Mistral 7B v0.1 looks back 4,096 tokens. Its cache at 4,096 tokens takes 537 MB. And at 32,768?

# %%
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from kvbook import ledger, plotting
from kvbook.accounting import cache_spec
from kvbook.accounting.facts import model, models
from kvbook.accounting.tables import table
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.decoder import Decoder, DecoderConfig, generate
from kvbook.models import smollm2
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
GB, GiB = 10**9, 2**30

# %% [markdown]
# ## Build
#
# ### Term by term
#
# A token leaves behind, in every layer and for every KV head, one key and one value of `head_dim`
# numbers. So the cost of a token is a 2, for key and value, times four terms:
#
# $$\text{bytes per token} = 2 \times n_\text{layers} \times n_\text{kv heads} \times d_\text{head} \times \text{bytes per value}$$
#
# Nothing else is in it: not the query heads, not the width of the residual stream, not the vocabulary.


# %% tags=["export"]
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


# %% [markdown]
# Here is Llama 2 7B ([Touvron et al. 2023](https://arxiv.org/abs/2307.09288)) as a shape for lesson 1's
# decoder. Its values are kept as float16, **fp16** for short, in 2 bytes each. The model was trained for
# texts of at most 4,096 tokens. The shape has room for more, so that you can ask what longer ones
# would take.

# %%
llama = DecoderConfig(
    vocab_size=32_000,
    dim=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    head_dim=128,
    ffn_dim=11_008,
    max_seq_len=32_768,
)
fp16 = torch.float16.itemsize  # 2 bytes
per_token = token_nbytes(llama.n_layers, llama.n_kv_heads, llama.head_dim, bytes_per_value=fp16)
assert per_token == 524_288 == 2**19
assert model("llama-2-7b").max_context == 4096
print(
    f"2 × 32 layers × 32 heads × 128 values × 2 bytes = {per_token:,} bytes, "
    f"{per_token / 2**20} MiB"
)

# %% [markdown]
# 524,288 bytes for one token, half a MiB (of $2^{20}$ bytes): guess 1. Is that really what a cache of
# this shape holds? Lesson 2's cache can tell without taking the memory. On PyTorch's **meta device**
# tensors have a shape and a size, but no contents.

# %%
cache = PreallocatedCache(llama, capacity=4096, dtype=torch.float16, device="meta")
print(f"4,096 tokens: {cache.nbytes:,} bytes by the cache, {4096 * per_token:,} by the formula")
assert cache.nbytes == 4096 * per_token

# %% [markdown]
# ### GB and GiB
#
# Tokens add up quickly. Three cases, in two units:

# %%
print("tokens   users           bytes       GB     GiB")
for tokens, users in ((4096, 1), (32_768, 1), (4096, 32)):
    nbytes = tokens * users * per_token
    print(f"{tokens:6,} × {users:5} {nbytes:16,} {nbytes / GB:8.3f} {nbytes / GiB:7g}")
assert f"{4096 * per_token / GB:.3f} {32_768 * per_token / GB:.2f}" == "2.147 17.18"
assert f"{4096 * 32 * per_token / GB:.2f}" == "68.72"
assert [n * per_token / GiB for n in (4096, 32_768, 4096 * 32)] == [2, 16, 64]

# %% [markdown]
# A **GB** is $10^9$ bytes, a **GiB** is $2^{30}$, which is 7 % more. Shapes are full of powers of two, so
# caches come out round in GiB: exactly 2, 16 and 64. GPUs are sold by round numbers of GB and
# report their memory in MiB. Figures in GiB are often labelled "GB" (exercises 1, 3 and 4). On an 80 GB
# card the difference is worth more than two users with 4,096 tokens, so this book always says which.

# %%
card = 80 * GB
difference = card * GiB / GB - card
print(f"{GiB / GB - 1:.1%} more; on an 80 GB card {difference / GB:.2f} GB")
assert difference > 2 * 4096 * per_token

# %% [markdown]
# ### When the cache outgrows the weights
#
# Count the weights the same way: build lesson 1's decoder in this shape on the meta device. Llama 2
# does not tie its embeddings: its output matrix is not the embedding table, and comes on top.

# %%
with torch.device("meta"):
    decoder = Decoder(llama)
parameters = sum(weight.numel() for weight in decoder.parameters()) + llama.vocab_size * llama.dim
weights = fp16 * parameters
last = weights // per_token
print(f"{parameters:,} weights × 2 bytes = {weights / GB:.3f} GB")
print(f"{last:,} tokens: {last * per_token / GB:.4f} GB of cache")
print(f"{last + 1:,} tokens: {(last + 1) * per_token / GB:.4f} GB of cache")
assert parameters == model("llama-2-7b").parameters == 6_738_415_616
assert last * per_token < weights < (last + 1) * per_token
assert (last, f"{weights / GB:.3f}") == (25_705, "13.477")

# %% tags=["hide-input"] mystnb={"image": {"alt": "A straight line, the cache of one conversation of Llama 2 7B, rises from 0 to 17.2 GB at 32,768 tokens. It crosses a level line, the weights at 13.48 GB, at 25,706 tokens."}}
tokens = [0, 32_768]
plt.axhline(weights / GB, color=plotting.colour("weights"), label="weights")
plt.plot(
    tokens, [n * per_token / GB for n in tokens], color=plotting.colour("cache"), label="cache"
)
plt.plot(last + 1, (last + 1) * per_token / GB, "o", color=plotting.colour("cache"))
plt.annotate(
    f"{last + 1:,} tokens",
    (last + 1, weights / GB),
    (-12, 10),
    textcoords="offset points",
    ha="right",
)
plt.xlim(0, 32_768)
plt.ylim(0)
plt.gca().xaxis.set_major_formatter("{x:,.0f}")
plt.xlabel("tokens of one conversation")
plt.ylabel("GB (10⁹ bytes)")
plt.title("One long conversation weighs more than the model")
plt.legend(loc="upper left")
plt.show()

# %% [markdown]
# 25,705 tokens of cache still weigh less than the weights; the 25,706th passes them. That was guess 2.
# The weights are paid once. The cache is paid again for every user.

# %% [markdown]
# ### From a config.json
#
# Published models come with a `config.json` that gives their shape. The names in it differ from family
# to family, so the book has a library for it, `kvbook.accounting`. It needs no PyTorch. `cache_spec`
# reads a config. What it returns has `nbytes`, exact for any number of tokens, and `explain`, the sum
# in words.

# %%
config = model("llama-2-7b").config
spec = cache_spec(config)
print(spec.explain(context=4096, cache_dtype="float16"))
assert spec.nbytes(context=4096, cache_dtype="float16") == 4096 * per_token

# %% [markdown]
# Now for the models that break a quick estimate. The estimate takes the formula above with what every
# config has: all heads, and as the width of one head `hidden_size / heads`. (`hidden_size` is this
# book's `dim`. The [notation](../book/notation.md) page has the other names.)


# %%
def estimate(config: dict) -> int:
    """Bytes per token as the quick estimate has them, at 2 bytes a value."""
    config = config.get("text_config", config)
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    heads = config.get("num_attention_heads", config.get("n_head"))
    width = config.get("hidden_size", config.get("n_embd"))
    return 2 * layers * heads * (width // heads) * 2


def compare(*names: str) -> None:
    print(f"{'bytes per token':22}{'estimate':>12}{'exact':>12}{'ratio':>8}")
    for name in names:
        guess = estimate(model(name).config)
        exact = cache_spec(model(name).config).bytes_per_token()
        print(f"{model(name).name:22}{guess:>12,}{exact:>12,}{guess / exact:>8.2f}")


compare("llama-2-7b", "llama-3.1-8b", "llama-3.1-70b", "falcon-7b", "qwen3-32b")

# %%
ratios = {
    name: estimate(model(name).config) / cache_spec(model(name).config).bytes_per_token()
    for name in ("llama-3.1-8b", "llama-3.1-70b", "falcon-7b", "qwen3-32b")
}
assert list(ratios.values()) == [4, 8, 71, 5]
llama31, falcon, qwen = (model(name).config for name in ("llama-3.1-8b", "falcon-7b", "qwen3-32b"))
assert qwen["hidden_size"] == 5120 == 80 * qwen["num_attention_heads"]
assert (qwen["head_dim"], qwen["num_key_value_heads"]) == (128, 8)

# %% [markdown]
# **Fewer KV heads.** Several query heads share one KV head
# ([grouped-query attention](https://arxiv.org/abs/2305.13245), GQA), or all of them do
# ([multi-query attention](https://arxiv.org/abs/1911.02150), MQA). Llama 3.1 8B has 32 query heads and
# 8 KV heads: a quarter. [Falcon 7B](https://arxiv.org/abs/2311.16867) shares a single KV head among 71
# query heads. Its config also has a field that says 71 KV heads; a switch called `multi_query`
# overrules it.
#
# **An explicit head width.** Qwen3 32B has 64 query heads, and a `hidden_size` of 5,120: 80 for each.
# But its heads are 128 wide, as `head_dim` says. With 8 KV heads the estimate is off by 5, not by 8.

# %% [markdown]
# ### Layers that forget
#
# Some layers look back only a **window** of tokens and need to keep no more. Then there is no single
# cost per token: up to the window every layer grows, beyond it only the **full** layers, those that
# keep everything.

# %%
windowed = ("mistral-7b-v0.1", "gemma-2-27b", "gemma-3-27b", "gpt-oss-20b", "llama-4-scout")
print(f"{'':22}{'window':>8}{'bytes/token below':>19}{'beyond':>10}{'GB at 32,768':>14}")
for name in windowed:
    spec = cache_spec(model(name).config)
    window = max(layer.window or 0 for layer in spec.layers)
    below, beyond = spec.bytes_per_token(), spec.bytes_per_token(beyond=True)
    size = spec.nbytes(32_768) / GB
    print(f"{model(name).name:22}{window:>8,}{below:>19,}{beyond:>10,}{size:>14.2f}")

# %%
mistral, gemma, oss, scout = (
    cache_spec(model(name).config)
    for name in ("mistral-7b-v0.1", "gemma-3-27b", "gpt-oss-20b", "llama-4-scout")
)
assert mistral.nbytes(4096) == mistral.nbytes(32_768) == 536_870_912
assert mistral.bytes_per_token(beyond=True) == 0
assert sum(layer.kind == "full" for layer in gemma.layers) == 10
assert (len(gemma.layers), gemma.layers[0].window) == (62, 1024)
assert [layer.kind for layer in oss.layers] == 12 * ["sliding", "full"]
assert [layer.kind for layer in scout.layers].count("chunked") == 36

# %% [markdown]
# [Mistral 7B v0.1](https://arxiv.org/abs/2310.06825) stops growing at 4,096 tokens: 537 MB at 32,768,
# too. That was guess 4. [Gemma 3 27B](https://arxiv.org/abs/2503.19786) has 62 layers, of which 10 are
# full; the others have a window of 1,024 tokens.
# [gpt-oss 20B](https://arxiv.org/abs/2508.10925) alternates. Llama 4 Scout has 48 layers, of which 36
# attend within **chunks** of 8,192 tokens; at the border of a chunk they start afresh.
#
# This counts what the model needs. A serving engine may reserve more (lesson 5), or keep a row more or
# less than the window (lesson 9).

# %% [markdown]
# ### No heads at all
#
# DeepSeek-V3 has 128 heads, but its cache has none. For each token a layer keeps one **latent** of 512
# values, from which the keys and values of all heads can be computed again, and 64 values that carry
# the position. That is [multi-head latent attention](https://arxiv.org/abs/2405.04434) (MLA); lesson 7
# builds it. No heads, and no factor 2.

# %%
config = model("deepseek-v3").config
deepseek = cache_spec(config)
print(deepseek.explain(context=1))
heads, latent = config["num_attention_heads"], config["kv_lora_rank"]
position = config["qk_rope_head_dim"]
k_dim, v_dim = config["qk_nope_head_dim"] + position, config["v_head_dim"]
expanded = (
    len(deepseek.layers) * heads * (k_dim + v_dim) * fp16
)  # if all keys and values were stored
print(f"as full heads: {expanded:,} bytes, {expanded / deepseek.nbytes(1):.0f} times as much")
assert deepseek.nbytes(1) == 61 * (latent + position) * 2 == 70_272
assert deepseek.nbytes(1) < per_token
assert f"{expanded / 70_272:.0f}" == "71"
assert round(model("deepseek-v3").parameters / parameters) == 100

# %% [markdown]
# 70,272 bytes per token, less than a seventh of Llama 2 7B's, in a model with a hundred times its
# weights: guess 3. The size of a model says little about the size of its cache.

# %%
assert 7 < per_token / 70_272 < 8

# %% [markdown]
# ### Few layers attend
#
# **Hybrids** mix attention with layers of another kind (Mamba, linear attention), which keep a
# **state** of constant size instead of a cache. [Jamba](https://arxiv.org/abs/2403.19887) was an early
# one. The state does not grow with the text, so it is no part of the cost of a token. It is counted
# apart, here at 2 bytes a value; engines differ in the precision they keep it in.

# %%
for name in ("jamba-v0.1", "qwen3-next-80b-a3b", "nemotron-nano-9b-v2"):
    spec = cache_spec(model(name).config)
    attend = sum(layer.kind == "full" for layer in spec.layers)
    print(
        f"{model(name).name:22}{attend:3} of {len(spec.layers)} layers attend: "
        f"{spec.bytes_per_token():7,} bytes per token, {spec.state_bytes() / 1e6:5.1f} MB of state"
    )
assert cache_spec(model("jamba-v0.1").config).bytes_per_token() == 16_384
assert sum(layer.kind == "full" for layer in cache_spec(model("jamba-v0.1").config).layers) == 4

# %% [markdown]
# ### Layers that share, and caches that cross
#
# Two more kinds. In Gemma 3n E4B the last 15 layers have no cache of their own: they read that of an
# earlier layer. And a model with an encoder has two caches. The decoder of
# [Whisper](https://arxiv.org/abs/2212.04356), which writes down speech, keeps the rows of its own
# tokens and also a **cross cache**: the keys and values of the encoded audio. Those are as many for one
# word as for a hundred.

# %%
shared = cache_spec(model("gemma-3n-e4b").config)
whisper = cache_spec(model("whisper-large-v3").config)
print(f"Gemma 3n: {sum(layer.kind == 'shared' for layer in shared.layers)} layers share")
print(
    f"Whisper: {whisper.nbytes(1) / 1e6:.1f} MB at 1 token, "
    f"{whisper.nbytes(448) / 1e6:.1f} MB at 448"
)
cross = [layer for layer in whisper.layers if layer.kind == "cross"]
assert sum(layer.kind == "shared" for layer in shared.layers) == 15
assert {layer.tokens for layer in cross} == {1500}

# %% [markdown]
# ### Fewer bits, and what comes with them
#
# The last term is the bytes per value. A **quantised** cache stores small integers, the codes, and a
# **scale** for each block of them, the number that turns them back into values. The format `q8_0` of
# llama.cpp (as in its package gguf 0.19.0) keeps 32 values in 34 bytes: 32 codes of one byte and a
# scale of two. So it is not half of float16 but 53 %.

# %%
spec = cache_spec(model("llama-3.1-8b").config)
full = spec.nbytes(4096, cache_dtype="float16")
for cache_dtype in ("float32", "float16", "fp8", "q8_0", "int8", "int4", "q4_0"):
    nbytes = spec.nbytes(4096, cache_dtype=cache_dtype)
    print(f"{cache_dtype:8} {nbytes / 1e6:8.1f} MB  {nbytes / full:7.1%} of float16")
assert spec.nbytes(4096, cache_dtype="q8_0") * 32 == full * 17
assert f"{spec.nbytes(4096, cache_dtype='q8_0') / full:.0%}" == "53%"
q8_0, int4 = (table("dtypes")["dtypes"][name] for name in ("q8_0", "int4"))
assert q8_0["bytes"] == q8_0["values"] + 2

# %% [markdown]
# `int8` and `int4` are those that lesson 8 builds: `int8` with one scale for each key or value of a
# head, `int4` with a scale and a minimum for every 32 values. `fp8` is a float of one byte; no scale is
# counted for it.
#
# Here is all of it in one picture. A straight line is a model whose tokens all cost the same. A bend is
# a window.

# %% tags=["hide-input"] mystnb={"image": {"alt": "Cache of one conversation against its length, both axes logarithmic, for eight models. Command R lies highest, Llama 2 7B next. Mistral 7B v0.1 turns level at 4,096 tokens. Gemma 3 27B bends at 1,024 tokens and rises more slowly. DeepSeek-V3 lies below Llama 3.1 8B. Jamba is lowest until about 33,000 tokens; beyond, Mistral is."}}
lengths = [2**n for n in range(8, 18)]
shown = "command-r llama-2-7b gemma-3-27b llama-3.1-8b "
shown += "mistral-7b-v0.1 deepseek-v3 gpt-oss-20b jamba-v0.1"
figure, axes = plt.subplots(figsize=(7, 4.6))
for name in shown.split():
    sizes = [cache_spec(model(name).config).nbytes(n) / GB for n in lengths]
    axes.plot(lengths, sizes, color=plotting.colour("cache"))
    nudge = {"llama-3.1-8b": 9, "gemma-3-27b": -1, "deepseek-v3": -9, "gpt-oss-20b": 4}.get(name, 0)
    nudge -= 5 * (name == "jamba-v0.1")
    label = {"xytext": (6, nudge), "textcoords": "offset points", "va": "center"}
    axes.annotate(model(name).name, (lengths[-1], sizes[-1]), **label)
axes.set(xscale="log", yscale="log", xlim=(lengths[0], lengths[-1]))
axes.set_xticks([256, 1024, 4096, 16_384, 65_536], ["256", "1,024", "4,096", "16,384", "65,536"])
axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
axes.minorticks_off()
axes.set_xlabel("tokens of one conversation")
axes.set_ylabel("GB of cache, 2 bytes a value")
axes.set_title("One token costs 80 times as much in Command R as in Jamba")
plt.show()

# %%
costs = {entry.id: cache_spec(entry.config).bytes_per_token() for entry in models()}
assert costs["command-r"] / costs["jamba-v0.1"] == 80

# %% [markdown]
# ## Measure
#
# Up to here you computed. Does a real cache hold that many bytes? Let SmolLM2-135M write 64 tokens
# after a prompt of 5 through lesson 2's cache, and ask the tensors for their storage. The last token is
# never fed, so 68 lie in the cache.

# %%
smol, _ = smollm2.load(device)
prompt = torch.tensor([smollm2.reference()["greedy"]["ids"][:5]], device=device)
written = 64
held = prompt.shape[1] + written - 1
cache = PreallocatedCache(smol.config, capacity=held, device=device)
generate(smol, prompt, written, cache)
predicted = cache_spec(model("smollm2-135m").config).nbytes(held, cache_dtype="float32")
print(f"predicted {predicted:,} bytes, held {cache.nbytes:,} bytes")
assert cache.lengths.tolist() == [68]
assert predicted == cache.nbytes == 3_133_440

# %% [markdown]
# To the byte. That is one model of the plain kind, and storage alone. Lesson 4 measures what the
# process and the GPU really take, which is more. The library itself is tested on more than fifty tiny
# models with random weights: transformers 5.24.0 builds and runs them, and the caches that they fill
# are weighed.

# %% [markdown]
# ## Explore
#
# The command line gives the same answer for a file on your disk. Save any model's `config.json` and
# try it.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "config.json")
    path.write_text(json.dumps(model("gpt-oss-20b").config))
    command = [sys.executable, "-m", "kvbook", "size", str(path), "--context", "32768"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
print("$ python -m kvbook size config.json --context 32768")
print(answer)
assert f"{cache_spec(model('gpt-oss-20b').config).nbytes(32_768):,}" in answer

# %% [markdown]
# A config that does not say enough, or contradicts itself, gets an error and no number. Try to break
# it: change a field in the next cell and run it.

# %%
broken = {**model("llama-3.1-8b").config, "num_key_value_heads": 5}
try:
    message = f"{cache_spec(broken).bytes_per_token():,} bytes per token"
except ValueError as error:
    message = str(error)
print(message)

# %%
assert "num_key_value_heads" in message

# %% [markdown]
# ## Check yourself
#
# Five figures from real places, all of them wrong or wrongly named. Find out what went wrong in each,
# then unfold.
#
# **1. Llama 3.1 405B, 128k tokens, fp16: "123.05 GB".** The model has 126 layers and 8 KV heads of 128.
# ([A table in a blog post, questioned here](https://github.com/huggingface/blog/issues/2345).)
#
# <details>
# <summary>Answer</summary>
#
# Two things. 16 KV heads were counted instead of 8, and the "GB" are GiB. In GB, 128,000 tokens take
# 66.06.
#
# ```python
# from kvbook.accounting import cache_spec
# from kvbook.accounting.facts import model
#
# spec = cache_spec(model("llama-3.1-405b").config)
# exact = spec.nbytes(128_000, cache_dtype="float16")
# assert f"{2 * exact / 2**30:.2f}" == "123.05"
# assert f"{exact / 10**9:.2f}" == "66.06"
# ```
#
# </details>
#
# **2. A 7B model at 32K tokens: "512 MB".** 32 layers, 32 KV heads of 128, fp16.
# ([A lesson, corrected in review](https://github.com/rohitg00/ai-engineering-from-scratch/pull/57).)
#
# <details>
# <summary>Answer</summary>
#
# The bytes of one *head* were taken for those of a layer: the factor of 32 KV heads is missing.
#
# ```python
# one_head = 2 * 128 * 2  # K and V, values, bytes
# assert one_head * 32 * 32_768 / 2**20 == 512  # × layers × tokens, in MiB
# assert one_head * 32 * 32 * 32_768 / 2**30 == 16  # × KV heads: GiB
# ```
#
# </details>
#
# **3. Llama 2 7B, 4,196 tokens: "2.05 GB".** ([An answer in an issue](https://github.com/jy-yuan/KIVI/issues/17).)
#
# <details>
# <summary>Answer</summary>
#
# The number is right, the unit is not: it was divided by $1024^3$, so it is GiB. In GB it is 2.20.
#
# ```python
# nbytes = 4196 * 524_288
# assert f"{nbytes / 2**30:.2f}" == "2.05"
# assert f"{nbytes / 10**9:.2f}" == "2.20"
# ```
#
# </details>
#
# **4. Qwen3 235B on 4 GPUs, 367,404 tokens, bf16: "8.23 GB" on each.** It has 94 layers and 4 KV heads
# of 128. (bf16 is bfloat16, 2 bytes like fp16.)
# ([A question about an engine's log](https://github.com/vllm-project/vllm/issues/21348).)
#
# <details>
# <summary>Answer</summary>
#
# Split over 4 GPUs, each keeps one of the 4 KV heads (lesson 5). The figure is that of the keys alone,
# in GiB: the factor 2 is missing.
#
# ```python
# from kvbook.accounting import cache_spec
# from kvbook.accounting.facts import model
#
# spec = cache_spec(model("qwen3-235b-a22b").config)
# exact = spec.nbytes(367_404, tensor_parallel=4)
# assert f"{exact / 2 / 2**30:.2f}" == "8.23"
# assert f"{exact / 10**9:.2f}" == "17.68"
# ```
#
# </details>
#
# **5. A calculator gives 8 times as much as is right for Llama 2 7B.** Its formula:
# `2 * layers * heads * hidden_size * 4 / 8`.
# ([The report](https://github.com/jranaraki/vllm-fit/issues/2).)
#
# <details>
# <summary>Answer</summary>
#
# `hidden_size` is already heads × head_dim, so the heads are counted twice: 32 times too much. The
# `4 / 8` is half a byte per value where there should be 2: a quarter. Together 8 times too much, and
# for a model with fewer KV heads it is worse.
#
# ```python
# published = 2 * 32 * 32 * 4096 * 4 // 8
# assert published == 8 * 524_288
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: 524,288 bytes; 25,706 tokens; less, 70,272 bytes; the same 537 MB.
#
# The ledger has no new line, but you can now compute its bytes yourself:

# %%
ledger.show(3)

# %% [markdown]
# ## Next
#
# You can write the bill for one token. Is it what the machine really takes?
# [Lesson 4](04_measure.ipynb) fills caches and looks.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. A cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
big, qwen3 = (cache_spec(model(name).config) for name in ("llama-3.1-405b", "qwen3-235b-a22b"))
published = 2 * llama.n_layers * llama.n_heads * llama.dim * 4 / 8  # exercise 5
check(
    {
        "93 MB": smollm2.ARCHIVE.wheel_nbytes / 1e6,
        "32 layers": llama.n_layers,
        "32 KV heads": llama.n_kv_heads,
        "128 values": llama.head_dim,
        "2 bytes": fp16,
        "13.48 GB": weights / GB,
        "4,096 tokens": mistral.layers[0].window,
        "537 MB": mistral.nbytes(32_768) / 1e6,
        "524,288 bytes": per_token,
        "7 %": 100 * (GiB / GB - 1),
        "80 GB": card / GB,
        "25,705 tokens": last,
        "25,706 tokens": last + 1,
        "32 query heads": llama31["num_attention_heads"],
        "8 KV heads": llama31["num_key_value_heads"],
        "71 query heads": falcon["num_attention_heads"],
        "71 KV heads": falcon["num_kv_heads"],
        "64 query heads": qwen["num_attention_heads"],
        "62 layers": len(gemma.layers),
        "1,024 tokens": gemma.layers[0].window,
        "48 layers": len(scout.layers),
        "8,192 tokens": scout.layers[0].window,
        "128 heads": heads,
        "512 values": latent,
        "64 values": position,
        "70,272 bytes": deepseek.nbytes(1),
        "15 layers": sum(layer.kind == "shared" for layer in shared.layers),
        "32 values": int4["values"],
        "34 bytes": q8_0["bytes"],
        "53 %": 100 * spec.nbytes(4096, cache_dtype="q8_0") / full,
        "64 tokens": written,
        "126 layers": len(big.layers),
        "16 KV heads": 2 * llama31["num_key_value_heads"],
        "128,000 tokens": From("the table questioned in exercise 1"),
        "123.05 GB": 2 * big.nbytes(128_000) / GiB,  # as published, so in GiB
        "512 MB": per_token / llama.n_kv_heads * 32_768 / 2**20,
        "4,196 tokens": From("the answer linked in exercise 3"),
        "2.05 GB": 4196 * per_token / GiB,
    }
)

# %% tags=["hide-input"]
check(
    {
        "367,404 tokens": From("the question linked in exercise 4"),
        "8.23 GB": qwen3.nbytes(367_404, tensor_parallel=4) / 2 / GiB,
        "4 GPUs": From("the question linked in exercise 4"),
        "94 layers": len(qwen3.layers),
        "4 KV heads": model("qwen3-235b-a22b").config["num_key_value_heads"],
        "32 times": llama.n_heads,
        "8 times": published / per_token,
    }
)
