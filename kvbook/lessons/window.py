"""Lesson 9 — Windows and sinks. Generated from notebooks/09_window.py by `make lessons`: edit that."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kvbook.lessons.cache import KVCache, PreallocatedCache, causal_mask, check_rows
from kvbook.lessons.decoder import DecoderConfig


def check_kept(window: int, sinks: int) -> None:
    """Raise ValueError unless window is an int from 1 to MOST and sinks one from 0 to MOST."""
    for name, value, low in (("window", window, 1), ("sinks", sinks, 0)):
        if type(value) is not int or not low <= value <= MOST:
            raise ValueError(f"{name} is {value!r}; it must be an int from {low} to {MOST}.")


MOST = 2**62  # of a window and of sinks: both and a position fit in an int64


def window_mask(q_positions: Tensor, k_positions: Tensor, window: int, sinks: int = 0) -> Tensor:
    """Who sees whom: [batch, q_len] and [batch or 1, kv_len] -> bool [batch, 1, q_len, kv_len].

    A query sees itself, the window - 1 tokens before it, and of those further back the first
    `sinks` of the text (Xiao et al. 2023). Position -1 marks an empty slot.
    """
    check_kept(window, sinks)
    q, k = q_positions[:, None, :, None], k_positions[:, None, None, :]
    return causal_mask(q_positions, k_positions) & ((q - k < window) | (k < sinks))


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


def staying(
    start: Tensor, end: Tensor, q_len: int, window: int, sinks: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Of q_len new rows from start [batch, 1] on those that stay at length end: batch, step, slot."""
    new = start + torch.arange(q_len, device="cpu")  # [batch, q_len]
    row, step = ((new < end) & ((new < sinks) | (new >= end - window))).nonzero().T
    return row, step, slot_of(new[row, step], window, sinks)


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
