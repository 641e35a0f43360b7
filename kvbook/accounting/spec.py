"""What each layer caches, and the bytes that come to. Knows nothing of config files."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.tables import table

Kind = Literal["full", "sliding", "chunked", "latent", "cross", "shared", "state", "none"]
Policy = Literal["exact", "all_layers_full", "paged"]
POLICIES: tuple[str, ...] = get_args(Policy)
LARGEST = 2**40  # of a context, a batch, a block size; beyond any real one


@dataclass(frozen=True)
class LayerCache:
    """What one layer holds for one sequence.

    A token takes n_kv_heads rows of k_dim values and, unless v_dim is 0, as many rows of v_dim.
    `window` bounds the tokens of a sliding or chunked layer. `tokens` is the fixed length of a
    cross cache; a cross cache without it holds as many tokens as the context has.
    The kinds "shared" (reuses another layer's cache), "state" (a recurrent state of constant
    size) and "none" hold no keys and values at all.
    """

    kind: Kind
    n_kv_heads: int = 0
    k_dim: int = 0
    v_dim: int = 0
    window: int | None = None
    tokens: int | None = None

    @property
    def replicated(self) -> bool:
        """Whether every GPU holds the whole of it: a latent has no heads to divide."""
        return self.kind == "latent"

    @property
    def values_per_token(self) -> int:
        """Values that one token takes, over all heads: keys and values, or the latent."""
        return self.n_kv_heads * (self.k_dim + self.v_dim)

    def tokens_held(self, context: int, policy: str, block_size: int) -> int:
        """Tokens for which this layer holds, or under `paged` reserves, room."""
        if not self.values_per_token:
            return 0
        held = context if self.tokens is None else self.tokens
        if self.window is not None and policy != "all_layers_full":
            held = min(held, self.window)
        if policy == "paged":
            held = -(-held // block_size) * block_size
        return held

    def heads_on_gpu(self, tensor_parallel: int) -> int:
        """KV heads on each of T GPUs: n/T, or one (replicated) where there are fewer heads than T.

        Raises ConfigError where T is not above the heads and does not divide them.
        """
        if self.replicated or self.n_kv_heads <= tensor_parallel:
            return min(self.n_kv_heads, 1)
        if self.n_kv_heads % tensor_parallel:
            raise ConfigError(
                f"tensor_parallel is {tensor_parallel}, which does not divide "
                f"{self.n_kv_heads} KV heads."
            )
        return self.n_kv_heads // tensor_parallel


def values_nbytes(layer: LayerCache, tokens: int, heads: int, cache_dtype: str) -> int:
    """Bytes of `tokens` tokens in `heads` heads of a layer; see dtypes.json for what is rounded."""
    code = table("dtypes")["dtypes"][cache_dtype]
    dims = [dim for dim in (layer.k_dim, layer.v_dim) if dim]
    rows = tokens * heads
    extra = rows * len(dims) * code.get("row_bytes", 0)
    if code.get("whole_blocks"):
        return rows * sum(-(-dim // code["values"]) * code["bytes"] for dim in dims) + extra
    return -(-rows * sum(dims) * code["bytes"] // code["values"]) + extra


@dataclass(frozen=True)
class CacheSpec:
    """What a model caches, layer by layer; the methods turn it into bytes.

    `layers` has one entry for each layer, and one more for each cross cache. `max_context` is
    what the config says, if it does. `state_values` counts the values of recurrent, convolution
    and linear-attention states of one sequence: 0 where there are none, None where the config
    does not tell. `notes` says in sentences what was assumed. `n_heads` are the attention heads,
    None where layers differ or the config does not tell.
    """

    family: str
    layers: tuple[LayerCache, ...]
    max_context: int | None = None
    state_values: int | None = 0
    notes: tuple[str, ...] = ()
    n_heads: int | None = None

    def nbytes(
        self,
        context: int,
        batch: int = 1,
        cache_dtype: str = "bfloat16",
        policy: str = "exact",
        tensor_parallel: int = 1,
        block_size: int = 16,
    ) -> int:
        """Exact bytes, on one GPU, of the cache of `batch` sequences of `context` tokens each.

        Policies say what an engine reserves. `exact`: a sliding or chunked layer holds
        min(context, window) tokens, every other one the context. `all_layers_full`: windows are
        ignored. `paged`: like `exact`, but each layer's tokens are rounded up to whole blocks of
        `block_size`; an engine may hold one block more while a window straddles its blocks.

        Raises ConfigError, which names the argument, for an argument that is not allowed.
        """
        check_count("context", context, low=0)
        check_count("batch", batch)
        return batch * sum(
            self.layer_nbytes(context, cache_dtype, policy, tensor_parallel, block_size)
        )

    def layer_nbytes(
        self,
        context: int,
        cache_dtype: str = "bfloat16",
        policy: str = "exact",
        tensor_parallel: int = 1,
        block_size: int = 16,
    ) -> list[int]:
        """Bytes of one sequence on one GPU for each of `layers`; arguments as for `nbytes`."""
        check_count("context", context, low=0)
        check_count("tensor_parallel", tensor_parallel, high=2**16)
        check_count("block_size", block_size)
        check_choice("cache_dtype", cache_dtype, table("dtypes")["dtypes"])
        check_choice("policy", policy, POLICIES)
        return [
            values_nbytes(
                layer,
                layer.tokens_held(context, policy, block_size),
                layer.heads_on_gpu(tensor_parallel),
                cache_dtype,
            )
            for layer in self.layers
        ]

    @property
    def windows(self) -> tuple[int, ...]:
        """The different windows of sliding and chunked layers, in rising order."""
        return tuple(sorted({layer.window for layer in self.layers if layer.window is not None}))

    def bytes_per_token(
        self, cache_dtype: str = "bfloat16", tensor_parallel: int = 1, beyond: bool = False
    ) -> int:
        """Bytes that one more token of one sequence takes on one GPU.

        Below every window all layers grow. With `beyond`, past the largest window, only those
        without a window do. A cross cache of fixed length never grows.
        """
        check_count("tensor_parallel", tensor_parallel, high=2**16)
        check_choice("cache_dtype", cache_dtype, table("dtypes")["dtypes"])
        return sum(
            values_nbytes(layer, 1, layer.heads_on_gpu(tensor_parallel), cache_dtype)
            for layer in self.layers
            if layer.tokens is None and not (beyond and layer.window is not None)
        )

    def state_bytes(self, batch: int = 1, bytes_per_value: int = 2) -> int | None:
        """Bytes of recurrent states, whatever the context; None where the config does not tell.

        They are no part of `nbytes`. Counted for one GPU that holds the whole model; engines
        differ in the precision that they keep states in, hence `bytes_per_value`.
        """
        check_count("batch", batch)
        check_count("bytes_per_value", bytes_per_value)
        return None if self.state_values is None else batch * self.state_values * bytes_per_value

    def explain(
        self,
        context: int,
        batch: int = 1,
        cache_dtype: str = "bfloat16",
        policy: str = "exact",
        tensor_parallel: int = 1,
        block_size: int = 16,
    ) -> str:
        """The sum in words, one line for each group of equal layers, and the notes."""
        total = self.nbytes(context, batch, cache_dtype, policy, tensor_parallel, block_size)
        sizes = self.layer_nbytes(context, cache_dtype, policy, tensor_parallel, block_size)
        code = table("dtypes")["dtypes"][cache_dtype]
        lines = []
        for (layer, nbytes), count in _grouped(zip(self.layers, sizes, strict=True)):
            held = layer.tokens_held(context, policy, block_size)
            lines.append(f"{count} {_layer_words(layer, held, tensor_parallel, code)}{nbytes:,} B")
            if nbytes:
                lines[-1] += f", in all {count * nbytes:,} B"
        each = " on each GPU" if tensor_parallel > 1 else ""
        lines.append(
            f"{sum(sizes):,} B a sequence × {batch:,} = {total:,} B{each} "
            f"({total / 1e9:.3f} GB, {total / 2**30:.3f} GiB)"
        )
        return "\n".join([*lines, *self.notes])


def _grouped(
    pairs: Iterable[tuple[LayerCache, int]],
) -> list[tuple[tuple[LayerCache, int], int]]:
    """Equal pairs with how many there are, in the order of their first layer."""
    counts: dict[tuple[LayerCache, int], int] = {}
    for pair, run in groupby(pairs):
        counts[pair] = counts.get(pair, 0) + len(list(run))
    return list(counts.items())


def _layer_words(layer: LayerCache, held: int, tensor_parallel: int, code: dict[str, int]) -> str:
    """One layer's product, as far as its result."""
    without = {
        "shared": "× a layer that reuses another layer's cache: ",
        "state": "× a layer with a constant state and no keys or values: ",
        "none": "× a layer without attention: ",
    }
    if layer.kind in without:
        return without[layer.kind]
    heads = layer.heads_on_gpu(tensor_parallel)
    if layer.kind == "latent":
        rows = f"{layer.k_dim} latent values"
    elif layer.k_dim == layer.v_dim:
        rows = f"2 × {heads} KV heads × {layer.k_dim} values"
    else:
        rows = f"{heads} KV heads × ({layer.k_dim} + {layer.v_dim}) values"
    unit = f"{code['bytes']} B" if code["values"] == 1 else f"{code['bytes']}/{code['values']} B"
    scale = f" (and {code['row_bytes']} B a row)" if "row_bytes" in code else ""
    window = f" (window {layer.window:,})" if layer.window is not None else ""
    return f"× {layer.kind} layer{window}: {rows} × {held:,} tokens × {unit}{scale} = "


def check_count(name: str, value: object, low: int = 1, high: int = LARGEST) -> int:
    """The value if it is a whole number in the range; otherwise a ConfigError that names it."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(
            f"{name} is {shown(value)}; it must be a whole number from {low} to {high}."
        )
    return value


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Nothing if the value is allowed; otherwise a ConfigError that lists what is."""
    choices = list(allowed)
    if value not in choices:
        raise ConfigError(f"{name} is {shown(value)}; it must be one of {', '.join(choices)}.")
