# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 8 — Fewer bits
#
# **The question.** A cached value takes two bytes. How few bits will do, what does a model lose
# by it, and does it get faster?
#
# You will build a cache that keeps small codes instead of numbers: 8, 4 or 2 bits each. The bytes
# are easy to count, if you do not forget the scales. The quality must be measured, and it depends
# on *which* values share a scale and on *when* a key is coded. The speed will disappoint you
# first.

# %% [markdown]
# ## What you need
#
# [Lesson 2](02_cache.ipynb) for what a cache must do, [lesson 3](03_cost.ipynb) for bytes per
# token, [lesson 6](06_roofline.ipynb) for why a decode step waits for memory,
# [lesson 7](07_gqa.ipynb) for loss and perplexity. You need no GPU. The lesson runs in about a
# minute on two CPU cores.
#
# One word first. A key is a row of 64 numbers in each head. One of the 64 places, followed over all
# tokens, is a **channel**.

# %% [markdown]
# ## Predict
#
# 1. Each value in 8 bits instead of 16, and one scale for each row of 64 values. Which share of
#    the fp16 cache is left?
# 2. You may code only the keys or only the values with 4 bits. Which of the two does the model
#    mind more?
# 3. In 4 bits, 32 neighbours in a key can share a scale, or 32 tokens in each channel. The second
#    way loses much less. But it also leaves the newest keys uncoded until 32 have come. Which of
#    the two does more for it: that each channel has its scale, or that the newest keys are exact?
# 4. The int8 cache has about a quarter of the bytes of the float32 cache. How much faster does
#    attention over it run, if you turn codes into numbers and then attend as before?

# %% tags=["export"]
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbook.lessons.cache import KVCache, check_rows, put
from kvbook.lessons.decoder import DecoderConfig

# %%
import statistics
from dataclasses import replace

import ipywidgets
import matplotlib.pyplot as plt
import torch.nn.functional as F

from kvbook import ledger, plotting
from kvbook.accounting import cache_spec, facts, fit_users
from kvbook.explorer.bits import BitsExplorer
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.decoder import generate
from kvbook.lessons.measure import held_nbytes
from kvbook.lessons.roofline import seconds
from kvbook.measure import codes_points, quality_points, record
from kvbook.measure.quality import change, token_losses
from kvbook.measure.runner import results
from kvbook.models import smollm2
from kvbook.prose import From, check

# %%
plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
model, tokenizer = smollm2.load(device)
config = model.config

# %% [markdown]
# ## Build
#
# ### Another float
#
# The simplest code for a number is a smaller float. fp8 has two kinds. **e4m3** spends 4 bits on
# the exponent and 3 on the digits, **e5m2** spends 5 and 2: a wider range, coarser steps
# ([Micikevicius et al. 2022](https://arxiv.org/abs/2209.05433)). A float brings its own scale in
# the exponent, so nothing else must be kept.
#
# One trap: e4m3 ends at 448 and has no infinity; e5m2 ends at 57,344 and has one. What a cast
# makes of a larger number could be the end, infinity or NaN. If you clamp first, you need not
# know. Reading back has the same trap: bfloat16 rounds 65,500 to 65,536, and float16 ends at
# 65,504. (The method is called `encode`, and what it returns is a list of **parts**. Here it is
# one part, the codes; others will have scales, too.)


# %% tags=["export"]
def within(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers in dtype; what lies beyond its range becomes its end. x itself may be clamped."""
    if torch.finfo(x.dtype).max > torch.finfo(dtype).max:
        most, wide = torch.finfo(dtype).max, torch.promote_types(dtype, torch.float32)
        x = x.to(wide).clamp_(-most, most)
    return x.to(dtype)


class Cast:
    """Another float as the code: clamped to its range, cast, kept as bytes. There is no scale."""

    tokens = 1  # of a block: each token is coded by itself
    unit = 1  # a row's width must be a multiple of it

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def encode(self, rows: Tensor) -> list[Tensor]:
        """Rows [..., tokens, d] -> one part, uint8 [..., tokens, d × bytes of the float]."""
        largest = min(torch.finfo(self.dtype).max, torch.finfo(rows.dtype).max)
        return [rows.clamp(-largest, largest).to(self.dtype).view(torch.uint8)]

    def decode(self, parts: list[Tensor], dtype: torch.dtype) -> Tensor:
        """What encode made -> rows [..., tokens, d] in dtype."""
        return within(parts[0].view(self.dtype), dtype)


# %%
row = torch.tensor([[0.1, 3.3, 20.0, 500.0]])
for name in ("float8_e4m3fn", "float8_e5m2"):
    cast = Cast(getattr(torch, name))
    print(f"{name:14}", cast.decode(cast.encode(row), torch.float32)[0].tolist())
assert (
    Cast(torch.float8_e4m3fn).decode([torch.tensor([126], dtype=torch.uint8)], torch.float32) == 448
)
cast = Cast(torch.bfloat16)
top = cast.encode(torch.tensor([65_500.0]))
assert cast.decode(top, torch.float32) == 65_536
assert cast.decode(top, torch.float16) == 65_504

# %% [markdown]
# ### Whole numbers and a scale
#
# The other way is a ruler. Take a group of values that lie between $a$ and $b$, and divide this
# range into equal steps. The code says which step, and the group shares two numbers: the step,
# called the **scale**, and the **minimum** $a$.
#
# $$x \approx a + s \cdot c, \qquad s = \frac{b - a}{2^{bits} - 1}, \qquad c \in \{0, \dots, 2^{bits} - 1\}$$
#
# With 8 bits the minimum can be left out: codes run from −127 to 127 and $s = \max|x| / 127$. If
# scale and minimum are kept exactly, a value is off by at most half a step. So the error depends
# on the *widest* value of its group. Keep that in mind.
#
# Codes of 4 bits go two into a byte, codes of 2 bits four. If you store an int4 in an int8
# tensor, you have saved nothing.


# %% tags=["export"]
def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes of 8, 4 or 2 bits, uint8 [..., n] -> [..., n × bits / 8]; the first lies lowest."""
    groups = codes.unflatten(-1, (-1, 8 // bits))
    packed = groups[..., 0]
    for place in range(1, 8 // bits):
        packed = packed | (groups[..., place] << (bits * place))
    return packed


def unpack(packed: Tensor, bits: int) -> Tensor:
    """The inverse of pack."""
    places = [(packed >> (bits * place)) & (2**bits - 1) for place in range(8 // bits)]
    return torch.stack(places, dim=-1).flatten(-2) if len(places) > 1 else packed


# %%
packed = pack(torch.tensor([1, 15, 7, 0], dtype=torch.uint8), 4)
print([hex(byte) for byte in packed.tolist()], unpack(packed, 4).tolist())
assert packed.tolist() == [0xF1, 0x07]

# %% [markdown]
# A group is `tokens` long and `width` wide. One row: `tokens=1` and the width of the head. 32
# tokens of one channel: `tokens=32`, `width=1`. Scale and minimum are float16.
#
# What can go wrong hides in one line each. An all-zero group has the scale 0, and 0/0 is NaN:
# divide by 1 there. A scale is rounded to float16, so a value may land beyond the last code:
# clamp the code. And what is read back may be a little larger than what was stored, so it may
# leave the range of float16: clamp that, too.


# %% tags=["export"]
@dataclass(frozen=True)
class Integers:
    """Whole numbers as codes. Each group of values, `tokens` long and `width` wide, has a scale.

    The scale is a float16. With `minimum` codes count up from the group's smallest value, kept as a
    float16, too; without one they count from 0 in both directions. `width` None is a whole row.
    """

    bits: int
    tokens: int = 1
    width: int | None = None
    minimum: bool = False

    @property
    def unit(self) -> int:  # a row's width must be a multiple of it
        return self.width or 8 // self.bits

    def encode(self, rows: Tensor) -> list[Tensor]:
        """Rows [..., n × tokens, d] -> parts [..., n, *]: packed codes, scales, maybe minima."""
        width = rows.shape[-1] if self.width is None else self.width
        x = rows.to(torch.promote_types(rows.dtype, torch.float32))
        x = x.unflatten(-1, (-1, width)).unflatten(-3, (-1, self.tokens))
        group = {"dim": (-3, -1), "keepdim": True}  # x is [..., n, tokens, groups, width]
        if self.minimum:
            low, least, most = x.amin(**group).half(), 0, 2**self.bits - 1
            reach = (x.amax(**group) - low).clamp_min(0)
        else:
            low, least, most = None, 1 - 2 ** (self.bits - 1), 2 ** (self.bits - 1) - 1
            reach = x.abs().amax(**group)
        scale = (reach / most).half()
        x = x if low is None else x - low
        codes = (x / torch.where(scale > 0, scale, 1)).round().clamp(least, most)
        codes = codes.to(torch.int8 if low is None else torch.uint8).view(torch.uint8)
        shared = [scale] if low is None else [scale, low]
        return [pack(codes.flatten(-3), self.bits), *(part.flatten(-3) for part in shared)]

    def decode(self, parts: list[Tensor], dtype: torch.dtype) -> Tensor:
        """What encode made -> rows [..., n × tokens, d] in dtype."""
        codes, *shared = parts
        wide = torch.promote_types(dtype, torch.float32)
        scale, *low = (part[..., None, :, None].to(wide) for part in shared)
        codes = unpack(codes, self.bits) if self.minimum else codes.view(torch.int8)
        x = codes.unflatten(-1, (self.tokens, scale.shape[-2], -1)) * scale
        x = x + low[0] if low else x
        return within(x.flatten(-2).flatten(-3, -2), dtype)


# %%
zeros, constant = torch.zeros(1, 1, 8), torch.full((1, 1, 8), 2.5)
for codec in (Integers(8), Integers(4, minimum=True)):
    assert codec.decode(codec.encode(zeros), torch.float32).abs().max() == 0
    assert (codec.decode(codec.encode(constant), torch.float32) - 2.5).abs().max() < 0.01
ramp = torch.linspace(-1, 1, 8)[None, None]
parts = Integers(4, minimum=True).encode(ramp)
print(unpack(parts[0], 4)[0, 0].tolist(), "scale", parts[1].item(), "minimum", parts[2].item())
assert unpack(parts[0], 4)[0, 0].tolist() == [0, 2, 4, 6, 9, 11, 13, 15]

# %% [markdown]
# Float16 has 11 binary digits, and its smallest number is $2^{-24}$. That sets two limits to
# "half a step".
#
# - **Tiny rows.** Below $2^{-14}$ scales have fewer digits. For int8 that begins at a largest
#   value of 0.0078. At $10^{-5}$ the scale is $2^{-24}$, the smallest there is, and too small for
#   the row: the widest value comes back as 7.6 · 10⁻⁶.
# - **Narrow groups far from zero.** Near 1,000 float16 knows halves only. Values from 1,000.3 to
#   1,000.4 get the minimum 1,000.5, and all come back as that.

# %%
tiny = torch.tensor([[[1e-5, -1e-5, 0.0, 0.0]]])
codes, scale = Integers(8).encode(tiny)
back = Integers(8).decode([codes, scale], torch.float32)
assert codes.view(torch.int8)[0, 0, :2].tolist() == [127, -127]  # clamped: 168 would be −88
assert (scale, f"{127 * 2.0**-14:.4f}", f"{back.max():.1e}") == (2**-24, "0.0078", "7.6e-06")
codec, far = Integers(4, minimum=True), torch.linspace(1000.3, 1000.4, 32)[None, None]
assert (codec.decode(codec.encode(far), torch.float32) == 1000.5).all()

# %% [markdown]
# ### Where the error sits
#
# Which values should share a scale? Look at real ones: the keys of one head of SmolLM2, for 256
# tokens of a dictionary. (Layer 18, head 2, counted from 0. It is the head in which the widest
# channel stands out most.)

# %%
text = quality_points.pieces(1, 256).to(device)  # 257 tokens of The Devil's Dictionary
plain = PreallocatedCache(config, capacity=256, device=device)
baseline = token_losses(model, text, plain, chunk=32)
keys, values = plain.k[18, 0, 2].cpu(), plain.v[18, 0, 2].cpu()  # [256 tokens, 64 channels]


def outlier(rows: torch.Tensor) -> float:
    """The widest channel against the median one."""
    width = rows.abs().amax(0)
    return float(width.max() / width.median())


ways = {
    "row": Integers(4, minimum=True),
    "channel": Integers(4, tokens=32, width=1, minimum=True),
}
errors = {}
for name, codec in ways.items():
    back = codec.decode(codec.encode(keys), keys.dtype)
    errors[name] = (back - keys).square().mean(0).sqrt()  # per channel
print(f"widest channel against the median: keys {outlier(keys):.0f}, values {outlier(values):.0f}")

# %%
middle = {name: float(found.median()) for name, found in errors.items()}
print(f"error of the middle channel: {middle['row']:.2f} or {middle['channel']:.2f}")
assert f"{outlier(keys):.0f} {outlier(values):.0f}" == "7 3"
assert f"{middle['row']:.2f} {middle['channel']:.2f}" == "0.36 0.03"
heads = [[outlier(head) for head in layer[0].cpu()] for layer in plain.k]
assert heads[18][2] == max(map(max, heads))
assert {30, 62, 63} <= set(keys.abs().amax(0).topk(4).indices.tolist())

# %% tags=["hide-input"] mystnb={"image": {"alt": "Two panels over the 64 channels of a head. Above: the largest key in each channel; a few channels stand far above the rest. Below, on a logarithmic axis: the error with 4 bits. With a scale for each token all channels have about the same error. With a scale for each channel, narrow channels have a much smaller one."}}
figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
top.bar(range(64), keys.abs().amax(0), color=plotting.colour("key"))
top.set_ylabel("largest |key|")
top.set_title("A few wide channels set the scale that all others must use")
for name, role, label in (
    ("row", "evicted", "a scale for each token's row"),
    ("channel", "shared", "a scale for 32 tokens of a channel"),
):
    bottom.plot(errors[name], color=plotting.colour(role), marker=".", label=label)
bottom.set_yscale("log")
bottom.set_yticks([0.02, 0.05, 0.1, 0.2, 0.4], ["0.02", "0.05", "0.1", "0.2", "0.4"])
bottom.minorticks_off()
bottom.set_ylim(0.015, 0.5)
bottom.set_ylabel("error (rms), 4 bits")
bottom.set_xlabel("channel of the head")
bottom.legend(loc="upper left", bbox_to_anchor=(0, -0.25), ncols=2)
plt.show()

# %% [markdown]
# Above: the channels are not alike. The widest key is 7 times the median channel's. Among the
# widest are 30, 62 and 63: RoPE turns the pairs (30, 62) and (31, 63) slowest of all, so what is
# large there stays large from token to token. Below: if a token's row shares a scale, the widest
# channel sets the step, and all 64 channels pay with nearly the same error. If each channel has
# its own scale, the middle channel's error falls from 0.36 to 0.03. The values of this head have
# no channel that stands out so far: 3 times the median.
#
# This is the idea of KIVI ([Liu et al. 2024](https://arxiv.org/abs/2402.02750)): keys per channel,
# values per token.

# %% [markdown]
# ### The formats
#
# A scale for 32 tokens of a channel needs 32 tokens. Until they have come, the keys wait in a
# **tail**, as they are. So a format with a scale for each channel does two things at once: it groups
# the keys in the other direction, and it leaves the newest keys uncoded. To tell the two apart you need a format
# that does only the second. `Waiting` makes one: groups within a row, as before, but coded only
# when 32 tokens have come.


# %% tags=["export"]
@dataclass(frozen=True)
class Waiting:
    """Another codec's codes, made for `tokens` tokens at a time; until they come, rows wait."""

    codec: Integers  # which codes token by token
    tokens: int = 32

    @property
    def unit(self) -> int:
        """A row's width must be a multiple of it."""
        return self.codec.unit

    def encode(self, rows: Tensor) -> list[Tensor]:
        """Rows [..., n × tokens, d] -> parts [..., n, *]: those of a block's tokens side by side."""
        parts = self.codec.encode(rows)
        return [part.unflatten(-2, (-1, self.tokens)).flatten(-2) for part in parts]

    def decode(self, parts: list[Tensor], dtype: torch.dtype) -> Tensor:
        """What encode made -> rows [..., n × tokens, d] in dtype."""
        apart = [part.unflatten(-1, (self.tokens, -1)).flatten(-3, -2) for part in parts]
        return self.codec.decode(apart, dtype)


# %% [markdown]
# The formats of this lesson. The last five take a float16 scale and a float16 minimum for each
# group.
#
# | Format | Keys | Values |
# |---|---|---|
# | `float16`, `bfloat16` | cast | cast |
# | `int8` | a scale per row | a scale per row |
# | `fp8_e4m3`, `fp8_e5m2` | cast, no scale | cast, no scale |
# | `int4_token` | per row | per row |
# | `int4_group` | 32 neighbours in a row | 32 neighbours in a row |
# | `int4_group_tail` | the same, coded when 32 tokens have come | 32 neighbours in a row |
# | `int4` | 32 tokens of a channel | 32 neighbours in a row |
# | `int2` | 32 tokens of a channel | 32 neighbours in a row |

# %% tags=["export"]
Codec = Cast | Integers | Waiting
ROW = Integers(4, minimum=True)
GROUP = Integers(4, width=32, minimum=True)
CHANNEL = Integers(4, tokens=32, width=1, minimum=True)
FORMATS: dict[str, tuple[Codec, Codec]] = {  # how keys and how values are kept
    "float16": (Cast(torch.float16), Cast(torch.float16)),
    "bfloat16": (Cast(torch.bfloat16), Cast(torch.bfloat16)),
    "int8": (Integers(8), Integers(8)),
    "fp8_e4m3": (Cast(torch.float8_e4m3fn), Cast(torch.float8_e4m3fn)),
    "fp8_e5m2": (Cast(torch.float8_e5m2), Cast(torch.float8_e5m2)),
    "int4_token": (ROW, ROW),
    "int4_group": (GROUP, GROUP),
    "int4_group_tail": (Waiting(GROUP), GROUP),
    "int4": (CHANNEL, GROUP),
    "int2": (
        Integers(2, tokens=32, width=1, minimum=True),
        Integers(2, width=32, minimum=True),
    ),
}

# %% [markdown]
# ### Coded token by token
#
# If a group lies within one token, the token can be coded when it comes. So these caches work as
# the preallocated one does: find the slot, write. What is written are codes and scales, and what
# attention gets is read back from them. `put` clears the slots behind the end of a shorter
# sequence, scales too: a stale scale may be NaN.


# %% tags=["export"]
class CodedTokens:
    """The keys, or the values, of all layers, coded token by token as they come."""

    def __init__(self, codec: Codec, cache: KVCache, dim: int) -> None:
        config, self.codec = cache.config, codec
        zeros = torch.zeros(1, codec.tokens, dim, dtype=cache.dtype)
        block = codec.encode(zeros.to(cache.device))
        shape = (config.n_layers, cache.batch, config.n_kv_heads, cache.capacity // codec.tokens)
        self.parts = [  # each [n_layers, batch, n_kv_heads, blocks, *]
            torch.empty(*shape, part.shape[-1], dtype=part.dtype, device=part.device)
            for part in block
        ]
        self.held = [*self.parts]  # every tensor that is kept; dimension 1 is the batch
        self.fresh: dict[int, Tensor] = {}  # by layer: rows of the pass under way, where they wait

    def used(self, length: int) -> int:
        """Bytes that a sequence of so many tokens fills."""
        blocks = length // self.codec.tokens
        return blocks * sum(part[:, 0, :, :1].nbytes for part in self.parts)

    def update(self, layer: int, new: Tensor, lengths: Tensor) -> Tensor:
        """Code the new rows at each sequence's end; every row, read back from its codes."""
        end = int(lengths.max()) + new.shape[2]
        parts = [part[layer, :, :, :end] for part in self.parts]
        for part, codes in zip(parts, self.codec.encode(new.detach()), strict=True):
            put(part, codes, lengths)
        return self.codec.decode(parts, new.dtype)

    def advance(self, lengths: Tensor, counts: Tensor) -> None:
        """Nothing is left to do: codes of rows that do not count are overwritten."""


# %% [markdown]
# ### Coded in blocks
#
# The tail holds what fills no block of 32 tokens yet. When a block is full it is coded, once. It
# is never coded again, because coding what was read back would add error to error.
#
# When is a token there? Lesson 2 decided: when `advance` counts it. Rows of padding, or of a pass
# that broke off, must not end up in a block, because a coded block cannot be taken back. So
# `update` only keeps the new rows, and `advance` codes what they filled. Until then the pass
# attends to its own keys as they are.


# %% tags=["export"]
class CodedBlocks(CodedTokens):
    """The same in blocks of several tokens: what fills no block yet waits in a tail, uncoded."""

    def __init__(self, codec: Codec, cache: KVCache, dim: int) -> None:
        super().__init__(codec, cache, dim)
        shape = (*self.parts[0].shape[:3], codec.tokens, dim)
        self.tail = torch.empty(shape, dtype=cache.dtype, device=cache.device)
        self.held.append(self.tail)

    def used(self, length: int) -> int:
        return super().used(length) + self.tail[:, 0, :, : length % self.codec.tokens].nbytes

    def update(self, layer: int, new: Tensor, lengths: Tensor) -> Tensor:
        """Every row: coded ones read back, then the tail and the new rows as they are."""
        self.fresh[layer], tokens = new.detach(), self.codec.tokens
        end, rest = int(lengths.max()), lengths % tokens
        level = bool((lengths == end).all())
        room = end + new.shape[2] + (0 if level else tokens)
        rows = new.new_zeros(*new.shape[:2], room, new.shape[3])
        blocks = [part[layer, :, :, : end // tokens] for part in self.parts]
        rows[:, :, : end // tokens * tokens] = self.codec.decode(blocks, new.dtype)
        put(rows, self.tail[layer, :, :, : int(rest.max())], lengths - rest)
        put(rows, new, lengths)
        return rows[:, :, : end + new.shape[2]]

    def advance(self, lengths: Tensor, counts: Tensor) -> None:
        """Code every block that the pass has filled, once and for all; keep the rest as the tail."""
        level = len({*zip(lengths.tolist(), counts.tolist(), strict=True)}) == 1
        each = [slice(None)] if level else [slice(i, i + 1) for i in range(len(counts))]
        while self.fresh:
            layer, new = self.fresh.popitem()
            for row in each:
                self.store(layer, row, new[row], int(lengths[row][0]), int(counts[row][0]))

    def store(self, layer: int, row: slice, new: Tensor, length: int, count: int) -> None:
        full, rest = divmod(length, self.codec.tokens)
        rows = torch.cat([self.tail[layer, row, :, :rest], new[:, :, :count]], dim=2)
        blocks = rows.shape[2] // self.codec.tokens
        if blocks:
            whole = self.codec.encode(rows[:, :, : blocks * self.codec.tokens])
            for part, codes in zip(self.parts, whole, strict=True):
                part[layer, row, :, full : full + blocks] = codes
        left = rows[:, :, blocks * self.codec.tokens :]
        self.tail[layer, row, :, : left.shape[2]] = left


# %% [markdown]
# Note the count in `store`: whether a block is full depends on *all* tokens so far, not on those
# of this pass. A cache that decodes one token at a time must code old tokens, too.
#
# ### The cache
#
# Two halves, each with its codec, behind lesson 2's seam. The decoder will not notice. NaN and
# infinity are refused: one of them would spoil the scale of a whole group. That test has a price
# on a GPU: the processor must wait for its answer, once in each layer. `reorder` copies sequences
# over each other. A *beam search* needs that: it writes several continuations side by side and
# keeps the likeliest. Codes, scales and tails must move together. `reset` must forget the pass
# under way, too.
#
# Cutting a sequence back is not offered: it could end within a coded block.


# %% tags=["export"]
def check_range(k: Tensor, v: Tensor) -> None:
    """Raise ValueError for NaN, and for what lies beyond float16's range: no scale fits it.

    This waits for the device once. On `meta` there is nothing to see.
    """
    if k.shape[2] and not k.is_meta:
        tops = torch.stack([x.detach().abs().amax() for x in (k, v)]).tolist()
        for name, top in zip("kv", tops, strict=True):
            if not top <= 65504:  # NaN is not <= either
                limit = f"{name} holds NaN or a value beyond ±65,504"
                raise ValueError(f"{limit}: no scale fits it.")


# %% tags=["export"]
class CodedHalves(KVCache):
    """Keys and values kept by one of `codecs` each, and the bytes that they take."""

    def __init__(self, config: DecoderConfig, batch: int, capacity: int | None, codecs, **options):
        super().__init__(config, batch, capacity, **options)
        self.k, self.v = (
            (CodedTokens if codec.tokens == 1 else CodedBlocks)(codec, self, dim)
            for codec, dim in zip(codecs, (self.k_dim, self.v_dim), strict=True)
        )
        self.stored = [0] * config.n_layers  # rows per sequence of the pass under way

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales, minima and tails, filled or not; also of rows that still wait."""
        parts = [part for half in (self.k, self.v) for part in (*half.held, *half.fresh.values())]
        return sum(part.untyped_storage().nbytes() for part in parts)

    @property
    def nbytes_used(self) -> int:
        """Bytes that live tokens fill: their codes with scales and minima, and rows in the tail."""
        return sum(half.used(n) for half in (self.k, self.v) for n in self.lengths.tolist())


# %% tags=["export"]
class CodedCache(CodedHalves):
    """Keeps the codes of `codecs`, read back for attention. Rows must pass check_range."""

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        check_rows(self, layer, k, v)
        check_range(k, v)
        if self.stored[layer]:  # this layer again: a new pass, and the last one broke off
            self.give_up()
        self.stored[layer] = k.shape[2]
        return self.k.update(layer, k, self.lengths), self.v.update(layer, v, self.lengths)

    def advance(self, counts: int | Tensor) -> None:
        before, stored = self.lengths, min(self.stored)
        super().advance(counts)
        new = self.lengths - before
        if new.max() > stored:
            self.lengths = before
            raise ValueError(f"counts is {new.tolist()}; the pass stored {stored}.")
        self.stored = [0] * self.config.n_layers
        for half in (self.k, self.v):
            half.advance(before, new)

    def give_up(self) -> None:
        """Forget the pass under way."""
        self.stored = [0] * self.config.n_layers
        for half in (self.k, self.v):
            half.fresh.clear()

    def reset(self) -> None:
        super().reset()
        self.give_up()


# %% tags=["export"]
class QuantizedCache(CodedCache):
    """Lesson 8's cache in one of FORMATS; `only` "keys" or "values" leaves the other half float16."""

    def __init__(
        self,
        config: DecoderConfig,
        batch: int = 1,
        capacity: int | None = None,
        format: str = "int8",
        only: str | None = None,
        **options,
    ) -> None:
        if format not in FORMATS:
            raise ValueError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
        if only not in (None, "keys", "values"):
            raise ValueError(f"only is {only!r}; it must be None, 'keys' or 'values'.")
        keys, values = FORMATS[format]
        plain = Cast(torch.float16)
        codecs = (plain if only == "values" else keys, plain if only == "keys" else values)
        for dim_name, codec in zip(("k_dim", "v_dim"), codecs, strict=True):
            dim = getattr(config, dim_name, config.head_dim)
            if dim % codec.unit:
                takes = f"{format} takes a multiple of {codec.unit}"
                raise ValueError(f"{dim_name} is {dim}; {takes}.")
        super().__init__(config, batch, capacity, codecs, **options)

    def reorder(self, order: Tensor) -> None:
        """Sequence i becomes a copy of sequence order[i], int64 [batch]: codes, scales, tails, all.

        Raises ValueError for another order, and between `update` and `advance`.
        """
        order = torch.as_tensor(order, device="cpu")
        known = order.dtype == torch.long and order.shape == (self.batch,)
        if not known or order.min() < 0 or order.max() >= self.batch:
            takes = f"{self.batch} int64, each 0 to {self.batch - 1}"
            raise ValueError(f"order is {order.tolist()}; it must be {takes}.")
        if any(self.stored):
            raise ValueError(f"A pass of {max(self.stored)} rows is under way; advance first.")
        self.lengths = self.lengths[order]
        for part in self.k.held + self.v.held:
            part.copy_(part[:, order.to(part.device)])


# %% [markdown]
# ### Every byte
#
# Now count, scales and minima with the codes. `nbytes` counts everything that is held;
# `kvbook.accounting` predicted int8, int4 and fp8 already in lesson 5's table of users.

# %%
spec = cache_spec(facts.model("smollm2-135m").config)
print(f"{'256 tokens':16}{'bits a value':>13}{'bytes a token':>14}{'tail':>9}")
for name in FORMATS:
    cache = QuantizedCache(config, capacity=256, format=name, dtype=torch.float16, device=device)
    tail = cache.k.tail.nbytes if isinstance(cache.k, CodedBlocks) else 0
    per_token = (cache.nbytes - tail) // 256
    print(f"{name:16}{8 * per_token / 11_520:13.2f}{per_token:14,}{tail:9,}")
    assert held_nbytes(cache) == cache.nbytes + 8  # and `lengths`
    known = {"int8": "int8", "fp8_e4m3": "fp8", "int4": "int4"}.get(name)
    assert known is None or cache.nbytes == spec.nbytes(256, cache_dtype=known) + tail
assert (11_880 / 23_040, 368_640) == (0.515625, 30 * 3 * 32 * 64 * 2)
assert 5 * 368_640 == 256 * 7_200

# %% [markdown]
# Guess 1: 51.6 %, not half, because the scale of a row of 64 adds 2 bytes to 64. In 4 bits the
# scales weigh more: `int4` takes 5 bits a value. And the tail is not free either: 368,640 bytes
# for each sequence, however short it is. At 256 tokens that is a fifth on top of the codes.
#
# So much the object holds, to the byte. What does a process take for it? Measure it as in lesson 4,
# in fresh processes:

# %%
base = {"what": "grid", "model": "smollm2-135m", "kind": "quantized", "device": device}
jobs = [
    {**base, "dtype": "int8", "context": 4096, "batch": 2},
    {**base, "dtype": "int4", "context": 8192, "batch": 2},
]
grid = list(results(jobs))
for job, found in grid:
    beside = found["held"] - found["predicted"]
    print(f"{job['dtype']}: predicted {found['predicted']:,} bytes, held {beside} more")
    assert beside == 8 * job["batch"]

# %% tags=["nbval-ignore-output"]
near = "requested" if device == "cuda" else "resident"
for job, found in grid:
    print(f"{job['dtype']}: {near} {found[near] / found['predicted']:.1%} of the prediction")

# %%
assert all(found["predicted"] > 64 * 10**6 for _, found in grid)
bound = 0.01 if device == "cuda" else 0.05
assert all(abs(found[near] / found["predicted"] - 1) < bound for _, found in grid)

# %% [markdown]
# Neither figure shows what is held for a moment. While a layer attends, its keys and values lie
# there as floats, in full: one layer of 30. And where keys are coded in blocks, the new keys of *all* layers wait for
# `advance`, as they came. That is nothing for one token. For a prompt of 1,024 tokens in one pass
# it is not:

# %%
cache = QuantizedCache(config, capacity=1024, format="int4", device=device)
before = cache.nbytes
for layer in range(config.n_layers):
    k, v = (torch.zeros(1, config.n_kv_heads, 1024, 64, device=device) for _ in range(2))
    cache.update(layer, k, v)
waiting = sum(new.nbytes for new in cache.k.fresh.values())
print(f"held {before / 1e6:.1f} MB; waiting for advance {waiting / 1e6:.1f} MB more")
assert (f"{before / 1e6:.1f}", f"{waiting / 1e6:.1f}") == ("8.1", "23.6")
assert cache.nbytes == before + waiting == before + 30 * 3 * 1024 * 64 * 4
cache.advance(1024)
assert cache.nbytes == before

# %% [markdown]
# 23.6 MB beside a cache of 8.1 MB. If you read the prompt in passes of 32 tokens, as the next
# section does, it is a thirty-second of that.

# %% [markdown]
# ## Measure
#
# ### What the model loses
#
# The model reads a text, 32 tokens in a pass, **through the cache**: each pass attends to what
# the cache gives back. (With 32, a block, a pass reads just what decoding one token at a time
# would read.) Whatever it would say, it is fed the text. That gives a loss for each token. Two
# caches are compared token by token, so that hard words cancel, and the standard error comes from
# blocks of 32 neighbours, as if those were independent (`kvbook.measure.quality`).
#
# First here and now, for three formats and 256 tokens.

# %%
here = {}
for name in ("int8", "int4_token", "int4"):
    cache = QuantizedCache(config, capacity=256, format=name, device=device)
    here[name] = change(token_losses(model, text, cache, chunk=32), baseline)
    assert cache.lengths.tolist() == [256]

# %% tags=["nbval-ignore-output"]
print("this run, 256 tokens: perplexity against the float32 cache")
for name, found in here.items():
    print(f"{name:12}{found.ratio:+8.1%} ± {found.error:.1%}")

# %%
assert abs(here["int8"].ratio) < 0.03
assert here["int4_token"].ratio > here["int4"].ratio

# %% [markdown]
# 256 tokens are few: eight blocks, from which a standard error is itself a rough figure. A change of
# two or three of them may be chance here. So the whole table was recorded, on 4 × 1,024
# tokens, for every format, and for keys or values alone (the other half then is float16). It
# takes a quarter of an hour: `python -m kvbook measure --what quality --out
# measurements/mine.json`. Here the four pieces give a second standard error, from their own four
# means. It is the larger one where the pieces differ more than the blocks do. The table shows the
# larger of the two. This is the record, not this run:

# %%
folder = record.book_folder()
name, kept = record.newest(folder, "cpu", "quality")
print(f"{name}, {kept['date'][:10]}: {kept['device']['name']}, PyTorch {kept['versions']['torch']}")
print(quality_points.answer(kept))

# %%
measured = quality_points.rows(kept)
lost = {(row["format"], row["only"]): 100 * row["change"] for row in measured}
error = {(row["format"], row["only"]): 100 * row["error"] for row in measured}
both = {name: f"{change:.1f}" for (name, only), change in lost.items() if only is None}
assert abs(lost["int8", None]) < 2 * error["int8", None]
assert abs(lost["int8", None]) + 2 * error["int8", None] < 0.2
assert f"{error['int2', None]:.1f} {error['int4_group', None]:.1f}" == "5.5 1.1"
assert (both["fp8_e4m3"], both["fp8_e5m2"]) == ("0.8", "2.9")
assert (both["int4_token"], both["int4_group"]) == ("10.0", "5.0")
assert (both["int4_group_tail"], both["int4"]) == ("1.7", "0.9")
assert both["int2"] == "45.3"
for name in ("fp8_e4m3", "fp8_e5m2", "int4_token", "int4_group"):
    assert lost[name, "keys"] > 4 * lost[name, "values"]

# %%
halves = {(p["job"]["format"], p["job"]["only"]): p["result"]["losses"] for p in kept["points"]}
two = {}  # keys alone against values alone, pair by pair
for name in ("int4", "int2"):
    found = quality_points.compared(halves[name, "keys"], halves[name, "values"])
    ratio = round(100 * found.ratio, 1) + 0.0  # never "-0.0"
    two[name] = f"{ratio:.1f} ± {100 * found.error:.1f}"
    print(f"{name}: keys alone against values alone {two[name]} %")
steps = {}  # from one format to the next, pair by pair: first the tail, then the direction
for one, other in (("int4_group", "int4_group_tail"), ("int4_group_tail", "int4")):
    for only in (None, "keys"):
        found = quality_points.compared(halves[other, only], halves[one, only])
        steps[other, only] = f"{100 * found.ratio:.1f} ± {100 * found.error:.1f}"
    print(f"{other} against {one}: {steps[other, None]} %, keys alone {steps[other, 'keys']} %")
assert abs(lost["int4", "keys"] - lost["int4", "values"]) < 0.1
assert two["int2"] == "-3.1 ± 1.6"
assert f"{lost['int2', 'keys']:.1f} {lost['int2', 'values']:.1f}" == "14.9 18.5"
assert steps["int4_group_tail", None] == "-3.2 ± 0.6"
assert steps["int4", None] == "-0.7 ± 0.6"
assert steps["int4", "keys"] == "-0.9 ± 0.3"
for name in ("int4_group_tail", "int4"):
    assert quality_points.bytes_at({"format": name, "only": None}, 1024) == 7_560 == 7_200 + 360

# %% tags=["hide-input"] mystnb={"image": {"alt": "Recorded changes of perplexity, one row for each format, three points in each: keys and values, keys alone, values alone. bfloat16 and int8 lie at zero. For fp8 e4m3 and int4 per token the keys alone lie nearly where both do; for fp8 e5m2 and int4 in groups they lie at 2.1 of 2.9 and at 4.0 of 5.0 per cent. In these four, values alone lie below 0.6 per cent. For int4 in groups with a tail both lie at 1.7, keys alone at 1.3. For int4 with keys per channel all lie below 1 per cent. int2 lies at 45 per cent, its keys alone at 15, its values alone at 18."}}
figure, axes = plt.subplots(figsize=(7, 4.4))
parts = ((None, "cache", "keys and values"), ("keys", "key", "keys alone"))
for only, role, label in (*parts, ("values", "value", "values alone")):
    names = [name for name in FORMATS if (name, only) in lost and name != "float16"][::-1]
    shift = {"cache": 0.2, "key": 0.0, "value": -0.2}[role]
    places = [list(FORMATS)[::-1].index(name) + shift for name in names]
    axes.errorbar(
        [lost[name, only] for name in names],
        places,
        xerr=[2 * error[name, only] for name in names],
        fmt="o",
        color=plotting.colour(role),
        label=label,
    )
axes.set_xscale("symlog", linthresh=1)
axes.set_xticks([-0.5, 0, 0.5, 1, 3, 10, 30], ["−0.5", "0", "0.5", "1", "3", "10", "30"])
axes.set_yticks(range(len(FORMATS) - 1), list(FORMATS)[:0:-1])
axes.set_xlabel("change of perplexity in %, linear up to 1; bars: two standard errors")
axes.set_title("Keys mind fewer bits, unless each channel has its scale")
axes.grid(axis="both")
axes.legend()
plt.show()

# %%
shares = {
    name: f"{lost[name, 'keys']:.1f} of {lost[name, None]:.1f}"
    for name, only in lost
    if only == "keys"
}
assert (shares["fp8_e5m2"], shares["int4_group"]) == ("2.1 of 2.9", "4.0 of 5.0")
assert shares["int4_group_tail"] == "1.3 of 1.7"
for name in ("fp8_e4m3", "int4_token"):
    assert lost[name, "keys"] > 0.95 * lost[name, None]
for name in ("fp8_e4m3", "fp8_e5m2", "int4_token", "int4_group"):
    assert abs(lost[name, "values"]) < 0.6
assert max(lost["int4", only] for only in (None, "keys", "values")) < 1

# %% [markdown]
# Read it in this order.
#
# - **int8 is a tie**: its change is within two standard errors of nothing. If it costs anything,
#   then on this model and this text less than 0.2 %, for half the cache.
# - **fp8 e4m3 costs 0.8 %, e5m2 2.9 %**, with as many bits as int8, nearly. A likely reason: a
#   float spends bits on a range that these rows do not need.
# - **Smaller groups help.** `int4_token` loses 10.0 %, `int4_group` 5.0 %, for half a bit more.
# - **The tail helps more than the direction**: guess 3. `int4_group` and `int4` take the same 5
#   bits and lose 5.0 % and 0.9 %. Between them lies `int4_group_tail`: its keys have the groups
#   of the first and the tail of the second, and it loses 1.7 %. So most of the lead comes from
#   leaving the newest keys as they are: perplexity falls by 3.2 % ± 0.6 %. A scale for each channel
#   then takes another 0.7 % ± 0.6 %, little more than its standard error. With keys alone it is
#   0.9 % ± 0.3 %, so the direction does count.
# - **A tail is not free.** It takes the same room in both: with it a token takes 7,560 bytes, not
#   7,200, in a conversation of 1,024 tokens. In a short one its share is larger.
# - **Keys mind more than values** in fp8, `int4_token` and `int4_group`: guess 2. They decide
#   *where* to look. With a scale for each channel that is over: in `int4` the two are even, in
#   `int2` values cost even more, 18.5 % against 14.9 %. That difference is just under two
#   standard errors, as the line above the figure says.
# - **int2 is too few** here: 45.3 %.
#
# What the table does not show: it is one small model and one kind of text, in passes of known
# words. Other models may mind more or less. In one with wider channels the direction may count
# for more than here. Why the newest keys matter so much was not measured either; a likely reason
# is that attention looks at the newest tokens, and at the token itself, more than at others. A
# standard error says how far another piece of *this* text may differ, and from four pieces it is
# itself a rough figure. It says nothing about another model.

# %% [markdown]
# ### Is it faster?
#
# A decode step waits for memory (lesson 6), and attention must read 66 bytes where float32 has
# 256, about a quarter. So int8 should be up to 3.9 times as fast. Try it: read back, then attend,
# as the cache above does.
#
# Then think again about the formula. Within a row all values share the scale $s$, and $q \cdot
# (s\,c) = s\,(q \cdot c)$: the scale can wait until **after** the product, one multiplication for
# a row instead of 64. The same holds for the values, where the scale joins the softmax weight.
# What is left is turning codes into floats, and that can be done some tokens at a time, so that
# the floats never leave the processor's own cache.


# %% tags=["export"]
def attend_codes(q: Tensor, k: list[Tensor], v: list[Tensor], tile: int) -> Tensor:
    """Attention of one query per head over int8 codes; `tile` tokens at a time become floats.

    q [batch, n_heads, 1, d]; k and v: the codes and scales of a layer, [batch, n_kv_heads, kv_len, *].
    """
    (k_codes, k_scales), (v_codes, v_scales) = k, v
    grouped = q.unflatten(1, (k_codes.shape[1], -1)).squeeze(3)  # [batch, n_kv_heads, group, d]
    tiles = k_codes.view(torch.int8).split(tile, dim=2)
    scores = torch.cat([grouped @ codes.to(q.dtype).mT for codes in tiles], dim=-1)
    scores = scores * (k_scales.mT.to(q.dtype) * q.shape[-1] ** -0.5)
    weights = (scores.softmax(-1) * v_scales.mT.to(q.dtype)).split(tile, dim=-1)
    tiles = v_codes.view(torch.int8).split(tile, dim=2)
    y = torch.zeros_like(grouped)
    for weight, codes in zip(weights, tiles, strict=True):
        y += weight @ codes.to(q.dtype)
    return y.view_as(q)


# %%
n_tokens, random = 4096, torch.Generator().manual_seed(0)
one = replace(config, n_layers=1)  # a layer of SmolLM2: 9 query heads, 3 KV heads of 64
size = (2, one.n_kv_heads, n_tokens, one.head_dim)
k, v = (torch.randn(size, generator=random).to(device) for _ in range(2))
q = torch.randn(2, one.n_heads, 1, one.head_dim, generator=random).to(device)
cache = QuantizedCache(one, 2, n_tokens, format="int8", device=device)
read_k, read_v = cache.update(0, k, v)
cache.advance(n_tokens)
coded = [[part[0] for part in half.parts] for half in (cache.k, cache.v)]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def read_back():
    halves = zip((cache.k, cache.v), coded, strict=True)
    return attend(q, *(half.codec.decode(parts, q.dtype) for half, parts in halves))


exact = attend(q, read_k, read_v)
for way in (read_back(), attend_codes(q, *coded, n_tokens), attend_codes(q, *coded, 256)):
    assert (way - exact).abs().max() < 1e-5
print(f"float32: {(k.nbytes + v.nbytes) / 1e6:.1f} MB, int8: {cache.nbytes / 1e6:.1f} MB")
assert f"{(k.nbytes + v.nbytes) / cache.nbytes:.4f}" == f"{256 / 66:.4f}" == "3.8788"

# %% tags=["nbval-ignore-output"]
ways = {
    "float32 rows, no codes": lambda: attend(q, k, v),
    "read back, then attend": read_back,
    "scales outside": lambda: attend_codes(q, *coded, n_tokens),
    "the same, 256 tokens at a time": lambda: attend_codes(q, *coded, 256),
}
times = {name: [] for name in ways}
for _ in range(8):
    for name, way in ways.items():
        times[name].append(1e3 * seconds(way))
print(f"ms for one layer's attention on {device}: median of 7 (smallest to largest)")
for name, (_, *found) in times.items():  # the first warms up
    print(f"{name:32}{statistics.median(found):7.2f} ({min(found):.2f} to {max(found):.2f})")

# %%
assert all(len(found) == 8 for found in times.values())
assert f"{256 / 66:.1f}" == "3.9"

# %% [markdown]
# Guess 4: look at your table. The codes are small, but reading back turns them into a full-size
# float tensor, which is written to memory, scaled, and read again. In the record below, of larger
# caches, that makes attention *slower*: all of the saving is spent, and more. With the scales
# outside less time is lost. Tiles help further only where the floats are many: in the record at
# 8,192 tokens, not at 2,048. In a cache as small as this cell's they may even cost time.
#
# To win, the codes must be read **once** and become floats in registers, on their way into the
# product. That is what **fused** means. PyTorch has a compiler that can do it, if you write the
# products as products and sums, so that it finds loops to merge. On a GPU it writes programs in
# Triton, a language for GPU kernels, from the same lines.


# %% tags=["export"]
def attend_sums(q: Tensor, k: list[Tensor], v: list[Tensor]) -> Tensor:
    """The same in products and sums: torch.compile makes one loop of each that reads the codes."""
    (k_codes, k_scales), (v_codes, v_scales) = k, v
    grouped = q.unflatten(1, (k_codes.shape[1], -1))  # [batch, n_kv_heads, group, 1, d]
    keys, values = (codes.view(torch.int8).to(q.dtype) for codes in (k_codes, v_codes))
    queries = grouped.unbind(2)
    scores = torch.stack([(query * keys).sum(-1) for query in queries], dim=2)
    scores = scores * (k_scales.mT.to(q.dtype) * q.shape[-1] ** -0.5)
    weights = (scores.softmax(-1) * v_scales.mT.to(q.dtype)).unbind(2)
    y = torch.stack([(weight[..., None] * values).sum(-2) for weight in weights], dim=2)
    return y.view_as(q)


# %%
assert (attend_sums(q, *coded) - exact).abs().max() < 1e-5

# %% [markdown]
# Compiling takes a C++ compiler (on a GPU, Triton) and some seconds, so it is not done here but
# in a record: `python -m kvbook measure --what codes --out measurements/mine.json`. Where no
# compiler is found, its row says so. The last column compares the bytes that must be read, per
# second, with the rate at which the same machine just reads memory. This is the record, not this
# run:

# %%
for kind in ("cpu", "cuda"):
    if found := record.newest(folder, kind, "codes"):
        name, fused = found
        print(f"{name}, {fused['date'][:10]}: {fused['device']['name']}")
        print(codes_points.answer(fused))
    else:
        print(f"No {'GPU' if kind == 'cuda' else 'CPU'} record exists yet.")
assert not list(folder.glob("codes_cuda*.json"))  # as the text below says

# %%
fused = record.read(folder / "codes_cpu.json")  # this book's record, not a run of yours
found = [codes_points.rows(point["result"]) for point in fused["points"]]
short, long = ({words: ms for words, ms, *_ in each} for each in found)
rows32, rows16, back, outside, tiles, compiled = codes_points.WAYS.values()
for ms in (short, long):
    assert ms[back] > 4 * ms[rows32]
    assert ms[outside] < 0.6 * ms[back]
    assert ms[rows16] < ms[compiled] < ms[back] / 3
assert long[tiles] < 0.7 * long[outside]
assert 1 < short[tiles] / short[outside] < 1.1
assert 1 < short[compiled] / short[rows32] < 1.2
assert f"{long[rows32] / long[compiled]:.1f}" == "1.4"
assert all(0.1 < each[-1][3] < 0.2 for each in found)  # the compiled way's share of the rate
assert {point["job"]["context"] for point in fused["points"]} == {2048, 8192}

# %% [markdown]
# In this book's CPU record, with 8 sequences: reading back takes more than four times as long as
# float32 rows. Compiled, the codes beat float32 by a factor of 1.4 at 8,192 tokens. At 2,048 they
# lose to it by a little. They never beat bfloat16. Look at the last column: the compiled loops
# read at less than a fifth of the rate at which memory delivers. So it is not memory that they
# wait for. What is left is the work on each code, turning it into a float and multiplying; which
# part of that takes the time was not measured.
#
# So fewer bytes give **more users**, first of all. More speed comes only with a kernel that turns
# codes into numbers faster than memory brings them, and this page has not shown one.
#
# **This book has no record from a GPU.** There `torch.compile` makes Triton kernels of the same
# lines, and the same command would time them; nobody has run it on one. So nothing here says how
# fast codes are read on a GPU.

# %% [markdown]
# ## Explore
#
# Choose a format, and what of the cache it is for. The bytes, the users and the error on the
# drawn keys are computed in the page; the perplexity is the record's, and where nothing was
# measured nothing is shown.

# %%
channels = [[float(f"{x:.4g}") for x in token] for token in keys[32:96].tolist()]
explorer = BitsExplorer(measured=measured, channels=channels)
explorer

# %%
llama, card = facts.model("llama-2-7b"), facts.gpu("A100 80GB")
codes_alone = cache_spec(llama.config).nbytes(4096, cache_dtype="int4")
room = card.memory_bytes_nominal, 2 * llama.parameters
assert (explorer.users, fit_users(codes_alone, *room)) == (97, 99)

# %% [markdown]
# The explorer counts the tail for each user: 97 users of 4,096 tokens fit with `int4`. Lesson 5
# had 99, without a tail. It begins with Llama 2 7B, whose rows of 128 values share a scale where
# those of SmolLM2, on which perplexity was measured, are 64 long. So int8 takes 8.125 bits a value
# in the one and 8.25 in the other.
#
# Two questions:
#
# 1. Under *Format*, go through the four ways of int4. Which of them take the same bytes a token,
#    and what happens to the error of the narrow channels?
# 2. Code only the values with 2 bits: choose int2 as the format, and values alone under *Coded*
#    (or press "int2, values alone"). What does it save, what does it cost, and which button
#    saves more for less?
#
# <details>
# <summary>Answers</summary>
#
# **1.** In groups, in groups with a tail and per channel take 5 bits a value. Per token takes
# 4.25 in Llama 2 7B, where a row of 128 shares one scale and one minimum. Groups help the narrow
# channels little, for each still holds a wide one; a scale of their own helps them much. The tail
# changes no error of a coded key. (The sample has 64 tokens, two full blocks, so nothing waits.)
#
# **2.** The keys stay float16, so a value takes 9.5 bits on average: 52 users instead of
# 30. The record has +18.5 %. The button "int8" codes both halves with 8.125 bits: 61 users,
# and no change that could be told from none. It is better to code both halves a little than
# one half too much.
#
# ```python
# from kvbook.explorer.bits import BitsExplorer
#
# ways = ("int4_token", "int4_group", "int4_group_tail", "int4")
# assert [BitsExplorer(format=name).bits_per_value for name in ways] == [4.25, 5, 5, 5]
# found = {
#     (name, only): BitsExplorer(format=name, only=only)
#     for name, only in (("float16", None), ("int2", "values"), ("int8", None))
# }
# assert [one.bits_per_value for one in found.values()] == [16, 9.5, 8.125]
# assert [one.users for one in found.values()] == [30, 52, 61]
# ```
#
# </details>
#
# If you run this notebook yourself, choose a format and let the model write through it. That
# takes a *kernel*, so the published page shows nothing here.

# %%
prompt = torch.tensor([smollm2.reference()["greedy"]["ids"][:5]], device=device)
told = {}


def write(name: str) -> None:
    caches = [
        PreallocatedCache(config, capacity=64, device=device),
        QuantizedCache(config, capacity=64, format=name, device=device),
    ]
    exact, coded = (generate(model, prompt, 40, cache)[0] for cache in caches)
    same = int((exact == coded).long().cumprod(0).sum()) - 5
    told.update(format=name, held=caches[1].lengths.tolist(), used=caches[1].nbytes_used)
    print(f"{name}: {told['used']:,} bytes; the first {same} of 40 tokens are those of float32")
    print(tokenizer.decode(coded.tolist()))


# %% tags=["remove-output", "nbval-ignore-output"]
format_choice = ipywidgets.Dropdown(options=list(FORMATS), value="int4", description="cache")
ipywidgets.VBox([format_choice, ipywidgets.interactive_output(write, {"name": format_choice})])

# %%
assert (told["format"], told["held"]) == ("int4", [44])
assert told["used"] == 32 * 3_600 + 44 * 3_600 + 12 * 5_760 * 4  # keys, values, the tail

# %% tags=["remove-cell", "nbval-ignore-output"]
format_choice.value = "fp8_e5m2"
moved = dict(told)
format_choice.value = "int4"

# %% tags=["remove-cell"]
assert moved == {"format": "fp8_e5m2", "held": [44], "used": 44 * 11_520}

# %% [markdown]
# ## Check yourself
#
# **1. Nothing at all.** A padding row is all zero. What does a quantiser without a guard make of
# it, and why does the mask of attention not help?
#
# <details>
# <summary>Answer</summary>
#
# Its scale is 0, and 0/0 is NaN. The mask gives the row the weight 0, and zero times NaN is NaN.
#
# ```python
# import torch
# from kvbook.lessons.quantized import Integers
#
# zeros = torch.zeros(1, 1, 8)
# scale = zeros.abs().amax(-1, keepdim=True) / 127
# assert (zeros / scale).isnan().all()
# codec = Integers(8)
# assert codec.decode(codec.encode(zeros), torch.float32).abs().max() == 0
# ```
#
# </details>
#
# **2. Blocks that never fill.** Someone codes a block when a *pass* brings 32 tokens: `blocks =
# q_len // 32`. The tests feed prompts of 64 and pass. What happens when the model writes?
#
# <details>
# <summary>Answer</summary>
#
# A decode step brings one token, and 1 // 32 is 0: no block is ever coded, and the tail overflows
# or grows in full precision. The count must be cumulative. Feed token by token and look at what
# is used: after 64 tokens two blocks are coded and the tail is empty.
#
# ```python
# import torch
# from kvbook.lessons.decoder import DecoderConfig
# from kvbook.lessons.quantized import QuantizedCache
#
# config = DecoderConfig(97, 24, 1, 6, 3, 32, 40, 128)
# cache = QuantizedCache(config, format="int4")
# used = []
# for _ in range(64):
#     row = torch.randn(1, 3, 1, 32)
#     cache.update(0, row, row)
#     cache.advance(1)
#     used.append(cache.nbytes_used)
# keys, values, tail = 3 * 20, 3 * 20, 3 * 32 * 4  # bytes per token
# assert used[30] == 31 * (values + tail)
# assert used[31] == 32 * (values + keys)
# assert used[63] == 64 * (values + keys)
# assert sum(q_len // 32 for q_len in [1] * 64) == 0  # what the wrong count codes
# ```
#
# </details>
#
# **3. Half a move.** A beam search swaps two sequences. The code moves `parts[0]`, the codes, and
# forgets the rest. Why does it not fail at once, and which test finds it?
#
# <details>
# <summary>Answer</summary>
#
# Shapes and types fit, and if both sequences are alike, so do the scales. Give them very
# different sizes and compare with a cache that was fed in the new order.
#
# ```python
# import torch
# from kvbook.lessons.decoder import DecoderConfig
# from kvbook.lessons.quantized import QuantizedCache
#
# config = DecoderConfig(97, 24, 1, 6, 3, 32, 40, 128)
# rows = torch.randn(2, 3, 40, 32) * torch.tensor([1.0, 100.0])[:, None, None, None]
# one, swap = torch.zeros(2, 3, 1, 32), torch.tensor([1, 0])
#
# def filled(rows):
#     cache = QuantizedCache(config, 2, format="int8")
#     cache.update(0, rows, rows)
#     cache.advance(40)
#     return cache
#
# right, wrong, whole = filled(rows[swap]), filled(rows), filled(rows)
# wrong.k.parts[0].copy_(wrong.k.parts[0][:, swap])  # the scales stay
# whole.reorder(swap)
# expected = right.update(0, one, one)[0]
# assert torch.equal(whole.update(0, one, one)[0], expected)
# assert (wrong.update(0, one, one)[0] - expected).abs().max() > 50
# ```
#
# </details>
#
# **4. When is int4 smaller?** A cache of SmolLM2 for `n` tokens is reserved in full, with a tail in
# float16. For which `n` does `int4` take fewer bytes than `int8`?
#
# <details>
# <summary>Answer</summary>
#
# 7,200 bytes a token and 368,640 for the tail, against 11,880 a token: that would be from 79 tokens
# on. But keys that fill no block are in the tail, which is counted already. So ask the object:
# from 59 to 63 tokens, and from 73 on. For a server with many short conversations the tail is what
# matters.
#
# ```python
# import torch
# from kvbook.lessons.decoder import DecoderConfig
# from kvbook.lessons.quantized import QuantizedCache
# from kvbook.models import smollm2
#
# config = DecoderConfig(**smollm2.CONFIG)
# options = {"dtype": torch.float16, "device": "meta"}  # shapes alone: nothing is reserved
#
# def nbytes(name, n):
#     return QuantizedCache(config, 1, n, format=name, **options).nbytes
#
# smaller = [n for n in range(1, 150) if nbytes("int4", n) < nbytes("int8", n)]
# assert smaller == [*range(59, 64), *range(73, 150)]
# assert next(n for n in range(1, 1000) if 7_200 * n + 368_640 < 11_880 * n) == 79
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: 51.6 %; the keys; the newest keys, from 5.0 % to 1.7 %, where the
# direction leads on to 0.9 %; slower. If the product itself reads the codes, it was faster than
# float32 in one of two recorded cases, and than bfloat16 in none.
#
# | Format of SmolLM2-135M | Bits a value | Bytes per token | Change of perplexity, recorded |
# |---|---|---|---|
# | float16 | 16 | 23,040 | 0.0 % |
# | int8 | 8.25 | 11,880 | a tie |
# | fp8 e4m3 | 8 | 11,520 | +0.8 % |
# | int4, keys in groups | 5 | 7,200 | +5.0 % |
# | the same, the newest as they are | 5 | 7,200, and a tail | +1.7 % |
# | int4, keys per channel | 5 | 7,200, and a tail | +0.9 % |
# | int2, keys per channel | 3 | 4,320, and a tail | +45.3 % |
#
# And the ledger:

# %%
ledger.show(8)

# %% [markdown]
# ## Next
#
# Fewer heads, fewer bits: each token got cheaper. [Lesson 9](09_window.ipynb) asks whether every
# layer must keep every token.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. A cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
n_values = 2 * config.n_layers * config.n_kv_heads * config.head_dim  # of a token
of_token = {name: spec.nbytes(256, cache_dtype=name) // 256 for name in ("float16", "int8", "int4")}
in_tail = QuantizedCache(config, format="int4", dtype=torch.float16, device="meta").k.tail.nbytes
falls = quality_points.compared(halves["int4_group_tail", None], halves["int4_group", None])
then = quality_points.compared(halves["int4", None], halves["int4_group_tail", None])
alone = quality_points.compared(halves["int4", "keys"], halves["int4_group_tail", "keys"])
jobs = [point["job"] for point in fused["points"]]
two_bits = BitsExplorer(format="int2", only="values")
check(
    {
        "8 bits": FORMATS["int8"][0].bits,
        "4 bits": FORMATS["int4"][0].bits,
        "2 bits": FORMATS["int2"][0].bits,
        "64 values": config.head_dim,
        "32 tokens": FORMATS["int4"][0].tokens,
        "256 tokens": len(keys),
        "7 times": outlier(keys),
        "3 times": outlier(values),
        "51.6 %": 100 * of_token["int8"] / of_token["float16"],
        "2 bytes": torch.float16.itemsize,
        "5 bits": 8 * of_token["int4"] / n_values,
        "368,640 bytes": in_tail,
        "1,024 tokens": kept["points"][0]["job"]["tokens"],
        "23.6 MB": waiting / 1e6,
        "8.1 MB": before / 1e6,
        "0.2 %": abs(lost["int8", None]) + 2 * error["int8", None],
        "0.8 %": lost["fp8_e4m3", None],
        "2.9 %": lost["fp8_e5m2", None],
        "10.0 %": lost["int4_token", None],
        "5.0 %": lost["int4_group", None],
        "0.9 %": lost["int4", None],
        "1.7 %": lost["int4_group_tail", None],
        "3.2 %": -100 * falls.ratio,
        "0.6 %": 100 * falls.error,
        "0.7 %": -100 * then.ratio,
        "0.3 %": 100 * alone.error,
        "7,560 bytes": quality_points.bytes_at({"format": "int4", "only": None}, 1024),
        "18.5 %": lost["int2", "values"],
        "14.9 %": lost["int2", "keys"],
        "45.3 %": lost["int2", None],
        "66 bytes": config.head_dim + torch.float16.itemsize,
        "3.9 times": (k.nbytes + v.nbytes) / cache.nbytes,
    }
)

# %% tags=["hide-input"]
check(
    {
        "8 sequences": jobs[0]["batch"],
        "32 neighbours": FORMATS["int4"][1].width,
        "64 channels": keys.shape[1],
        "8,192 tokens": max(job["context"] for job in jobs),
        "97 users": BitsExplorer(format="int4").users,
        "4,096 tokens": n_tokens,
        "128 values": cache_spec(llama.config).layers[0].k_dim,
        "8.125 bits": BitsExplorer(format="int8").bits_per_value,
        "64 tokens": len(channels),
        "9.5 bits": two_bits.bits_per_value,
        "52 users": two_bits.users,
        "+18.5 %": lost["int2", "values"],
        "61 users": BitsExplorer(format="int8").users,
        "7,200 bytes": of_token["int4"],
        "79 tokens": From("the answer's code, which asserts it"),
        "59 tokens": From("the answer's code, which asserts it"),
        "63 tokens": From("the answer's code, which asserts it"),
        "0.0 %": lost["float16", None],
        "+0.8 %": lost["fp8_e4m3", None],
        "+5.0 %": lost["int4_group", None],
        "+1.7 %": lost["int4_group_tail", None],
        "+0.9 %": lost["int4", None],
        "+45.3 %": lost["int2", None],
    }
)
