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
# parts, small enough to read in one sitting. Then it puts the weights of a real model in,
# SmolLM2-135M, and lets it write. From then on every lesson of this book works on this one file,
# and none changes it.

# %% [markdown]
# ## What you need
#
# You know PyTorch's tensors and modules. You have seen the words *embedding* and *softmax*. You
# need no GPU: the lesson takes well under a minute on two CPU cores. The first run also fetches
# the model, a download of 98 MB.
#
# A few words recur. A **token** is a piece of text with a number, its *id*. The model turns each
# id into a vector of `dim` numbers, and `n_layers` blocks each add something to that vector. The
# vectors of all tokens, passed on from block to block, are called the **residual stream**.
# **Logits** are the scores that come out at the end: one per word of the vocabulary, for each
# token, saying which token might follow. The [notation](../book/notation.md) page lists every
# letter and name.

# %% [markdown]
# ## Predict
#
# Write down three guesses before you go on. The lesson computes all three.
#
# 1. SmolLM2-135M has 135 million weights. What share of them sits in attention?
# 2. You shift a whole sentence 100 positions to the right. How much do its attention scores change?
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
import time

import ipywidgets
import matplotlib.pyplot as plt

from kvbook import plotting
from kvbook.explorer import AttentionExplorer
from kvbook.models import smollm2

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Build
#
# ### The shape of a decoder
#
# Ten numbers fix a decoder. `n_heads` query heads share `n_kv_heads` key/value heads; that second
# number decides what this book is about, so keep an eye on it. A shape that cannot work is refused
# here, before any tensor exists.


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
            raise ValueError(
                f"n_kv_heads {self.n_kv_heads} does not divide n_heads {self.n_heads}."
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; it must be even for RoPE's pairs.")


# %% [markdown]
# To try each part as you build it, take a tiny shape. All its sizes differ, so that a swapped axis
# cannot go unnoticed.

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
# Each block adds to the residual stream, so its vectors grow. Before a block reads the stream, it
# brings every vector to the same length. RMSNorm divides by the root mean square,
#
# $$\operatorname{rms}(x) = \sqrt{\tfrac{1}{d}\textstyle\sum_i x_i^2 + \epsilon},$$
#
# and then scales each coordinate by a learned weight. No mean is subtracted. The sum is taken in
# float32 whatever the model's type, because squares overflow early in half precision.


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
torch.testing.assert_close(RMSNorm(tiny.dim, 1e-12)(50 * x), RMSNorm(tiny.dim, 1e-12)(x))
y.square().mean(-1)

# %% [markdown]
# Every vector has a mean square of 1 now, and a vector 50 times as long gives the same result. Only
# its direction counts.

# %% [markdown]
# ### RoPE: where a token stands
#
# Attention compares vectors by dot products, and a dot product does not know which token came
# first. Rotary position embedding (RoPE) tells it. It cuts each head's vector into
# `head_dim / 2` pairs of numbers and turns each pair by an angle: the token's position times a
# frequency. The first pair turns fast, the last hardly at all.
#
# Why turn? Rotate two arrows by the same angle, and the angle between them stays. So the dot
# product of a query at position $m$ and a key at position $n$ depends on $m - n$ alone.


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
# both by 100.

# %%
q = torch.randn(1, 1, 1, 64, generator=generator)
k = torch.randn(1, 1, 1, 64, generator=generator)


def score(q_position: int, k_position: int) -> float:
    turned = [
        rotate(x, *rope_angles(torch.tensor([[p]]), 64, theta=1e5))
        for x, p in ((q, q_position), (k, k_position))
    ]
    return float((turned[0] * turned[1]).sum())


print(f"query at  20, key at  17: {score(20, 17):.3f}")
print(f"query at 120, key at 117: {score(120, 117):.3f}")
print(f"query at  20, key at  12: {score(20, 12):.3f}")
assert abs(score(20, 17) - score(120, 117)) < 1e-3 < abs(score(20, 17) - score(20, 12))

# %% [markdown]
# The shift changes nothing that you can see; the distance changes everything. That was guess 2.
# Remember it when a cache has to say at which position a key was stored.
#
# There are two customs for which numbers form a pair: neighbours (0 and 1), or halves (0 and
# `head_dim / 2`). Both work. But weights that were trained with one do not work with the other,
# and this is a mistake you will meet again below.

# %% [markdown]
# ### Attention, by hand first
#
# Each token asks with a **query**. Each token, itself included, answers with a **key** and a
# **value**. The scores of one query against all keys go through softmax and become weights that
# sum to 1, and the output is the weighted mean of the values. A token must not look ahead: scores
# of later tokens are set to $-\infty$ before the softmax, which makes their weights 0. That is
# the **causal mask**.
#
# With `n_kv_heads` smaller than `n_heads`, several query heads share one key/value head. This is
# **grouped-query attention** (GQA). Query heads 0 and 1 share key head 0, heads 2 and 3 share key
# head 1, and so on.


# %%
def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """q [batch, n_heads, n, head_dim], k [batch, n_kv_heads, n, head_dim] -> [batch, n_heads, n, n]"""
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
# PyTorch computes the same in one call, faster and without ever holding the whole square.
# `enable_gqa=True` lets it share the key heads without copying them.

# %%
by_hand = weights @ v.repeat_interleave(tiny.n_heads // tiny.n_kv_heads, dim=1)
in_one_call = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
torch.testing.assert_close(by_hand, in_one_call)
torch.testing.assert_close(weights.sum(-1), torch.ones(2, tiny.n_heads, 5))
assert weights.triu(1).count_nonzero() == 0

# %% [markdown]
# Now the module. Four matrices make queries, keys and values and mix the heads' outputs. Look at
# the argument `cache`. It is `None` in all of this lesson. But whoever is passed there is handed
# the queries, keys and values and gives back attention's output. This one line is where every
# cache of this book will plug in.


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
        q, k, v = (
            proj(x)
            .unflatten(-1, (-1, self.head_dim))
            .transpose(1, 2)  # [batch, heads, q_len, head_dim]
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
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
# Attention mixes tokens. The feed-forward network works on each token alone: two matrices widen
# the vector to `ffn_dim`, one of the two results passes through the smooth step
# $\operatorname{silu}(x) = x\,\sigma(x)$ and gates the other, and a third matrix leads back.


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
# logits: SmolLM2 *ties* the two. Most of its code says where tokens stand and refuses what cannot
# be.
#
# - `counts` is for batches whose rows differ in length. Fill the shorter rows up on the right with
#   any id and say how many tokens are real. Causality does the rest: a real token never sees what
#   stands to its right.
# - `last_only` returns the logits of the last real token alone. To choose the next token you need
#   no others, and with 49,152 words in the vocabulary the others are expensive.


# %% tags=["export"]
class Decoder(nn.Module):
    """Token ids to logits. attention(config, layer) makes each layer's attention."""

    def __init__(self, config: DecoderConfig, attention: type[nn.Module] = Attention):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        self.blocks = nn.ModuleList(
            Block(config, attention(config, i)) for i in range(config.n_layers)
        )
        self.norm = RMSNorm(config.dim, config.norm_eps)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids: Tensor, cache=None, counts=None, last_only: bool = False) -> Tensor:
        """ids [batch, q_len], counts int or [batch] -> [batch, q_len or 1, vocab_size].

        Raises ValueError for ids that are empty, not [batch, q_len], or longer than max_seq_len.
        """
        if ids.ndim != 2 or ids.numel() == 0:
            raise ValueError(
                f"ids has shape {list(ids.shape)}; it must be [batch, q_len], not empty."
            )
        batch, q_len = ids.shape
        counts = torch.as_tensor(q_len if counts is None else counts).expand(batch)
        if counts.min() < 0 or counts.max() > q_len:
            raise ValueError(f"counts is {counts.tolist()}; each must be between 0 and {q_len}.")
        end = (counts if cache is None else counts + cache.lengths).max()
        if end > self.config.max_seq_len:
            raise ValueError(f"{end} tokens do not fit max_seq_len, {self.config.max_seq_len}.")
        here = torch.arange(q_len, device=ids.device).expand(batch, -1)
        positions = here if cache is None else cache.positions(q_len)
        cos, sin = rope_angles(positions, self.config.head_dim, self.config.rope_theta)
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, cos, sin, cache)
        if cache is not None:
            cache.advance(counts)
        if last_only:
            x = x[torch.arange(batch), counts - 1, None]
        return F.linear(self.norm(x), self.embed.weight)


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
# Logits are scores; somebody has to choose. The greedy way takes the highest. The other way draws
# from the softmax, after two changes. A **temperature** below 1 sharpens the distribution, above 1
# it flattens it. **top-p** cuts off the tail: it keeps the likeliest tokens that together hold a
# probability of $p$. The draw takes an explicit generator, so the same seed writes the same text.


# %% tags=["export"]
def sample(
    logits: Tensor, temperature: float = 0.0, top_p: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Choose a token per row: logits [batch, vocab_size] -> ids [batch, 1]; temperature 0 is greedy.

    top_p keeps the fewest likeliest tokens that hold that probability (Holtzman et al. 2019).
    """
    if not temperature >= 0 or not 0 < top_p <= 1:
        raise ValueError(f"temperature {temperature} must be >= 0 and top_p {top_p} in (0, 1].")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    if generator is None:
        raise ValueError("temperature > 0 draws at random and needs a torch.Generator.")
    p, ids = (logits.float() / temperature).softmax(-1).sort(-1, descending=True)
    p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0)  # what stands before a token decides
    return ids.gather(-1, torch.multinomial(p, 1, generator=generator))


# %%
scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
draws = torch.cat(
    [sample(scores, temperature=1.0, top_p=0.8, generator=generator) for _ in range(1000)]
)
assert sample(scores).item() == 0
assert set(draws.flatten().tolist()) == {0, 1}
scores.softmax(-1).round(decimals=2)

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

    Without a cache each step feeds the whole text; with one, the newest token alone.
    Raises ValueError, before anything runs, for ids or a length that the model does not have.
    """
    n, config = ids.shape[-1], model.config
    if max_new_tokens < 0 or n + max_new_tokens > config.max_seq_len:
        raise ValueError(
            f"{n} + {max_new_tokens} tokens: at least + 0, at most {config.max_seq_len}."
        )
    if ids.numel() and not 0 <= ids.min() <= ids.max() < config.vocab_size:
        raise ValueError(f"an id lies outside the vocabulary, 0 to {config.vocab_size - 1}.")
    fed = ids
    for _ in range(max_new_tokens):
        token = sample(model(fed, cache, last_only=True)[:, -1], **sampling)
        ids = torch.cat([ids, token], dim=1)
        fed = ids if cache is None else token
    return ids


# %%
generate(decoder, torch.tensor([[5, 17, 2]]), max_new_tokens=6).tolist()

# %% [markdown]
# Six tokens of noise: the tiny decoder has never been trained. Time for one that has.

# %% [markdown]
# ## Measure
#
# ### A real model goes in
#
# SmolLM2-135M is small, but nothing in it is a toy: it has the same parts as models a thousand
# times its size, and its 9 query heads share 3 key/value heads. You get its weights as a dictionary
# from name to tensor. They were rounded to 4 bits to make the download small, and turned back into
# float32 here; the [licences](../book/licences.md) page says more.

# %%
config = DecoderConfig(**smollm2.CONFIG)
model = Decoder(config)
model.load_state_dict(smollm2.weights())
model = model.to(device).eval().requires_grad_(False)
tokenizer = smollm2.tokenizer()
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
# Attention has 20 % of the weights: guess 1. The cache that this book is about belongs to that fifth,
# and it will outgrow all the rest.

# %% [markdown]
# ### Is it right?
#
# Fluent text proves little. This file stores the rows of `q_proj` and `k_proj` in the order that
# neighbouring pairs need (remember the two customs). A loader that forgets to put them back still
# writes grammatical sentences. So compare numbers: here are logits that another program computed
# from the same file, the library `transformers`, with its own reader and its own decoder.

# %%
reference = smollm2.reference()
ids = torch.tensor([reference["ids"]], device=device)
with torch.no_grad():
    logits = model(ids)[0].cpu()

expected = torch.tensor(reference["logits"])  # [tokens, a few words of the vocabulary]
found = logits[:, reference["vocabulary_ids"]]
difference = (found - expected).abs().max().item()
assert logits.argmax(-1).tolist() == reference["top_ids"]
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
    off_by = (wrong(ids)[0].cpu() - logits).abs().max().item()
assert off_by > 1.0

# %% [markdown]
# ### It writes
#
# SmolLM2-135M-Instruct was tuned to answer. Its prompts are wrapped in markers that say who speaks;
# `chat` adds them. This time, draw.

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
