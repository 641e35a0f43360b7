"""Lesson 2 — Reuse the past. Generated from notebooks/02_cache.py by `make lessons`: edit that."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbook.lessons.decoder import DecoderConfig


def causal_mask(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Who sees whom: [batch, q_len] and [batch or 1, kv_len] -> bool [batch, 1, q_len, kv_len].

    A query sees the keys at its own position and before; position -1 marks an empty slot (none of
    this lesson's caches has one).
    """
    q, k = q_positions[:, None, :, None], k_positions[:, None, None, :]
    return (k <= q) & (k >= 0)


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


def attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """q [batch, n_heads, q_len, k_dim] over kv_len rows -> [batch, n_heads, q_len, v_dim]."""
    if mask is None and q.shape[2] == 1:
        rows = q.reshape(len(q), keys.shape[1], -1, q.shape[3])
        return F.scaled_dot_product_attention(rows, keys, values).reshape(*q.shape[:3], -1)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)


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
