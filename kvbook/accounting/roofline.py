"""What one forward pass computes and moves, and what a device's peak rates make of it at best.

A product and its addition count as 2 operations (flops). Counted are the products with weights
(linear layers, unembedding) and those of attention (scores, values). Left out are norms, RoPE,
softmax and activations, which are few, and the looked-up rows of the embedding. Moved are, once
each, the weights that are used and the rows of the cache: old ones are read, new ones written.
Activations are not counted: they can stay in fast memory. So every count is the least that a pass
needs, every time here is a lower bound, and every rate an upper one. Nothing here was measured.

>>> llama = Shape(32, 32, 32, 128, 4096, 11_008, 32_000)
>>> step = decode_step(llama, kv_len=4096)
>>> step.weight_flops, step.weight_bytes, step.attention_flops, step.cache_bytes
(13214154752, 13214154752, 2147483648, 2147483648)
>>> card = Device(312e12, 2.039e12)
>>> step.bound_by(card), round(step.tokens_per_s(card))
('memory', 133)
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.facts import Gpu
from kvbook.accounting.spec import CacheSpec, check_choice, check_count

Logits = Literal["last", "all"]
Number = int | float | Fraction
_MOST = 2**60  # of sums: parameters, bytes


@dataclass(frozen=True)
class Shape:
    """A decoder of lesson 1's kind: grouped-query attention, SwiGLU, no biases.

    Raises ConfigError, which names it, for a size that is not a whole number from 1, or where
    n_kv_heads does not divide n_heads.
    """

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    dim: int
    ffn_dim: int
    vocab_size: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_count(name, value)
        if self.n_heads % self.n_kv_heads:
            raise ConfigError(
                f"n_kv_heads is {self.n_kv_heads}, which does not divide {self.n_heads} heads."
            )

    @classmethod
    def of(cls, config: object) -> "Shape":
        """The shape of anything that has these sizes as attributes, like lesson 1's config."""
        return cls(**{name: getattr(config, name) for name in cls.__dataclass_fields__})

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def layer_weights(self) -> int:
        """Values in the linear layers of all blocks: q and o, k and v, gate, up and down."""
        attention = 2 * self.dim * self.head_dim * (self.n_heads + self.n_kv_heads)
        return self.n_layers * (attention + 3 * self.dim * self.ffn_dim)

    @property
    def unembed_weights(self) -> int:
        """Values of the matrix that makes logits, whether it is tied to the embedding or not."""
        return self.vocab_size * self.dim

    @property
    def weights(self) -> int:
        """Values that a pass multiplies by: linear layers and unembedding."""
        return self.layer_weights + self.unembed_weights

    @property
    def cache_values_per_token(self) -> int:
        """Values that a token leaves in the cache: a key and a value per layer and KV head."""
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim

    @property
    def attention_flops_per_pair(self) -> int:
        """Operations for one query and one key it sees, all layers and heads: score and value."""
        return 4 * self.n_layers * self.n_heads * self.head_dim


@dataclass(frozen=True)
class Device:
    """Peak rates: operations per second and bytes of memory traffic per second.

    Raises ConfigError for a rate that is not a finite number above 0.
    """

    flops_per_s: float
    bytes_per_s: float
    name: str = ""

    def __post_init__(self) -> None:
        _positive("flops_per_s", self.flops_per_s)
        _positive("bytes_per_s", self.bytes_per_s)

    @property
    def ridge(self) -> float:
        """Flops per byte from which compute sets the bound, not memory (Williams 2009)."""
        return self.flops_per_s / self.bytes_per_s

    def attainable(self, intensity: float) -> float:
        """The roofline: at most so many flops per second at so many flops per byte."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)


def device_of(gpu: Gpu) -> Device:
    """The published peaks of a GPU, operations in fp16 without sparsity.

    Raises ConfigError where the rate of operations is not known.
    """
    if gpu.fp16_flops_dense is None:
        raise ConfigError(f"fp16_flops_dense of {gpu.name} is not known; give a rate yourself.")
    return Device(gpu.fp16_flops_dense, gpu.bandwidth_bytes_per_s, gpu.name)


def ridge(gpu: Gpu) -> float:
    """The ridge point of a GPU's published peaks, in flops per byte; errors as `device_of`."""
    return device_of(gpu).ridge


@dataclass(frozen=True)
class Work:
    """What a pass computes and moves, its weights and its attention apart. Adds up with +."""

    tokens: int  # fed, over the whole batch
    weight_flops: int  # products with weights
    attention_flops: int  # scores and values
    weight_bytes: int  # each weight used is read once
    cache_bytes: int  # each row of the cache is read or written once

    def __add__(self, other: "Work") -> "Work":
        return Work(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    @property
    def flops(self) -> int:
        """All operations."""
        return self.weight_flops + self.attention_flops

    @property
    def nbytes(self) -> int:
        """All bytes moved."""
        return self.weight_bytes + self.cache_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity of the pass: flops per byte moved."""
        return self.flops / self.nbytes

    @property
    def weight_intensity(self) -> float:
        """Flops per byte of weights: in decode batch × 2 / bytes per value."""
        return self.weight_flops / self.weight_bytes

    @property
    def attention_intensity(self) -> float:
        """Flops per byte of cache: in decode group_size × 2 / bytes per value, at any batch.

        Raises ConfigError where nothing is cached.
        """
        if not self.cache_bytes:
            raise ConfigError("cache_bytes is 0; attention without a cache has no intensity.")
        return self.attention_flops / self.cache_bytes

    def compute_seconds(self, device: Device) -> float:
        """Time for the operations alone, at the device's peak."""
        return self.flops / device.flops_per_s

    def memory_seconds(self, device: Device) -> float:
        """Time for the bytes alone, at the device's peak."""
        return self.nbytes / device.bytes_per_s

    def seconds(self, device: Device) -> float:
        """Lower bound on the time of the pass: the longer of the two, perfectly overlapped."""
        return max(self.compute_seconds(device), self.memory_seconds(device))

    def tokens_per_s(self, device: Device) -> float:
        """Upper bound on tokens fed per second, over the whole batch."""
        return self.tokens / self.seconds(device)

    def bound_by(self, device: Device) -> Literal["compute", "memory"]:
        """Which of the two sets the bound; "compute" at the ridge point itself."""
        return "compute" if self.intensity >= device.ridge else "memory"


def pairs(q_len: int, kv_len: int, window: int | None = None, chunked: bool = False) -> int:
    """Pairs of a query and a key that it sees: the last q_len of kv_len tokens are the queries.

    A query sees itself and what is before it; with `window` only the last so many, itself
    included; with `chunked` those since the border of a chunk of `window` tokens.
    Raises ConfigError for lengths that are not whole numbers from 1, or q_len above kv_len.
    """
    check_count("q_len", q_len)
    check_count("kv_len", kv_len)
    if q_len > kv_len:
        raise ConfigError(f"q_len is {q_len}; it must be at most kv_len, {kv_len}.")
    if window is not None:
        check_count("window", window)
    return _seen(kv_len, window, chunked) - _seen(kv_len - q_len, window, chunked)


def _seen(tokens: int, window: int | None, chunked: bool) -> int:
    """Pairs of the first `tokens` queries of a text."""
    if window is None or tokens <= window:
        return _triangle(tokens)
    if chunked:
        return tokens // window * _triangle(window) + _triangle(tokens % window)
    return _triangle(window) + (tokens - window) * window


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def phase(
    shape: Shape,
    q_len: int,
    kv_len: int,
    batch: int = 1,
    *,
    weight_bytes_per_value: Number = 2,
    cache_bytes_per_value: Number = 2,
    logits: Logits = "last",
) -> Work:
    """One forward pass that feeds q_len tokens to each of `batch` sequences.

    kv_len counts the tokens of a sequence after the pass; the fed ones are the last q_len of
    them. Bytes per value may be fractions (0.5 for 4 bits; 0.5625 with q4_0's scales).
    With logits "last" only the last token of each sequence is multiplied by the unembedding.
    Raises ConfigError, which names the argument, for one that is not allowed.
    """
    seen = pairs(q_len, kv_len)
    check_count("batch", batch)
    return phase_of_sums(
        q_len,
        batch,
        layer_weights=shape.layer_weights,
        unembed_weights=shape.unembed_weights,
        attention_flops=batch * seen * shape.attention_flops_per_pair,
        cache_bytes=_nbytes(
            "cache_bytes_per_value",
            batch * kv_len * shape.cache_values_per_token,
            cache_bytes_per_value,
        ),
        weight_bytes_per_value=weight_bytes_per_value,
        logits=logits,
    )


def phase_of_sums(
    q_len: int,
    batch: int,
    *,
    layer_weights: int,
    unembed_weights: int,
    attention_flops: int,
    cache_bytes: int,
    weight_bytes_per_value: Number = 2,
    layer_weights_read: int | None = None,
    logits: Logits = "last",
) -> Work:
    """As `phase`, for a model of which only the sums are known; all for the whole batch.

    `layer_weights` are the parameters that each token is multiplied by, without the embedding
    tables: of p active parameters p - vocab_size × dim where they are tied, else p - twice that.
    With experts more of them are read than a token uses: `layer_weights_read` lies between those
    that are active and all, by how the tokens spread. `cache_bytes` is CacheSpec.nbytes(kv_len,
    batch), `attention_flops` what the function of that name gives.
    Raises ConfigError, which names the argument, for one that is not allowed.
    """
    check_count("q_len", q_len)
    check_count("batch", batch)
    check_count("layer_weights", layer_weights, high=_MOST)
    check_count("unembed_weights", unembed_weights, low=0, high=_MOST)
    check_count("attention_flops", attention_flops, low=0, high=2**200)
    check_count("cache_bytes", cache_bytes, low=0, high=2**200)
    check_choice("logits", logits, get_args(Logits))
    read = layer_weights if layer_weights_read is None else layer_weights_read
    check_count("layer_weights_read", read, low=layer_weights, high=_MOST)
    tokens = batch * q_len
    unembedded = tokens if logits == "all" else batch
    return Work(
        tokens=tokens,
        weight_flops=2 * (tokens * layer_weights + unembedded * unembed_weights),
        attention_flops=attention_flops,
        weight_bytes=_nbytes(
            "weight_bytes_per_value", read + unembed_weights, weight_bytes_per_value
        ),
        cache_bytes=cache_bytes,
    )


def attention_flops(spec: CacheSpec, q_len: int, kv_len: int, batch: int = 1) -> int | None:
    """Operations of attention for a CacheSpec, windows and chunks counted exactly.

    None where the config does not tell: heads that are not known or differ, latents (which can be
    multiplied in two ways), shared and cross caches.
    """
    check_count("batch", batch)
    total = 0
    for layer in spec.layers:
        if layer.kind in ("state", "none"):
            continue
        if spec.n_heads is None or layer.kind not in ("full", "sliding", "chunked"):
            return None
        seen = pairs(q_len, kv_len, layer.window, layer.kind == "chunked")
        total += 2 * spec.n_heads * (layer.k_dim + layer.v_dim) * seen
    return batch * total


def prefill(
    shape: Shape,
    prompt_len: int,
    batch: int = 1,
    *,
    weight_bytes_per_value: Number = 2,
    cache_bytes_per_value: Number = 2,
) -> Work:
    """The pass over a whole prompt, with the logits of its last token; see `phase`."""
    return phase(
        shape,
        prompt_len,
        prompt_len,
        batch,
        weight_bytes_per_value=weight_bytes_per_value,
        cache_bytes_per_value=cache_bytes_per_value,
    )


def decode_step(
    shape: Shape,
    kv_len: int,
    batch: int = 1,
    *,
    weight_bytes_per_value: Number = 2,
    cache_bytes_per_value: Number = 2,
) -> Work:
    """The pass over one new token per sequence, the kv_len-th of each; see `phase`."""
    return phase(
        shape,
        1,
        kv_len,
        batch,
        weight_bytes_per_value=weight_bytes_per_value,
        cache_bytes_per_value=cache_bytes_per_value,
    )


def weight_knee(device: Device, weight_bytes_per_value: Number = 2) -> float:
    """The batch at which decode becomes compute-bound for the weights: ridge × bytes / 2.

    A weight of b bytes gives 2 × batch operations, so the size of the model does not matter.
    """
    return device.ridge * _positive("weight_bytes_per_value", weight_bytes_per_value) / 2


def decode_knee(one: Work, device: Device) -> float | None:
    """The batch at which a whole decode step becomes compute-bound; None where none does.

    `one` is the step at batch 1. Each sequence adds its operations and its cache; the weights are
    read once. If a sequence's own intensity stays below the ridge, no batch is enough.
    """
    spare = one.flops / device.flops_per_s - one.cache_bytes / device.bytes_per_s
    return one.weight_bytes / device.bytes_per_s / spare if spare > 0 else None


def decode_ceiling(one: Work, device: Device) -> float:
    """Tokens per second that decode never passes, however large the batch.

    `one` is the step at batch 1. What is left when the weights cost nothing: every sequence still
    brings its operations and its own cache.
    """
    return 1 / max(one.flops / device.flops_per_s, one.cache_bytes / device.bytes_per_s)


def time_to_first_token(
    shape: Shape,
    prompt_len: int,
    device: Device,
    batch: int = 1,
    *,
    weight_bytes_per_value: Number = 2,
    cache_bytes_per_value: Number = 2,
) -> float:
    """Lower bound in seconds: the prefill, of which the first token falls out."""
    return prefill(
        shape,
        prompt_len,
        batch,
        weight_bytes_per_value=weight_bytes_per_value,
        cache_bytes_per_value=cache_bytes_per_value,
    ).seconds(device)


def time_per_token(
    shape: Shape,
    kv_len: int,
    device: Device,
    batch: int = 1,
    *,
    weight_bytes_per_value: Number = 2,
    cache_bytes_per_value: Number = 2,
) -> float:
    """Lower bound in seconds of the step that feeds each sequence its kv_len-th token."""
    return decode_step(
        shape,
        kv_len,
        batch,
        weight_bytes_per_value=weight_bytes_per_value,
        cache_bytes_per_value=cache_bytes_per_value,
    ).seconds(device)


def _positive(name: str, value: Number) -> float:
    """The value if it is a finite number above 0; otherwise a ConfigError that names it."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | Fraction)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise ConfigError(f"{name} is {shown(value)}; it must be a finite number above 0.")
    return float(value)


def _nbytes(name: str, values: int, bytes_per_value: Number) -> int:
    """Whole bytes of so many values, rounded up once."""
    _positive(name, bytes_per_value)
    return math.ceil(values * Fraction(bytes_per_value))
