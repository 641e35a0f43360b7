"""How many of a model's parameters a pass multiplies by, for models without experts or states."""

from dataclasses import dataclass

from kvbook.accounting.errors import ConfigError
from kvbook.accounting.facts import Model
from kvbook.accounting.reader import cache_spec
from kvbook.accounting.roofline import attention_flops
from kvbook.accounting.spec import CacheSpec
from kvbook.accounting.tables import table

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True)
class DenseWeights:
    """Parameters by what they do in a pass; norms and biases, which are few, count as layers'."""

    layer_weights: int  # each token is multiplied by them
    unembed_weights: int  # the matrix that makes logits, tied to the embedding or not
    dim: int

    def with_cache(self, published: CacheSpec, changed: CacheSpec) -> "DenseWeights":
        """The same with other KV heads: dim weights for each value that a token leaves cached."""
        more = sum(layer.values_per_token for layer in changed.layers)
        more -= sum(layer.values_per_token for layer in published.layers)
        return DenseWeights(self.layer_weights + self.dim * more, self.unembed_weights, self.dim)


def is_dense(model: Model) -> bool:
    """Whether `dense_weights` answers for a model."""
    config = model.config
    size = all(isinstance(config.get(key), int) for key in ("vocab_size", "hidden_size"))
    if not size or any(config.get(key, 0) for key in _EXPERTS):
        return False
    spec = cache_spec(config)
    is_plain = all(layer.kind in ("full", "sliding", "chunked") for layer in spec.layers)
    return is_plain and attention_flops(spec, 1, 1) is not None


def dense_weights(model: Model) -> DenseWeights:
    """A model's parameters without the rows of its embedding, which are looked up.

    Raises ConfigError for a model with experts, latents or constant states, or whose config does
    not give vocab_size and hidden_size.
    """
    if not is_dense(model):
        raise ConfigError(f"{model.id} is not a dense model whose config gives all its sizes.")
    unembed = model.config["vocab_size"] * model.config["hidden_size"]
    family = table("weights")["families"].get(model.config["model_type"], {})
    is_tied = model.config.get("tie_word_embeddings")
    if is_tied is None:
        is_tied = family.get("tied", False)
    layers = model.parameters - unembed * (1 if is_tied else 2)
    return DenseWeights(layers, unembed, model.config["hidden_size"])
