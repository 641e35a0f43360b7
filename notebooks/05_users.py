# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 5 — How many users fit?
#
# **The question.** You have one model and one GPU. How many conversations does it hold at the same
# time, and what does each technique buy you?
#
# The arithmetic is one division. Three things go wrong with it in practice: rounding too early, a
# card that has more or less memory than its name says, and memory that is reserved but never used.
# This lesson takes them one by one. It ends with a table of the techniques of this book, in users on the
# same card.

# %% [markdown]
# ## What you need
#
# [Lesson 3](03_cost.ipynb): the cost of a token, GB and GiB, `cache_spec`. You need no GPU. The lesson
# runs in seconds. Its example is that of the post from which this book has its question
# ([references](../book/references.md)).

# %% [markdown]
# ## Predict
#
# Llama 2 7B in fp16 on a card of 80 GB; every user holds 4,096 tokens.
#
# 1. How many users fit?
# 2. The weights leave 66.52 GB, and a user takes 2.147 GB. Someone rounds first, and divides 66.5 GB by
#    2.1 GB. How many users does that give?
# 3. The cache is kept in int8, one byte a value instead of two. Exactly twice the users?
# 4. Six of ten users hold only 512 tokens, three 2,048, and one 4,096. How many fit if each gets room
#    for 4,096? And if each gets what it uses?

# %%
import itertools
import math

import ipywidgets
import matplotlib.pyplot as plt
import torch

from kvbook import ledger, plotting
from kvbook.accounting import cache_spec, fit_users
from kvbook.accounting.facts import gpu, model
from kvbook.accounting.whatif import what_if
from kvbook.explorer.capacity import CapacityExplorer
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.decoder import DecoderConfig
from kvbook.models import smollm2
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
GB, MiB = 10**9, 2**20

# %% [markdown]
# ## Build
#
# ### One division
#
# What the weights leave free, divided by the cache of one conversation. A part of a user is no user, so
# the result is rounded down.

# %%
llama = model("llama-2-7b")
spec = cache_spec(llama.config)
weights = 2 * llama.parameters
one = spec.nbytes(context=4096, cache_dtype="float16")
free = 80 * GB - weights
print(
    f"{free / GB:.2f} GB free / {one / GB:.3f} GB each = {free / one:.2f}, so {free // one} users"
)
assert f"{free / GB:.2f} {one / GB:.3f} {free / one:.2f}" == "66.52 2.147 30.98"
assert free // one == 30

# %% [markdown]
# 30 users: guess 1. Divide the rounded figures and you get another answer.

# %%
print(f"66.5 / 2.1 = {66.5 / 2.1:.1f}")
assert f"{66.5 / 2.1:.1f}" == "31.7"
assert math.floor(66.5 / 2.1) == 31

# %% [markdown]
# 31.7, one user too many (guess 2). The 31st would run out of memory. Round once, at the end.
#
# `fit_users` does the same division in exact arithmetic, with two more things that a server has: the
# share of the memory that it may use, called **utilization**, and an overhead for what is neither
# weights nor cache.

# %%
users = fit_users(sequence_bytes=one, memory_bytes=80 * GB, weights_bytes=weights)
with_overhead = fit_users(one, 80 * GB, weights, overhead_bytes=2 * GB)
print(f"{users} users; {with_overhead} beside 2 GB of buffers")
assert (users, with_overhead) == (30, 30)
assert f"{(free - 30 * one) / GB:.1f}" == "2.1"

# %% [markdown]
# The overhead costs no user here, because 2.1 GB were left over anyway.

# %% [markdown]
# ### Which 80 GB?
#
# An A100 is sold with 80 GB. Its driver can report 81,920 MiB, which is 85.9 GB. And a server is told not
# to use all of it. A utilization of 0.9 keeps a tenth for activations
# ([lesson 4](04_measure.ipynb)) and whatever else comes.

# %%
card = gpu("A100 80GB")
found = []
for label, memory in (
    ("nominal", card.memory_bytes_nominal),
    ("reported", card.memory_bytes_reported),
):
    whole = fit_users(one, memory, weights)
    most = fit_users(one, memory, weights, utilization="0.9")
    found += [whole, most]
    print(f"{label:9} {memory / GB:5.1f} GB: {whole} users, {most} at 0.9")
assert card.memory_bytes_reported == 81_920 * MiB
assert found == [30, 27, 33, 29]

# %% [markdown]
# From 27 to 33 users on one and the same card. A figure says little without the memory and the share
# that it was computed for. Two cards of one name may report differently; ask yours
# (`torch.cuda.mem_get_info`). The command line counts what the driver reports, so
# `python -m kvbook size … --gpu "A100 80GB"` answers 33. From here on the card is the nominal 80 GB, all
# of it.

# %% [markdown]
# ### Reserved, and used
#
# Up to here each user got room for 4,096 tokens, whether used or not. A server that keeps each
# conversation in one piece must do that, because it cannot know how long it will become. A server that
# gives out small blocks as they are needed ([paging](https://arxiv.org/abs/2309.06180), lesson 10)
# reserves what is used. Only the last block of each conversation may be partly empty.
#
# Take a mix: of ten users six hold 512 tokens, three hold 2,048 and one holds 4,096. Let them in, one
# after the other, until the card is full.

# %%
mix = [512] * 6 + [2048] * 3 + [4096]  # tokens that ten users hold


def admitted(spec, cache_dtype: str = "float16", block_size: int = 16) -> int:
    """Users of the mix whose blocks fit on the card, in this order over and over."""
    left = 80 * GB - weights
    for users, tokens in enumerate(itertools.cycle(mix)):
        left -= spec.nbytes(tokens, cache_dtype=cache_dtype, policy="paged", block_size=block_size)
        if left < 0:
            return users


mean = sum(mix) / len(mix)
print(f"{mean:,.0f} tokens on average: {mean / 4096:.0%} of what is reserved")
print(f"{users} users with room for 4,096 tokens each, {admitted(spec)} with blocks of 16")

# %% tags=["hide-input"] mystnb={"image": {"alt": "Ten bars, one for each user of the mix, all 4,096 tokens long. The used part is 512 tokens for six of them, 2,048 for three, and all 4,096 for the last. Most of the length of the bars is reserved and empty."}}
users_of_mix = range(1, len(mix) + 1)
plt.bar(users_of_mix, mix, color=plotting.colour("cache"), label="used")
empty = [4096 - tokens for tokens in mix]
plt.bar(users_of_mix, empty, bottom=mix, color=plotting.colour("free"), label="reserved, empty")
plt.xticks(users_of_mix)
plt.yticks([0, 512, 2048, 4096], ["0", "512", "2,048", "4,096"])
plt.xlabel("users of the mix")
plt.ylabel("tokens")
plt.title("With room for 4,096 tokens each, 32 % of the room is used")
plt.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
assert f"{mean / 4096:.0%}" == "32%"
assert admitted(spec) == 97

# %% [markdown]
# At this moment only 32 % of what is reserved is in use, and 97 users fit instead of 30: guess 4. This
# is arithmetic on a mix that was made up. It shows a moment, not a day: conversations grow, and a server
# that has let in 97 must have a plan for when they all do. Lesson 10 measures paging, with its costs.

# %% [markdown]
# ### Every technique, in users
#
# Each technique cuts one term of lesson 3's formula. Here they are on the same card, with the same
# weights. `what_if` changes the shape of a cache: fewer KV heads (GQA), or a window in three layers of
# four, with 4 **sinks** (first tokens that stay; lesson 9). int8 and int4 are those of lesson 3, with their
# scales.

# %%
gqa = what_if(spec, n_kv_heads=8)
window = what_if(spec, window=1024, sinks=4, full_every=4)
both = what_if(what_if(spec, n_kv_heads=8), window=1024, sinks=4, full_every=4)


def reserved(spec, cache_dtype: str = "float16") -> int:
    """Users with room for 4,096 tokens each."""
    return fit_users(spec.nbytes(4096, cache_dtype=cache_dtype), 80 * GB, weights)


table = {
    "as published, fp16": reserved(spec),
    "GQA: 8 KV heads": reserved(gqa),
    "fp8": reserved(spec, "fp8"),
    "int8, scales counted": reserved(spec, "int8"),
    "int4, scales counted": reserved(spec, "int4"),
    "window 1,024 in 3 of 4 layers": reserved(window),
    "paging, on the mix": admitted(spec),
    "GQA, window and int4": reserved(both, "int4"),
    "all of it, paged, on the mix": admitted(both, "int4"),
}
for label, number in table.items():
    print(f"{label:30} {number:5,} users, {number / users:5.1f} times")

# %% tags=["hide-input"] mystnb={"image": {"alt": "Dots for users on one card, on a logarithmic axis. As published 30; GQA with 8 KV heads 123; fp8 61; int8 61; int4 99; a window in three of four layers 70; paging on the mix 97; GQA, window and int4 together 904; all of it with paging 1,857."}}
figure, axes = plt.subplots(figsize=(7, 3.8))
names, numbers = list(table)[::-1], list(table.values())[::-1]
axes.plot(numbers, names, "o", color=plotting.colour("cache"), markersize=9)
for name, number in zip(names, numbers, strict=True):
    axes.annotate(f"{number:,}", (number, name), (9, 0), textcoords="offset points", va="center")
axes.set(xscale="log", xlim=(20, 4000))
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.set_xlabel("users on 80 GB, logarithmic")
axes.set_title("GQA, window and int4 multiply; paging then doubles")
axes.grid(axis="both")
plt.show()

# %%
halves = {name: free / spec.nbytes(4096, cache_dtype=name) for name in ("fp8", "int8")}
print(", ".join(f"{name}: {number:.3f}" for name, number in halves.items()))
assert (table["fp8"], table["int8, scales counted"]) == (61, 61)
assert (f"{halves['fp8']:.2f}", f"{halves['int8']:.2f}") == ("61.95", "61.00")
assert list(table.values()) == [30, 123, 61, 61, 99, 70, 97, 904, 1857]
parts = (gqa.nbytes(4096), window.nbytes(4096), spec.nbytes(4096, cache_dtype="int4"))
of_all = both.nbytes(4096, cache_dtype="int4")
assert math.isclose(math.prod(one / part for part in parts), one / of_all)
in_use = sum(both.nbytes(tokens) for tokens in mix) / (len(mix) * both.nbytes(4096))
assert 0.45 < in_use < 0.5

# %% [markdown]
# int8 gives 61 users. That is more than twice 30, because at 30 nearly a whole user had been rounded
# away. fp8 gives 61, too, but with room to spare. The scales of int8 cost nearly a whole user, 61.00
# instead of 61.95, and it only just fits. That was guess 3.
#
# GQA, window and int4 cut three factors of one product, so what they save multiplies: together they give
# 904 users. Paging does not multiply with them. Alone it gave 3.2 times as many as without, but on top of
# these three it only doubles them, to 1,857. The window has already shortened the long texts, so on the
# mix nearly half of what is reserved is in use, not a third.
#
# You do not choose all of these at the same time.
#
# | Technique | Term it cuts | When you choose it | Lesson |
# |---|---|---|---|
# | GQA, MQA | KV heads | before training, or by training further | 7 |
# | MLA | KV heads × head width | before training | 7 |
# | window | tokens kept, per layer | before or during training; with sinks also at serving, at a cost | 9 |
# | fp8, int8, int4 | bytes per value | at serving | 8 |
# | paging | tokens reserved | at serving | 10 |
# | prefix sharing | copies of equal tokens | at serving | 10 |
#
# What this table does not show is what each technique costs: quality for fewer bits, for fewer heads
# and for windows; time for unpacking. Users are the easy half of the question. The later lessons
# measure the other.

# %% [markdown]
# ### What an engine reserves
#
# The counts above are what the *model* needs. A serving **engine**, the program that runs it for many
# users, may reserve more. gpt-oss 20B alternates full layers with layers whose window is 128 tokens. If
# the engine treats all layers alike, so that one size of block fits them all, the windowed ones are
# charged in full.

# %%
oss = model("gpt-oss-20b")
oss_spec = cache_spec(oss.config)
for policy in ("exact", "all_layers_full"):
    nbytes = oss_spec.nbytes(8192, batch=32, policy=policy)
    fit = fit_users(oss_spec.nbytes(8192, policy=policy), 80 * GB, oss.weights_bytes)
    print(f"{policy:16} {nbytes / GB:6.2f} GB for 32 users with 8,192 tokens; {fit} users fit")
assert f"{oss_spec.nbytes(8192, batch=32) / GB:.2f}" == "6.54"
assert f"{oss_spec.nbytes(8192, batch=32, policy='all_layers_full') / GB:.2f}" == "12.88"
assert f"{oss_spec.nbytes(8192, batch=32) / 2**30:.2f}" == "6.09"
assert oss_spec.nbytes(8192, batch=32, policy="all_layers_full") == 12 * 2**30

# %% [markdown]
# Nearly twice. In vLLM 0.9.2 this is what happens when its allocator for mixed layers is switched off:
# windowed layers are computed with their window but get blocks for all tokens
# ([its reference](https://docs.vllm.ai/en/v0.9.2/api/vllm/v1/kv_cache_interface.html)). A tool that
# reports 12 GiB for this case and one that reports 6.09 GiB
# ([an example](https://github.com/alvarobartt/hf-mem/issues/70)) can both be right: they answer
# different questions. Ask which.

# %% [markdown]
# ### More than one GPU
#
# **Tensor parallelism** splits every layer over several GPUs. The weights divide, and so do the KV heads:
# with 2 GPUs each holds half of the heads of every sequence. That goes on until each GPU has one head.
# With still more GPUs some hold the same head. And a latent (lesson 3), which has no heads, is held whole
# by every GPU.

# %%
llama31 = model("llama-3.1-8b").config
parts = [cache_spec(llama31), cache_spec(model("deepseek-v3").config)]
for gpus in (1, 2, 4, 8, 16):
    sizes = [part.bytes_per_token(tensor_parallel=gpus) for part in parts]
    print(f"{gpus:2} GPUs: {sizes[0]:7,} and {sizes[1]:6,} bytes per token on each")
assert sizes == [16_384, 70_272]  # one of 8 heads; the whole latent

# %% [markdown]
# Llama 3.1 8B has 8 KV heads, so 16 GPUs hold as much each as 8 do. DeepSeek-V3's latent never divides.

# %% [markdown]
# ## Measure
#
# The next cells create what is predicted, for SmolLM2's small cache. Move the sliders if you run this
# notebook yourself: a cache of that shape is created, and its storage is weighed against the prediction.
# That takes a kernel, so the published page shows nothing here but one case.

# %%
smol, smol_config = cache_spec(model("smollm2-135m").config), DecoderConfig(**smollm2.CONFIG)
weighed = {}


def weigh(context: int, batch: int) -> None:
    cache = PreallocatedCache(
        smol_config, batch, capacity=context, dtype=torch.float16, device=device
    )
    predicted = smol.nbytes(context, batch, cache_dtype="float16")
    weighed.update(predicted=predicted, held=cache.nbytes)
    plt.barh(
        ["held", "predicted"], [cache.nbytes / 1e6, predicted / 1e6], color=plotting.colour("cache")
    )
    plt.xlabel("MB (10⁶ bytes)")
    plt.title(f"{batch} × {context:,} tokens: {cache.nbytes:,} bytes held")
    plt.show()


# %% tags=["remove-output", "nbval-ignore-output"]
context_slider = ipywidgets.IntSlider(
    value=1024, min=64, max=2048, step=64, description="context", continuous_update=False
)
batch_slider = ipywidgets.IntSlider(
    value=4, min=1, max=8, description="batch", continuous_update=False
)
shown = ipywidgets.interactive_output(weigh, {"context": context_slider, "batch": batch_slider})
ipywidgets.VBox([context_slider, batch_slider, shown])

# %%
assert weighed == {"predicted": 4 * 1024 * 23_040, "held": 4 * 1024 * 23_040}
print(f"predicted {weighed['predicted']:,} bytes, held {weighed['held']:,} bytes")

# %% tags=["remove-cell", "nbval-ignore-output"]
context_slider.value, batch_slider.value = 192, 3
moved = dict(weighed)
context_slider.value, batch_slider.value = 1024, 4

# %% tags=["remove-cell"]
assert moved == {"predicted": 3 * 192 * 23_040, "held": 3 * 192 * 23_040}

# %% [markdown]
# Predicted and held agree to the byte. But the number of users on a GPU is still arithmetic: nobody has
# filled an 80 GB card on this page. [Lesson 4](04_measure.ipynb) fills memory up to a stated budget and
# compares.

# %% [markdown]
# ## Explore
#
# Now with your own model and your own card. Drag the context and watch the cache outgrow the weights.
# Change one thing at a time and read what it saves against the model as published.

# %%
CapacityExplorer(model="llama-2-7b", gpu="A100 80GB")

# %% [markdown]
# Try three things. Double the context and press *Fill the card*: are the users halved? Press the preset
# of Gemma 3 27B: where does the line bend, and why? Press that of DeepSeek-V3: which control is switched
# off there, and why?
#
# <details>
# <summary>Answer</summary>
#
# To 15: twice the context, half the users, and the rest is lost to rounding. Gemma's line bends at its
# window, 1,024 tokens: from there only 10 of its 62 layers grow. DeepSeek-V3 has no KV heads to choose,
# because its cache is a latent.
#
# ```python
# from kvbook.accounting import cache_spec, fit_users
# from kvbook.accounting.facts import model
#
# llama = model("llama-2-7b")
# one = cache_spec(llama.config).nbytes(8192, cache_dtype="float16")
# assert fit_users(one, 80 * 10**9, 2 * llama.parameters) == 15
# ```
#
# </details>

# %% [markdown]
# ## Check yourself
#
# **1. Does it fit?** Llama 3.1 70B in bf16 on one H200, sold with 141 GB. How many users with 4,096
# tokens?
#
# <details>
# <summary>Answer</summary>
#
# That depends on which memory you count. Of the nominal 141 GB the weights leave nothing: they take
# 141.1. Of the 150.8 GB that the driver reports they leave room for 7 users.
#
# ```python
# from kvbook.accounting import cache_spec, fit_users
# from kvbook.accounting.facts import gpu, model
#
# llama, card = model("llama-3.1-70b"), gpu("H200")
# one = cache_spec(llama.config).nbytes(4096)
# assert f"{2 * llama.parameters / 10**9:.1f} {card.memory_bytes_reported / 10**9:.1f}" == "141.1 150.8"
# assert fit_users(one, card.memory_bytes_nominal, 2 * llama.parameters) == 0
# assert fit_users(one, card.memory_bytes_reported, 2 * llama.parameters) == 7
# ```
#
# </details>
#
# **2. More GPUs.** Qwen2.5 7B has 4 KV heads. You split the model over 2, 4, and 8 GPUs. What does the
# cache of one conversation take on each?
#
# <details>
# <summary>Answer</summary>
#
# A half, a quarter, and again a quarter: with 8 GPUs each must still hold one of the 4 heads, so every
# head is held twice.
#
# ```python
# from kvbook.accounting import cache_spec
# from kvbook.accounting.facts import model
#
# spec = cache_spec(model("qwen2.5-7b").config)
# whole, two, four, eight = (spec.nbytes(4096, tensor_parallel=t) for t in (1, 2, 4, 8))
# assert (two, four, eight) == (whole // 2, whole // 4, whole // 4)
# ```
#
# </details>
#
# **3. Long conversations.** At 131,072 tokens, which saves more for a cache of Llama 3.1 8B: int4, or a
# window of 4,096 in three of four layers?
#
# <details>
# <summary>Answer</summary>
#
# The window, just: 27 % is left, against 31 % with int4. int4 keeps 5/16 of the bytes, whatever the
# length. The window keeps a quarter of the layers whole, and 4,096 of 131,072 tokens in the others. The
# longer the text, the better the window; at 8,192 tokens int4 is far ahead.
#
# ```python
# from kvbook.accounting import cache_spec
# from kvbook.accounting.facts import model
# from kvbook.accounting.whatif import what_if
#
# spec = cache_spec(model("llama-3.1-8b").config)
# window = what_if(spec, window=4096, full_every=4)
# parts = {n: window.nbytes(n) / spec.nbytes(n) for n in (8192, 131_072)}
# assert spec.nbytes(131_072, cache_dtype="int4") / spec.nbytes(131_072) == 5 / 16
# assert (f"{parts[131_072]:.0%}", f"{parts[8192]:.1%}") == ("27%", "62.5%")
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: 30; 31.7, one too many; 61; 30 and 97.
#
# What may come of it, for Llama 2 7B on 80 GB:
#
# | Cache | Bytes per token | Users with 4,096 tokens |
# |---|---|---|
# | as published, fp16 | 524,288 | 30 |
# | fp8 | 262,144 | 61 |
# | 8 KV heads | 131,072 | 123 |
# | as published, paged | 524,288 | 97, on the mix |
#
# The book's ledger has no new line, but you can now compute its users yourself:

# %%
ledger.show(5)

# %% [markdown]
# ## Next
#
# 30 users fit. How fast are they served, and would more of them make it slower?
# [Lesson 6](06_roofline.ipynb) counts what a pass computes and what it moves.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. This cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
h200, qwen, gemma = gpu("H200"), model("qwen2.5-7b").config, cache_spec(model("gemma-3-27b").config)
big, long = model("llama-3.1-70b"), model("llama-3.1-8b").max_context
of_long = what_if(parts[0], window=4096, full_every=4).nbytes(long) / parts[0].nbytes(long)
of_int4 = parts[0].nbytes(long, cache_dtype="int4") / parts[0].nbytes(long)
check(
    {
        "80 GB": card.memory_bytes_nominal / GB,
        "4,096 tokens": mix[-1],
        "66.52 GB": free / GB,
        "2.147 GB": one / GB,
        "66.5 GB": free / GB,
        "2.1 GB": one / GB,
        "512 tokens": mix[0],
        "30 users": users,
        "81,920 MiB": card.memory_bytes_reported / MiB,
        "85.9 GB": card.memory_bytes_reported / GB,
        "27 users": found[1],
        "33 users": found[2],
        "32 %": 100 * mean / 4096,
        "97 users": table["paging, on the mix"],
        "61 users": table["int8, scales counted"],
        "904 users": table["GQA, window and int4"],
        "3.2 times": table["paging, on the mix"] / users,
        "128 tokens": oss_spec.layers[0].window,
        "12 GiB": oss_spec.nbytes(8192, batch=32, policy="all_layers_full") / 2**30,
        "6.09 GiB": oss_spec.nbytes(8192, batch=32) / 2**30,
        "8 KV heads": llama31["num_key_value_heads"],
        "1,024 tokens": gemma.layers[0].window,
        "62 layers": len(gemma.layers),
        "141 GB": h200.memory_bytes_nominal / GB,
        "150.8 GB": h200.memory_bytes_reported / GB,
        "7 users": fit_users(
            cache_spec(big.config).nbytes(4096), h200.memory_bytes_reported, 2 * big.parameters
        ),
        "4 KV heads": qwen["num_key_value_heads"],
        "4 heads": qwen["num_key_value_heads"],
        "131,072 tokens": long,
        "27 %": 100 * of_long,
        "31 %": 100 * of_int4,
        "8,192 tokens": From("chosen in exercise 3, to compare"),
    }
)

# %% tags=["hide-input"]
check(
    {
        "2 GPUs": From("an example: any number that divides the heads"),
        "16 GPUs": gpus,
        "4 GPUs": From("chosen in exercise 2"),
        "8 GPUs": From("chosen in exercise 2"),
    }
)
