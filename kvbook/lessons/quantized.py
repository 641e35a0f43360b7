"""Lesson 8 — Fewer bits. Generated from notebooks/08_quantized.py by `make lessons`: edit that."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbook.lessons.cache import KVCache, check_rows, put
from kvbook.lessons.decoder import DecoderConfig


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
