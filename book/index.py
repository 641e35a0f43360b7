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
# You want to serve a language model, and you have one GPU. **How many people can use it at the same
# time, and what does each technique buy you?**
#
# Start by [sizing a server](../notebooks/05_users.ipynb), by [studying](how_to_read.md), or by
# [teaching](instructors.md); or here, with your model and your card.
#
# ## Your model, your card
#
# Choose both, then drag the context: the tokens of one conversation. A *sequence* is one conversation,
# and the *batch* is how many run at once. Nothing is sent anywhere.

# %% tags=["remove-input"]
from kvbook.explorer.capacity import CapacityExplorer

CapacityExplorer(model="llama-2-7b", gpu="A100 80GB")

# %% [markdown]
# What fills the card is not the model. It is the **KV cache**: for every token of every conversation, each
# layer keeps a key and a value, so that it need not compute them again. This book builds a decoder, adds
# a cache, weighs it, and then cuts it term by term. Every number in the lessons is computed or measured by
# a cell that you can run.
#
# ## Where to start
#
# - **You size or run servers.** [How many users fit?](../notebooks/05_users.ipynb) in 30 minutes, then
#   [what a token costs](../notebooks/03_cost.ipynb). For a number alone, run
#   `python -m kvbook size config.json --context 4096 --memory-bytes 80000000000`. (With
#   `--gpu "A100 80GB"` it counts the 85.9 GB that such a card's driver reports.)
# - **You study.** Read the lessons in order, on your own machine or on a borrowed GPU. Each asks
#   you to guess before it measures. [How to read this book](how_to_read.md) says how to run them.
# - **You teach.** [Eight assignments](assignments.md) come with the lessons and are graded without a
#   person; the chapter [for instructors](instructors.md) says how. Each lesson also stands alone as a
#   notebook, with exercises and folded answers.
#
# ## The lessons
#
# | Lesson | What you find out | Time |
# |---|---|---|
# | [1. A decoder you can read](../notebooks/01_decoder.ipynb) | Without a cache, the step that writes the 16th token processes 20 tokens, 19 of them again. | 40 min |
# | [2. Reuse the past](../notebooks/02_cache.ipynb) | To write 64 tokens after 5, each layer processes 68 with a cache, 2,336 without. | 40 min |
# | [3. What a token costs](../notebooks/03_cost.ipynb) | 524,288 bytes in Llama 2 7B; 70,272 in DeepSeek-V3, a hundred times larger. | 40 min |
# | [4. Does memory match?](../notebooks/04_measure.ipynb) | Tensors hold what the formula predicts, to the byte; those of a growing cache take a sixtieth more for a moment. | 40 min |
# | [5. How many users fit?](../notebooks/05_users.ipynb) | 30 on 80 GB; 123 with 8 KV heads, 61 with an int8 cache, 97 with paging on a mix of texts. | 30 min |
# | [6. Two phases](../notebooks/06_roofline.ipynb) | Arithmetic on Llama 2 7B's weights takes longer than reading them from 154 users on; 30 fit. | 40 min |
# | [7. Fewer KV heads](../notebooks/07_gqa.ipynb) | One KV head instead of three takes 15,360 bytes a token, not 46,080; repeated before caching, 138,240. | 45 min |
# | [8. Fewer bits](../notebooks/08_quantized.ipynb) | int8 takes 51.6 % of an fp16 cache and costs nothing measurable; with 4 bits perplexity rises by 5.0 %, or by 0.9 % if keys have a scale per channel and the newest wait uncoded. | 40 min |
# | [9. Windows and sinks](../notebooks/09_window.ipynb) | A window of 128 tokens raises perplexity by 118 %; with the first four tokens kept, by 5 %. | 40 min |
# | [10. Waste nothing](../notebooks/10_paged.ipynb) | Reserved in one piece, a third of the memory holds tokens; in blocks of 16 it is 99.5 %. | 40 min |
#
# To come: serving many users at once, several GPUs, and a capstone.

# %% [markdown]
# ## Where the 30 comes from
#
# A 7B model in fp16 takes 13.5 GB. If every user holds a conversation of 4,096 tokens, a card with 80 GB is
# full at 30 users.

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
# ## Where the question comes from
#
# The question, and the first version of the arithmetic above, come from the post *Why the KV
# cache, not the weights, decides how many users an LLM server can hold* (25 October 2026). The
# [references](references.md) list all papers that the lessons draw on.
