# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # How many users fit?
#
# You want to serve a language model. You have one GPU. **How many people can use it at the same
# time, and what does each technique buy you?**
#
# Take a 7B model in fp16 and a card with 80 GB. The weights take 13.5 GB. If every user holds a
# conversation of 4,096 tokens, the card is full at 30 users. What fills it is not the model. It is
# the **KV cache**: for every token of every conversation, each layer keeps a key and a value, so
# that it need not compute them again.
#
# With this book you can work that out for any model, measure it, and make it smaller.
# You build a decoder, add a cache, weigh it, and then cut it term by term. Every number in the lessons
# is computed or measured by a cell that you can run.

# %% tags=["hide-input"] mystnb={"image": {"alt": "A bar of 80 GB. Weights take 13.5 GB on the left; 30 equal blocks of 2.15 GB, one per user, follow; 2.1 GB stay free on the right, less than one more block."}}
import matplotlib.pyplot as plt

from kvbook import plotting

GB = 10**9
card = 80 * GB
weights = 6_738_415_616 * 2  # Llama-2-7B: parameters, 2 bytes each
per_token = 2 * 32 * 32 * 128 * 2  # K and V, layers, KV heads, head_dim, 2 bytes each
per_user = 4096 * per_token
users = (card - weights) // per_user
free = card - weights - users * per_user

plotting.use_style()
figure, axes = plt.subplots(figsize=(8, 1.9))
axes.barh(0, weights / GB, color=plotting.colour("weights"), edgecolor="white")
for user in range(users):
    left = (weights + user * per_user) / GB
    axes.barh(0, per_user / GB, left=left, color=plotting.colour("cache"), edgecolor="white")
axes.barh(0, free / GB, left=(card - free) / GB, color=plotting.colour("free"), edgecolor="white")
axes.text(weights / GB / 2, 0.55, "weights", ha="center")
axes.text((card - free + weights) / GB / 2, 0.55, "KV cache, one block per user", ha="center")
axes.text(card / GB, 0.55, "free", ha="right")
axes.set(xlim=(0, card / GB), ylim=(-0.5, 0.9), yticks=[], xlabel="GB of GPU memory")
axes.set_title(f"{users} users with 4,096 tokens each fill an 80 GB card")
plt.show()

print(f"weights       {weights / GB:6.2f} GB")
print(f"one token     {per_token:,} bytes of cache")
print(f"one user      {per_user / GB:6.2f} GB of cache")
print(f"users         {users:6d}")
print(f"left over     {free / GB:6.2f} GB")
assert (users, per_token) == (30, 524_288)
assert f"{weights / GB:.1f}" == "13.5"

# %% [markdown]
# This is arithmetic, not a measurement: a server also needs room for activations and its own
# buffers. The lessons go on to measure.
#
# ## Your model, your card
#
# Choose both, then drag the context. Everything is computed on this page, from the same tables and by the same
# rules as in the lessons, and nothing is sent anywhere.

# %%
from kvbook.explorer.capacity import CapacityExplorer

CapacityExplorer(model="llama-2-7b", gpu="A100 80GB")

# %% [markdown]
# ## Where to start
#
# - **You size or run servers.** Start with [how many users fit](../notebooks/05_users.ipynb) and
#   [what a token costs](../notebooks/03_cost.ipynb). For a number alone, run
#   `python -m kvbook size config.json --context 4096 --memory-bytes 80000000000`. (With
#   `--gpu "A100 80GB"` it counts the 85.9 GB that such a card's driver reports.)
# - **You study.** Read the lessons in order, on your own machine or on a borrowed GPU. Each asks
#   you to guess before it measures. [How to read this book](how_to_read.md) says how to run them.
# - **You teach.** Each lesson stands alone as a notebook, with exercises and folded answers.
#
# ## The lessons
#
# | Lesson | What you find out | Time |
# |---|---|---|
# | [1. A decoder you can read](../notebooks/01_decoder.ipynb) | A decoder fits in under 200 lines. Without a cache, the step that writes the 16th token processes 20 tokens, 19 of which it had processed before. | 40 min |
# | [2. Reuse the past](../notebooks/02_cache.ipynb) | With a KV cache, each layer processes 68 tokens instead of 2,336 to write 64 after a prompt of 5. The clock gains less, and the lesson shows why. | 40 min |
# | [3. What a token costs](../notebooks/03_cost.ipynb) | 524,288 bytes in Llama 2 7B, 70,272 in DeepSeek-V3, which is 100 times larger. One conversation of 25,706 tokens weighs more than Llama 2 7B itself. | 40 min |
# | [4. Does memory match?](../notebooks/04_measure.ipynb) | Tensors hold what the formula predicts, to the byte, and the process grows by that much. The tensors of a growing cache need one sixtieth more for a moment, not twice their size; its process can need much more. | 40 min |
# | [5. How many users fit?](../notebooks/05_users.ipynb) | 30 users on 80 GB; 123 with 8 KV heads, 61 with an int8 cache, 97 with paging on a mix of short and long texts. | 30 min |
# | [6. Two phases](../notebooks/06_roofline.ipynb) | By the bounds, arithmetic limits reading a prompt, and memory limits writing. Llama 2 7B needs 154 users on an A100 before arithmetic on its weights takes longer than reading them, and 30 fit. | 40 min |
# | [7. Fewer KV heads](../notebooks/07_gqa.ipynb) | One KV head instead of three takes 15,360 bytes a token, not 46,080; repeating heads before caching takes 138,240 for the same text. Pooling the heads of a trained model destroys it. DeepSeek-V3's latent is 576 values a layer. | 45 min |
# | [8. Fewer bits](../notebooks/08_quantized.ipynb) | int8 takes 51.6 % of an fp16 cache and costs nothing measurable. With 4 bits and their scales perplexity rises by 5.0 %; by 1.7 % if the newest keys wait uncoded; by 0.9 % if each channel then has its own scale. | 40 min |
# | [9. Windows and sinks](../notebooks/09_window.ipynb) | A window of 128 tokens stops the cache of a small model at 5.9 MB, and its perplexity more than doubles. Keep the first four tokens as well, and it rises by 5 %. | 40 min |
# | [10. Waste nothing](../notebooks/10_paged.ipynb) | On a mix of conversations a third of what is reserved in one piece holds tokens; in blocks of 16 it is 99.5 %. Equal beginnings are held once. | 40 min |
#
# To come: serving many users at once, several GPUs, and a capstone.

# %% [markdown]
# ## Where the question comes from
#
# The question, and the first version of the arithmetic above, come from the post *Why the KV
# cache, not the weights, decides how many users an LLM server can hold* (25 October 2026). The
# [references](references.md) list all papers that the lessons draw on.
