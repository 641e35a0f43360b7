"""Parameters by what they do in a pass: against transformers on the meta device, and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvbook.accounting import ConfigError, cache_spec, facts, what_if
from kvbook.accounting.dense import DenseWeights, dense_weights, is_dense

TINY = {  # every size differs from the others
    "model_type": "llama",
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 20,
}
LAYER = 48 * 20 * (2 * 6 + 2 * 2) + 3 * 48 * 80 + 2 * 48  # attention, gate, up and down, two norms
TABLE = 101 * 48


def model_of(config: dict[str, Any], parameters: int = 10**6) -> facts.Model:
    return replace(facts.model("llama-2-7b"), id="tiny", config=config, parameters=parameters)


@pytest.mark.parametrize("tied", [None, False, True])
def test_weights_by_hand(tied: bool | None) -> None:
    layers = 3 * LAYER + 48
    model = model_of({**TINY, "tie_word_embeddings": tied}, layers + TABLE * (1 if tied else 2))
    assert dense_weights(model) == DenseWeights(layers, TABLE, 48)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True}),
        ("qwen3", {"tie_word_embeddings": False}),
        ("gemma2", {}),  # tied by default
        ("gemma2", {"tie_word_embeddings": False}),
    ],
)
def test_weights_are_those_of_transformers_without_the_tables(kind: str, change: dict) -> None:
    sizes = {key: value for key, value in TINY.items() if key != "model_type"} | change
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**sizes, pad_token_id=0))
    tables = {built.get_input_embeddings().weight, built.get_output_embeddings().weight}
    every = sum(weight.numel() for weight in built.parameters())
    found = dense_weights(model_of({**TINY, "model_type": kind, **change}, every))
    assert found.layer_weights == every - sum(weight.numel() for weight in tables)
    assert found.unembed_weights == built.get_output_embeddings().weight.numel()


def test_other_kv_heads_change_the_rows_that_make_keys_and_values() -> None:
    spec = cache_spec(TINY)
    before = DenseWeights(1000, TABLE, 48)
    for heads in (1, 3):
        more = 48 * 3 * (heads - 2) * (20 + 20)
        changed = what_if(spec, n_kv_heads=heads)
        assert before.with_cache(spec, changed) == DenseWeights(1000 + more, TABLE, 48)
    assert before.with_cache(spec, spec) == before


SPARSE = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
OTHERS: dict[str, dict[str, Any]] = {
    **{name: {name: 4} for name in SPARSE},
    "no vocabulary": {"vocab_size": None},
    "no width": {"hidden_size": None},
    "latents": {"model_type": "deepseek_v3", "kv_lora_rank": 16, "qk_rope_head_dim": 8},
    "states": {"model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1},
    "other heads in other layers": {"num_attention_heads": [6, 6, 4]},
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_not_dense_has_no_number(what: str) -> None:
    model = model_of({**TINY, **OTHERS[what]})
    assert is_dense(model) is False
    with pytest.raises(ConfigError, match="tiny is not a dense model whose config gives all"):
        dense_weights(model)


def test_experts_that_are_none_leave_a_model_dense() -> None:
    assert is_dense(model_of(TINY)) is True
    assert is_dense(model_of({**TINY, **dict.fromkeys(SPARSE, 0)})) is True
    assert is_dense(model_of({**TINY, "model_type": "mistral", "sliding_window": 5})) is True
