"""How many parameters a config describes, for the families in weights.json."""

from collections.abc import Mapping
from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.layouts import layout
from kvbook.accounting.reader import read
from kvbook.accounting.reading import MISSING, whole
from kvbook.accounting.tables import table

ASK = "give the weights in bytes instead (--weights-bytes)"
OTHER_PARTS = ("vision_config", "audio_config", "vision_tower", "encoder_config", "talker_config")
DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}


def parameter_count(config: Mapping[str, Any]) -> int:
    """Parameters of the model; tied embeddings count once, extra prediction layers not at all.

    Raises ConfigError, which asks for the bytes, for a family that weights.json does not know, for
    a model with parts beside the language model, and where a size is missing.
    """
    return _Count(config).total()


def weights_nbytes(config: Mapping[str, Any]) -> tuple[int, str]:
    """Bytes of the weights in the precision that the file names, and a sentence on how they came.

    Without a named precision 2 bytes a parameter are taken.
    Raises ConfigError as `parameter_count` does, and for quantised weights.
    """
    reading = read(config)
    for part in (reading.config, reading.outer):
        if part.get("quantization_config"):
            raise ConfigError(f"quantization_config: the weights are quantised; {ASK}.")
    count = parameter_count(config)
    for part in (reading.config, reading.outer):
        for key in ("torch_dtype", "dtype"):
            name = part.get(key)
            if name is None:
                continue
            if not isinstance(name, str) or name not in DTYPE_BYTES:
                raise ConfigError(f"{key} is {shown(name)}; {ASK}.")
            return count * DTYPE_BYTES[name], f"{count:,} parameters in {name}"
    return count * 2, f"{count:,} parameters, 2 bytes each (the file names no precision)"


class _Count:
    """The sum for one config."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.reading = read(config)
        families = table("weights")["families"]
        if self.reading.name not in families:
            raise ConfigError(
                f"model_type {shown(self.reading.name)} is not one whose parameters can be "
                f"counted; {ASK}."
            )
        for key in OTHER_PARTS:
            if isinstance(self.reading.outer.get(key), dict):
                raise ConfigError(f"{key}: only language models are counted; {ASK}.")
        self.rule = families[self.reading.name]
        self.reading.family = {
            **self.reading.family,
            "switches": {
                **self.reading.family.get("switches", {}),
                **self.rule.get("switches", {}),
            },
            "fields": {
                **table("weights")["fields"],
                **self.reading.family.get("fields", {}),
                **self.rule.get("fields", {}),
            },
        }
        for key, wanted in self.rule.get("only_if", {}).items():
            if not self.reading.holds({key: wanted}) and self._switch_given(key):
                raise ConfigError(f"{key} is {shown(self.reading.find(key))}; {ASK}.")
        self.hidden = self.size("hidden")
        self.n_layers = len(layout(self.reading).roles)
        projected = self.reading.config.get("word_embed_proj_dim", self.hidden)
        if projected != self.hidden:
            raise ConfigError(f"word_embed_proj_dim is {shown(projected)}; {ASK}.")

    def _switch_given(self, key: str) -> bool:
        return self.reading.find(key) not in (MISSING, None)

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number that the count needs."""
        value = self.reading.integer(name)
        if value is None:
            value = default
        if value is None:
            raise ConfigError(f"{self.reading.field(name)[0]} is missing; {ASK}.")
        return value

    def on(self, name: str) -> bool:
        """A part that the family has always, never, or by a switch of the config."""
        key = self.rule.get(name, False)
        return self.reading.holds({key: True}) if isinstance(key, str) else bool(key)

    def total(self) -> int:
        """Embeddings, layers and the head."""
        vocab = self.size("vocab")
        norm = self.hidden * (2 if self.on("norm_bias") else 1)
        count = vocab * self.hidden
        if not self._tied():
            count += vocab * self.hidden
        if self.on("head_bias"):
            count += vocab
        if "positions" in self.rule:
            count += (self.size("positions") + self.rule["positions"]) * self.hidden
        count += norm * self.on("embedding_norm")
        count += norm * self.rule.get("final_norm", True)
        sparse = self._sparse_layers()
        attention = self._latent_attention() if self._is_latent() else self._attention()
        count += self.n_layers * (attention + self._norms() * norm)
        if sparse:
            count += sparse * self._experts()
        if sparse < self.n_layers:
            count += (self.n_layers - sparse) * self._mlp(self._dense_inner())
        return count

    def _tied(self) -> bool:
        for part in (self.reading.config, self.reading.outer):
            value = part.get("tie_word_embeddings")
            if value is not None and not isinstance(value, bool):
                raise ConfigError(f"tie_word_embeddings is {shown(value)}; it must be a boolean.")
            if value is not None:
                return value
        return bool(self.rule.get("tied", False))

    def _norms(self) -> int:
        for condition, number in self.rule.get("norms_if", []):
            if self.reading.holds(condition):
                return self._falcon_norms(number)
        return int(self.rule.get("norms", 2))

    def _falcon_norms(self, number: int) -> int:
        key = "num_ln_in_parallel_attn"
        given = self.reading.config.get(key)
        return number if given is None else whole(key, given, high=2)

    def _is_latent(self) -> bool:
        return "latent" in self.reading.family

    def _attention(self) -> int:
        heads = self.size("n_heads")
        head_dim = self.reading.integer("head_dim") or self.hidden // heads
        kv_heads = self._kv_heads(heads)
        queries, keys = heads * head_dim, kv_heads * head_dim
        count = self.hidden * (2 * queries + 2 * keys)
        if self.on("qkv_bias"):
            count += queries + 2 * keys
        if self.on("o_bias"):
            count += self.hidden
        if self.rule.get("qk_norm") and ("qk_norm_if" not in self.rule or self.on("qk_norm_if")):
            count += 2 * head_dim if self.rule["qk_norm"] == "head" else queries + keys
        return count + heads * self.on("sinks")

    def _kv_heads(self, heads: int) -> int:
        for rule in self.reading.family.get("kv", [{"use": "n_kv_heads"}]):
            if self.reading.holds(rule.get("when", {})):
                use = rule["use"]
                self.reading.check_needs(rule)
                return use if isinstance(use, int) else self.size(use, default=heads)
        return heads

    def _latent_attention(self) -> int:
        heads = self.size("n_heads")
        rank, rope = self.size("kv_lora_rank"), self.reading.integer("qk_rope_head_dim", low=0)
        nope, v_dim = self.size("qk_nope_head_dim"), self.size("latent_v_dim")
        width = heads * (nope + (rope or 0))
        q_rank = self.reading.integer("q_lora_rank")
        count = self.hidden * (rank + (rope or 0)) + rank
        count += width * (self.hidden if q_rank is None else q_rank)
        if q_rank is not None:  # the queries have a latent too, with its norm
            count += self.hidden * q_rank + q_rank
        if self.on("latent_bias"):
            count += (q_rank or 0) + rank + (rope or 0) + self.hidden
        return count + rank * heads * (nope + v_dim) + heads * v_dim * self.hidden

    def _dense_inner(self) -> int:
        key = self.rule.get("dense_inner")
        if key is not None:
            value = self.reading.find(key)
            if value is MISSING:
                raise ConfigError(f"{key} is missing; {ASK}.")
            return whole(key, value)
        plain = self.rule.get("mlp", "gated") == "plain"
        return self.size("inner", default=4 * self.hidden if plain else None)

    def _mlp(self, inner: int) -> int:
        matrices = 2 if self.rule.get("mlp", "gated") == "plain" else 3
        count = matrices * self.hidden * inner
        return count + ((matrices - 1) * inner + self.hidden) * self.on("mlp_bias")

    def _experts(self) -> int:
        experts, inner = self.size("experts"), self.size("expert_inner")
        each = 3 * self.hidden * inner
        if self.on("expert_bias"):
            each += 2 * inner + self.hidden
        count = experts * each + experts * self.hidden + experts * self.on("router_bias")
        if self.on("shared_like_routed"):
            count += 3 * self.hidden * inner
        elif self.on("shared_gate"):
            count += 3 * self.hidden * self.size("shared_inner") + self.hidden
        elif self.rule["experts"] == "first_dense":
            shared = self.reading.integer("shared_experts", low=0) or 0
            count += 3 * self.hidden * shared * inner
        return count

    def _sparse_layers(self) -> int:
        """How many layers have experts."""
        where = self.rule.get("experts")
        if where is None:
            return 0
        kinds = self.reading.config.get("mlp_layer_types")
        if isinstance(kinds, list) and len(kinds) == self.n_layers:
            return kinds.count("sparse")
        layers = range(self.n_layers)
        if where == "first_dense":
            dense, step = self._key("first_k_dense_replace", 0), self._key("moe_layer_freq", 1)
            return sum(layer >= dense and layer % step == 0 for layer in layers)
        if where == "sparse_step":
            step = self._key("decoder_sparse_step", 1)
            only_mlp = self.reading.config.get("mlp_only_layers") or []
            if not isinstance(only_mlp, list):
                raise ConfigError(f"mlp_only_layers is {shown(only_mlp)}; it must be a list.")
            return sum(layer not in only_mlp and (layer + 1) % step == 0 for layer in layers)
        if where == "interleaved":
            listed = self.reading.config.get("moe_layers")
            if isinstance(listed, list):
                return len(listed)
            step = self._key("interleave_moe_layer_step", 1)
            return sum((layer + 1) % step == 0 for layer in layers)
        return self.n_layers

    def _key(self, key: str, default: int) -> int:
        value = self.reading.config.get(key)
        low = 0 if default == 0 else 1
        return default if value is None else whole(key, value, low=low)
