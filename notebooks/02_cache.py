# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 2 — Reuse the past
#
# **The question.** The decoder of lesson 1 processes the whole text again for every token that it
# writes. Which of its results may be kept, and what does keeping them really save?
#
# The answer is the **KV cache** ([Pope et al. 2022](https://arxiv.org/abs/2211.05102)): keep
# the keys and values of every token, and feed only the newest one. This lesson first checks that this is
# safe. Then it builds two caches, counts the tokens they save from being processed again, and looks at
# the clock. The count and the clock will not agree, and the reason matters for the rest of the book.

# %% [markdown]
# ## What you need
#
# [Lesson 1](01_decoder.ipynb): its decoder, the causal mask, RoPE, and the `cache` argument that was
# always `None`. You need no GPU. The lesson runs in about a minute on two CPU cores.

# %% [markdown]
# ## Predict
#
# Write down four guesses.
#
# 1. You append one token to a text. In which of the 30 layers do the keys and values of the earlier
#    tokens change? And if there were no causal mask?
# 2. A prompt of 5 tokens, 64 new ones. Without a cache, how many tokens does each layer process in
#    all, counting a token again each time it is processed? With one?
# 3. By which factor does a cache shorten the time of one step, when 16 tokens are there already? And
#    when 768 are?
# 4. How many bytes does the cache of SmolLM2-135M hold per token, in float32?

# %% tags=["export"]
import torch
import torch.nn.functional as F
from torch import Tensor

from kvbook.lessons.decoder import DecoderConfig

# %%
import statistics
import time
from dataclasses import replace

import ipywidgets
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, StrMethodFormatter

from kvbook import ledger, plotting
from kvbook.explorer.stepper import TokenStepper
from kvbook.lessons.decoder import Decoder, generate
from kvbook.models import smollm2
from kvbook.prose import check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
model, tokenizer = smollm2.load(device)
config = model.config
n_layers = config.n_layers

# %% [markdown]
# ## Build
#
# ### Is it safe?
#
# To reuse a key, you must know that it would come out the same again. So record the keys and values
# of every layer, once for a text and once for the same text with one token more. (The text is `story`,
# which transformers 5.24.0 wrote with the same weights.) The recorder below stands where a cache would:
# the decoder calls `positions`, `attend` and `advance` on whatever it is given as `cache`. (This place,
# where decoder and cache meet, is the book's **seam**.) The recorder writes down the keys and values it
# sees but never hands back old ones, and it can take the causal mask away.


# %%
class Recorder:
    """Keeps the keys and values of one pass, with the causal mask or without."""

    lengths = torch.zeros(1, dtype=torch.long)

    def __init__(self, causal: bool) -> None:
        self.causal = causal
        self.rows: list[tuple[Tensor, Tensor]] = []  # per layer: K and V

    def positions(self, q_len: int) -> Tensor:
        return torch.arange(q_len, device=device)[None]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.rows.append((k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=True)

    def advance(self, counts: Tensor) -> None:
        pass


reference = smollm2.reference()["greedy"]
story = torch.tensor([reference["ids"]], device=device)  # 5 tokens of prompt, 64 that followed
prompt, written = story[:, :5], story.shape[1] - 5
assert written == 64


# %%
def change_by_layer(causal: bool, n: int = 20) -> Tensor:
    """Append token n + 1: the largest change in the K and V rows of the first n, per layer."""
    shorter, longer = Recorder(causal), Recorder(causal)
    with torch.no_grad():
        model(story[:, :n], shorter)
        model(story[:, : n + 1], longer)
    return torch.tensor(
        [
            max((old - new[:, :, :n]).abs().max() for old, new in zip(before, after, strict=True))
            for before, after in zip(shorter.rows, longer.rows, strict=True)
        ]
    )


with_mask, without_mask = change_by_layer(causal=True), change_by_layer(causal=False)
for label, change in (("with", with_mask), ("without", without_mask)):
    print(f"{label:7} the mask: {int((change > 0.01).sum()):2} of {n_layers} layers change")
assert with_mask.max() < 1e-3
assert without_mask[0] < 1e-3
assert (without_mask[1:] > 0.01).all()

# %% [markdown]
# With the mask, nothing moves in any layer, apart from rounding. Without it, 29 of 30 layers change.
# Only the first does not: its keys and values come from the embeddings, before any attention has
# mixed tokens. That was guess 1.
#
# So the causal mask is more than a rule for training. A token's keys and values depend on
# that token and the ones before it, and those do not change any more. What cannot change may be kept.
#
# Keys and values are also enough. A query is used once, for the output of its own token. Nobody asks
# for it again. What later tokens want from an old one, in every layer, is its key and its value.

# %% [markdown]
# ### What a cache must do
#
# Some words first. A batch holds several **sequences**, one for each user. For each token of a
# sequence, a layer makes a key and a value in every KV head. Together they are the token's **rows**. A
# **slot** is the place in the cache where the rows of one token lie, and the **capacity** is the
# number of slots for each sequence. The first pass, over the prompt, is the **prefill**; each later
# pass, over one new token, is a **decode step**.
#
# In one forward pass the decoder and the cache talk like this:
#
# 1. The decoder asks once: **where do the next tokens stand?** `positions`. The cache knows, because
#    it counted. Nobody else keeps a count, so no two counts can disagree.
# 2. In each layer, attention hands over its queries, keys and values: **what does attention give?**
#    `attend`. Inside, the cache calls two methods of its own. `update` stores the new rows and
#    returns all that are held. `mask` says what each query may see. A later cache may do this
#    another way; attention does not learn which cache it has.
# 3. When the pass is done the decoder says once: **so many tokens have passed.** `advance`. Only now
#    does the count move, so all layers of a pass see the same positions, and a pass that breaks off
#    leaves nothing behind that counts.
#
# Two more answers are for you, not for the decoder: `nbytes`, the memory held, and `nbytes_used`, the
# part of it that is filled with tokens.
#
# Sequences in a batch may differ in length. Sequence $i$ holds `lengths[i]` tokens, and the token at
# position $p$ always lies in slot $p$:
#
# ```text
# slot                      0   1   2   3   4   5     capacity 6
# sequence 0, length 4    [row row row row  .   . ]   its next token goes to slot 4
# sequence 1, length 2    [row row  .   .   .   . ]   its next token goes to slot 2
# ```
#
# So the mask is one comparison: a query at position $p$ sees slot $j$ if $j \le p$.


# %% tags=["export"]
def causal_mask(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Who sees whom: [batch, q_len] and [batch or 1, kv_len] -> bool [batch, 1, q_len, kv_len].

    A query sees the keys at its own position and before; position -1 marks an empty slot (none of
    this lesson's caches has one).
    """
    q, k = q_positions[:, None, :, None], k_positions[:, None, None, :]
    return (k <= q) & (k >= 0)


# %%
causal_mask(torch.tensor([[3, 4]]), torch.arange(6)[None])[0, 0].int()

# %% [markdown]
# Two new tokens at positions 3 and 4, and six slots: each sees all earlier ones and itself.

# %% [markdown]
# ### What all caches share
#
# First, the counting. `lengths` says how many tokens each sequence holds, and everything about
# position follows from it. It lies on the CPU: a GPU works behind the program's back, and to read one
# number from it the program must wait until it has caught up.


# %% tags=["export"]
class TokenCount:
    """How many tokens each sequence holds: the one owner of position.

    `lengths` [batch] lies on the CPU: it is book-keeping, for which no step should wait for a GPU.
    """

    def __init__(self, batch: int, capacity: int) -> None:
        if not (type(batch) is type(capacity) is int and batch >= 1 and capacity >= 1):
            raise ValueError(
                f"batch is {batch} and capacity {capacity}; both must be an int, 1 or more."
            )
        self.batch, self.capacity = batch, capacity
        self.lengths = torch.zeros(batch, dtype=torch.long, device="cpu")

    @property
    def end(self) -> int:
        """The length of the longest sequence."""
        return int(self.lengths.max())

    @property
    def is_level(self) -> bool:
        """Whether all sequences have the same length."""
        return int(self.lengths.min()) == self.end

    def positions(self, q_len: int) -> Tensor:
        """Where the next q_len tokens stand: [batch, q_len]."""
        return self.lengths[:, None] + torch.arange(q_len, device="cpu")

    def advance(self, counts: int | Tensor) -> None:
        """Count the tokens of a pass as held; the decoder calls it once, when the pass is done."""
        counts = torch.as_tensor(counts, device="cpu")
        is_int = counts.dtype == torch.long and counts.shape in ((), (self.batch,))
        if not is_int or counts.min() < 0 or (counts > self.capacity - self.lengths).any():
            raise ValueError(
                f"counts is {counts.tolist()}; it must be an int or int64 [{self.batch}], "
                f"0 or more, and fit capacity {self.capacity} "
                f"beside the {self.lengths.tolist()} tokens held."
            )
        self.lengths = self.lengths + counts

    def reset(self) -> None:
        """Forget every token."""
        self.lengths = torch.zeros_like(self.lengths)


# %% [markdown]
# Second, attending. In a decode step every query head has one query. The queries of the heads that share
# a KV head are laid one below the other, as if one head had several. So each key is read once for all.


# %% tags=["export"]
def attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """q [batch, n_heads, q_len, k_dim] over kv_len rows -> [batch, n_heads, q_len, v_dim]."""
    if mask is None and q.shape[2] == 1:
        rows = q.reshape(len(q), keys.shape[1], -1, q.shape[3])
        return F.scaled_dot_product_attention(rows, keys, values).reshape(*q.shape[:3], -1)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)


# %% [markdown]
# A kind of cache has to say how it stores rows (`update`) and what that takes (`nbytes`); the rest is here.


# %% tags=["export"]
class KVCache(TokenCount):
    """What attention asks of a cache. A kind of cache adds `update`, `nbytes` and maybe `reset`.

    A cache is for inference: rows are stored without their autograd history.
    """

    def __init__(
        self,
        config: DecoderConfig,
        batch: int = 1,
        capacity: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(batch, config.max_seq_len if capacity is None else capacity)
        self.config, self.dtype = config, dtype
        self.k_dim = getattr(config, "k_dim", config.head_dim)  # other widths come in lesson 7
        self.v_dim = getattr(config, "v_dim", config.head_dim)
        self.device = torch.empty(0, device=device).device  # "cuda" means one GPU: say which

    @property
    def nbytes_used(self) -> int:
        """Bytes of the rows that live tokens fill: K and V of every layer."""
        rows = self.config.n_kv_heads * (self.k_dim + self.v_dim) * self.dtype.itemsize
        return int(self.lengths.sum()) * self.config.n_layers * rows

    def positions(self, q_len: int) -> Tensor:
        """Where the next q_len tokens stand: [batch, q_len], on the cache's device."""
        return super().positions(q_len).to(self.device)

    def mask(self, layer: int, q_len: int) -> Tensor | None:
        """Bool [batch, 1, q_len, kv_len], or None where every query sees every key."""
        if q_len == 1 and self.is_level:
            return None
        slots = torch.arange(self.end + q_len, device=self.device)
        return causal_mask(self.positions(q_len), slots[None])

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k and v [batch, n_kv_heads, q_len, *]; return all rows, kv_len wide."""
        raise TypeError(f"{type(self).__name__} says where tokens stand but stores no rows.")

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store, then attend: q [batch, n_heads, q_len, k_dim] -> [batch, n_heads, q_len, v_dim]."""
        keys, values = self.update(layer, k, v)
        return attention(q, keys, values, self.mask(layer, q.shape[2]))


# %% [markdown]
# Third, what is refused. Rows that do not fit must be noticed **before** anything is written, so that
# a failed call leaves the cache as it was. A cache that is full must never write over old rows. In a
# batch, short texts are filled up on the right (lesson 1, `counts`). These extra tokens get rows too,
# because rows are stored before `advance` says which tokens are real. So they need room as well.


# %% tags=["export"]
def check_rows(cache: KVCache, layer: int, k: Tensor, v: Tensor) -> None:
    """Raise ValueError unless the rows k and v fit the cache's layer, whole and as they are."""
    batch, n_kv_heads = cache.batch, cache.config.n_kv_heads
    if type(layer) is not int or not 0 <= layer < cache.config.n_layers:
        raise ValueError(f"layer is {layer!r}; the cache has 0 to {cache.config.n_layers - 1}.")
    for name, x, dim in (("k", k, cache.k_dim), ("v", v, cache.v_dim)):
        if x.ndim != 4 or x.shape != (batch, n_kv_heads, k.shape[2], dim):
            expected = f"[{batch}, {n_kv_heads}, q_len, {dim}], q_len for both alike"
            raise ValueError(f"{name} has shape {list(x.shape)}; the cache takes {expected}.")
        if (x.dtype, x.device) != (cache.dtype, cache.device):
            holds = f"{cache.dtype} on {cache.device}"
            raise ValueError(f"{name} is {x.dtype} on {x.device}; the cache holds {holds}.")
    total = cache.end + k.shape[2]
    if total > cache.capacity:
        raise ValueError(
            f"{total} tokens, padding included, exceed the cache's capacity {cache.capacity}."
        )


# %% [markdown]
# Where sequences differ in length, their new rows go to different slots. And the slots behind the end
# of a shorter sequence hold whatever was there before. The mask hides them, but a mask is not enough:
# a hidden value gets the weight 0, and 0 × NaN is NaN. So these slots are cleared. Where all sequences
# have the same length, the new rows are one slice.


# %% tags=["export"]
def put(rows: Tensor, new: Tensor, lengths: Tensor) -> None:
    """Write new [batch, heads, q_len, d] into rows [batch, heads, kv_len, d] at each one's end.

    Slots behind the new rows are cleared: what they held must not reach attention, NaN included.
    """
    q_len, kv_len, end = new.shape[2], rows.shape[2], int(lengths[0])
    if (lengths == end).all():  # level: a slice will do, which is much cheaper
        rows[:, :, end : end + q_len] = new.detach()
        rows[:, :, end + q_len :] = 0
        return
    slots = lengths[:, None] + torch.arange(q_len, device="cpu")  # [batch, q_len]
    batch = torch.arange(len(lengths), device="cpu")[:, None]
    rows[batch, :, slots] = new.detach().transpose(1, 2)
    behind = torch.arange(kv_len, device="cpu") >= lengths[:, None] + q_len  # [batch, kv_len]
    if behind.any():
        rows.masked_fill_(behind[:, None, :, None].to(rows.device), 0)


# %% [markdown]
# ### The growing cache
#
# The first cache is the simplest: join the new rows to the old ones. It holds exactly what it needs.
# The price: `torch.cat` makes a new tensor each time and copies all old rows.


# %% tags=["export"]
class GrowingCache(KVCache):
    """Joins each new row to the old ones with torch.cat: exact in memory, copying at every step."""

    def __init__(
        self, config: DecoderConfig, batch: int = 1, capacity: int | None = None, **options
    ):
        super().__init__(config, batch, capacity, **options)
        self.reset()

    def reset(self) -> None:
        super().reset()
        shape = (self.batch, self.config.n_kv_heads, 0)
        k, v = (
            torch.empty(*shape, dim, dtype=self.dtype, device=self.device)
            for dim in (self.k_dim, self.v_dim)
        )
        self.k = [k] * self.config.n_layers  # per layer [batch, n_kv_heads, kv_len, k_dim]
        self.v = [v] * self.config.n_layers  # and [batch, n_kv_heads, kv_len, v_dim]

    @property
    def nbytes(self) -> int:
        """Bytes of every tensor held, by their storages."""
        return sum(rows.untyped_storage().nbytes() for rows in self.k + self.v)

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(self, layer, k, v)
        for held, new in ((self.k, k), (self.v, v)):
            held[layer] = torch.cat([held[layer][:, :, : self.end], new.detach()], dim=2)
            if not self.is_level:
                put(held[layer], new, self.lengths)
        return self.k[layer], self.v[layer]


# %% [markdown]
# ### The preallocated cache
#
# The second asks for all memory at once and never moves a row. What it returns are views of the part
# in use, not copies.


# %% tags=["export"]
class PreallocatedCache(KVCache):
    """Reserves capacity rows per sequence at once and writes in place: no copying, no growing."""

    def __init__(
        self, config: DecoderConfig, batch: int = 1, capacity: int | None = None, **options
    ):
        super().__init__(config, batch, capacity, **options)
        shape = (config.n_layers, batch, config.n_kv_heads, self.capacity)
        self.k = torch.empty(*shape, self.k_dim, dtype=self.dtype, device=self.device)
        self.v = torch.empty(*shape, self.v_dim, dtype=self.dtype, device=self.device)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for K and V, whether tokens fill them or not."""
        return self.k.untyped_storage().nbytes() + self.v.untyped_storage().nbytes()

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(self, layer, k, v)
        keys, values = (held[layer, :, :, : self.end + k.shape[2]] for held in (self.k, self.v))
        put(keys, k, self.lengths)
        put(values, v, self.lengths)
        return keys, values


# %% [markdown]
# Try both on the real model: feed the 5 tokens of the prompt, then one token at a time, and compare
# with one pass over the whole text, at each of the 68 positions that are fed.

# %%
fed = story[:, :-1]  # the last token is never fed: nobody asks what follows it
with torch.no_grad():
    expected = model(fed)
for kind in (GrowingCache, PreallocatedCache):
    cache = kind(config, capacity=68, device=device)
    with torch.no_grad():
        logits = [model(fed[:, :5], cache)]
        logits += [model(fed[:, t : t + 1], cache) for t in range(5, 68)]
    difference = (torch.cat(logits, dim=1) - expected).abs().max().item()
    assert difference < 1e-3
    assert cache.lengths.tolist() == [68]
    print(f"{kind.__name__:18} 68 positions, logits equal to within 1e-3")

# %% [markdown]
# Now a batch of two texts that differ in length, 7 tokens and 4. Each must come out as if it were alone.

# %%
two = torch.stack([story[0, :8], story[0, 20:28]])
cache = PreallocatedCache(config, batch=2, capacity=8, device=device)
counts = torch.tensor([7, 4])
with torch.no_grad():
    model(two[:, :7], cache, counts=counts)
    newest = torch.stack([two[0, 7:8], two[1, 4:5]])
    together = model(newest, cache)
    alone = [model(two[:1, :8])[:, -1:], model(two[1:, :5])[:, -1:]]
assert (together - torch.cat(alone)).abs().max() < 1e-3
print("tokens held:", cache.lengths.tolist())
print("the slots behind the shorter text, cleared:", not cache.k[0, 1, :, 5:].any())

# %% [markdown]
# One text is full now. A further token is refused, and nothing has changed afterwards.

# %%
before = cache.k.clone()
try:
    model(newest, cache)
except ValueError as error:
    message = str(error)
print(message)
assert "capacity 8" in message
assert cache.k.equal(before)
assert cache.lengths.tolist() == [8, 5]

# %% [markdown]
# And this is what one forgotten NaN does, although its weight is 0:

# %%
weights, values = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([1.0, 3.0, float("nan")])
weights @ values

# %% [markdown]
# ## Measure
#
# ### The tokens processed
#
# As in lesson 1, hooks count the tokens that pass through a key projection, this time in every layer.
# Write 64 tokens after a prompt of 5, without a cache and with one.


# %%
def count_positions(cache) -> tuple[Tensor, list[list[int]], float]:
    """Write 64 tokens; the text, for each layer the tokens processed at each step, and the seconds."""
    seen = [[] for _ in range(n_layers)]
    hooks = [
        block.attention.k_proj.register_forward_hook(
            lambda module, inputs, output, seen=seen[i]: seen.append(inputs[0].shape[1])
        )
        for i, block in enumerate(model.blocks)
    ]
    start = time.perf_counter()
    text = generate(model, prompt, written, cache).cpu()
    taken = time.perf_counter() - start
    for hook in hooks:
        hook.remove()
    return text, seen, taken


plain_text, without_cache, first_slow = count_positions(None)
cache = PreallocatedCache(config, capacity=68, device=device)
cached_text, with_cache, first_fast = count_positions(cache)
print("without a cache:", sum(without_cache[0]), "tokens per layer")
print("with a cache:   ", sum(with_cache[0]), "tokens per layer")
ratio = sum(without_cache[0]) / sum(with_cache[0])
print(f"ratio:           {ratio:.2f}")

# %%
assert plain_text.equal(cached_text)
assert plain_text[0].tolist() == reference["ids"]  # what transformers writes, too
assert {sum(layer) for layer in without_cache} == {2336}
assert {sum(layer) for layer in with_cache} == {68}
assert (without_cache[0][15], with_cache[0][15]) == (20, 1)  # step 16
assert f"{ratio:.2f}" == "34.35"

# %% [markdown]
# That was guess 2: 2,336 against 68, or 34.35 times as many, for the same text to the letter. With a
# cache each token is processed once. The 64th new token is chosen but never fed, so it is 68 and not
# 69.

# %% [markdown]
# ### The memory
#
# Keeping costs memory. Each token leaves a key and a value in each layer and in each of the 3 KV heads:
# 64 numbers of 4 bytes each. The cache of the counted run is still there, and full:

# %%
value_nbytes = torch.float32.itemsize  # 4
per_token = 2 * n_layers * config.n_kv_heads * config.head_dim * value_nbytes
assert cache.nbytes_used == cache.nbytes == 68 * per_token
assert per_token == 46_080
print(f"one token: {per_token:,} bytes; 68 tokens: {cache.nbytes:,} bytes")
weights_nbytes = sum(weight.numel() * weight.element_size() for weight in model.parameters())
print(f"the weights: {weights_nbytes:,} bytes")
assert f"{weights_nbytes / 1e6:.0f}" == "538"

# %% [markdown]
# 46,080 bytes per token: guess 4. Lesson 3 turns this product into a formula for any model.

# %% [markdown]
# ### The clock
#
# Now the time: first of the whole run of 64 tokens. The counted runs were timed, and one more of each
# follows. Both ways run in turn, so that a busy moment of the machine hits both; what is printed is the
# middle of the two, and both.


# %%
def whole_run(cache) -> float:
    """Seconds to write 64 tokens after the prompt of 5."""
    if cache is not None:
        cache.reset()
    return count_positions(cache)[2]


def summary(runs: list[float]) -> str:
    return f"{statistics.median(runs):5.2f} s ({min(runs):.2f} to {max(runs):.2f})"


# %% tags=["nbval-ignore-output"]
whole = [(first_slow, first_fast), (whole_run(None), whole_run(cache))]
slow, fast = (list(column) for column in zip(*whole, strict=True))
print(f"64 tokens on {device} with {torch.get_num_threads()} threads")
print("without a cache:", summary(slow))
print("with a cache:   ", summary(fast))
print(f"ratio:           {statistics.median(slow) / statistics.median(fast):.1f}")

# %%
assert len(slow) == len(fast) == 2
assert cache.lengths.tolist() == [68]

# %% [markdown]
# The layers processed a thirty-fourth of the tokens. The clock gained far less. To see why, time single
# steps, at short texts and at long ones. The text is one token repeated: the work of a step depends on
# the length alone.

# %%
contexts = [16, 64, 256, 768]
text = story[:, :1].expand(1, max(contexts) + 1)


def seconds(cache, context: int) -> float:
    """Time for one more token when `context` tokens are there already."""
    if cache is not None:
        cache.reset()
        with torch.no_grad():
            model(text[:, : context - 1], cache, last_only=True)
    if device == "cuda":
        torch.cuda.synchronize()  # the prefill is not part of the step
    start = time.perf_counter()
    generate(model, text[:, :context] if cache is None else text[:, :1], 1, cache).cpu()
    return time.perf_counter() - start


# %% tags=["nbval-ignore-output"]
held = PreallocatedCache(config, capacity=max(contexts) + 1, device=device)
runs = {(context, kind): [] for context in contexts for kind in ("without", "with")}
seconds(None, 16), seconds(held, 16)  # warm up
for context in contexts:
    for _ in range(3):
        runs[context, "without"].append(seconds(None, context))
        runs[context, "with"].append(seconds(held, context))
step = {key: statistics.median(values) for key, values in runs.items()}
print("ms for one more token: medians of 3 (smallest to largest)")
for context in contexts:
    parts = [f"{context:4} tokens:"]
    for kind in ("without", "with"):
        low, high = (1e3 * pick(runs[context, kind]) for pick in (min, max))
        parts.append(f"{1e3 * step[context, kind]:6.0f} ({low:.0f} to {high:.0f}) {kind},")
    print(*parts, f"{step[context, 'without'] / step[context, 'with']:.1f} times faster")

# %%
assert all(len(values) == 3 for values in runs.values())
assert held.lengths.tolist() == [768]

# %% tags=["hide-input"] mystnb={"image": {"alt": "Two lines of time per step against context, on logarithmic axes. Without a cache the time rises steeply with the context. With a cache it stays below, and the gap widens from left to right."}}
for kind, role, marker in (("without", "evicted", "s"), ("with", "cache", "o")):
    times = [1e3 * step[context, kind] for context in contexts]
    plt.plot(contexts, times, marker=marker, color=plotting.colour(role), label=f"{kind} a cache")
plt.xscale("log")
plt.yscale("log")
plt.xticks(contexts, [str(context) for context in contexts])
plt.gca().yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
plt.gca().yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
plt.minorticks_off()
plt.xlabel("tokens already there")
plt.ylabel("ms for one more token")
plt.title("The longer the text, the more the cache saves")
plt.legend()
plt.show()

# %% [markdown]
# At 16 tokens a step without a cache sends 16 times as many tokens through the layers, at 768 tokens 768
# times. (The last multiplication, by the vocabulary, is done for one token either way.) The clock gains
# far less, and it gains more the longer the text. That was guess 3; read the two factors off the table.
#
# Why so little at first? Every step waits for two things, with a cache or without.
#
# - **It reads all weights**, 538 MB here, to process even one token. To process 16 tokens it reads
#   the weights of each layer once and uses them 16 times. While the weights come in, there is time
#   for the arithmetic of more than one token.
# - **It pays for every call.** PyTorch takes some time to start each operation, whether it works on
#   one token or on a thousand.
#
# Both can be timed alone. To read all weights, add them up. To pay for the calls and nearly nothing else,
# run a decoder of as many layers, but only 8 wide.

# %%
narrow = Decoder(
    replace(config, vocab_size=8, dim=8, n_heads=1, n_kv_heads=1, head_dim=8, ffn_dim=8)
)
narrow = narrow.to(device).requires_grad_(False)


def median_ms(action, repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action().cpu()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


# %% tags=["nbval-ignore-output"]
reading = median_ms(lambda: torch.stack([weight.sum() for weight in model.parameters()]))
calling = median_ms(lambda: narrow(text[:, :1] % 8))
print(
    f"reading every weight once: {reading:.0f} ms; the calls of {n_layers} layers: {calling:.0f} ms"
)

# %%
assert len(narrow.blocks) == n_layers

# %% [markdown]
# Compare the two with a step at 16 tokens: together they are a good part of it, and a cache can save
# neither. Only when the text is long does the work on its tokens outgrow both. Lesson 6 makes a model
# of this.
#
# There is a second limit, and it stays. The cache saves the projections and the feed-forward network
# for old tokens. It does not save attention: the newest query is compared with **every** key held, and
# every value is weighed. At the 8,192 tokens this model can take, that means reading 377 MB of cache for
# each new token, beside the 538 MB of weights.

# %%
assert f"{config.max_seq_len * per_token / 1e6:.0f}" == "377"

# %% [markdown]
# These are times of one machine, with one sequence and a small model. They do not show what a GPU
# does, nor what batching does.

# %% [markdown]
# ## Explore
#
# Step through the text that the model wrote. The counts are the hook's record of the first layer,
# step by step; all layers counted the same.

# %%
assert all(layer == without_cache[0] for layer in without_cache)
assert all(layer == with_cache[0] for layer in with_cache)
TokenStepper(
    [tokenizer.decode([i]) for i in reference["ids"]],
    prompt_len=5,
    without_cache=without_cache[0],
    with_cache=with_cache[0],
    bytes_per_token=per_token,
    step=16,
)

# %% [markdown]
# Watch three things. Without a cache every step computes all earlier rows again. With a cache the rows of
# one token are computed and the others are read. And the bytes only ever grow: nothing is given back
# while the text goes on.
#
# If you run this notebook yourself, you can also choose the **context**, the tokens already there, and
# time it: the model runs both ways each time you move the slider. That takes a kernel, so the published
# page shows nothing here.

# %%
measured = {}


def race(context: int) -> None:
    runs = [(seconds(None, context), seconds(held, context)) for _ in range(3)]
    slow, fast = (statistics.median(column) for column in zip(*runs, strict=True))
    measured.update(context=context, held=held.lengths.tolist())
    colours = [plotting.colour("cache"), plotting.colour("evicted")]
    plt.barh(["with", "without"], [1e3 * fast, 1e3 * slow], color=colours)
    plt.xlabel("ms for one more token")
    plt.title(f"{context} tokens: {slow / fast:.1f} times faster with a cache")
    plt.show()


# %% tags=["remove-output", "nbval-ignore-output"]
context_slider = ipywidgets.IntSlider(
    value=64, min=16, max=768, step=16, description="context", continuous_update=False
)
ipywidgets.VBox([context_slider, ipywidgets.interactive_output(race, {"context": context_slider})])

# %%
assert measured == {"context": 64, "held": [64]}

# %% tags=["remove-cell", "nbval-ignore-output"]
context_slider.value = 128
moved = dict(measured)
context_slider.value = 64

# %% tags=["remove-cell"]
assert moved == {"context": 128, "held": [128]}

# %% [markdown]
# ## Check yourself
#
# The first three are bugs that are easy to make and hard to see. Real projects had the first two and a
# close relative of the third; the answers link to them. Find out what each does, then unfold.
#
# **1. The wrong mask.** A prompt comes in two pieces. For the second piece the cache calls attention with
# `is_causal=True`. What goes wrong, and which test finds it?
#
# <details>
# <summary>Answer</summary>
#
# `is_causal` aligns the mask at the top left, as if the piece stood at position 0. Its first query sees
# one key of the whole past. A test that feeds the prompt in one piece cannot find this, because then
# both masks agree. Feed it in two. The other queries are wrong, too: of 9 keys the last one sees 5, and
# its own is not among them. PyTorch documents the alignment (2.13.0) and discusses changing it
# ([pytorch#108108](https://github.com/pytorch/pytorch/issues/108108)); ExecuTorch's reference cache
# and the ONNX `Attention` operator had to be fixed for it
# ([executorch#21749](https://github.com/pytorch/executorch/pull/21749),
# [onnx#8068](https://github.com/onnx/onnx/pull/8068)).
#
# ```python
# import torch
# import torch.nn.functional as F
# from kvbook.lessons.cache import GrowingCache
# from kvbook.lessons.decoder import Decoder, DecoderConfig
#
# class TopLeft(GrowingCache):
#     def attend(self, layer, q, k, v):
#         keys, values = self.update(layer, k, v)
#         aligned = q.shape[2] > 1  # at the top left
#         return F.scaled_dot_product_attention(q, keys, values, is_causal=aligned, enable_gqa=True)
#
# torch.manual_seed(0)
# tiny = DecoderConfig(97, 24, 2, 6, 3, 4, 40, 32)
# tiny_model = Decoder(tiny).requires_grad_(False)
# nine = torch.randint(97, (1, 9))
#
# def run_tiny(cache, pieces):
#     return torch.cat([tiny_model(piece, cache) for piece in nine.split(pieces, dim=1)], dim=1)
#
# torch.testing.assert_close(run_tiny(TopLeft(tiny), [9]), tiny_model(nine))
# assert (run_tiny(TopLeft(tiny), [4, 5]) - tiny_model(nine)).abs().max() > 1e-3
# torch.testing.assert_close(run_tiny(GrowingCache(tiny), [4, 5]), tiny_model(nine))
# ```
#
# </details>
#
# **2. Positions that start again.** A decode step feeds one token and takes its position from
# `torch.arange(1)`. What does the model lose, and which test finds it?
#
# <details>
# <summary>Answer</summary>
#
# Every token that is fed alone believes that it stands at position 0. Only the keys of a prompt that is
# fed in one piece lie at their true positions. So the model no longer knows the order of the new
# tokens, and the text may still look plausible. Feed a prompt, then single tokens, and compare the
# logits with one pass over everything: the prompt agrees and the rest does not. mlx-vlm had this in one
# model: prefill was right, and every token after it stood at 0
# ([mlx-vlm#1983](https://github.com/Blaizzy/mlx-vlm/issues/1983)).
#
# ```python
# import torch
# from kvbook.lessons.cache import GrowingCache
# from kvbook.lessons.decoder import Decoder, DecoderConfig
#
# class Restarting(GrowingCache):
#     def positions(self, q_len):
#         return torch.arange(q_len).expand(self.batch, q_len)
#
# torch.manual_seed(0)
# tiny = DecoderConfig(97, 24, 2, 6, 3, 4, 40, 32)
# tiny_model = Decoder(tiny).requires_grad_(False)
# nine = torch.randint(97, (1, 9))
#
# def run_tiny(cache):
#     pieces = nine.split([5, 1, 1, 1, 1], dim=1)
#     return torch.cat([tiny_model(piece, cache) for piece in pieces], dim=1)
#
# wrong = (run_tiny(Restarting(tiny)) - tiny_model(nine)).abs().amax(-1)[0] > 1e-4
# assert wrong.tolist() == [False] * 5 + [True] * 4
# torch.testing.assert_close(run_tiny(GrowingCache(tiny)), tiny_model(nine))
# ```
#
# </details>
#
# **3. The first token is lost.** A cache is created when the first token has already been processed, so that
# token's key and value are never stored. At which position do the logits first differ?
#
# <details>
# <summary>Answer</summary>
#
# At position 1, the second token. The first attends to itself within its own pass; the second misses it.
# (The code imitates this by hiding the first row.) A course's cache had the mirror image of this bug: the
# newest token's own row was left out, and the very first step found no key at all
# ([cs249r_book#1953](https://github.com/harvard-edge/cs249r_book/pull/1953)).
#
# ```python
# import torch
# from kvbook.lessons.cache import GrowingCache
# from kvbook.lessons.decoder import Decoder, DecoderConfig
#
# class Forgetful(GrowingCache):
#     def update(self, layer, k, v):
#         keys, values = super().update(layer, k, v)
#         return (keys, values) if self.end == 0 else (keys[:, :, 1:], values[:, :, 1:])
#
#     def mask(self, layer, q_len):
#         return None
#
# torch.manual_seed(0)
# tiny = DecoderConfig(97, 24, 2, 6, 3, 4, 40, 32)
# tiny_model = Decoder(tiny).requires_grad_(False)
# nine = torch.randint(97, (1, 9))
# forgetful = Forgetful(tiny)
# found = torch.cat([tiny_model(token, forgetful) for token in nine.split(1, dim=1)], dim=1)
# wrong = (found - tiny_model(nine)).abs().amax(-1)[0] > 1e-4
# assert wrong.tolist() == [False] + [True] * 8
# ```
#
# </details>
#
# **4. How much does the growing cache copy?** It writes 64 tokens after a prompt of 5, so it makes 63
# steps after the prefill. How many old rows does it copy per layer, for K alone?
#
# <details>
# <summary>Answer</summary>
#
# Step by step 5, 6, …, 67 rows: 2,268 in all, to hold 68. The preallocated cache copies none.
#
# ```python
# import torch
# from kvbook.lessons.cache import GrowingCache
# from kvbook.lessons.decoder import Decoder, DecoderConfig, generate
#
# copied = []
#
# class Counting(GrowingCache):
#     def update(self, layer, k, v):
#         copied.append(self.k[layer].shape[2])
#         return super().update(layer, k, v)
#
# tiny = DecoderConfig(97, 24, 1, 6, 3, 4, 40, 128)
# generate(Decoder(tiny), torch.zeros(1, 5, dtype=torch.long), 64, Counting(tiny))
# assert sum(copied) == sum(range(5, 68)) == 2268
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: with the causal mask nothing changes in any layer, without it all but
# the first change; 2,336 tokens processed against 68; the clock gains less than the count, and more
# the longer the text; 46,080 bytes per token.
#
# What you gave and what you got, for SmolLM2-135M in float32 after a prompt of 5 tokens:
#
# | Lesson | Bytes per token | Tokens in step 16 | What runs out |
# |---|---|---|---|
# | 1. A decoder | 0 | 20 | time |
# | 2. Reuse the past | 46,080 | 1 | memory |
#
# The ledger has two new lines, one for each cache. Where its bytes and users come from, lessons 3 and 5
# say; the model there is a larger one.

# %%
ledger.show(2)

# %% [markdown]
# ## Next
#
# You traded work for memory. For this small model a token costs 46,080 bytes. What does it cost for
# the models that people serve, and how soon does the cache outgrow the weights?
# [Lesson 3](03_cost.ipynb) writes the bill.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. This cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
check(
    {
        "30 layers": n_layers,
        "5 tokens": prompt.shape[1],
        "16 tokens": contexts[0],
        "768 tokens": contexts[-1],
        "68 positions": fed.shape[1],
        "7 tokens": counts[0],
        "64 tokens": written,
        "34.35 times": ratio,
        "3 KV heads": config.n_kv_heads,
        "4 bytes": value_nbytes,
        "46,080 bytes": per_token,
        "16 times": contexts[0],
        "768 times": contexts[-1],
        "538 MB": weights_nbytes / 1e6,
        "8,192 tokens": config.max_seq_len,
        "377 MB": config.max_seq_len * per_token / 1e6,
        "63 steps": written - 1,
        "67 rows": fed.shape[1] - 1,
        "2,336 tokens": sum(without_cache[0]),
    }
)
