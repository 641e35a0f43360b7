"""Lesson 7 — Fewer KV heads. Generated from notebooks/07_gqa.py by `make lessons`: edit that."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kvbook.lessons.cache import KVCache, check_rows, put
from kvbook.lessons.decoder import Decoder, DecoderConfig, RMSNorm, rotate


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
