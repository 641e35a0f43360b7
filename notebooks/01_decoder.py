# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 1 — A decoder you can read
#
# **The question.** A language model writes one token at a time. What does it compute for each
# token, and how much of that has it computed before?
#
# You cannot answer the second half without the first. So this lesson builds a decoder from its
# parts, small enough to read in one sitting. Then it puts in the weights of a real model,
# [SmolLM2-135M](https://arxiv.org/abs/2502.02737), and lets it write. Every later lesson works on this
# decoder, the module `kvbook/lessons/decoder.py`, and none changes it.

# %% [markdown]
# ## What you need
#
# You know PyTorch's tensors and modules. You have seen the words *embedding* and *softmax*. You
# need no GPU: the lesson takes about a minute on two CPU cores. The first run also fetches the
# model, a download of 93 MB.
#
# A few words recur. A **token** is a piece of text with a number, its *id*. The model turns each
# id into a vector of `dim` numbers, and `n_layers` blocks, or **layers**, each add something to that
# vector. The vectors of all tokens, passed on from block to block, are called the **residual stream**.
# **Logits** are the scores that come out at the end: for each token, one per entry of the
# vocabulary, saying which token might follow. The [notation](../book/notation.md) page lists the
# names and has a glossary. The [references](../book/references.md) list the papers.
#
# This is the whole machine. You build it from left to right. At each + a result is added to the stream:
#
# ```text
# ids ─ embed ─┬─ norm ─ attention ─ + ─┬─ norm ─ SwiGLU ─ + ─ … ─ norm ─ unembed ─ logits
#              └─────────────────────┘  └──────────────────┘
#                        one block, 30 times in SmolLM2-135M
# ```

# %% [markdown]
# ## Predict
#
# Write down three guesses before you go on. The lesson computes all three.
#
# 1. SmolLM2-135M has 135 million weights. What share of them sits in attention?
# 2. Attention gives each pair of tokens a score: how much one looks at the other. You shift a whole
#    sentence 100 positions to the right. How much do its scores change?
# 3. The model has a prompt of 5 tokens and is about to write its 16th new token. How many of the
#    tokens that it processes in this one step has it processed before?

# %% tags=["export"]
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

# %% [markdown]
# The cell above is all that the decoder itself imports. The next one is for this page alone.

# %%
import statistics
import time

import ipywidgets
import matplotlib.pyplot as plt

from kvbook import ledger, plotting
from kvbook.explorer.attention import AttentionExplorer
from kvbook.models import smollm2
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
generator = torch.Generator().manual_seed(0)
_ = torch.manual_seed(0)  # for the weights of untrained modules

# %% [markdown]
# ## Build
#
# ### The shape of a decoder
#
# Ten numbers fix a decoder. Attention runs several times in parallel in each layer; each time is
# called a **head**. `n_heads` query heads share `n_kv_heads` key/value heads (**KV heads** for
# short). Keep an eye on that second number: it sets the size of the cache that lesson 2 adds. A shape
# that cannot work is refused here, before any tensor exists.


# %% tags=["export"]
@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a decoder. Raises ValueError for a shape that cannot work."""

    vocab_size: int  # tokens in the vocabulary
    dim: int  # width of the residual stream
    n_layers: int  # blocks
    n_heads: int  # query heads per layer
    n_kv_heads: int  # key/value heads per layer; each serves n_heads // n_kv_heads query heads
    head_dim: int  # width of one head; even, because RoPE turns pairs
    ffn_dim: int  # width inside the feed-forward network
    max_seq_len: int  # tokens, prompt and answer together
    rope_theta: float = 10_000.0  # base of RoPE's wavelengths
    norm_eps: float = 1e-5  # keeps RMSNorm from dividing by zero

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be greater than 0.")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads {self.n_kv_heads} must divide n_heads {self.n_heads}.")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; it must be even for RoPE's pairs.")


# %% [markdown]
# To try each part as you build it, take a tiny shape. Its sizes differ wherever they can, so that
# a swapped axis is noticed.

# %%
tiny = DecoderConfig(
    vocab_size=97,
    dim=24,
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    ffn_dim=40,
    max_seq_len=32,
)

try:
    DecoderConfig(**{**vars(tiny), "n_kv_heads": 4})
except ValueError as error:
    print(error)

# %% [markdown]
# ### RMSNorm
#
# Each block adds to the residual stream, so the length of its vectors changes from block to
# block. Before a block reads the stream, it brings every vector to the same length.
# [RMSNorm](https://arxiv.org/abs/1910.07467) divides by the root mean square of its $d$ numbers,
#
# $$\operatorname{rms}(x) = \sqrt{\tfrac{1}{d}\textstyle\sum_i x_i^2 + \epsilon},$$
#
# and then scales each coordinate by a learned weight. The small $\epsilon$ keeps it from dividing by
# zero. The sum is taken in float32 whatever the model's type, because squares overflow early in
# float16.


# %% tags=["export"]
class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis: [..., dim] -> [..., dim] (Zhang, Sennrich 2019)."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        rms = (x32.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return self.weight * (x32 / rms).to(x.dtype)


# %%
x = torch.randn(2, 5, tiny.dim, generator=generator)
y = RMSNorm(tiny.dim, tiny.norm_eps)(x)
torch.testing.assert_close(y.square().mean(-1), torch.ones(2, 5), atol=1e-4, rtol=0)
longer = 50
torch.testing.assert_close(RMSNorm(tiny.dim, 1e-12)(longer * x), RMSNorm(tiny.dim, 1e-12)(x))
y.square().mean(-1)

# %% [markdown]
# Every vector has a mean square of 1 now. A vector 50 times as long gives the same result, once
# $\epsilon$ is small enough not to matter. Only the direction counts.

# %% [markdown]
# ### RoPE: where a token stands
#
# Attention, the next section, makes three short vectors of each token in each head: a **query**, a
# **key** and a **value**. The score of two tokens is the dot product of the query of one and the key of
# the other, and a dot product does not know which token came first.
# [Rotary position embedding](https://arxiv.org/abs/2104.09864) (RoPE) tells it. It cuts queries and keys
# into `head_dim / 2` pairs of numbers and turns pair $i$ by an angle: the token's position times the
# frequency $\theta^{-2i/d}$, with $d$ for `head_dim`. The first pair turns fast, the last hardly at
# all. SmolLM2 uses $\theta = 100{,}000$.
#
# Why turn? Think of a pair as an arrow in the plane. Turn two arrows by the same angle, and the angle
# between them stays. So the dot product of a query at position $m$ and a key at position $n$ depends on
# $m - n$ alone.


# %% tags=["export"]
def rope_angles(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines for RoPE: positions [batch, q_len] -> [batch, 1, q_len, head_dim / 2]."""
    pair = torch.arange(0, head_dim, 2, device=positions.device)
    angles = positions[:, None, :, None].float() * (1.0 / theta ** (pair.float() / head_dim))
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + head_dim / 2) of each head by their angles (Su et al. 2021)."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


# %% [markdown]
# Put one query at position 20 and one key at position 17, and take their dot product. Then shift
# both by 100 positions.

# %%
q = torch.randn(1, 1, 1, 64, generator=generator)
k = torch.randn(1, 1, 1, 64, generator=generator)


def score(q_position: int, k_position: int) -> float:
    turned = [
        rotate(x, *rope_angles(torch.tensor([[p]]), 64, theta=1e5))
        for x, p in ((q, q_position), (k, k_position))
    ]
    return float((turned[0] * turned[1]).sum())


shift = 100
for places in ((20, 17), (20 + shift, 17 + shift), (20, 12)):
    print("query at {:3}, key at {:3}:".format(*places), f"{score(*places):.3f}")
assert abs(score(20, 17) - score(120, 117)) < 1e-3 < abs(score(20, 17) - score(20, 12))

# %% tags=["hide-input"] mystnb={"image": {"alt": "Two circles, each with a query arrow and a key arrow. On the left the query stands at position 20 and the key at 17, on the right at 120 and 117. All arrows point elsewhere on the right, but the angle between query and key is the same."}}
figure, panels = plt.subplots(1, 2, figsize=(7, 2.9))
pair = 4
for axes, places in zip(panels, ((20, 17), (20 + shift, 17 + shift)), strict=True):
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, color=plotting.colour("muted")))
    for role, place in zip(("query", "key"), places, strict=True):
        x, y = (float(part[..., pair]) for part in rope_angles(torch.tensor([[place]]), 64, 1e5))
        axes.annotate("", (x, y), (0, 0), arrowprops={"color": plotting.colour(role), "width": 2})
        side = {"ha": "right" if x < 0 else "left", "va": "bottom" if y > 0 else "top"}
        axes.annotate(f"{role} at {place}", (1.04 * x, 1.04 * y), **side)
    axes.set(xlim=(-2.2, 1.6), ylim=(-1.35, 1.15), aspect="equal")
    axes.axis("off")
title = "Shifted by 100, both arrows turn; the angle between them stays"
figure.suptitle(title, x=0.02, ha="left", size=12, weight="bold")
plt.show()

# %% [markdown]
# The shift changes nothing that you can see. Another distance gives another score. So a whole sentence
# that moves 100 positions keeps all its scores: guess 2. Remember it when a cache has to say at
# which position a key was stored.
#
# (In the picture query and key start from the same direction, and only one pair is drawn.)
#
# Two conventions exist for pairing the numbers: neighbours (0 and 1), or halves (0 and
# `head_dim / 2`). Both work. But weights that were trained with one do not work with the other,
# and you will meet this mistake again below.

# %% [markdown]
# ### Attention, by hand first
#
# In [attention](https://arxiv.org/abs/1706.03762) the query of token $i$ is compared with the key of
# every token $j$ up to $i$, itself included. The scores go through **softmax**, which makes positive
# weights of them that sum to 1. The output is the mean of the values, weighted so:
#
# $$w_{ij} = \operatorname{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt{d}}\right), \qquad
# y_i = \sum_{j \le i} w_{ij}\, v_j .$$
#
# A dot product of two vectors of $d$ random numbers grows with $\sqrt{d}$. Dividing by that keeps
# softmax from giving nearly all weight to one key. And a token must not look ahead: scores of later
# tokens are set to $-\infty$ before the softmax, which makes their weights 0. That is the **causal
# mask**.
#
# With `n_kv_heads` smaller than `n_heads`, several query heads share one KV head. This is
# [grouped-query attention](https://arxiv.org/abs/2305.13245) (GQA). In the tiny shape query heads 0 and
# 1 share KV head 0, heads 2 and 3 share KV head 1, and heads 4 and 5 share KV head 2.


# %%
def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """q [batch, n_heads, n, d], k [batch, n_kv_heads, n, d] -> weights [batch, n_heads, n, n]"""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(ahead, float("-inf")).softmax(-1)


q = torch.randn(2, tiny.n_heads, 5, tiny.head_dim, generator=generator)
k = torch.randn(2, tiny.n_kv_heads, 5, tiny.head_dim, generator=generator)
v = torch.randn(2, tiny.n_kv_heads, 5, tiny.head_dim, generator=generator)
weights = attention_weights(q, k)
weights[0, 0].round(decimals=2)

# %% [markdown]
# One row per query, one column per key. Each row sums to 1, and the upper triangle is 0. The first
# token can only look at itself.
#
# PyTorch computes the same in one call. `enable_gqa=True` lets the query heads share the KV heads.

# %%
by_hand = weights @ v.repeat_interleave(tiny.n_heads // tiny.n_kv_heads, dim=1)
in_one_call = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
torch.testing.assert_close(by_hand, in_one_call)
torch.testing.assert_close(weights.sum(-1), torch.ones(2, tiny.n_heads, 5))
assert weights.triu(1).count_nonzero() == 0

# %% [markdown]
# Now the module. Four matrices make queries, keys and values and mix the heads' outputs. Look at
# the argument `cache`. It stays `None` until the end of this lesson. An object passed there
# receives the queries, keys and values and returns attention's output. This is where every cache of
# this book will plug in.


# %% tags=["export"]
class Attention(nn.Module):
    """Causal grouped-query attention: [batch, q_len, dim] -> same (Ainslie et al. 2023)."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.head_dim, self.layer = config.head_dim, layer
        self.q_proj = nn.Linear(config.dim, config.n_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.dim, config.n_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.dim, config.n_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.n_heads * config.head_dim, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache=None) -> Tensor:
        heads = (-1, self.head_dim)  # q, k, v are [batch, heads, q_len, head_dim]
        q = rotate(self.q_proj(x).unflatten(-1, heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).unflatten(-1, heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).unflatten(-1, heads).transpose(1, 2)
        if cache is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            y = cache.attend(self.layer, q, k, v)
        return self.o_proj(y.transpose(1, 2).flatten(2))


# %% [markdown]
# Test what a causal layer promises: change the last token, and no earlier output may move.

# %%
attention = Attention(tiny, layer=0)
cos, sin = rope_angles(torch.arange(5)[None], tiny.head_dim, tiny.rope_theta)
x = torch.randn(1, 5, tiny.dim, generator=generator)
changed = x.clone()
changed[:, -1] += 1
with torch.no_grad():
    moved = (attention(x, cos, sin) - attention(changed, cos, sin)).abs().amax(-1)[0]
assert moved[:-1].max() < 1e-6 < moved[-1]
(moved > 1e-6).tolist()

# %% [markdown]
# Only the last one moved. Lesson 2 rests on this.

# %% [markdown]
# ### SwiGLU, the feed-forward network
#
# Attention mixes tokens. The feed-forward network works on each token alone. Here it is a
# [SwiGLU](https://arxiv.org/abs/2002.05202): two matrices widen the vector to `ffn_dim`. One of the
# two results passes through the smooth ramp $\operatorname{silu}(x) = x\,/\,(1 + e^{-x})$ and is
# multiplied, number by number, with the other. A third matrix brings the product back to `dim`.


# %% tags=["export"]
class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)): [..., dim] -> [..., dim] (Shazeer 2020)."""

    def __init__(self, dim: int, ffn_dim: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, ffn_dim, bias=False)
        self.up_proj = nn.Linear(dim, ffn_dim, bias=False)
        self.down_proj = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


# %%
mlp = SwiGLU(tiny.dim, tiny.ffn_dim)
with torch.no_grad():
    together, alone = mlp(x), torch.stack([mlp(token) for token in x[0]])[None]
torch.testing.assert_close(together, alone)
tuple(together.shape)

# %% [markdown]
# Five tokens at once or one after the other: the same. The feed-forward network has no memory and
# needs none.

# %% [markdown]
# ### The block, and the decoder
#
# A block is attention, then the feed-forward network. Each reads a normalised copy of the stream
# and adds its result. The block is given its attention from outside, because lesson 7 will give it
# another kind.


# %% tags=["export"]
class Block(nn.Module):
    """One layer: x + attention(norm(x)), then x + mlp(norm(x)). [batch, q_len, dim] -> same."""

    def __init__(self, config: DecoderConfig, attention: nn.Module) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.attention = attention
        self.mlp_norm = RMSNorm(config.dim, config.norm_eps)
        self.mlp = SwiGLU(config.dim, config.ffn_dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache=None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin, cache)
        return x + self.mlp(self.mlp_norm(x))


# %% [markdown]
# The decoder looks the ids up in a table, runs the blocks, and multiplies by the same table to get
# logits (the unembedding): SmolLM2 [ties](https://arxiv.org/abs/1608.05859) the two. Most of its code
# works out positions and rejects bad input. If there is a cache, the decoder asks it for the positions
# and tells it at the end how many tokens have passed (`advance`); lesson 2 explains why.
#
# - `counts` is for batches whose texts differ in length. Fill the shorter ones up on the right with
#   any id and say how many tokens of each are real. Causality does the rest: a real token never sees what
#   stands to its right.
# - `last_only` returns the logits of the last real token alone. To choose the next token you need
#   no others, and with a vocabulary of 49,152 tokens the others are expensive.


# %% tags=["export"]
class Decoder(nn.Module):
    """Token ids to logits. attention(config, layer) makes each layer's attention."""

    def __init__(self, config: DecoderConfig, attention: type[nn.Module] = Attention):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        blocks = (Block(config, attention(config, i)) for i in range(config.n_layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = RMSNorm(config.dim, config.norm_eps)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids: Tensor, cache=None, counts=None, last_only: bool = False) -> Tensor:
        """ids [batch, q_len], counts int or [batch] -> [batch, q_len or 1, vocab_size].

        Raises ValueError for ids or counts that are not integers of that shape, or do not fit.
        """
        if ids.ndim != 2 or ids.numel() == 0 or ids.dtype != torch.long:
            raise ValueError(f"ids is {ids.dtype} {[*ids.shape]}, not a full int64 [batch, q_len].")
        (batch, q_len), least = ids.shape, int(last_only)  # without a real token, no last one
        here = torch.arange(q_len, device=ids.device).expand(batch, -1)
        positions = here if cache is None else cache.positions(q_len)
        if (len(positions), positions.device) != (batch, ids.device):
            there = f"{len(positions)} sequences on {positions.device}"
            raise ValueError(f"ids has {batch} rows on {ids.device}, but the cache {there}.")
        counts = torch.as_tensor(q_len if counts is None else counts, device="cpu")
        is_int = counts.dtype == torch.long and counts.shape in ((), (batch,))
        if not is_int or counts.min() < least or counts.max() > q_len:
            takes = f"an int or int64 [{batch}], each {least} to {q_len}"
            raise ValueError(f"counts is {counts.tolist()}; it must be {takes}.")
        counts = counts.expand(batch)
        end = (counts if cache is None else counts + cache.lengths).max()
        if end > self.config.max_seq_len:
            raise ValueError(f"{end} tokens do not fit max_seq_len, {self.config.max_seq_len}.")
        cos, sin = rope_angles(positions, self.config.head_dim, self.config.rope_theta)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin, cache)
        if last_only:
            x = x[torch.arange(batch), counts - 1, None]
        logits = F.linear(self.norm(x), self.embed.weight)
        if cache is not None:
            cache.advance(counts)  # last: a pass that broke off does not count
        return logits


# %%
decoder = Decoder(tiny)
ids = torch.tensor([[5, 17, 2, 90, 41], [8, 8, 30, 0, 0]])  # the second row has 3 real tokens
with torch.no_grad():
    logits = decoder(ids)
    last = decoder(ids, counts=torch.tensor([5, 3]), last_only=True)
    alone = decoder(torch.tensor([[8, 8, 30]]))
torch.testing.assert_close(last[0, 0], logits[0, 4])
torch.testing.assert_close(last[1, 0], alone[0, -1])
tuple(logits.shape), tuple(last.shape)

# %% [markdown]
# ### Sampling, and the loop that writes
#
# Logits are scores, and you have to choose one token. The greedy way takes the highest. The other draws
# from the softmax, after two changes. A **temperature** below 1 sharpens the distribution, above 1
# it flattens it. [Top-p](https://arxiv.org/abs/1904.09751) cuts off the unlikely rest: it keeps the
# likeliest tokens that together hold a probability of $p$. The draw takes an explicit generator, so the
# same seed writes the same text.


# %% tags=["export"]
def sample(
    logits: Tensor, temperature: float = 0.0, top_p: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Choose a token per row: logits [batch, vocab_size] -> ids [batch, 1]; temperature 0 is greedy.

    top_p keeps the fewest likeliest tokens that hold that probability (Holtzman et al. 2019).
    """
    if not temperature >= 0 or not 0 < top_p <= 1:
        raise ValueError(f"temperature {temperature} must be >= 0 and top_p {top_p} in (0, 1].")
    if temperature < 1e-6:  # so cold that float32 would overflow
        return logits.argmax(-1, keepdim=True)
    if generator is None:
        raise ValueError("temperature > 0 draws at random and needs a torch.Generator.")
    p, ids = (logits.float() / temperature).softmax(-1).sort(-1, descending=True)
    if top_p < 1:
        p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0)  # what stands before a token decides
    return ids.gather(-1, torch.multinomial(p, 1, generator=generator))


# %%
scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
draws = torch.cat(
    [sample(scores, temperature=1.0, top_p=0.8, generator=generator) for _ in range(1000)]
)
assert sample(scores).item() == 0
assert set(draws.flatten().tolist()) == {0, 1}
likely = scores.softmax(-1)[0]
likely.round(decimals=2)

# %% [markdown]
# The two likeliest tokens hold 64 % and 24 %. With `top_p=0.8` the first is not enough and the
# second completes it, so a thousand draws found these two and no other.
#
# Last, the loop. Without a cache there is only one thing to do: feed the whole text, take the last
# logits, choose a token, append it, and feed the whole text again. Notice what is thrown away
# between two turns of the loop.


# %% tags=["export"]
@torch.no_grad()
def generate(model: Decoder, ids: Tensor, max_new_tokens: int, cache=None, **sampling) -> Tensor:
    """Extend ids [batch, n] to [batch, n + max_new_tokens]; **sampling goes to `sample`.

    Each step feeds the newest token to a cache, whose text ids continue; without one, everything.
    The last token is never fed. Raises ValueError, before anything runs, for what cannot fit.
    """
    before, room = ids.shape[-1], model.config.max_seq_len
    if cache is not None:
        before, room = before + int(cache.lengths.max()), min(room, cache.capacity + 1)
    if max_new_tokens < 0 or before + max_new_tokens > room:
        raise ValueError(f"{before} + {max_new_tokens} tokens: at least + 0, at most {room}.")
    last = model.config.vocab_size - 1
    if (unknown := ids[(ids < 0) | (ids > last)]).numel():
        raise ValueError(f"id {unknown[0]} is not in the vocabulary, 0 to {last}.")
    sample(torch.empty(1, 1, device="meta"), **sampling)  # checks the arguments, draws nothing
    fed = ids
    for _ in range(max_new_tokens):
        token = sample(model(fed, cache, last_only=True)[:, -1], **sampling)
        ids = torch.cat([ids, token], dim=1)
        fed = ids if cache is None else token
    return ids


# %%
generate(decoder, torch.tensor([[5, 17, 2]]), max_new_tokens=6).tolist()

# %% [markdown]
# Six tokens that mean nothing: the tiny decoder has never been trained. Time for one that has.

# %% [markdown]
# ## Measure
#
# ### A real model goes in
#
# SmolLM2-135M is small, but nothing in it is a toy: its parts are those of the Llama models, and its 9
# query heads share 3 KV heads. You get its weights as a dictionary from name to tensor. Most were
# rounded to 4 bits to make the download small, and are turned back into float32 here; the
# [licences](../book/licences.md) page says more.

# %%
config = DecoderConfig(**smollm2.CONFIG)
model = Decoder(config)
model.load_state_dict(smollm2.weights())
model = model.to(device).eval().requires_grad_(False)
tokenizer = smollm2.tokenizer()
assert (config.n_heads, config.n_kv_heads, config.rope_theta) == (9, 3, 100_000)
config

# %% [markdown]
# Where do the 135 million weights sit? Count them by the part that owns them.

# %%
parts = dict.fromkeys(["embed", "attention", "mlp", "norm"], 0)
for name, weight in model.named_parameters():
    part = next(p for p in ["norm", "embed", "attention", "mlp"] if p in name)
    parts[part] += weight.numel()
total = sum(parts.values())
for part, count in parts.items():
    print(f"{part:10} {count:11,}  {count / total:6.1%}")
print(f"{'all':10} {total:11,}")
assert total == 134_515_008
assert f"{parts['attention'] / total:.0%}" == "20%"

# %% [markdown]
# Attention has 20 % of the weights: guess 1. Its matrices make the keys and values that a cache will
# keep. With many users, those take more memory than all the weights together (lesson 3).
#
# The model reads ids, not letters. The tokenizer cuts a text into pieces that are in the vocabulary:

# %%
for i in tokenizer.encode("The capital of France is").ids:
    print(f"{i:6}  {tokenizer.decode([i])!r}")

# %% [markdown]
# ### Is it right?
#
# Fluent text proves little. The weights file (its format is llama.cpp's, GGUF) stores the rows of
# `q_proj` and `k_proj` in the order that neighbouring pairs need: remember the two conventions. A loader
# that forgets to put them back still writes grammatical sentences. So compare numbers. Here are logits
# that another program computed from the same file: the library transformers 5.24.0, with its own reader
# and its own decoder.

# %%
assert smollm2.reference()["transformers"] == "5.24.0"
reference = smollm2.reference()["logits"]
ids = torch.tensor([reference["ids"]], device=device)
with torch.no_grad():
    logits = model(ids)[0].cpu()

expected = torch.tensor(reference["probe_logits"])  # [tokens, 8 words of the vocabulary]
found = logits[:, reference["probe_ids"]]
difference = (found - expected).abs().max().item()
assert logits.argmax(-1).tolist() == reference["top_id"]
assert difference < 1e-3
print(f"{expected.numel()} logits over {len(reference['ids'])} tokens: equal to within 1e-3")

# %% [markdown]
# Now make the mistake on purpose. Reorder the rows of every query and key matrix as the file has
# them, and let both models continue the same text.


# %%
def as_in_the_file(weight: Tensor) -> Tensor:
    halves = weight.view(-1, 2, config.head_dim // 2, config.dim)
    return halves.transpose(1, 2).reshape(weight.shape)


wrong = Decoder(config)
wrong.load_state_dict(
    {
        name: as_in_the_file(weight) if "q_proj" in name or "k_proj" in name else weight
        for name, weight in model.state_dict().items()
    }
)
wrong = wrong.to(device).eval().requires_grad_(False)
prompt = torch.tensor([tokenizer.encode("The capital of France is").ids], device=device)
for label, decoder in (("right", model), ("wrong", wrong)):
    print(f"{label}: {tokenizer.decode(generate(decoder, prompt, 12)[0].tolist())!r}")
with torch.no_grad():
    wrong_logits = wrong(ids)[0].cpu()
off_by = (wrong_logits - logits).abs().max().item()
agree = (wrong_logits.argmax(-1) == logits.argmax(-1)).float().mean().item()
print(
    f"wrong: logits off by up to {off_by:.0f}, the same next token at {agree:.0%} of the positions"
)
assert off_by > 10
assert agree < 0.5

# %% [markdown]
# From the text alone you could not tell: the wrong one reads no worse. The logits tell at once.

# %% [markdown]
# ### It writes
#
# The weights are those of SmolLM2-135M-Instruct, the version that was tuned to answer. Its prompts are
# wrapped in markers that say who speaks; `chat` adds them. This time, sample instead of taking the
# likeliest token.

# %%
chat = torch.tensor([tokenizer.encode(smollm2.chat("What is a cache?")).ids], device=device)
answer = generate(
    model,
    chat,
    40,
    temperature=0.7,
    top_p=0.9,
    generator=torch.Generator(device).manual_seed(1),
)
assert answer.shape[1] == chat.shape[1] + 40
print(tokenizer.decode(answer[0, chat.shape[1] :].tolist()))

# %% [markdown]
# The sentences are well formed. Whether they are true is another matter: this is a very small
# model.
#
# Temperature and top-p are best understood by moving them. That takes a **kernel**, the process behind
# a notebook that runs its cells, so the published page shows nothing here. Run the notebook and move the
# sliders: each move runs the real model again, draws the probabilities of the next token, and writes a
# continuation.

# %%
shown = {}


def draw(temperature: float, top_p: float) -> None:
    with torch.no_grad():
        scores = model(prompt, last_only=True)[0, -1]
    p, order = (scores.float() / max(temperature, 1e-3)).softmax(-1).sort(descending=True)
    kept = p.cumsum(-1) - p < (top_p if top_p < 1 else float("inf"))
    if temperature == 0:
        kept[1:] = False
    seed = torch.Generator(device).manual_seed(0)
    text = generate(model, prompt, 12, temperature=temperature, top_p=top_p, generator=seed)
    shown.update(
        bars=p[:12].tolist(), kept=int(kept.sum()), text=tokenizer.decode(text[0].tolist())
    )
    words = [tokenizer.decode([i]) for i in order[:12].tolist()]
    colours = [plotting.colour("query" if k else "free") for k in kept[:12].tolist()]
    plt.bar(range(12), shown["bars"], color=colours, tick_label=[repr(word) for word in words])
    plt.xticks(rotation=45, ha="right")
    plt.ylabel("probability")
    plt.title(f"{shown['kept']:,} token{'s' * (shown['kept'] > 1)} can be drawn")
    plt.show()
    print(shown["text"])


# %% tags=["remove-output", "nbval-ignore-output"]
temperature_slider = ipywidgets.FloatSlider(
    value=0.7, min=0.0, max=2.0, step=0.1, description="temperature", continuous_update=False
)
top_p_slider = ipywidgets.FloatSlider(
    value=0.9, min=0.05, max=1.0, step=0.05, description="top-p", continuous_update=False
)
temperature_slider.style.description_width = "6rem"  # all of the word
controls = {"temperature": temperature_slider, "top_p": top_p_slider}
ipywidgets.VBox([*controls.values(), ipywidgets.interactive_output(draw, controls)])

# %%
assert 1 <= shown["kept"] < config.vocab_size

# %% tags=["remove-cell", "nbval-ignore-output"]
moves = []
for place in ((0.7, 0.9), (1.5, 1.0), (0.0, 1.0), (0.7, 0.9)):
    temperature_slider.value, top_p_slider.value = place
    moves.append(dict(shown))

# %% tags=["remove-cell"]
at_first, warm, greedy, back = moves
assert warm["bars"][0] < at_first["bars"][0]  # warmer is flatter
assert warm["kept"] == config.vocab_size  # nothing is cut off
assert warm["text"] != at_first["text"]
assert greedy["kept"] == 1
assert back == at_first  # the same seed, the same text

# %% [markdown]
# ### How much work is a token?
#
# Each step of `generate` feeds the whole text. Count what that means. A **hook** is a function that
# PyTorch calls whenever a module has run; on one key projection it sees how many tokens pass through.
# The prompt has 5 tokens; write 16.

# %%
prompt = torch.tensor([tokenizer.encode("A cache is a small").ids], device=device)
processed = []
hook = model.blocks[0].attention.k_proj.register_forward_hook(
    lambda module, inputs, output: processed.append(inputs[0].shape[1])
)
written = 16
text = generate(model, prompt, written)
hook.remove()
print(tokenizer.decode(text[0].tolist()))
print("tokens processed at each step:", processed)
print("in all:", sum(processed))

# %%
fresh = [processed[0]] + [1] * (written - 1)
repeated = sum(processed) - sum(fresh)
assert prompt.shape[1] == 5
assert processed[-1] == 20
assert (sum(processed), sum(fresh), repeated) == (200, 20, 180)

# %% tags=["hide-input"] mystnb={"image": {"alt": "Stacked bars, one per step from 1 to 16. The first step processes 5 new tokens. Every later step processes 1 new token and repeats all earlier ones: 5 at step 2, rising evenly to 19 at step 16."}}
again = [total - new for total, new in zip(processed, fresh, strict=True)]
steps = range(1, 17)
plt.bar(steps, fresh, color=plotting.colour("query"), label="processed for the first time")
plt.bar(steps, again, bottom=fresh, color=plotting.colour("free"), label="processed before")
plt.xlabel("step, each writing one token")
plt.ylabel("tokens processed per layer")
plt.xticks(steps)
plt.yticks(range(0, 21, 5))
plt.title("180 of 200 tokens were processed before")
plt.legend()
plt.show()

# %% [markdown]
# The 16th step processes 20 tokens, and 19 of them were there in the step before: guess 3. Over all
# 16 steps, 180 of 200 were repeats.
#
# Repeats cost time. Here is one step at three lengths of text: the median of 5 runs on this machine,
# with the fastest and the slowest.

# %% tags=["nbval-ignore-output"]
times = {length: [] for length in (16, 64, 256)}
generate(model, ids[:, :1].expand(1, 256), 1)  # warm up
for _ in range(5):
    for length, runs in times.items():
        text = ids[:, :1].expand(1, length)
        began = time.perf_counter()
        generate(model, text, 1).cpu()
        runs.append(1000 * (time.perf_counter() - began))
print(f"ms for one more token, on {device} with {torch.get_num_threads()} threads")
for length, runs in times.items():
    print(f"{length:4} tokens: {statistics.median(runs):6.1f} ({min(runs):.1f} to {max(runs):.1f})")

# %%
assert {length: len(runs) for length, runs in times.items()} == {16: 5, 64: 5, 256: 5}

# %% [markdown]
# The longer the text, the longer the step. But 16 times as many tokens do not take 16 times as long:
# there is a part that every step pays, whatever its length. Lesson 2 finds out which. Your machine
# will show other times than this page. The number of tokens processed is the same everywhere.

# %% [markdown]
# ## Explore
#
# What do the heads look at? You can ask them without touching the decoder. Pass something in the
# place of `cache` that keeps the weights on its way to the same answer. It also needs what the
# decoder asks for: `lengths`, how many tokens came before; `positions`, where the new ones stand; and
# `advance`, which is told that a pass is over.


# %%
class Watcher:
    """Stands where a cache would, and keeps the attention weights of one pass over one text."""

    lengths = torch.zeros(1, dtype=torch.long)

    def __init__(self) -> None:
        self.weights: list[Tensor] = []  # per layer: [n_heads, n, n]

    def positions(self, q_len: int) -> Tensor:
        return torch.arange(q_len, device=device)[None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = attention_weights(q, k)
        self.weights.append(weights[0].cpu())
        return weights @ v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    def advance(self, counts: Tensor) -> None:
        pass


# %% [markdown]
# Watching must change nothing, so the function that watches a text compares with a plain pass.


# %%
def watch(text: str) -> tuple[Tensor, list[str]]:
    """Attention weights [n_layers, n_heads, n, n] of a text, and its tokens."""
    ids = tokenizer.encode(text).ids[:24]
    watcher = Watcher()
    with torch.no_grad():
        watched = model(torch.tensor([ids], device=device), watcher)
        plain = model(torch.tensor([ids], device=device))
    torch.testing.assert_close(watched, plain, atol=1e-3, rtol=0)  # watching changes nothing
    return torch.stack(watcher.weights), [tokenizer.decode([i]) for i in ids]


# %% [markdown]
# Take a sentence that repeats itself. For each of four patterns, find the head that gives it the
# largest share of its attention.

# %%
weights, tokens = watch("The first cat saw the second cat, and the second cat saw the first cat.")
n = len(tokens)
row, column = torch.arange(n)[:, None], torch.arange(n)[None]
same = torch.tensor([[tokens[i] == tokens[j] for j in range(n)] for i in range(n)])
earlier_copy = same & (column < row)
patterns = {  # bool [n, n]: the keys that the pattern means, for each query
    "first token": (column == 0) & (row > 0),
    "token before": column == row - 1,
    "same word": earlier_copy,
    "what came next": earlier_copy.roll(1, dims=1) & (column > 0),
}
start = {}
for kind, pattern in patterns.items():
    queries = pattern.any(1)
    shares = (weights * pattern).sum(-1)  # [n_layers, n_heads, n]
    average = shares[:, :, queries].mean(-1)
    layer, head = divmod(average.argmax().item(), config.n_heads)
    query = n // 2 + shares[layer, head, n // 2 :].argmax().item()  # a late one has many keys
    start[kind] = {"layer": layer, "head": head, "query": query}
    print(f"{kind:15} layer {layer:2}, head {head}: {average[layer, head]:4.0%} on average")
on_first = weights[:, :, 1:, 0].mean()
print(f"{'first token':15} over all heads:   {on_first:4.0%} on average")
assert (start["first token"]["layer"], start["first token"]["head"]) == (18, 8)
assert f"{on_first:.0%}" == "51%"

# %%
presets = [{"label": kind, **place} for kind, place in start.items()]
AttentionExplorer(weights, tokens, presets=presets, compute=watch, **start["what came next"])

# %% [markdown]
# Move the layer, the head and the token. Three things are worth seeing.
#
# - The upper triangle is always empty: no token looks ahead. So a word added at the end leaves all
#   rows above as they are. In the notebook, with a kernel, you can try it with a sentence of your own.
# - You can say what some heads look at. One looks at the token before. One finds the earlier copy of
#   the same word. One looks at what followed that copy, which is a way to guess what comes next.
# - On average over all 270 heads and all later tokens, 51 % of the attention rests on the first token,
#   a mere "The". [Xiao et al. (2023)](https://arxiv.org/abs/2309.17453) call it an **attention sink**: a
#   place for attention that is wanted nowhere else. Lesson 9 shows what happens when you throw it away.
#
# What this does not show: that a head *does* what its pattern looks like. One sentence of 17 tokens
# is an example, not a proof. The explorer rounds each weight to 8 bits.

# %% [markdown]
# ## Check yourself
#
# Try each before you unfold the answer. The code of an answer runs as it stands, in a new cell.
#
# **1. More heads.** SmolLM2 has 3 KV heads for 9 query heads. How many weights would one
# layer's attention have with 9?
#
# <details>
# <summary>Answer</summary>
#
# `q_proj` and `o_proj` stay as they are, 576 × 576 each. `k_proj` and `v_proj` grow from 576 × 192 to
# 576 × 576. So 884,736 weights become 1,327,104.
#
# ```python
# from kvbook.lessons.decoder import Attention, DecoderConfig
#
# shape = dict(vocab_size=1, dim=576, n_layers=1, n_heads=9, head_dim=64, ffn_dim=1, max_seq_len=1)
# counts = {}
# for n_kv_heads in (3, 9):
#     attention = Attention(DecoderConfig(**shape, n_kv_heads=n_kv_heads), layer=0)
#     counts[n_kv_heads] = sum(weight.numel() for weight in attention.parameters())
# assert counts == {3: 884_736, 9: 1_327_104}
# ```
#
# </details>
#
# **2. The wrong mask.** Somebody wants to save work. They feed one query, for the last token, with all 5
# keys, and keep `is_causal=True`. Which keys does the query see?
#
# <details>
# <summary>Answer</summary>
#
# Only the first. PyTorch aligns this mask at the top left: query row 0 may see key 0. It does not
# know that your one query stands at position 4. The output is the first value, whatever the scores
# say. Lesson 2 meets this again.
#
# ```python
# import torch
# import torch.nn.functional as F
#
# generator = torch.Generator().manual_seed(0)
# q = torch.randn(1, 2, 1, 8, generator=generator)
# k = torch.randn(1, 2, 5, 8, generator=generator)
# v = torch.randn(1, 2, 5, 8, generator=generator)
# wrong = F.scaled_dot_product_attention(q, k, v, is_causal=True)
# right = F.scaled_dot_product_attention(q, k, v)
# torch.testing.assert_close(wrong, v[:, :, :1])
# assert (wrong - right).abs().max() > 0.1
# ```
#
# </details>
#
# **3. A test that cannot fail.** A friend wants to test that a decoder starts at position 0. The test
# runs it once with positions 0, 1, 2, … and once with 1, 2, 3, … and compares the logits. What does it find?
#
# <details>
# <summary>Answer</summary>
#
# Nothing: the logits agree. All distances stayed the same, and RoPE shows attention nothing else. A test
# that can fail moves *some* of the tokens.
#
# ```python
# import torch
# from kvbook.lessons.decoder import rope_angles, rotate
#
# generator = torch.Generator().manual_seed(0)
# q, k = (torch.randn(1, 1, 4, 64, generator=generator) for _ in range(2))
#
# def scores(q_positions, k_positions):
#     angles = [rope_angles(torch.tensor([p]), 64, 1e5) for p in (q_positions, k_positions)]
#     return rotate(q, *angles[0]) @ rotate(k, *angles[1]).mT
#
# plain = scores([0, 1, 2, 3], [0, 1, 2, 3])
# torch.testing.assert_close(scores([1, 2, 3, 4], [1, 2, 3, 4]), plain, atol=1e-4, rtol=0)
# assert (scores([1, 2, 3, 4], [0, 1, 2, 3]) - plain).abs().max() > 0.1
# ```
#
# </details>
#
# **4. Why float32?** In float16 the largest number is 65,504. From which value on does the square of a
# coordinate overflow?
#
# <details>
# <summary>Answer</summary>
#
# From 256: its square is 65,536. So RMSNorm takes the sum in float32.
#
# ```python
# import torch
# from kvbook.lessons.decoder import RMSNorm
#
# x = torch.tensor([256.0, 1.0], dtype=torch.float16)
# assert x.square()[0] == float("inf")
# assert RMSNorm(2, 1e-5).half()(x).isfinite().all()
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your three guesses, once more: 20 % of the weights sit in attention; a shift by 100 positions changes
# no score; the 16th step processes 20 tokens, 19 of which it had processed before.
#
# Each change that a lesson makes adds a line to this ledger: what a token takes in the cache, how many
# users fit, and how fast one of them is served. There is no cache yet. What runs out here is time.

# %%
ledger.show(1)

# %% [markdown]
# ## Next
#
# Of the 20 tokens in the last step, 19 had been processed before. Did the model learn anything new about
# them? If not, what exactly would you have to keep, and where, so that the step could be fed one token
# and still give the same logits? [Lesson 2](02_cache.ipynb) finds out, and counts what it saves.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. This cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
check(
    {
        "93 MB": smollm2.ARCHIVE.wheel_nbytes / 1e6,
        "100 positions": shift,
        "5 tokens": prompt.shape[1],
        "50 times": longer,
        "9 query heads": config.n_heads,
        "3 KV heads": config.n_kv_heads,
        "49,152 tokens": config.vocab_size,
        "64 %": 100 * likely[0],
        "24 %": 100 * likely[1],
        "4 bits": From("kvbook/models/PROVENANCE.md: Q4_1"),
        "20 %": 100 * parts["attention"] / total,
        "20 tokens": processed[-1],
        "16 steps": len(processed),
        "16 times": max(times) / min(times),
        "270 heads": config.n_layers * config.n_heads,
        "51 %": 100 * on_first,
        "17 tokens": n,
        "8 bits": From("kvbook.explorer.attention.quantise: uint8"),
        "135 million weights": total,
        "884,736 weights": sum(w.numel() for w in model.blocks[0].attention.parameters()),
    }
)
