# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 9 — Windows and sinks
#
# **The question.** A cache grows with every token. What if it forgets the old ones? What does that
# save, what does it break, and why do four tokens repair most of it?
#
# You build a cache that holds a fixed number of tokens, however long the text becomes. Its
# arithmetic is simple and easy to get wrong: *Check yourself* names two programs that did. Then you
# measure what forgetting costs a model that was never trained to forget.

# %% [markdown]
# ## What you need
#
# [Lesson 2](02_cache.ipynb): the seam between decoder and cache. [Lesson 3](03_cost.ipynb): bytes per
# token. [Lesson 4](04_measure.ipynb): `held_nbytes` and `Watch`. [Lesson 7](07_gqa.ipynb): loss and
# perplexity. You need no GPU. The lesson runs in about a minute on two CPU cores.

# %% [markdown]
# ## Predict
#
# Write down four guesses. A *window* of 128 means: a token sees itself and the 127 before it.
#
# 1. SmolLM2's cache in float32 takes 46,080 bytes per token. With a window of 128, how many bytes
#    does it hold after 1,024 tokens?
# 2. Window 8. A prompt of 6 tokens, then one token at a time. Which token is the first to overwrite
#    another?
# 3. Window 4, a prompt of 12 tokens in one piece. Someone stores it first, so that the last 4 keys are
#    left, and attends to those. How many of the 12 queries in the first layer get what they should?
# 4. SmolLM2 was trained to see everything. By how much does its perplexity rise on a text of 1,024
#    tokens if it sees only the last 128? And if the first 4 tokens stay as well?

# %% tags=["export"]
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kvbook.lessons.cache import KVCache, PreallocatedCache, causal_mask, check_rows
from kvbook.lessons.decoder import DecoderConfig

# %%
import ipywidgets
import matplotlib.pyplot as plt

from kvbook import ledger, plotting
from kvbook.accounting import cache_spec
from kvbook.accounting.facts import model as facts
from kvbook.accounting.whatif import what_if
from kvbook.explorer.window import WindowExplorer
from kvbook.lessons.cache import GrowingCache
from kvbook.lessons.decoder import Decoder
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.measure.quality import change, token_losses
from kvbook.measure.runner import results
from kvbook.models import smollm2
from kvbook.models.text import devils_dictionary
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
model, tokenizer = smollm2.load(device)
config = model.config
MB = 10**6

# %% [markdown]
# ## Build
#
# ### Who sees whom
#
# A causal mask lets a query see every key up to its own position. A window cuts the past off: only the
# keys less than `window` positions back are seen. The query's own key is one of them, so a window of 1
# is a token that sees itself alone. **Sinks** are an exception to the cut: the first few tokens of
# the text, which every query may see. *Why the first tokens?*, below, says why you would want them.


# %% tags=["export"]
def check_kept(window: int, sinks: int) -> None:
    """Raise ValueError unless window is an int from 1 to MOST and sinks one from 0 to MOST."""
    for name, value, low in (("window", window, 1), ("sinks", sinks, 0)):
        if type(value) is not int or not low <= value <= MOST:
            raise ValueError(f"{name} is {value!r}; it must be an int from {low} to {MOST}.")


MOST = 2**62  # of a window and of sinks: both and a position fit in an int64


# %% tags=["export"]
def window_mask(q_positions: Tensor, k_positions: Tensor, window: int, sinks: int = 0) -> Tensor:
    """Who sees whom: [batch, q_len] and [batch or 1, kv_len] -> bool [batch, 1, q_len, kv_len].

    A query sees itself, the window - 1 tokens before it, and of those further back the first
    `sinks` of the text (Xiao et al. 2023). Position -1 marks an empty slot.
    """
    check_kept(window, sinks)
    q, k = q_positions[:, None, :, None], k_positions[:, None, None, :]
    return causal_mask(q_positions, k_positions) & ((q - k < window) | (k < sinks))


# %%
twelve = torch.arange(12)[None]
masks = {sinks: window_mask(twelve, twelve, window=4, sinks=sinks)[0, 0] for sinks in (0, 2)}
for sinks, mask in masks.items():
    print(f"window 4, {sinks} sinks: {mask.sum(1).tolist()} keys seen by queries 0 to 11")
assert masks[0].sum(1).tolist() == [1, 2, 3] + [4] * 9
assert masks[2].sum(1).tolist() == [1, 2, 3, 4, 5] + [6] * 7

# %% tags=["hide-input"] mystnb={"image": {"alt": "Two grids of 12 queries by 12 keys. Left, window 4: a band of four keys along the diagonal is marked, all else is empty. Right, window 4 and 2 sinks: the same band, and in another colour the first two columns. A legend names the three kinds of squares."}}
figure, panels = plt.subplots(1, 2, figsize=(7, 3.6), sharey=True)
for axes, mask in zip(panels, masks.values(), strict=True):
    for query in range(12):
        for key in range(12):
            role = "grid"
            if mask[query, key]:
                role = "key" if query - key < 4 else "shared"
            axes.add_patch(
                plt.Rectangle((key - 0.45, query - 0.45), 0.9, 0.9, color=plotting.colour(role))
            )
    axes.set(xlim=(-0.6, 11.6), ylim=(11.6, -0.6), aspect="equal")
    axes.set_xlabel("position of the key")
    axes.grid(False)
    axes.set_xticks(range(0, 12, 2))
panels[0].set_ylabel("position of the query")
names = {"key": "in the window", "shared": "seen as a sink only", "grid": "not seen"}
marks = [plt.Rectangle((0, 0), 1, 1, color=plotting.colour(role)) for role in names]
figure.legend(marks, names.values(), loc="lower center", bbox_to_anchor=(0.5, -0.08), ncols=3)
panels[0].set_title("Window 4 cuts the past off")
panels[1].set_title("2 sinks stay in sight")
plt.show()

# %% [markdown]
# ### A ring of slots
#
# If nobody will ever look at a row again, its memory can be used again. So give the cache `window` slots
# and let the tokens go round: in a window of 8, position 8 takes the slot of position 0. Sinks keep
# slots of their own for good, and the others go round behind them.
#
# Both directions are arithmetic, so no table is needed: from a position to its slot, and from a slot
# back to the newest position that it can hold. The second direction matters because a ring is out of
# order, and the mask asks for positions.


# %% tags=["export"]
def slot_of(positions: Tensor, window: int, sinks: int = 0) -> Tensor:
    """The slot of each position: the first `sinks` keep theirs, the others go round behind them."""
    check_kept(window, sinks)
    return torch.where(positions < sinks, positions, sinks + (positions - sinks) % window)


def held_positions(lengths: Tensor, slots: int, window: int, sinks: int = 0) -> Tensor:
    """Which token each slot holds after `lengths` [batch] tokens: [batch, slots], -1 for none.

    Raises ValueError for more slots than window + sinks: the ring never reaches those.
    """
    check_kept(window, sinks)
    if slots > window + sinks:
        raise ValueError(f"slots is {slots}; window {window} and {sinks} sinks fill no more.")
    slot = torch.arange(slots, device=lengths.device)
    last = lengths[:, None] - 1
    newest = last - (last - slot) % window  # of the positions up to the last that share the slot
    newest = torch.where(slot < sinks, slot, newest)
    return newest.masked_fill((newest < slot) | (newest > last), -1)


# %% [markdown]
# Watch a window of 8: a prompt of 6 tokens, then one at a time.

# %%
lengths = (6, 7, 8, 9, 10)
for length in lengths:
    held = held_positions(torch.tensor([length]), slots=8, window=8)[0].tolist()
    written = slot_of(torch.tensor(length - 1), window=8)
    print(f"after {length:2} tokens, the last in slot {written}: slots hold {held}")
assert slot_of(torch.arange(6, 10), window=8).tolist() == [6, 7, 0, 1]
assert held == [8, 9, 2, 3, 4, 5, 6, 7]

# %% [markdown]
# Guess 2: the 9th token, at position 8, is the first that overwrites another. The prompt left two
# slots free, and no slot is taken twice before they are filled.

# %% [markdown]
# ### Where each row lies, and what a pass sees
#
# Now the cache. First the part that only counts: how many slots there are, which positions a pass will
# attend to, and the mask.
#
# A pass of one token overwrites the row that has just left the window, and reads the ring: `window`
# rows, its own among them. A pass of several tokens cannot work like that. Its first query still
# needs rows that its last key would overwrite. So it reads the old rows *and* all new ones.
#
# `FedCache`, on which both of this lesson's caches build, is a guard. It counts only tokens that each layer
# has been given. A ring that believed a wrong count would take old rows for new ones.


# %% tags=["export"]
class FedCache(KVCache):
    """Counts no more tokens than the pass under way has brought to each layer."""

    def __init__(self, config: DecoderConfig, *arguments, **options) -> None:
        super().__init__(config, *arguments, **options)
        self.fed: dict[int, int] = {}  # by layer: the pass's tokens, padding included

    def advance(self, counts: int | Tensor) -> None:
        before, fed = self.lengths, min(self.fed.get(i, 0) for i in range(self.config.n_layers))
        super().advance(counts)
        if (self.lengths - before > fed).any():
            self.lengths = before
            raise ValueError(f"counts is {counts}; each layer got {fed} tokens in this pass.")
        self.fed.clear()

    def feed(self, layer: int, n: int) -> None:
        """Note that a layer gets n tokens. A layer that comes again begins a new pass."""
        if layer in self.fed:
            self.give_up()
        self.fed[layer] = n

    def give_up(self) -> None:
        """Forget the pass under way."""
        self.fed.clear()

    def reset(self) -> None:
        super().reset()
        self.give_up()


# %% tags=["export"]
class WindowSlots(FedCache):
    """Which tokens a cache with a window holds, and which a pass attends to; it stores no rows.

    `window` counts the token itself; the first `sinks` tokens stay. `capacity` bounds the tokens
    that may pass, not the memory: each sequence has min(window + sinks, capacity) slots.
    """

    def __init__(
        self,
        config: DecoderConfig,
        batch: int = 1,
        capacity: int | None = None,
        *,
        window: int,
        sinks: int = 0,
        **options,
    ) -> None:
        super().__init__(config, batch, capacity, **options)
        check_kept(window, sinks)
        self.window, self.sinks = window, sinks
        self.slots = min(window + sinks, self.capacity)

    def seen(self, q_len: int) -> tuple[Tensor, Tensor]:
        """Positions of the rows that a pass reads: in slots [batch, n], new [batch, 0 or q_len]."""
        one = int(q_len == 1)  # a single token is read from its slot
        held = held_positions(self.lengths + one, self.slots, self.window, self.sinks)
        new = self.lengths[:, None] + torch.arange(0 if one else q_len, device="cpu")
        return held[:, : min(self.end + one, self.slots)], new

    def mask(self, layer: int, q_len: int) -> Tensor | None:
        if q_len == 1 and self.is_level:
            return None
        keys = torch.cat(self.seen(q_len), dim=1).to(self.device)
        return window_mask(self.positions(q_len), keys, self.window, self.sinks)

    @property
    def nbytes_used(self) -> int:
        row = self.config.n_kv_heads * (self.k_dim + self.v_dim) * self.dtype.itemsize
        return int(self.lengths.clamp(max=self.slots).sum()) * self.config.n_layers * row


# %% [markdown]
# ### Attend first, then keep
#
# The second part holds the rows. It must not store the rows of a longer pass before the pass is over,
# for two reasons. One you know: the pass's own early queries need what would be overwritten. The
# other is padding. In a batch of unequal rows the cache learns only at the end, from `advance`, how
# many of the new tokens are real. In a plain cache a padded row does no harm, because it lies behind
# the end. In a ring it would lie on top of a row that is still needed.
#
# So `update` joins old and new rows for attention and sets the new ones aside; `advance` writes
# those that stay. A single token may be written at once. What it overwrites has been seen for the
# last time, even if the token turns out to be padding.


# %% tags=["export"]
def read(held: Tensor, new: Tensor, slot: Tensor, hidden: Tensor) -> Tensor:
    """The rows of a pass: held [batch, heads, n, d] with new [batch, heads, q_len, d].

    A single new row is written into its slot [batch], several are joined to a copy. Held rows that
    are hidden [batch, n] from every query are cleared, so that no NaN in them reaches attention.
    """
    if new.shape[2] == 1:
        held[torch.arange(len(slot), device="cpu"), :, slot] = new.detach()[:, :, 0]
        rows = held
    else:
        rows = torch.cat([held, new.detach()], dim=2)
    if hidden.any():
        rows[:, :, : held.shape[2]].masked_fill_(hidden[:, None, :, None].to(rows.device), 0)
    return rows


# %% tags=["export"]
def staying(
    start: Tensor, end: Tensor, q_len: int, window: int, sinks: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Of q_len new rows from start [batch, 1] on those that stay at length end: batch, step, slot."""
    new = start + torch.arange(q_len, device="cpu")  # [batch, q_len]
    row, step = ((new < end) & ((new < sinks) | (new >= end - window))).nonzero().T
    return row, step, slot_of(new[row, step], window, sinks)


# %% tags=["export"]
class WindowCache(WindowSlots):
    """Keeps the rows of the last `window` tokens and of the first `sinks`, in a ring of slots."""

    def __init__(self, config: DecoderConfig, *arguments, **options) -> None:
        super().__init__(config, *arguments, **options)
        shape = (config.n_layers, self.batch, config.n_kv_heads, self.slots)
        self.k = torch.empty(*shape, self.k_dim, dtype=self.dtype, device=self.device)
        self.v = torch.empty(*shape, self.v_dim, dtype=self.dtype, device=self.device)
        self.aside: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: rows of the pass under way

    @property
    def nbytes(self) -> int:
        """Bytes of the slots, and of rows set aside; positions are computed and take none."""
        held = sum(self.aside.values(), (self.k, self.v))
        return sum(rows.untyped_storage().nbytes() for rows in held)

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(self, layer, k, v)
        held, _ = self.seen(k.shape[2])
        slot = slot_of(self.lengths, self.window, self.sinks)
        hidden = ~window_mask(self.lengths[:, None], held, self.window, self.sinks)[:, 0, 0]
        keys, values = (rows[layer, :, :, : held.shape[1]] for rows in (self.k, self.v))
        joined = read(keys, k, slot, hidden), read(values, v, slot, hidden)
        self.feed(layer, k.shape[2])
        if k.shape[2] > 1:
            self.aside[layer] = (k.detach().clone(), v.detach().clone())
        return joined

    def advance(self, counts: int | Tensor) -> None:
        start = self.lengths[:, None]
        super().advance(counts)
        end = self.lengths[:, None]
        for layer, pair in self.aside.items():
            row, step, slot = staying(start, end, pair[0].shape[2], self.window, self.sinks)
            for rows, fresh in zip((self.k, self.v), pair, strict=True):
                rows[layer, row, :, slot] = fresh[row, :, step]
        self.aside.clear()

    def give_up(self) -> None:
        super().give_up()
        self.aside.clear()


# %% [markdown]
# ### Is it the same?
#
# The yardstick is lesson 2's growing cache with one change: its mask is cut to the band. It keeps
# everything and looks at the window. The new cache must agree with it at every step, however the text
# is cut into passes. A tiny decoder with random weights in float64 is enough.


# %%
class Banded(GrowingCache):
    """Keeps every row, and lets each query see its window and the sinks."""

    def __init__(self, config, batch=1, capacity=None, *, window, sinks=0, **options):
        super().__init__(config, batch, capacity, **options)
        self.window, self.sinks = window, sinks

    def mask(self, layer: int, q_len: int) -> Tensor:
        slots = torch.arange(self.end + q_len, device=self.device)
        return window_mask(self.positions(q_len), slots[None], self.window, self.sinks)


torch.manual_seed(0)
tiny = DecoderConfig(97, 24, 2, 6, 3, 4, 40, 64)
tiny_model = Decoder(tiny).double().to(device).requires_grad_(False)
for weight in tiny_model.parameters():
    weight.copy_(torch.randn(weight.shape) / 4)
text = torch.randint(97, (2, 40)).to(device)


def feed(kind: type[KVCache], pieces: list[int], **kept: int) -> Tensor:
    cache = kind(tiny, 2, dtype=torch.float64, device=device, **kept)
    return torch.cat([tiny_model(piece, cache) for piece in text.split(pieces, dim=1)], dim=1)


# %%
splits = [[40], [1] * 40, [6, *[1] * 34], [25, 15], [3, 30, 1, 6]]
for kept in ({"window": 1}, {"window": 8}, {"window": 5, "sinks": 4}, {"window": 50}):
    expected = feed(Banded, [40], **kept)
    apart = max(float((feed(WindowCache, s, **kept) - expected).abs().max()) for s in splits)
    print(f"{kept}: apart by at most {'1e-12' if apart < 1e-12 else apart}")
    assert apart < 1e-12
assert (feed(Banded, [40], window=8) - feed(Banded, [40], window=9)).abs().max() > 1e-3

# %% [markdown]
# The last line of the code is the test of the test: one key more or less shows. Guess 3 is next. This
# cache stores a prompt first and then attends to what is left.


# %%
class TrimFirst(WindowCache):
    def update(self, layer, k, v):
        keys, values = super().update(layer, k, v)
        return keys[:, :, -self.window :], values[:, :, -self.window :]

    def mask(self, layer, q_len):
        whole = super().mask(layer, q_len)
        return None if whole is None else whole[..., -self.window :]


one_layer = Decoder(replace(tiny, n_layers=1)).double().requires_grad_(False)
prompt = torch.randint(97, (1, 12))
options = {"window": 4, "dtype": torch.float64}
trimmed = one_layer(prompt, TrimFirst(one_layer.config, **options))
right = one_layer(prompt, WindowCache(one_layer.config, **options))
good = ((trimmed - right).abs().amax(-1) < 1e-9)[0]  # a NaN is not good either
print(f"queries that got what they should: {good.nonzero()[:, 0].tolist()}")
assert good.nonzero()[:, 0].tolist() == [11]

# %% [markdown]
# One of 12: only the last query's window is exactly what was kept. The dangerous part is that this one
# writes the next token, so with one layer the answer starts well. With more layers it is wrong as
# well, because its keys in the second layer come from queries that were wrong in the first.

# %% [markdown]
# ### Two kinds of layers
#
# A **hybrid** model mixes layers with a window and **full** layers, whose queries see everything. In
# gpt-oss every second layer is full, in Gemma 3 27B every sixth. The full ones carry what is far away, the
# others are cheap. The cache then has two kinds of parts, and one owner of the lengths: it counts, and
# tells its parts.


# %% tags=["export"]
class PartsCache(FedCache):
    """A cache made of caches. It owns the lengths, checks what comes in, and hands on the rest.

    `places` says for each layer which part holds it, and as which of the part's own layers.
    """

    places: list[tuple[Any, int]]

    @property
    def parts(self) -> list[Any]:
        return list({id(part): part for part, _ in self.places}.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def nbytes_used(self) -> int:
        return sum(part.nbytes_used for part in self.parts)

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(self, layer, k, v)
        part, own = self.places[layer]
        rows = part.update(own, k, v)
        self.feed(layer, k.shape[2])
        return rows

    def mask(self, layer: int, q_len: int) -> Tensor | None:
        part, own = self.places[layer]
        return part.mask(own, q_len)

    def advance(self, counts: int | Tensor) -> None:
        super().advance(counts)
        for part in self.parts:
            part.advance(counts)
            part.lengths = self.lengths  # told, not counted twice

    def reset(self) -> None:
        super().reset()
        for part in self.parts:
            part.reset()
            part.lengths = self.lengths


# %% tags=["export"]
class HybridCache(PartsCache):
    """Full layers and layers with windows behind one seam, each kind in a cache of its own.

    `layers` has an entry for each layer: its window, or None for a full one. Raises ValueError
    where their number is not that of the layers, and for a window or sinks that cannot be.
    """

    def __init__(
        self,
        config: DecoderConfig,
        batch: int = 1,
        capacity: int | None = None,
        *,
        layers: Sequence[int | None],
        sinks: int = 0,
        **options,
    ) -> None:
        super().__init__(config, batch, capacity, **options)
        if len(layers) != config.n_layers:
            raise ValueError(f"layers has {len(layers)} entries; it must have {config.n_layers}.")
        for window in layers:
            check_kept(1 if window is None else window, sinks)
        made: dict[int | None, Any] = {}
        for window in dict.fromkeys(layers):
            own = replace(config, n_layers=list(layers).count(window))
            if window is None:
                made[window] = PreallocatedCache(own, batch, self.capacity, **options)
            else:
                kept = {"window": window, "sinks": sinks}
                made[window] = WindowCache(own, batch, self.capacity, **kept, **options)
        self.places = [(made[w], list(layers[:i]).count(w)) for i, w in enumerate(layers)]
        self.reset()


# %%
def steps(cache: KVCache, pieces: list[int]) -> Tensor:
    return torch.cat([tiny_model(piece, cache) for piece in text.split(pieces, dim=1)], dim=1)


class OneBanded(GrowingCache):
    """Keeps every row; layer 0 looks at 6 of them, layer 1 at all."""

    def mask(self, layer: int, q_len: int) -> Tensor:
        slots = torch.arange(self.end + q_len, device=self.device)
        return window_mask(self.positions(q_len), slots[None], 64 if layer else 6)


options = {"dtype": torch.float64, "device": device}
expected = steps(OneBanded(tiny, 2, **options), [40])
hybrid = HybridCache(tiny, 2, 40, layers=[6, None], **options)
for pieces in splits:
    hybrid.reset()
    assert (steps(hybrid, pieces) - expected).abs().max() < 1e-12
window_part, full_part = hybrid.parts
print(f"slots: {window_part.slots} and {full_part.capacity}; one owner of the lengths:")
print(all(part.lengths is hybrid.lengths for part in hybrid.parts), hybrid.lengths.tolist())
assert (window_part.slots, full_part.capacity) == (6, 40)
assert all(part.lengths is hybrid.lengths for part in hybrid.parts)

# %% [markdown]
# ## Measure
#
# ### Memory is flat
#
# Fill SmolLM2's cache, 16 tokens at a time, and weigh it after each pass: what it holds, by lesson 4's
# `held_nbytes`, and the part that live tokens fill.


# %%
def fill(cache: KVCache, tokens: int, piece: int) -> None:
    """Feed rows of ones until the cache has seen `tokens` tokens."""
    shape = (cache.batch, config.n_kv_heads, piece, config.head_dim)
    ones = torch.ones(shape, dtype=cache.dtype, device=device)
    while cache.end < tokens:
        for layer in range(config.n_layers):
            cache.update(layer, ones, ones)
        cache.advance(piece)


seen = range(16, 1025, 16)
weighed = {}
for name, cache in {
    "every token": GrowingCache(config, device=device),
    "window 128": WindowCache(config, window=128, device=device),
    "window 128 and 4 sinks": WindowCache(config, window=128, sinks=4, device=device),
}.items():
    weighed[name] = []
    for tokens in seen:
        fill(cache, tokens, piece=16)
        weighed[name].append((cache.nbytes_used, held_nbytes(cache)))
    print(f"{name:23} {cache.nbytes_used:10,} bytes used, {held_nbytes(cache):10,} held")

# %%
ends = [pairs[-1] for pairs in weighed.values()]
assert ends[0] == (1024 * 46_080, 1024 * 46_080 + 8)
assert ends[1] == (128 * 46_080, 128 * 46_080 + 8) == (5_898_240, 5_898_248)
assert ends[2] == (132 * 46_080, 132 * 46_080 + 8)
assert all(held == ends[1][1] for _, held in weighed["window 128"])

# %% tags=["hide-input"] mystnb={"image": {"alt": "Rows in use in megabytes against tokens seen. The cache that keeps every token rises in a straight line to 47.2 MB at 1,024 tokens. The window of 128 rises with it to 5.9 MB at 128 tokens and is flat from there on; with 4 sinks it is flat a hair higher."}}
styles = {"every token": ("evicted", "-"), "window 128": ("cache", "-")}
for name, pairs in weighed.items():
    role, line = styles.get(name, ("shared", "--"))
    plt.plot(seen, [used / MB for used, _ in pairs], line, color=plotting.colour(role), label=name)
plt.xlabel("tokens seen")
plt.ylabel("rows in use, MB (10⁶ bytes)")
plt.title("A window stops the growth")
plt.legend()
plt.show()

# %% [markdown]
# Guess 1: 128 × 46,080 = 5,898,240 bytes, however long the text becomes. (8 more are the length.) No
# table of positions is held, because positions are computed.
#
# The window's slots are taken at the start, so what is *held* was flat from the first token. If at most
# 100 tokens may pass, 100 slots are taken, not 128.

# %%
small = WindowCache(config, capacity=100, window=128, sinks=4, device=device)
print(f"capacity 100: {small.slots} slots, {small.nbytes:,} bytes")
assert small.slots == 100
assert small.nbytes == 100 * 46_080

# %% [markdown]
# Flat *between* passes. During one, the new rows of all layers are set aside. Watch the worst moment
# of a prompt of 1,024 tokens, in one piece and in pieces.

# %%
peaks = {}
for piece in (1024, 256, 64):
    cache = WindowCache(config, window=128, device=device)
    with Watch(cache) as watch:
        fill(cache, 1024, piece)
    peaks[piece] = watch.peak / 46_080
    print(f"pieces of {piece:5,}: at worst the memory of {peaks[piece]:7,.1f} tokens")
assert peaks[1024] > 1024 + 128
assert 128 + 256 < peaks[256] < 1.1 * (128 + 256)
assert 128 + 64 < peaks[64] < 1.1 * (128 + 64)

# %% [markdown]
# A prompt in one piece takes more than a cache without a window would. In pieces it takes about the window
# and one piece. So the promise of a window holds only together with a bound on the piece.

# %% [markdown]
# ### In a process of its own
#
# The three new kinds have joined lesson 4's grid: window 1,024, the same with 4 sinks, and a hybrid in
# which every second layer is full. Each is filled in a fresh process, below its window and beyond, and
# compared with the accounting.

# %%
base = {"what": "grid", "model": "smollm2-135m", "dtype": "float16", "device": device}
grid = [
    {**base, "kind": kind, "context": context, "batch": 3}
    for kind in ("window", "sinks", "hybrid")
    for context in (512, 4096)
]
for job, found in results(grid):
    beside = found["held"] - found["predicted"]
    label = f"{job['kind']:7}{job['context']:6,} × 3"
    print(f"{label}: predicted {found['predicted']:11,} bytes, held {beside} more")
    assert beside == found["bookkeeping"] == 3 * 8

# %% [markdown]
# Equal to the byte, beside the lengths.

# %% [markdown]
# ### What forgetting costs
#
# Now the other side of the bill. SmolLM2 reads the first 1,024 tokens of a book, and predicts each token
# from what its cache still holds. The loss is averaged, and perplexity is its exponential. The text goes
# through the cache in chunks of 256, which changes nothing but the time: each query sees its own window.
#
# As long as the window is not full nothing is missing, and no loss can differ. Those first tokens
# dilute the rise, the more so the larger the window. So each setting gets two figures: over the whole
# text, and from the first token on for which something has been forgotten.

# %%
ids = torch.tensor([tokenizer.encode(devils_dictionary()).ids[:1024]], device=device)
full = token_losses(model, ids, PreallocatedCache(config, capacity=1024, device=device))
perplexity = float(full.mean().exp())
measured = []  # over the whole text
filled = {}  # the same from the token on at which the window is full
wide = {}  # over the whole text, its error from blocks of 128 tokens


def forget(window: int, sinks: int) -> None:
    """Measure one setting, and add it to the table."""
    cache = WindowCache(config, capacity=1024, window=window, sinks=sinks, device=device)
    losses = token_losses(model, ids, cache)
    found = change(losses, full)
    wide[window, sinks] = change(losses, full, block=128)
    room = window + sinks
    assert (losses - full)[:, :room].abs().max() < 1e-4  # nothing is missing yet
    filled[window, sinks] = change(losses[:, room:], full[:, room:])
    row = {"window": window, "sinks": sinks, "nbytes": cache.nbytes}
    row |= {"perplexity": found.perplexity, "change": found.ratio, "error": found.error}
    measured.append(row)


print(f"all 1,024 tokens kept: {1024 * 46_080 / MB:.1f} MB, perplexity {perplexity:.1f}")

# %%
forget(64, 0)
forget(64, 4)
forget(128, 0)

# %%
forget(128, 4)
forget(256, 0)
forget(256, 4)

# %%
print("window sinks      MB  perplexity   whole text  once the window is full")
for row in measured:
    some = filled[row["window"], row["sinks"]]
    print(
        f"{row['window']:6} {row['sinks']:5} {row['nbytes'] / MB:7.2f} {row['perplexity']:11.1f}"
        f" {row['change']:+6.0%} ± {row['error']:3.0%}  {some.ratio:+6.0%} ± {some.error:3.0%}"
    )
rise = {(row["window"], row["sinks"]): 100 * row["change"] for row in measured}
late = {kept: 100 * found.ratio for kept, found in filled.items()}  # percent, too
assert [f"{percent:.0f}%" for percent in rise.values()] == [
    "198%",
    "17%",
    "118%",
    "5%",
    "73%",
    "1%",
]
assert [f"{percent:.0f}%" for percent in late.values()] == [
    *("221%", "18%", "144%", "6%", "108%", "2%")
]
assert f"{perplexity:.1f}" == "47.5"

# %% tags=["hide-input"] mystnb={"image": {"alt": "Rise of perplexity in per cent against bytes held, for windows of 64, 128 and 256 tokens. Without sinks 198, 118 and 73 per cent; with four sinks 17, 5 and 1 per cent, at nearly the same bytes. Vertical bars show one standard error."}}
for sinks, role, text in ((0, "evicted", "no sinks"), (4, "shared", "4 sinks")):
    rows = [row for row in measured if row["sinks"] == sinks]
    x = [row["nbytes"] / MB for row in rows]
    y, bars = ([100 * row[name] for row in rows] for name in ("change", "error"))
    plt.errorbar(x, y, bars, fmt="o-", color=plotting.colour(role), label=text, capsize=3)
    for row, across, up in zip(rows, x, y, strict=True):
        place = (across, up), (7, 7)
        plt.annotate(f"{row['window']}", *place, textcoords="offset points")
plt.axhline(0, color=plotting.colour("text"), linewidth=1)
plt.xlabel("bytes held, MB (10⁶); the numbers are windows")
plt.ylabel("rise of perplexity, %")
plt.title("Four tokens repair most of what a window breaks")
plt.legend()
plt.show()

# %% [markdown]
# Guess 4: with a window of 128 perplexity more than doubles, +118 %. Keep the first four tokens as well
# and the rise is 5 %. The four tokens cost 3 % more memory. A window of 256 without them does far worse
# than a window of 64 with them. So it is not the content of the far past that the model misses first: the
# four tokens are “CAABA, n”, how a dictionary's first entry begins.
#
# From the token on at which something really is forgotten, the rises are 144 % and 6 %. With a window of
# 256, which is not full for a quarter of this text, it is 108 % instead of 73 %. A longer text would come
# closer to these second figures. The figure, the explorer and the table at the end show the first ones.
#
# The standard error says how far another stretch of this text may differ. At 256 with sinks the rise
# is of about its size: there is no telling it from zero. The error is itself a rough figure. It takes
# blocks of 32 tokens as independent. With blocks of 128, of which there are only 7, the error of 20 % at
# window 128 becomes 33 %, and the 14 % at window 256 become 27 %. With sinks the errors become smaller.

# %%
assert f"{4 / 128:.0%}" == "3%"
errors = {(row["window"], row["sinks"]): 100 * row["error"] for row in measured}
assert (f"{rise[256, 4]:.0f}%", f"{errors[256, 4]:.0f}%") == ("1%", "1%")
assert (f"{errors[128, 0]:.0f}%", f"{wide[128, 0].error:.0%}") == ("20%", "33%")
assert (f"{errors[256, 0]:.0f}%", f"{wide[256, 0].error:.0%}") == ("14%", "27%")
assert all(wide[row["window"], 4].error < row["error"] for row in measured if row["sinks"])
assert (full.shape[1] // 128, 256 / 1024) == (7, 0.25)
print([tokenizer.decode([i]) for i in ids[0, :4].tolist()])

# %% [markdown]
# ### Why the first tokens?
#
# Attention weights sum to 1, and a head that finds nothing must put its weight somewhere. Every query can
# see the first token, so models learn to put it there. Look where the attention of this model rests.
# `Shares` computes the weights, which PyTorch's attention call keeps to itself, for the second half of
# 256 tokens.


# %%
class Shares(GrowingCache):
    """Notes the mean attention of the later queries on each key, layer by layer."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = super().attend(layer, q, k, v)
        keys = self.k[layer].repeat_interleave(config.n_heads // config.n_kv_heads, dim=1)
        scores = q @ keys.transpose(-1, -2) / config.head_dim**0.5
        weights = scores.masked_fill(~self.mask(layer, 256), -torch.inf).softmax(-1)
        self.noted.append(weights[0, :, 128:].mean((0, 1)))
        return out


shares = Shares(config, device=device)
shares.noted = []
with torch.no_grad():
    model(ids[:, :256], shares, last_only=True)
share = torch.stack(shares.noted)  # [layers, keys]
first, second = share[:, :2].mean(0).tolist()
print(
    f"on the first token {first:.0%}, in one layer {share[:, 0].max():.0%}; on the second {second:.0%}"
)
assert (f"{first:.0%}", f"{second:.0%}", f"{share[:, 0].max():.0%}") == ("35%", "1%", "76%")

# %% [markdown]
# A third of all attention rests on the very first token, in one layer three quarters. If its row is
# gone, the softmax spreads that weight over tokens that were never meant to get it. This is the
# **attention sink** of [Xiao et al. (2023)](https://arxiv.org/abs/2309.17453), who kept the first four
# tokens and made window attention work in models that were not trained for it. gpt-oss builds a sink in:
# each head learns a number that takes part in the softmax and stands for no token ([OpenAI
# 2025](https://arxiv.org/abs/2508.10925)).
#
# **One difference to their method.** Our keys stay at the positions they had in the text. As the
# text goes on, the distance to the sinks grows without end, and beyond the lengths that a model was
# trained for nobody knows what it does. Their StreamingLLM keeps keys *before* RoPE, and turns them at
# every step to their places *within the cache*. With a window of 4, two sinks and the tokens 0, 1, 6, 7, 8, 9
# held, these count as 0, 1, 2, 3, 4, 5. No distance ever exceeds the size of the cache. The price is
# turning all kept keys at every step. At 1,024 tokens, well within the 8,192 of this model, it is not
# needed.
#
# **What the table does not show.** One small model, one text, 1,024 tokens. It is an average over all
# tokens, the easy ones too. Sinks do not bring the past back: ask for a name from 500 tokens ago, and the
# row is gone. Perplexity hardly notices, a user would. And models that were trained with windows
# need no repair; their quality is a matter of training, which this book does not measure.

# %% [markdown]
# ### Hybrid stacks
#
# What do models that mix take? Read their layers off lesson 3's accounting, build a cache of exactly that
# shape (on PyTorch's `meta` device, which allocates nothing), and compare the bytes.


# %%
def shaped(name: str, context: int) -> tuple[HybridCache, int, int]:
    """A cache of a real model's shape, its predicted bytes, and those with every layer full."""
    spec = cache_spec(facts(name).config)
    heads, width = spec.layers[0].n_kv_heads, spec.layers[0].k_dim
    shape = DecoderConfig(8, 8, len(spec.layers), heads, heads, width, 8, context)
    layers = [layer.window for layer in spec.layers]
    cache = HybridCache(shape, 1, layers=layers, dtype=torch.bfloat16, device="meta")
    return cache, spec.nbytes(context), spec.nbytes(context, policy="all_layers_full")


left = {}
for name in ("gpt-oss-20b", "gemma-3-27b"):
    for context in (1024, 8192, 131_072):
        cache, predicted, full_bytes = shaped(name, context)
        slots = [part.k.shape[0] for part in cache.parts]
        left[name, context] = 100 * cache.nbytes / full_bytes  # percent
        print(f"{name:12}{context:8,} tokens: {slots} layers, {cache.nbytes:14,} bytes,", end=" ")
        print(f"{left[name, context]:.0f}% of all layers full")
        assert cache.nbytes == predicted
    assert sorted(slots) == {"gpt-oss-20b": [12, 12], "gemma-3-27b": [10, 52]}[name]
    every = {"gpt-oss-20b": 2, "gemma-3-27b": 6}[name]
    kinds = [layer.window is None for layer in cache_spec(facts(name).config).layers]
    assert kinds == [(layer + 1) % every == 0 for layer in range(len(kinds))]

# %%
assert f"{left['gpt-oss-20b', 8192]:.0f}" == "51"
assert left["gemma-3-27b", 1024] == 100
assert f"{left['gemma-3-27b', 8192]:.0f}" == "27"
assert f"{left['gemma-3-27b', 131_072]:.0f}" == "17"

# %% [markdown]
# gpt-oss has 12 layers of each kind and a window of only 128, so at 8,192 tokens half is left. That is
# nearly the limit: the full half never shrinks. Gemma 3 27B has 52 windowed layers to 10 full ones.
# Below its window of 1,024 nothing is saved; at 8,192 tokens 27 % is left, at 131,072 the 17 %
# that ten layers of 62 take, and little else. **In a hybrid the full layers decide.**

# %% [markdown]
# ### What engines disagree on
#
# "A window of 128" is read in several ways, and then comes rounding. Rows that one windowed layer of
# gpt-oss keeps or reserves for one sequence of 8,192 tokens:
#
# - **transformers** 5.24.0, growing cache: 127 between steps, because the next token joins them before it
#   attends. Its cache of fixed size has 128.
# - **Blocks of 16** tokens, as engines that page give them out (lesson 10): 128 tokens are 8 blocks, and
#   that is what `policy="paged"` counts. But a window that moves token by token mostly starts within a
#   block, so it touches 9.
# - **vLLM** reserves for the largest piece of a prompt, too: with 2,048 tokens a pass, blocks for
#   127 + 2,048 tokens and one more for the straddling (`SlidingWindowSpec` in
#   [its source at commit 001cabc](https://github.com/vllm-project/vllm/blob/001cabc1be16a59a70d720ed61a13b678c060a18/vllm/v1/kv_cache_interface.py)).
# - **llama.cpp**, since May 2025, does so without blocks: window plus 512 tokens a pass, rounded up to 256
#   ([llama.cpp#13833](https://github.com/ggml-org/llama.cpp/pull/13833)).

# %%
window, block, context = 128, 16, 8192
vllm_pass, llama_pass = 2048, 512  # tokens


def blocks(tokens: int) -> int:
    return -(-tokens // block)


last_block = [n // block for n in range(context)]
touched = max(last_block[n] - last_block[n - window + 1] + 1 for n in range(window - 1, context))
rows = {
    "this book, and transformers' fixed cache": window,
    "transformers' growing cache, between steps": window - 1,
    "blocks of 16, as many as needed": blocks(window) * block,
    "blocks of 16, as many as are touched": touched * block,
    "vLLM, 2,048 tokens a pass": (blocks(window - 1 + vllm_pass) + 1) * block,
    "llama.cpp, 512 tokens a pass": -(-(window + llama_pass) // 256) * 256,
    "windows ignored": context,
}
row_nbytes = 2 * 8 * 64 * 2  # K and V, 8 heads, 64 values of 2 bytes
for name, count in rows.items():
    print(f"{name:44}{count:6,} rows, {12 * count * row_nbytes / MB:7.2f} MB in 12 layers")

# %%
assert list(rows.values()) == [128, 127, 128, 144, 2192, 768, 8192]
oss = cache_spec(facts("gpt-oss-20b").config)
exact, paged = (oss.layer_nbytes(8192, policy=policy)[0] for policy in ("exact", "paged"))
assert exact == paged == 128 * row_nbytes
odd = what_if(cache_spec(facts("llama-3.1-8b").config), window=100)
assert odd.layer_nbytes(8192, policy="paged")[0] == 112 * 2 * 8 * 128 * 2

# %% [markdown]
# From 127 to 2,192 rows for the same layer of the same model, and none of these is a mistake. The small
# ones count what must be kept between passes, the large ones what must be there during one, as your own
# peak above. Ask an engine which it reports. (The 8,192 rows of the last line are wasteful: an engine that
# does not know of windows reserves them.) A window of 129 rows would be a mistake: then a query sees a
# token more than in training.

# %% [markdown]
# ## Explore
#
# Drag the window, the sinks, and the position over the first tokens of the text. See which rows are kept
# and in which slot each lies. The perplexities are those of the table above, over the whole text, and
# only for the settings that were measured.

# %%
tokens = [tokenizer.decode([i]) for i in ids[0, :48].tolist()]
for window, sinks in ((8, 0), (8, 4), (64, 4)):
    ours = held_positions(torch.tensor([len(tokens)]), window + sinks, window, sinks)[0].tolist()
    slots = WindowExplorer(tokens, window=window, sinks=sinks).slots
    assert ours == [-1 if position is None else position for position in slots]
WindowExplorer(tokens=tokens, measured=measured, baseline=perplexity)

# %% [markdown]
# Set the window to 8 and the sinks to 0, and walk the position from 7 to 8: which slot changes? Add a sink: which slots go
# round now? At which position do the bytes stop growing?
#
# <details>
# <summary>Answer</summary>
#
# Slot 0: position 8 takes the place of position 0. With a sink slot 0 keeps position 0 for good, and slots
# 1 to 8 go round. The bytes stop growing where the last slot is filled, at position 7 without a sink and
# at position 8 with one: it is a slot more.
#
# ```python
# import torch
# from kvbook.lessons.window import held_positions
#
# def slots(position, sinks):
#     return held_positions(torch.tensor([position + 1]), 8 + sinks, 8, sinks)[0].tolist()
#
# assert slots(7, 0) == [0, 1, 2, 3, 4, 5, 6, 7]
# assert slots(8, 0) == [8, 1, 2, 3, 4, 5, 6, 7]
# assert slots(8, 1) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
# assert slots(16, 1) == [0, 9, 10, 11, 12, 13, 14, 15, 16]
# assert -1 in slots(7, 1)  # a slot is empty still
# ```
#
# </details>
#
# If you run this notebook yourself, the next cell runs the model on the first 256 tokens with any window
# and any number of sinks. It takes a *kernel*, so the published page shows nothing here.

# %%
ran = {}
short = full[:, :255]  # a token's loss does not depend on what follows


def rerun(window: int, sinks: int) -> None:
    cache = WindowCache(config, capacity=255, window=window, sinks=sinks, device=device)
    found = change(token_losses(model, ids[:, :256], cache), short)
    ran.update(settings=(window, sinks), slots=cache.slots, rise=found.ratio)
    bars = [float(short.mean().exp()), found.perplexity]
    colours = [plotting.colour(role) for role in ("cache", "shared")]
    error = bars[0] * found.error  # of the change, against the full cache on the same tokens
    plt.barh(["every token kept", f"{cache.slots} slots"], bars, xerr=[0, error], color=colours)
    plt.xlabel("perplexity; the bar: one standard error of the change")
    plt.title(f"Window {window}, sinks {sinks}: {found.ratio:+.0%} ± {found.error:.0%}")
    plt.show()


# %% tags=["remove-output", "nbval-ignore-output"]
window_slider = ipywidgets.IntSlider(
    value=64, min=8, max=256, step=8, description="window", continuous_update=False
)
sinks_slider = ipywidgets.IntSlider(
    value=1, min=0, max=8, description="sinks", continuous_update=False
)
sliders = {"window": window_slider, "sinks": sinks_slider}
ipywidgets.VBox([*sliders.values(), ipywidgets.interactive_output(rerun, sliders)])

# %%
assert ran["settings"] == (64, 1)
assert ran["slots"] == 65

# %% tags=["remove-cell", "nbval-ignore-output"]
sinks_slider.value = 0
moved = dict(ran)
sinks_slider.value = 1

# %% tags=["remove-cell"]
assert (moved["settings"], moved["slots"]) == ((64, 0), 64)
assert ran["rise"] < 0.5 * moved["rise"]  # one sink does most of it

# %% [markdown]
# Is one sink enough? How small can the window become, with sinks, until the text falls apart?
#
# <details>
# <summary>Answer</summary>
#
# On these 256 tokens one sink does as well as four: with a window of 64 the rise is 12 % and 11 %, each
# with an error of about 10 %, so there is no telling them apart. There is no edge from which on the text
# falls apart. With four sinks a window of 16 means a rise of 54 %, a window of 8 one of 94 %: the less is
# seen, the higher it is. So few tokens leave wide errors, and another text has another curve.
#
# ```python
# import torch
# from kvbook.lessons.cache import PreallocatedCache
# from kvbook.lessons.window import WindowCache
# from kvbook.measure.quality import change, token_losses
# from kvbook.models import smollm2
# from kvbook.models.text import devils_dictionary
#
# model, tokenizer = smollm2.load("cpu")
# ids = torch.tensor([tokenizer.encode(devils_dictionary()).ids[:256]])
# full = token_losses(model, ids, PreallocatedCache(model.config, capacity=255))
#
# def rise(window, sinks):
#     cache = WindowCache(model.config, capacity=255, window=window, sinks=sinks)
#     return change(token_losses(model, ids, cache), full)
#
# one, four = rise(64, 1), rise(64, 4)
# assert (f"{one.ratio:.0%}", f"{four.ratio:.0%}") == ("12%", "11%")
# assert 0.09 < four.error < one.error < 0.12
# assert [f"{rise(window, 4).ratio:.0%}" for window in (16, 8)] == ["54%", "94%"]
# ```
#
# </details>

# %% [markdown]
# ## Check yourself
#
# The first three are bugs: say what each does, then unfold. Real programs had the first.
#
# **1. `past % window`.** A prompt of 6 tokens goes through a window of 4; the last four rows are stored in
# slots 0 to 3, in order. The next token goes to slot `6 % 4`. Which row does it overwrite? Which prompt
# hides the bug?
#
# <details>
# <summary>Answer</summary>
#
# Slots 0 to 3 hold positions 2, 3, 4, 5. Slot 6 % 4 = 2 holds position 4, which is still needed; the
# oldest, position 2, lies in slot 0. Either store each row in the slot of its own position, as
# `slot_of` does, or count from the first kept row. A prompt whose length is a multiple of the window
# hides it. Two programs had a ring that lost track of its first row after a prefill or a cut: mlx-vlm 0.6.7
# ([mlx-vlm#1715](https://github.com/Blaizzy/mlx-vlm/issues/1715)) and ollama of March 2026
# ([ollama#14912](https://github.com/ollama/ollama/pull/14912)).
#
# ```python
# import torch
# from kvbook.lessons.window import held_positions, slot_of
#
# stored = [2, 3, 4, 5]
# assert stored[6 % 4] == 4
# ours = held_positions(torch.tensor([6]), slots=4, window=4)[0].tolist()
# assert ours == [4, 5, 2, 3]
# assert ours[slot_of(torch.tensor(6), window=4)] == 2
# assert [n for n in range(5, 20) if n % 4 == 0] == [8, 12, 16]  # prompts that hide it
# ```
#
# </details>
#
# **2. 129 keys.** A mask lets a query see keys with `q - k <= window`. Which test finds it? And why does
# a test with a text shorter than the window not?
#
# <details>
# <summary>Answer</summary>
#
# Every query sees one key too many, but only from position `window` on. A shorter text never gets
# there. Count the keys, or compare with a yardstick beyond the window.
#
# ```python
# import torch
# from kvbook.lessons.window import window_mask
#
# def off_by_one(q, k, window):
#     gap = q[:, None, :, None] - k[:, None, None, :]
#     return (gap >= 0) & (gap <= window)
#
# for n in (5, 20):
#     at = torch.arange(n)[None]
#     same = off_by_one(at, at, 8).equal(window_mask(at, at, 8))
#     assert same == (n <= 8)
# assert off_by_one(at, at, 8)[0, 0, -1].sum() == 9
# ```
#
# </details>
#
# **3. Padding in a ring.** Two sequences, window 6, 10 tokens each. The next pass brings 2 real tokens for
# the first and 5 for the second. A cache writes all 5 rows for both. What does the first sequence lose?
#
# <details>
# <summary>Answer</summary>
#
# Its real tokens are at 10 and 11. The padding at 12, 13, 14 takes the slots of positions 6, 7, 8. The
# next token, at 12, should see 7 to 12: it lost 7 and 8. (6 has left the window anyway, which is why
# one row of padding does no harm.)
#
# ```python
# import torch
# from kvbook.lessons.window import held_positions, slot_of
#
# held = held_positions(torch.tensor([12]), slots=6, window=6)[0]
# hit = sorted(held[slot_of(torch.tensor([12, 13, 14]), window=6)].tolist())
# assert hit == [6, 7, 8]
# assert [n for n in hit if n >= 13 - 6] == [7, 8]
# ```
#
# </details>
#
# **4. How far does it see?** Each layer of a model has a window of 128. Can the last layer know anything
# of a token 300 positions back?
#
# <details>
# <summary>Answer</summary>
#
# Yes, by relay: each layer carries news 127 positions further, so 3 layers reach 381 back, and 30 layers
# 3,810. What arrives is what every layer on the way chose to pass on. With random weights you can see
# that something arrives, and where it ends.
#
# ```python
# import torch
# from kvbook.lessons.decoder import Decoder, DecoderConfig
# from kvbook.lessons.window import WindowCache
#
# torch.manual_seed(0)
# config = DecoderConfig(97, 24, 3, 6, 3, 4, 40, 64)
# model = Decoder(config).double().requires_grad_(False)
# ids = torch.randint(97, (1, 20))
# other = ids.clone()
# other[0, 0] = (ids[0, 0] + 1) % 97
# a, b = (model(x, WindowCache(config, window=5, dtype=torch.float64)) for x in (ids, other))
# touched = (a != b).any(-1)[0].nonzero()[:, 0].tolist()
# assert (3 * (128 - 1), 30 * (128 - 1)) == (381, 3810)
# assert touched == list(range(13))  # 3 layers of 4 further, and the token itself
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your guesses, once more: 5,898,240 bytes, forever; the 9th token; one query of 12; +118 %, and +5 %
# with four sinks.
#
# For SmolLM2-135M in float32 at 1,024 tokens:
#
# | Lesson | Bytes held | Per further token | What it costs |
# |---|---|---|---|
# | 2. Reuse the past | 47,185,920 | 46,080 | memory |
# | 9. Window 128 | 5,898,240 | 0 | perplexity +118 % |
# | 9. Window 128 and 4 sinks | 6,082,560 | 0 | perplexity +5 %; what is far back is gone |
#
# And the ledger:

# %%
ledger.show(9)

# %% [markdown]
# ## Next
#
# Most caches so far reserve their room in one piece, whether the text becomes long or not.
# [Lesson 10](10_paged.ipynb) gives the memory out in small blocks, and lets users share what they have in
# common.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. A cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
assert [used for used, _ in ends] == [47_185_920, 5_898_240, 6_082_560]
windowed = oss.layers[0].window
check(
    {
        "46,080 bytes": PreallocatedCache(config, capacity=1, device="meta").nbytes,
        "1,024 tokens": ids.shape[1],
        "6 tokens": lengths[0],
        "12 tokens": prompt.shape[1],
        "4 tokens": measured[-1]["sinks"],
        "16 tokens": seen.step,
        "5,898,240 bytes": ends[1][0],
        "100 tokens": small.capacity,
        "100 slots": small.slots,
        "+118 %": rise[128, 0],
        "5 %": rise[128, 4],
        "3 %": 100 * (ends[2][0] / ends[1][0] - 1),
        "144 %": late[128, 0],
        "6 %": late[128, 4],
        "108 %": late[256, 0],
        "73 %": rise[256, 0],
        "32 tokens": change.__defaults__[0],
        "20 %": errors[128, 0],
        "33 %": 100 * wide[128, 0].error,
        "14 %": errors[256, 0],
        "27 %": 100 * wide[256, 0].error,
        "256 tokens": share.shape[1],
        "500 tokens": From("an example: any distance beyond the window"),
        "12 layers": sum(layer.window is None for layer in oss.layers),
        "8,192 tokens": context,
        "17 %": left["gemma-3-27b", 131_072],
        "128 tokens": windowed,
        "8 blocks": blocks(windowed),
        "2,048 tokens": vllm_pass,
        "512 tokens": llama_pass,
        "127 rows": min(rows.values()),
        "2,192 rows": max(count for count in rows.values() if count < context),
        "8,192 rows": max(rows.values()),
        "129 rows": windowed + 1,
        "12 %": From("the answer's code, which asserts it"),
        "11 %": From("the answer's code, which asserts it"),
        "10 %": From("the answer's code, which bounds it"),
        "54 %": From("the answer's code, which asserts it"),
    }
)

# %% tags=["hide-input"]
check(
    {
        "94 %": From("the answer's code, which asserts it"),
        "12 queries": prompt.shape[1],
        "52 layers": kinds.count(False),  # of Gemma 3 27B
        "10 tokens": From("exercise 3"),
        "2 tokens": From("exercise 3"),
        "5 rows": From("exercise 3"),
        "300 positions": From("exercise 4"),
        "127 positions": windowed - 1,
        "3 layers": -(-300 // (windowed - 1)),
        "30 layers": config.n_layers,
        "+5 %": rise[128, 4],
    }
)
