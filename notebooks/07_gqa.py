# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 7 — Fewer KV heads
#
# **The question.** The number of KV heads stands in the formula like every other term. How far down
# can it go, what does that save, and what does it cost?
#
# Like the layers it is fixed before training: you can choose it when you build a model, not when you
# serve one. You will see why, by taking heads away from a model that needs them, and by training
# models that never had them. Then you build attention that has no KV heads at all.

# %% [markdown]
# ## What you need
#
# [Lesson 1](01_decoder.ipynb) for query heads that share a KV head, [lesson 2](02_cache.ipynb) for the
# caches, [lesson 3](03_cost.ipynb) for the formula, [lesson 4](04_measure.ipynb) for watching memory. You
# need no GPU. The lesson takes about two minutes on two CPU cores. It loads SmolLM2-135M, a download of
# 93 MB the first time.
#
# Three names. With one KV head for each query head it is **multi-head attention** (MHA). With a single
# one for all it is **multi-query attention** (MQA, [Shazeer 2019](https://arxiv.org/abs/1911.02150)). In
# between it is **grouped-query attention** (GQA, [Ainslie et al.
# 2023](https://arxiv.org/abs/2305.13245)).

# %% [markdown]
# ## Predict
#
# SmolLM2-135M has 9 query heads in a layer, which share 3 KV heads.
#
# 1. A token takes 46,080 bytes in float32. What would it take with a single KV head?
# 2. Someone repeats each KV head 3 times, so that each query head has its own, and only then puts them into the
#    cache. What changes in the text that the model writes? And in the memory?
# 3. You replace the 3 KV heads of the trained model by one, their mean. Its **perplexity** is the number
#    of tokens between which it seems to hesitate. Does that rise by a tenth, does it double, or is it
#    worse?
# 4. DeepSeek-V3 keeps one row of 576 values per token and layer, and computes the keys and values of
#    128 heads from it. Must it do that at each step, for all tokens so far?

# %% tags=["export"]
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvbook.lessons.cache import KVCache, check_rows, put
from kvbook.lessons.decoder import Decoder, DecoderConfig, RMSNorm, rotate

# %%
import statistics
import time

import ipywidgets
import matplotlib.pyplot as plt
from kvbook import ledger, plotting
from kvbook.accounting import cache_spec, fit_users, what_if
from kvbook.accounting.facts import model as facts
from kvbook.accounting.latent import with_latent
from kvbook.device import half
from kvbook.explorer.heads import HeadsExplorer
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.cost import token_nbytes
from kvbook.lessons.decoder import Attention, generate, rope_angles
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.measure.points import fill
from kvbook.measure.quality import change, token_losses
from kvbook.measure.runner import results
from kvbook.models import smollm2
from kvbook.models.text import devils_dictionary
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## Build
#
# ### One term of the formula
#
# The KV heads must divide the query heads, so SmolLM2's 9 leave three choices. Make a cache for each
# and ask for its shape. A query head more or less changes nothing: caches do not know how many there are.

# %%
config = DecoderConfig(**smollm2.CONFIG)
smol_nbytes = {}  # per token, by KV heads
for n_kv_heads in (9, 3, 1):
    changed = replace(config, n_kv_heads=n_kv_heads)
    cache = PreallocatedCache(changed, capacity=2048, device="meta")
    assert cache.k.shape == cache.v.shape == (30, 1, n_kv_heads, 2048, 64)
    assert cache.nbytes == 2048 * token_nbytes(30, n_kv_heads, 64, 4)
    name = {9: "MHA", 3: "GQA, as published", 1: "MQA"}[n_kv_heads]
    smol_nbytes[n_kv_heads] = cache.nbytes // 2048
    print(f"KV heads: {n_kv_heads}, {smol_nbytes[n_kv_heads]:7,} bytes per token  ({name})")
assert smol_nbytes == {9: 138_240, 3: 46_080, 1: 15_360}

# %% tags=["hide-input"] mystnb={"image": {"alt": "Three pictures of 9 query heads in a row above their KV heads, joined by lines. MHA: 9 KV heads, each query head has its own. GQA: 3 KV heads, each is read by three query heads side by side. MQA: 1 KV head, read by all nine."}}
figure, panels = plt.subplots(1, 3, figsize=(9, 2.2))
for axes, (n_kv_heads, name) in zip(panels, {9: "MHA", 3: "GQA", 1: "MQA"}.items(), strict=True):
    group = config.n_heads // n_kv_heads
    for head in range(config.n_heads):
        below = (head // group + 0.5) * group - 0.5
        axes.plot([head, below], [1, 0], color=plotting.colour("muted"), linewidth=1)
        axes.plot(head, 1, "o", color=plotting.colour("query"))
        axes.plot(below, 0, "s", markersize=9, color=plotting.colour("cache"))
    heads = "KV heads" if n_kv_heads > 1 else "KV head"
    axes.set(title=f"{name} caches {n_kv_heads} {heads}", ylim=(-0.3, 1.3))
    axes.set_yticks([0, 1], ["KV heads", "query heads"] if name == "MHA" else ["", ""])
    axes.set_xticks([])
    axes.grid(False)
plt.show()

# %% [markdown]
# From 9 heads to 1 the cache shrinks to a ninth: 15,360 bytes, guess 1. Whoever trained this model chose
# 3, and had saved two thirds before anybody served it.

# %% [markdown]
# ### Sharing without copying
#
# How does a query head find its KV head? Query head $i$ belongs to KV head $\lfloor i / g \rfloor$,
# with the group size $g$. The textbook way repeats every KV head $g$ times, so that each query head
# has its own copy. PyTorch has two functions with nearly the same name for that, and one is wrong.

# %%
heads = torch.arange(3)
print("repeat_interleave:", heads.repeat_interleave(3).tolist())
print("repeat:           ", heads.repeat(3).tolist())
assert heads.repeat_interleave(3).tolist() == [i // 3 for i in range(9)]
assert heads.repeat(3).tolist() == [i % 3 for i in range(9)]

# %% [markdown]
# With `repeat`, query head 1 reads KV head 1, though it was trained with head 0. The shapes are right
# and nothing fails. Only the text is nonsense. If there are as many KV heads as query heads, or just
# one, both functions agree, so a test with such a shape does not notice.
#
# And why copy at all? The queries of a group can be laid side by side, as if one head had $g$ times
# as many queries. Then all of them are compared with the KV head where it lies. Lesson 2's `attention`
# does so for a step with one query; here it is done for any number, under a mask.


# %% tags=["export"]
def grouped_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention in which a group of query heads shares a KV head, without copying that head.

    q [batch, n_heads, q_len, k_dim], k [batch, n_kv_heads, kv_len, k_dim], v [..., v_dim], mask
    bool [batch or 1, 1, q_len, kv_len] -> [batch, n_heads, q_len, v_dim]. Query head i reads KV
    head i // (n_heads // n_kv_heads) (Ainslie et al. 2023). Weights are computed in float32 at
    least; a query that sees no key gets 0. Raises ValueError for shapes that do not go together,
    and where n_kv_heads does not divide n_heads.
    """
    shapes = [list(x.shape) for x in (q, k, v)]
    alike = q.ndim == k.ndim == v.ndim == 4 and (*k.shape[:3], k.shape[0]) == (*v.shape[:3], len(q))
    if not alike or q.shape[3] != k.shape[3] or not q.numel() * k.numel() * v.numel():
        takes = "[batch, heads, length, width] of one batch, k as wide as q and as long as v"
        raise ValueError(f"q, k, v have shapes {shapes}; they must be full {takes}.")
    (batch, n_heads, q_len, k_dim), (n_kv_heads, kv_len) = q.shape, k.shape[1:3]
    if n_heads % n_kv_heads:
        raise ValueError(f"k has {n_kv_heads} heads; they must divide the {n_heads} of q.")
    group = n_heads // n_kv_heads
    together = q.unflatten(1, (n_kv_heads, group)).flatten(2, 3)  # group * q_len queries a head
    scores = (together * k_dim**-0.5 @ k.mT).unflatten(2, (group, q_len))
    scores = scores.to(torch.promote_types(q.dtype, torch.float32))
    if mask is None:
        weights = scores.softmax(-1)
    else:
        rows = mask.shape[:1] in ((batch,), (1,))
        if not rows or mask.dtype != torch.bool or mask.shape[1:] != (1, q_len, kv_len):
            found, takes = f"{mask.dtype} {list(mask.shape)}", f"{batch} or 1, 1, {q_len}, {kv_len}"
            raise ValueError(f"mask is {found}; it must be torch.bool [{takes}].")
        hidden = ~mask[:, :, None]
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(hidden, 0)
    y = weights.to(v.dtype).flatten(2, 3) @ v
    return y.unflatten(2, (group, q_len)).flatten(1, 2)


# %%
q = torch.randn(2, 6, 5, 8, generator=generator)
k = torch.randn(2, 3, 7, 8, generator=generator)
v = torch.randn(2, 3, 7, 4, generator=generator)
mask = torch.ones(5, 7, dtype=torch.bool).tril(2)[None, None]
copies = [x.repeat_interleave(2, dim=1) for x in (k, v)]
expected = F.scaled_dot_product_attention(q, *copies, attn_mask=mask)
torch.testing.assert_close(grouped_attention(q, k, v, mask), expected)
wrong = F.scaled_dot_product_attention(q, k.repeat(1, 2, 1, 1), copies[1], attn_mask=mask)
assert (wrong - expected).abs().max() > 0.1
tuple(expected.shape)

# %% [markdown]
# What do the copies take? Let one query of SmolLM2's shape look back on 2,048 tokens in one layer, and
# watch the memory that comes and goes (lesson 4).

# %%
q = torch.randn(1, 9, 1, 64, generator=generator).to(device)
k, v = (torch.randn(1, 3, 2048, 64, generator=generator).to(device) for _ in range(2))
looked_at = k.shape[2]


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if (group := q.shape[1] // k.shape[1]) > 1:
        k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v)


def native(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


transient = {}
for way in (repeated, native, grouped_attention):
    with Watch(q, k, v) as watch:
        y = way(q, k, v)
    transient[way] = watch.peak - held_nbytes([q, k, v])
    torch.testing.assert_close(y, repeated(q, k, v))
print(f"the KV heads of the layer: {held_nbytes([k, v]):,} bytes")
print(f"beside them, with copies:  {transient[repeated]:,} bytes")
print(f"by hand, without copies:   {transient[grouped_attention]:,} bytes")

# %%
assert transient[repeated] >= 3 * held_nbytes([k, v]) == 9_437_184
assert transient[grouped_attention] < 0.1 * held_nbytes([k, v])
if device == "cpu":
    assert transient[native] < 0.01 * held_nbytes([k, v])

# %% [markdown]
# The copies are three times as large as what they are copies of, and each must be written and read
# again. On a CPU, PyTorch's own call with `enable_gqa=True` makes none here. It promises the result,
# though, not that nothing is copied. Watch it before you rely on it. Further down you will meet a case
# where it copies.

# %% [markdown]
# ### The bug: repeating before caching
#
# Copies that come and go are slow. Copies that are *kept* are worse. Here the heads are repeated one
# line too early, before they reach the cache. It takes a second mistake: the cache must be told the
# wrong number of heads, too.


# %%
class RepeatsTooEarly(Attention):
    """Attention that gives the cache every KV head three times. Do not copy this."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache=None) -> Tensor:
        heads = (-1, self.head_dim)
        q = rotate(self.q_proj(x).unflatten(-1, heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).unflatten(-1, heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).unflatten(-1, heads).transpose(1, 2)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        return self.o_proj(cache.attend(self.layer, q, k, v).transpose(1, 2).flatten(2))


smol, tokenizer = smollm2.load(device)
early = Decoder(config, attention=RepeatsTooEarly)
early.load_state_dict(smol.state_dict(), assign=True)
prompt = torch.tensor([tokenizer.encode("The capital of France is").ids], device=device)
right = PreallocatedCache(config, capacity=32, device=device)
wasteful = PreallocatedCache(replace(config, n_kv_heads=9), capacity=32, device=device)
texts = [generate(m, prompt, 12, c) for m, c in ((smol, right), (early, wasteful))]
print(tokenizer.decode(texts[0][0].tolist()))
print(f"heads cached as they are: {right.nbytes:9,} bytes for 32 tokens")
print(f"repeated, then cached:    {wasteful.nbytes:9,} bytes, the same text")

# %%
assert texts[0].equal(texts[1])
assert wasteful.nbytes == 3 * right.nbytes == 3 * 32 * 46_080
assert (held_nbytes(right) - 8, held_nbytes(wasteful) - 8) == (right.nbytes, wasteful.nbytes)
try:
    early(prompt, PreallocatedCache(config, device=device))
except ValueError as error:
    message = str(error)
print(message)
assert "[1, 9, 5, 64]" in message

# %% [markdown]
# Guess 2: the text is the same to the letter, and the memory is three times as large. All that GQA
# saves is gone, and no test of the output can tell. A test of the *shape* can: the cache has
# `n_kv_heads` heads, and lesson 2's cache refuses nine where it was made for three.

# %% [markdown]
# ### Taking heads away
#
# You have a trained model with 3 KV heads and want 1. A head's keys come from a piece of a matrix,
# `k_proj`, and its values from a piece of `v_proj`. So you can average the pieces. You can also go the
# other way and repeat pieces. That is exact: the model stays the same.


# %% tags=["export"]
def with_kv_heads(model: Decoder, n_kv_heads: int) -> Decoder:
    """The model with another number of KV heads, other weights shared, without gradients.

    Its kind of attention and its mode, training or not, stay as they are.

    Fewer: each new head is the mean of the heads that it replaces (Ainslie et al. 2023), another
    model. More: each head is repeated, the same model. Raises ValueError where n_kv_heads is
    neither a divisor nor a multiple of the heads there are, or does not divide n_heads, and for a
    model whose attention has no k_proj and v_proj.
    """
    old, width = model.config.n_kv_heads, model.config.head_dim
    attention = model.blocks[0].get_submodule("attention")
    is_int = type(n_kv_heads) is int and n_kv_heads >= 1
    if not is_int or (old % n_kv_heads and n_kv_heads % old):
        takes = f"it must divide {old} or be a multiple, as an int"
        raise ValueError(f"n_kv_heads is {n_kv_heads!r}; {takes}.")
    if not (hasattr(attention, "k_proj") and hasattr(attention, "v_proj")):
        raise ValueError(f"{type(attention).__name__} has no k_proj and v_proj to take heads from.")
    weights = dict(model.state_dict())
    for name, weight in weights.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            heads = weight.unflatten(0, (old, width))
            if n_kv_heads < old:
                heads = heads.unflatten(0, (n_kv_heads, -1)).mean(1)
            else:
                heads = heads.repeat_interleave(n_kv_heads // old, dim=0)
            weights[name] = heads.flatten(0, 1)
    with torch.device("meta"):
        changed = Decoder(replace(model.config, n_kv_heads=n_kv_heads), type(attention))
    changed.load_state_dict(weights, assign=True)
    return changed.requires_grad_(False).train(model.training)


# %%
more = with_kv_heads(smol, 9)
with torch.no_grad():
    difference = (more(prompt) - smol(prompt)).abs().max().item()
print(f"9 heads instead of 3, logits differ by less than 1e-3: {difference < 1e-3}")
assert difference < 1e-3

# %% [markdown]
# ### One row for all heads
#
# With one KV head, a token leaves a key and a value of 64 values each. What if it left a single row, but
# one wide enough to hold what many heads need? This is **multi-head latent attention** (MLA), of
# [DeepSeek-V2](https://arxiv.org/abs/2405.04434) and [V3](https://arxiv.org/abs/2412.19437). A token
# leaves one **latent** $c$ of 512 values. Each head $h$ has its own matrices, which make keys and values
# from it:
#
# $$k_h = U_h\, c, \qquad v_h = W_h\, c .$$
#
# At each step all keys of all heads would have to be computed again, for all tokens so far. But look at a
# score, and move the matrix to the other side:
#
# $$q_h \cdot (U_h\, c) = (U_h^{\mathsf T} q_h) \cdot c .$$
#
# Multiply the *query* by the matrix, once, and compare the result with the latents as they lie.
# Likewise the weighted mean of values is $W_h$ times the weighted mean of latents. The matrices are
# **absorbed**: keys and values never exist. What is left looks like MQA, since all query heads read one
# row.
#
# One thing resists, and that is RoPE. It would stand between the two, $q_h \cdot R\, (U_h\, c)$, with
# a turn $R$ that differs from token to token, so no one matrix can be moved. DeepSeek therefore cuts
# queries and keys in two. The **content** part has no position. A second part of 64 values is turned
# by RoPE, and its key is shared by all heads. So the row of a token is its latent and this one turned
# key: 512 + 64 = 576 values.
#
# The decoder of lesson 1 makes the angles for `head_dim`, so here `head_dim` is the width of the turned
# part. `k_dim` and `v_dim` tell the cache how wide rows are; in lesson 2 both were `head_dim`.


# %% tags=["export"]
@dataclass(frozen=True)
class LatentConfig(DecoderConfig):
    """A decoder that keeps one row per token and layer; head_dim is the part that RoPE turns.

    Raises ValueError for more than one KV head (all query heads read the same row), and for a
    width that is not an int of 1 or more.
    """

    latent_dim: int = 512  # values from which keys and values are computed; DeepSeek-V3's
    content_dim: int = 128  # width of a head's value, and of its key beside the turned part

    def __post_init__(self) -> None:
        for name in ("latent_dim", "content_dim"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be an int, 1 or more.")
        super().__post_init__()
        if self.n_kv_heads != 1:
            raise ValueError(f"n_kv_heads is {self.n_kv_heads}; with a latent it must be 1.")

    @property
    def k_dim(self) -> int:
        """Width of a cached row: the latent and the turned key."""
        return self.latent_dim + self.head_dim

    @property
    def v_dim(self) -> int:
        """Width of what is read as a value: the latent."""
        return self.latent_dim


# %% [markdown]
# Now the attention. `attend` is the absorbed form. A score is divided by the root of the query's
# width, and the absorbed query is wider than the real one, so it is scaled first.


# %% tags=["export"]
class LatentAttention(nn.Module):
    """Multi-head latent attention, absorbed: [batch, q_len, dim] -> same (DeepSeek-AI 2024).

    Without DeepSeek's low-rank queries and its stretched RoPE: neither touches the cache.
    """

    def __init__(self, config: LatentConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.latent_dim = layer, config.latent_dim
        self.parts = (config.content_dim, config.head_dim)  # of a query: content, turned
        self.q_proj = nn.Linear(config.dim, config.n_heads * sum(self.parts), bias=False)
        self.down_proj = nn.Linear(config.dim, config.k_dim, bias=False)
        self.latent_norm = RMSNorm(config.latent_dim, config.norm_eps)
        up = (config.n_heads, config.content_dim, config.latent_dim)
        self.k_up = nn.Parameter(torch.randn(up) / config.latent_dim**0.5)
        self.v_up = nn.Parameter(torch.randn(up) / config.latent_dim**0.5)
        self.o_proj = nn.Linear(config.n_heads * config.content_dim, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache=None) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (-1, sum(self.parts))).transpose(1, 2)
        content, turned = q.split(self.parts, dim=-1)  # [batch, n_heads, q_len, *]
        latent, key = self.down_proj(x)[:, None].tensor_split([self.latent_dim], dim=-1)
        row = torch.cat([self.latent_norm(latent), rotate(key, cos, sin)], dim=-1)
        y = self.attend(content, rotate(turned, cos, sin), row, cache)
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def attend(self, content: Tensor, turned: Tensor, row: Tensor, cache) -> Tensor:
        """content, turned [batch, n_heads, q_len, *], row [batch, 1, q_len, k_dim] -> content's."""
        q = torch.cat([content @ self.k_up, turned], dim=-1)
        q = q * (q.shape[-1] / sum(self.parts)) ** 0.5
        latent = row[..., : self.latent_dim]  # a view: what is read as a value
        if cache is None:
            y = grouped_attention(q, row, latent, first_pass_mask(row))
        else:
            y = cache.attend(self.layer, q, row, latent)
        return y @ self.v_up.mT


def first_pass_mask(row: Tensor) -> Tensor:
    """The causal mask where there is no past: [1, 1, n, n] for rows [batch, 1, n, k_dim]."""
    n = row.shape[2]
    return torch.ones(1, 1, n, n, dtype=torch.bool, device=row.device).tril()


# %% [markdown]
# The other form computes all keys and values, as the first pair of formulas says. It is good for
# comparing, and you will see that it has its use.


# %% tags=["export"]
class ExpandedLatentAttention(LatentAttention):
    """The same function with keys and values computed from every row held, at every pass."""

    def attend(self, content: Tensor, turned: Tensor, row: Tensor, cache) -> Tensor:
        q, latent = torch.cat([content, turned], dim=-1), row[..., : self.latent_dim]
        mask = None
        if cache is not None:
            row, latent = cache.update(self.layer, row, latent)
            mask = cache.mask(self.layer, q.shape[2])
        shared = row[..., self.latent_dim :].expand(-1, q.shape[1], -1, -1)
        k = torch.cat([latent @ self.k_up.mT, shared], dim=-1)
        v = latent @ self.v_up.mT
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=cache is None)


# %% [markdown]
# ### The cache for it
#
# A value is the first part of a key. So nothing needs to be stored twice: K is the row, and V is a
# view of it. The seam stays as it was. Only `attend` is replaced, because PyTorch's call can repeat the
# heads when K and V differ in width. *The price of a latent*, below, shows it.


# %% tags=["export"]
class LatentCache(KVCache):
    """Reserves one row of k_dim values per token and layer; V is a view of its first v_dim."""

    def __init__(
        self, config: LatentConfig, batch: int = 1, capacity: int | None = None, **options
    ):
        super().__init__(config, batch, capacity, **options)
        shape = (config.n_layers, batch, 1, self.capacity, self.k_dim)
        self.rows = torch.empty(shape, dtype=self.dtype, device=self.device)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for rows, whether tokens fill them or not."""
        return self.rows.untyped_storage().nbytes()

    @property
    def nbytes_used(self) -> int:
        """Bytes of the rows that live tokens fill, of every layer."""
        row = self.k_dim * self.dtype.itemsize
        return int(self.lengths.sum()) * self.config.n_layers * row

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(self, layer, k, v)
        if (v.data_ptr(), v.stride()) != (k.data_ptr(), k.stride()):
            raise ValueError(f"v is not a view of k; it must be k[..., :{self.v_dim}].")
        rows = self.rows[layer, :, :, : self.end + k.shape[2]]
        put(rows, k, self.lengths)
        return rows, rows[..., : self.v_dim]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        fits = q.ndim == 4 and (len(q), *q.shape[2:]) == (self.batch, *k.shape[2:3], self.k_dim)
        if not fits or q.shape[1] < 1 or (q.dtype, q.device) != (self.dtype, self.device):
            takes = f"{self.dtype} [{self.batch}, n_heads, q_len, {self.k_dim}] on {self.device}"
            found = f"{q.dtype} {list(q.shape)} on {q.device}"
            raise ValueError(f"q is {found}; it must be {takes}, q_len as in k.")  # before a write
        keys, values = self.update(layer, k, v)
        return grouped_attention(q, keys, values, self.mask(layer, q.shape[2]))


# %% [markdown]
# Are the two forms equal, and is the cache right? Feed two texts of unequal length in three passes, in
# float64, so that rounding cannot hide an error.

# %%
tiny = LatentConfig(97, 24, 2, 6, 1, 4, 40, 32, latent_dim=10, content_dim=6)
torch.manual_seed(0)
absorbed = Decoder(tiny, attention=LatentAttention).double().requires_grad_(False)
expanded = Decoder(tiny, attention=ExpandedLatentAttention).double().requires_grad_(False)
expanded.load_state_dict(absorbed.state_dict())
ids = torch.randint(97, (2, 12), generator=generator)
whole = expanded(ids)
torch.testing.assert_close(absorbed(ids), whole, atol=1e-10, rtol=0)

for tiny_model in (absorbed, expanded):
    cache = LatentCache(tiny, batch=2, dtype=torch.float64)
    tiny_model(ids[:, :7], cache, counts=torch.tensor([7, 4]))
    for _ in range(2):
        newest = ids.gather(1, cache.positions(1))
        logits = tiny_model(newest, cache)[:, 0]
        expected = whole[torch.arange(2), cache.lengths - 1]
        torch.testing.assert_close(logits, expected, atol=1e-10, rtol=0)
    form = type(tiny_model.blocks[0].attention).__name__
    print(f"{form}: equal to one pass, tokens held {cache.lengths.tolist()}")

# %% [markdown]
# Now the size of DeepSeek-V3: 61 layers, 128 heads. No weights are needed to make its cache and to
# fill it.

# %%
deepseek = LatentConfig(129_280, 7168, 61, 128, 1, 64, 18_432, 163_840)
spec = cache_spec(facts("deepseek-v3").config)
cache = LatentCache(deepseek, capacity=64, dtype=half(device), device=device)
fill(cache, 64, piece=16)
print(f"{deepseek.k_dim} values per layer, {cache.nbytes // 64:,} bytes per token")
twice = PreallocatedCache(deepseek, capacity=64, dtype=torch.bfloat16, device="meta")
print(f"with values stored again: {twice.nbytes // 64:,} bytes per token")
assert {layer.values_per_token for layer in spec.layers} == {deepseek.k_dim} == {576}
assert spec.bytes_per_token() == 61 * 576 * 2 == 70_272
assert spec.nbytes(64) == cache.nbytes == held_nbytes(cache) - 8 == 64 * 70_272
assert twice.nbytes == 64 * 132_736

# %% [markdown]
# 576 values per layer and 70,272 bytes per token, as lesson 3's accounting says, and as the memory
# holds. A cache that stores keys and values apart works with this attention, too, but takes 132,736.

# %% [markdown]
# ### More GPUs than heads
#
# Few heads have a limit of another kind. **Tensor parallelism** splits each layer over several GPUs, and
# gives each GPU some of the KV heads. With more GPUs than heads there is nothing left to divide, and
# heads are held more than once. A latent has no heads, so each GPU holds all of it.

# %%
llama = cache_spec(facts("llama-2-7b").config)
ways = {
    "32 KV heads": llama,
    "8 KV heads": what_if(llama, n_kv_heads=8),
    "1 KV head": what_if(llama, n_kv_heads=1),
    "a latent": with_latent(llama, 512, 64),
}
copies = {}
print("Llama 2 7B's shape, 4,096 tokens: MB on each GPU (copies held in all)")
for name, way in ways.items():
    sizes = {gpus: way.nbytes(4096, tensor_parallel=gpus) for gpus in (1, 2, 8, 16, 32)}
    copies[name] = {gpus: gpus * nbytes // sizes[1] for gpus, nbytes in sizes.items()}
    parts = [
        f"{gpus:2}: {nbytes / 1e6:7.1f} ({copies[name][gpus]})" for gpus, nbytes in sizes.items()
    ]
    print(f"{name:12}", "  ".join(parts))
assert set(copies["32 KV heads"].values()) == {1}
assert list(copies["8 KV heads"].values()) == [1, 1, 1, 2, 4]
assert copies["1 KV head"] == copies["a latent"] == {n: n for n in (1, 2, 8, 16, 32)}
by_heads = [way.nbytes(4096, tensor_parallel=32) for name, way in ways.items() if "KV" in name]
assert len(by_heads) == 3
assert len(set(by_heads)) == 1

# %% [markdown]
# With 8 KV heads, 16 GPUs hold everything twice. A single head, or a latent, is held by every GPU in
# full. So the more GPUs, the less is left of what few heads save. Spread over as many GPUs as there are
# query heads, 32, 8 and 1 heads take the same on each. A way out is to divide the users among the GPUs
# instead of the heads: then the cache of a user lies on one GPU alone.

# %% [markdown]
# ## Measure
#
# ### The clock
#
# Time attention alone: one new token, all 30 layers of a cache with 2,048 tokens. With copies and
# without, in turn; medians of 9, with the smallest and the largest.


# %%
def layers_ms(way, cache: PreallocatedCache, q: Tensor) -> float:
    """Milliseconds for one token's attention in every layer."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for k, v in zip(cache.k, cache.v, strict=True):
        y = way(q, k, v)
    y.cpu()
    return 1e3 * (time.perf_counter() - start)


times = {}
for n_kv_heads in (9, 3, 1):
    changed = replace(config, n_kv_heads=n_kv_heads)
    cache = PreallocatedCache(changed, capacity=2048, device=device)
    fill(cache, 2048, 512)
    layers_ms(repeated, cache, q), layers_ms(native, cache, q)  # warm up
    runs = [(layers_ms(repeated, cache, q), layers_ms(native, cache, q)) for _ in range(9)]
    times[n_kv_heads] = [list(column) for column in zip(*runs, strict=True)]
del cache

# %% tags=["nbval-ignore-output"]
print(f"ms for one token's attention in 30 layers, on {device}")
for n_kv_heads, columns in times.items():
    texts = [f"{statistics.median(c):6.1f} ({min(c):.1f} to {max(c):.1f})" for c in columns]
    print(f"KV heads: {n_kv_heads}, {texts[0]} repeated, {texts[1]} shared")

# %%
read = {n_kv_heads: 2 * n_kv_heads * 2048 * 64 * 4 for n_kv_heads in times}  # bytes a layer
for n_kv_heads, nbytes in read.items():
    copied = nbytes * 9 // n_kv_heads
    print(f"KV heads: {n_kv_heads}, a layer: {nbytes:9,} bytes, repeated {copied:,}")
    assert copied == 9_437_184
assert f"{(read[3] + 2 * copied) / copied:.1f}" == "2.3"  # read, written, read again
assert all(len(column) == 9 for columns in times.values() for column in columns)

# %% tags=["hide-input"] mystnb={"image": {"alt": "Milliseconds for one token's attention with 9, 3 and 1 KV heads, as two bars each: heads repeated first, and heads shared in place. The heights are the medians of the table above."}}
places = range(3)
for column, label, role in ((0, "repeated first", "evicted"), (1, "shared in place", "cache")):
    middle = [statistics.median(columns[column]) for columns in times.values()]
    shifted = [place + 0.4 * column - 0.2 for place in places]
    plt.bar(shifted, middle, 0.38, color=plotting.colour(role), label=label)
plt.xticks(places, [f"{n} KV heads" if n > 1 else "1 KV head" for n in times])
plt.ylabel("ms for one token's attention")
plt.title("Repeated first, 3 heads or 1 are as many bytes to read as 9")
plt.legend()
plt.show()

# %% [markdown]
# Compare the columns, and mind the ranges: where they overlap, the medians tell nothing. Shared in
# place, attention reads a third and then a ninth of the bytes, and that is where time can be saved.
# Repeated first, it reads 9,437,184 bytes a layer whatever the cache holds, and has to write all of
# that before. (With 9 heads there is nothing to repeat.) So hold the repeated times for 3 heads and
# for 1 against those for 9: a smaller cache alone is no promise of a faster step. By bytes alone 3
# heads would then take 2.3 times as long as 9; what you see beyond that was not measured apart.
#
# This is the time of one machine, and of attention alone. A step also reads all weights (lesson 6), so
# the whole step gains less, the more so the shorter the text.

# %% [markdown]
# ### Taking heads from a trained model
#
# Guess 3. Feed 512 tokens of text to SmolLM2 and to its copy with one mean head, through a cache
# each. The **loss** of a token is minus the logarithm of the probability that the model gave it, and
# perplexity is $e$ to the mean loss. The standard error says how far another text of this kind may
# differ.

# %%
text = torch.tensor([tokenizer.encode(devils_dictionary()).ids[:512]], device=device)
losses = {}
for n_kv_heads in (3, 1):
    changed = with_kv_heads(smol, n_kv_heads)
    cache = PreallocatedCache(changed.config, capacity=512, device=device)
    losses[n_kv_heads] = token_losses(changed, text, cache)
    found = change(losses[n_kv_heads], losses[3])
    perplexity = float(f"{found.perplexity:.2g}")  # two digits
    print(f"KV heads: {n_kv_heads}, {cache.nbytes / 1e6:4.1f} MB, perplexity {perplexity:,.0f}")
times_as_high, error = (float(f"{x:.1g}") for x in (1 + found.ratio, found.error))
print(f"about {times_as_high:.0f} times as high, standard error about {error:.0f}")
print(f"a guess among {config.vocab_size:,} equal tokens: perplexity {config.vocab_size:,}")

# %%
assert change(losses[3], losses[3]).perplexity < 50
assert 100 < found.ratio < 1000
assert found.ratio - 2 * found.error > 10
assert cache.nbytes == 512 * 15_360

# %% [markdown]
# Far worse than double, some hundred times as high: the model is destroyed. The three heads had
# learnt three different things, and a mean of them is none of the three. The 9 query heads ask for
# keys that no longer exist.
#
# So this term cannot be cut at serving. It can be cut by training *further*: Ainslie et al. (2023) pool
# the heads just so, then train on with 5 % of the original compute. With GQA they come close to the
# quality of MHA at a speed close to that of MQA. They call it **uptraining**. The mean is a good place
# to start from, not a place to stop. This cell has no such training, and it is one small model and one
# text.

# %% [markdown]
# ### Training with fewer heads
#
# What does it cost if a model never had more? Train a small decoder on the book that comes with these
# lessons, letter by letter: 4 query heads, and 4, 2 or 1 KV heads. Fewer KV heads also mean smaller
# matrices, so fewer weights. Therefore a fourth kind has one KV head and a feed-forward network 160
# wide instead of 128, which makes exactly as many weights as 4 KV heads have. Train three of each, from
# three seeds. A seed draws the same pieces of text in the same order for all kinds, and different
# weights to start from. Losses are in **nats**, the unit of natural logarithms.

# %%
letters = sorted(set(devils_dictionary()))
numbers = torch.tensor([letters.index(letter) for letter in devils_dictionary()])
training, held_out = numbers.split([60_000, len(numbers) - 60_000])
pieces = len(held_out) // 65  # of 64 letters and the one that follows
windows = held_out[: pieces * 65].view(pieces, 65)
small = DecoderConfig(len(letters), 64, 2, 4, 4, 16, 128, 64)
STEPS, SEEDS, RATE = 200, 3, 6e-3


def train(n_kv_heads: int, ffn_dim: int, seed: int) -> float:
    """Mean loss on the held-out text, in nats per letter, after STEPS steps."""
    torch.manual_seed(seed)
    learner = Decoder(replace(small, n_kv_heads=n_kv_heads, ffn_dim=ffn_dim)).to(device)
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=RATE, weight_decay=0.01)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / 20) * (1 - step / STEPS)
        starts = torch.randint(len(training) - 65, (8, 1), generator=draws)
        batch = training[starts + torch.arange(65)].to(device)
        loss = F.cross_entropy(learner(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(token_losses(learner, windows.to(device)).mean())


# %%
kinds = {"MHA": (4, 128), "GQA": (2, 128), "MQA": (1, 128), "MQA, wider": (1, 160)}
trained = {name: [train(*kind, seed) for seed in range(SEEDS)] for name, kind in kinds.items()}
series = [
    {
        "n_kv_heads": kinds[name][0],
        "loss": round(statistics.mean(trained[name]), 4),
        "spread": round(statistics.stdev(trained[name]), 4),
        "seeds": SEEDS,
    }
    for name in ("MHA", "GQA", "MQA")
]

# %% tags=["nbval-ignore-output"]
print(f"held-out loss in nats per letter after {STEPS} steps, {SEEDS} seeds")
for name, found in trained.items():
    middle, spread = statistics.mean(found), statistics.stdev(found)
    each = ", ".join(f"{loss:.3f}" for loss in found)
    print(f"{name:10} {middle:.3f}, spread {spread:.3f} ({each})")
print("against MHA, seed by seed")
for name, found in list(trained.items())[1:]:
    paired = [less - more for less, more in zip(found, trained["MHA"], strict=True)]
    against, error = statistics.mean(paired), statistics.stdev(paired) / SEEDS**0.5
    print(f"{name:10} {against:+.3f}, standard error {error:.3f}")

# %%
sizes = {}
for name, (n_kv_heads, ffn_dim) in kinds.items():
    learner = Decoder(replace(small, n_kv_heads=n_kv_heads, ffn_dim=ffn_dim))
    sizes[name] = sum(weight.numel() for weight in learner.parameters())
    per_token = token_nbytes(2, n_kv_heads, 16, 4)
    print(f"{name:10} {sizes[name]:,} weights, {per_token:5,} bytes per token")
frequency = torch.bincount(training, minlength=len(letters)) / len(training)
blind = float(-frequency[held_out].clamp(min=1e-6).log().mean())
print(f"a guess from the letters' frequencies alone: {blind:.2f} nats")
means = [statistics.mean(found) for found in trained.values()]
margin = 0.3
assert all(loss < blind - margin for found in trained.values() for loss in found)
assert max(means) - min(means) < 0.5 * (blind - max(means))
assert sizes["MQA, wider"] == sizes["MHA"] == 87_168
assert sizes["MHA"] - sizes["MQA"] == 12_288

# %%
counts = torch.ones(len(letters), len(letters))  # how often a letter follows another, plus one
counts.index_put_((training[:-1], training[1:]), torch.tensor(1.0), accumulate=True)
pairs = float(-(counts / counts.sum(1, keepdim=True))[held_out[:-1], held_out[1:]].log().mean())
print(f"a table of letter pairs, without any attention: {pairs:.2f} nats")
assert blind - margin > pairs
assert all(abs(pairs - mean) < margin for mean in means)

# %% tags=["hide-input"] mystnb={"image": {"alt": "Held-out loss for four kinds, MHA, GQA, MQA and MQA with a wider feed-forward network. Three dots each, for three seeds, and a bar for their mean. All of them lie far below a dashed line, the loss of a guess from the letters' frequencies, and near a second one, the loss of a table of letter pairs."}}
for place, found in enumerate(trained.values()):
    plt.plot([place] * SEEDS, found, "o", color=plotting.colour("cache"))
    plt.plot([place - 0.15, place + 0.15], [means[place]] * 2, color=plotting.colour("text"))
plt.axhline(blind, linestyle="--", color=plotting.colour("muted"))
plt.axhline(pairs, linestyle=":", color=plotting.colour("muted"))
for name, y in (("frequencies alone", blind), ("letter pairs", pairs)):
    plt.annotate(name, (2.5, y), (0, 4), textcoords="offset points", ha="center")
names = [f"{name}\n{token_nbytes(2, n, 16, 4):,} bytes a token" for name, (n, _) in kinds.items()]
plt.xticks(range(4), names)
plt.xlim(-0.5, 3.5)
plt.ylabel("held-out loss, nats per letter")
plt.title("So far these models know little more than pairs of letters")
plt.show()

# %% [markdown]
# Read the table in this order. First the **spread**: so much the loss changes if nothing changes but
# the seed. Then the differences against MHA, seed by seed, and their standard errors. With three
# seeds a difference of less than about four standard errors may be chance, and this experiment cannot
# tell. Where one KV head does look worse, compare it with the wider kind: so much the extra weights
# make good. They might help MHA as much.
#
# What the experiment does give, on any machine, is a bound. Each model lies at least 0.3 nats below
# one that only knows how frequent the letters are. The means of all kinds differ by less than half
# of what the worst of them gains on it. It is a bound, not a size: for that read your table.
#
# And look at the dotted line. A table that only counts which letter follows which, without any
# attention, is about as good. After so short a training these models have hardly begun to use
# their heads. So this run shows how such a comparison is made. It does **not** show what KV heads are
# worth. For that they would have to be trained until attention matters, which takes longer than a lesson.
#
# Nor does it show how large models behave. These have 87,168 weights or up to 12,288 fewer, and
# trained for seconds. At scale, Ainslie et al. (2023) and the authors of Llama 2 ([Touvron et al.
# 2023](https://arxiv.org/abs/2307.09288), appendix) report that MQA loses some quality, and that GQA
# with 8 KV heads stays close to MHA.

# %% [markdown]
# ### The latent in memory
#
# Lesson 4 filled caches in fresh processes and held what the process took against the prediction.
# This cache joins: SmolLM2's 30 layers, each with a row as wide as DeepSeek-V3's, in float16.

# %%
job = {"what": "grid", "model": "smollm2-135m", "kind": "latent", "dtype": "float16"}
[(_, weighed)] = results([{**job, "context": 2048, "batch": 1, "device": device}])
beside = weighed["held"] - weighed["predicted"]
print(f"predicted {weighed['predicted']:,} bytes, held {beside} more")
assert weighed["predicted"] == 2048 * 30 * 576 * 2
assert beside == 8
taken, bound = ("requested", 0.01) if device == "cuda" else ("resident", 0.05)
assert abs(weighed[taken] / weighed["predicted"] - 1) < bound

# %% [markdown]
# What is held beside the rows is `lengths`, and the process took what was predicted, within the
# bounds of lesson 4.
#
# ### The price of a latent
#
# Guess 4: no, the absorbed form never computes the keys and values. It multiplies each new query by $U_h$
# and each mean of latents by $W_h$. Which form is cheaper? Count the operations of one layer. Both
# have a part for each query and each token that it looks at. The matrices come on top: absorbed once
# for each *query*, expanded once for each *token held*, in every pass.

# %%
n_heads, content = deepseek.n_heads, deepseek.content_dim
turned, latent = deepseek.head_dim, deepseek.latent_dim
decode_held, prompt_len = 1024, 4096  # tokens
pair = {
    "absorbed": 2 * n_heads * (latent + turned + latent),
    "expanded": 2 * n_heads * (content + turned + content),
}
matrices = 2 * n_heads * (content + content) * latent


def times_the_work(queries: int, held: int) -> float:
    """Operations of the expanded form over the absorbed one's; the queries are the last of held."""
    pairs = queries * held - queries * (queries - 1) // 2  # each looks at itself and before
    expanded = held * matrices + pairs * pair["expanded"]
    return expanded / (queries * matrices + pairs * pair["absorbed"])


# %%
print(f"per query and token: absorbed {pair['absorbed']:,}, expanded {pair['expanded']:,}")
print(f"the matrices, per query or per token held: {matrices:,}")
passes = ((1, 1), (1, 64), (1, decode_held), (1, 131_072), (prompt_len, prompt_len))
for queries, held in passes:
    ratio = times_the_work(queries, held)
    print(f"{queries:5,} queries, {held:7,} tokens: expanded takes {ratio:6.2f} times the work")
assert (pair["absorbed"], pair["expanded"], matrices) == (278_528, 81_920, 33_554_432)
assert f"{pair['absorbed'] / pair['expanded']:.1f}" == "3.4"
assert [f"{times_the_work(1, n):.0f}" for n in (64, 1024, 131_072)] == ["42", "108", "121"]
assert f"{times_the_work(1, 1):.2f} {times_the_work(4096, 4096):.2f}" == "0.99 0.33"
assert times_the_work(1, 10**9) < (matrices + pair["expanded"]) / pair["absorbed"] < 120.8

# %% [markdown]
# In a decode step with 1,024 tokens held the expanded form does 108 times the work, and with more
# tokens it comes near 121, its limit. With a single token the two are alike, because the absorbed
# form then pays as much for its matrices. In a prefill of 4,096 tokens it is the other way round: the
# expanded form does a third of the work. There both use the matrices as often, and each product with
# keys and values is 3.4 times smaller. Weights and cache are the same, so you can have both: expanded
# for the prompt, absorbed for decoding.
#
# Time a decode step both ways: one layer with 16 heads of DeepSeek's widths, 1,024 tokens held.

# %%
layer = replace(deepseek, dim=256, n_layers=1, n_heads=16)
torch.manual_seed(0)
forms = {name: form(layer, 0) for name, form in
         (("absorbed", LatentAttention), ("expanded", ExpandedLatentAttention))}  # fmt: skip
forms["expanded"].load_state_dict(forms["absorbed"].state_dict())
cache = LatentCache(layer, capacity=1025, device=device)
fill(cache, 1024, 1024)
x = torch.randn(1, 1, 256, generator=generator).to(device)
angles = [part.to(device) for part in rope_angles(torch.tensor([[1024]]), 64, 1e4)]
steps, outputs = {name: [] for name in forms}, {}
for _ in range(6):
    for name, form in forms.items():
        start = time.perf_counter()
        with torch.no_grad():
            outputs[name] = form.to(device)(x, *angles, cache).cpu()
        steps[name].append(1e3 * (time.perf_counter() - start))

# %% tags=["nbval-ignore-output"]
for name, runs in steps.items():
    middle, low, high = (pick(runs[1:]) for pick in (statistics.median, min, max))
    print(f"{name}: {middle:7.2f} ms ({low:.2f} to {high:.2f})")

# %%
torch.testing.assert_close(outputs["absorbed"], outputs["expanded"], atol=1e-4, rtol=1e-3)
q = torch.randn(1, 16, 1, 576, generator=generator).to(device)
k = cache.rows[0, :, :, :1024]
with Watch(q, cache) as watch:
    grouped_attention(q, k, k[..., :512])
ours = watch.peak - held_nbytes([q, cache])
with Watch(q, cache) as watch:
    F.scaled_dot_product_attention(q, k, k[..., :512], enable_gqa=True)
theirs = watch.peak - held_nbytes([q, cache])
print(f"a layer of the cache: {held_nbytes(k):,} bytes; beside it for a moment:")
print(f"{ours:,} bytes by hand, {theirs:,} bytes by PyTorch's call")
assert ours < 0.2 * held_nbytes(k)
if device == "cpu":
    assert theirs > 16 * held_nbytes(k)

# %% [markdown]
# The last line is the case that was announced. Where values are narrower than keys, on a CPU, PyTorch's
# call repeats the row for all 16 heads, and needs more than 16 times the layer's cache for a moment.
# Lesson 2's default makes that call for every pass with a mask: right, and wasteful here. So
# `LatentCache` attends by itself.

# %% [markdown]
# ## Explore
#
# Take heads away from a real model, or give it a latent, and see what a token costs and how many
# users fit. The measured losses are those of the small decoders above, not of the model that you
# choose.

# %%
assert [entry["n_kv_heads"] for entry in series] == [4, 2, 1]
HeadsExplorer(series=series)

# %% [markdown]
# At how many KV heads does the model need as many bytes as with the latent? And which of the two
# gives each query head keys of its own?
#
# <details>
# <summary>Answer</summary>
#
# For Llama 2 7B, at none that divides its 32 query heads. The latent of 512 + 64 values takes what 2.25 heads
# would take: a little more than two, the figure that DeepSeek-V2's paper states. And the latent gives each
# query head keys of its own, made from the one row by a matrix of its own. With two KV heads 16 query heads
# read the same keys.
#
# ```python
# from kvbook.accounting import cache_spec, what_if
# from kvbook.accounting.facts import model
# from kvbook.accounting.latent import with_latent
#
# llama = cache_spec(model("llama-2-7b").config)
# latent = with_latent(llama, 512, 64).bytes_per_token("float16")
# two, four = (what_if(llama, n_kv_heads=n).bytes_per_token("float16") for n in (2, 4))
# assert (two, latent, four) == (32_768, 36_864, 65_536)
# assert latent / (two / 2) == 2.25
# ```
#
# </details>
#
# If you run this notebook yourself, choose the KV heads and let SmolLM2 write. With 9, heads are
# repeated; with 1 they are pooled. That takes a *kernel*, so the published page shows nothing here.

# %%
wrote = {}


def write(n_kv_heads: int) -> None:
    changed = with_kv_heads(smol, n_kv_heads)
    cache = PreallocatedCache(changed.config, capacity=32, device=device)
    ids = generate(changed, prompt, 12, cache)
    wrote.update(heads=n_kv_heads, nbytes=cache.nbytes, ids=ids[0].tolist())
    print(f"KV heads: {n_kv_heads}, {cache.nbytes:,} bytes for 32 tokens")
    print(tokenizer.decode(ids[0].tolist()))


# %% tags=["remove-output", "nbval-ignore-output"]
heads_slider = ipywidgets.SelectionSlider(
    options=[9, 3, 1], value=3, description="KV heads", continuous_update=False
)
shown = ipywidgets.interactive_output(write, {"n_kv_heads": heads_slider})
ipywidgets.VBox([heads_slider, shown])

# %%
assert (wrote["heads"], wrote["nbytes"]) == (3, 32 * 46_080)
as_published = wrote["ids"]

# %% tags=["remove-cell", "nbval-ignore-output"]
heads_slider.value = 9
nine = dict(wrote)
heads_slider.value = 1
one = dict(wrote)
heads_slider.value = 3

# %% tags=["remove-cell"]
assert (nine["nbytes"], one["nbytes"]) == (32 * 138_240, 32 * 15_360)
assert nine["ids"] == as_published != one["ids"]

# %% [markdown]
# Nine heads write what three write, for three times the memory. One head writes nonsense, for a third.

# %% [markdown]
# ## Check yourself
#
# **1. A test that cannot fail.** A grouped attention uses `repeat`. It is tested with 8 query heads and
# one KV head, and with 8 and 8. Which shape would show the bug?
#
# <details>
# <summary>Answer</summary>
#
# Any with more than one KV head and more than one query head in a group. At both ends the two
# functions agree.
#
# ```python
# import torch
#
# def agree(n_heads: int, n_kv_heads: int) -> bool:
#     heads, group = torch.arange(n_kv_heads), n_heads // n_kv_heads
#     return heads.repeat(group).equal(heads.repeat_interleave(group))
#
# assert agree(8, 1) and agree(8, 8)
# assert not agree(8, 2) and not agree(8, 4)
# ```
#
# </details>
#
# **2. A latent for SmolLM2?** How much smaller would its cache be with DeepSeek-V3's row in each layer?
#
# <details>
# <summary>Answer</summary>
#
# It would be larger. Its 3 KV heads leave 384 values in a layer, key and value; the row is half as
# large again. A latent pays where it stands for many heads.
#
# ```python
# from kvbook.lessons.cost import token_nbytes
#
# assert 30 * 576 * 2 == 1.5 * token_nbytes(30, 3, 64, 2)
# assert 30 * 384 * 2 == token_nbytes(30, 3, 64, 2)
# ```
#
# </details>
#
# **3. Absorb RoPE?** Someone drops the separate turned part, applies RoPE to the whole key $U_h c$,
# and still compares queries with latents. Why is there no fixed matrix for that?
#
# <details>
# <summary>Answer</summary>
#
# The score would be $q^{\mathsf T} R_{n-m}\, U_h\, c$, with a turn that depends on the distance. The
# product $R_{n-m}\, U_h$ is another matrix for each distance, so the query would have to be
# multiplied anew for every token it looks at.
#
# ```python
# import torch
# from kvbook.lessons.decoder import rope_angles, rotate
#
# torch.manual_seed(0)
# up, q, c = torch.randn(4, 3), torch.randn(4), torch.randn(3)
#
# def turn(x, position):
#     return rotate(x[None, None, None], *rope_angles(torch.tensor([[position]]), 4, 1e4))[0, 0, 0]
#
# absorbed = {n: turn(q, n) @ up for n in (0, 1, 5)}  # the query, absorbed, at three distances
# for n, vector in absorbed.items():
#     assert torch.allclose(vector @ c, turn(q, n) @ (up @ c), atol=1e-5)
# assert not torch.allclose(absorbed[0], absorbed[1]) and not torch.allclose(absorbed[1], absorbed[5])
# ```
#
# </details>
#
# **4. Sixteen GPUs.** A model with 8 KV heads runs on 16 GPUs by tensor parallelism. How many more
# users fit than on 8 GPUs, if all that matters is the cache?
#
# <details>
# <summary>Answer</summary>
#
# None. Each GPU holds one of the 8 heads in both cases; the second eight hold the same heads again.
#
# ```python
# from kvbook.accounting import cache_spec
# from kvbook.accounting.facts import model
#
# spec = cache_spec(model("llama-3.1-8b").config)
# assert spec.nbytes(4096, tensor_parallel=16) == spec.nbytes(4096, tensor_parallel=8)
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: 15,360 bytes; nothing, and three times as much; far worse than double;
# no, each new query is multiplied instead, and the mean that it finds.
#
# The ledger goes on, for Llama 2 7B's shape on 80 GB, with the weights as published:

# %%
GB = 10**9
card = 80 * GB
costs = {name: (way.bytes_per_token(), way.nbytes(4096)) for name, way in ways.items()}
weights = 2 * facts("llama-2-7b").parameters
for name, (per_token, nbytes) in costs.items():
    users = fit_users(nbytes, card, weights)
    print(f"{name:12} {per_token:8,} bytes per token {users:5,} users with 4,096 tokens")
users = [fit_users(nbytes, card, weights) for _, nbytes in costs.values()]
assert users == [30, 123, 991, 440]
assert [per_token for per_token, _ in costs.values()] == [524_288, 131_072, 16_384, 36_864]

# %% [markdown]
# | Cache | Bytes per token | Users with 4,096 tokens | When it is chosen |
# |---|---|---|---|
# | as published, 32 KV heads | 524,288 | 30 | before training |
# | 8 KV heads (GQA) | 131,072 | 123 | before training, or by uptraining |
# | 1 KV head (MQA) | 16,384 | 991 | before training, or by uptraining |
# | a latent of 512 + 64 (MLA) | 36,864 | 440 | before training |
#
# These are users by arithmetic, not a promise of quality: nobody has trained this model with one head
# or with a latent. The whole ledger so far:

# %%
ledger.show(7)

# %% [markdown]
# ## Next
#
# You cannot choose the heads of a model that you are given. You can choose in how many bits its cache
# is stored. [Lesson 8](08_quantized.ipynb) takes the last term of the formula apart: fewer bits.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. A cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
in_gpu = {name: way.layers[0].n_kv_heads for name, way in ways.items()}
n_query = facts("llama-2-7b").config["num_attention_heads"]
check(
    {
        "93 MB": smollm2.ARCHIVE.wheel_nbytes / 1e6,
        "9 query heads": config.n_heads,
        "3 KV heads": config.n_kv_heads,
        "46,080 bytes": smol_nbytes[3],
        "3 times": config.n_heads / config.n_kv_heads,
        "576 values": deepseek.k_dim,
        "128 heads": deepseek.n_heads,
        "9 heads": max(smol_nbytes),
        "15,360 bytes": smol_nbytes[1],
        "2,048 tokens": looked_at,
        "64 values": config.head_dim,
        "512 values": deepseek.latent_dim,
        "61 layers": deepseek.n_layers,
        "70,272 bytes": spec.bytes_per_token(),
        "8 KV heads": in_gpu["8 KV heads"],
        "32 heads": in_gpu["32 KV heads"],
        "8 heads": in_gpu["8 KV heads"],
        "1 heads": in_gpu["1 KV head"],
        "30 layers": config.n_layers,
        "9,437,184 bytes": copied,
        "2.3 times": (read[3] + 2 * copied) / copied,
        "3 heads": config.n_kv_heads,
        "512 tokens": text.shape[1],
        "5 %": From("Ainslie et al. 2023"),
        "4 query heads": small.n_heads,
        "4 KV heads": kinds["MHA"][0],
        "2 KV heads": kinds["GQA"][0],
        "1 KV heads": kinds["MQA"][0],
        "0.3 nats": margin,
        "87,168 weights": sizes["MHA"],
        "1,024 tokens": decode_held,
        "108 times": times_the_work(1, decode_held),
        "4,096 tokens": prompt_len,
        "3.4 times": pair["absorbed"] / pair["expanded"],
        "16 heads": layer.n_heads,
        "16 times": layer.n_heads,
        "32 query heads": n_query,
        "2.25 heads": ways["a latent"].bytes_per_token() / ways["1 KV head"].bytes_per_token(),
        "16 query heads": n_query / 2,
    }
)

# %% tags=["hide-input"]
check(
    {
        "8 query heads": From("exercise 1"),
        "384 values": smol_nbytes[3] / config.n_layers / torch.float32.itemsize,
        "80 GB": card / GB,
        "32 KV heads": in_gpu["32 KV heads"],
        "1 KV head": in_gpu["1 KV head"],
    }
)
