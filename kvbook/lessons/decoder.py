"""Lesson 1 — A decoder you can read. Generated from notebooks/01_decoder.py by `make lessons`: edit that."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn


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


def rope_angles(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines for RoPE: positions [batch, q_len] -> [batch, 1, q_len, head_dim / 2]."""
    pair = torch.arange(0, head_dim, 2, device=positions.device)
    angles = positions[:, None, :, None].float() * (1.0 / theta ** (pair.float() / head_dim))
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + head_dim / 2) of each head by their angles (Su et al. 2021)."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


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


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)): [..., dim] -> [..., dim] (Shazeer 2020)."""

    def __init__(self, dim: int, ffn_dim: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, ffn_dim, bias=False)
        self.up_proj = nn.Linear(dim, ffn_dim, bias=False)
        self.down_proj = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


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
