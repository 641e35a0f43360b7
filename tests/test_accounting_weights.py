"""Parameter counts against transformers on the meta device, and against published models."""

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvbook.accounting import ConfigError, parameter_count
from kvbook.accounting.tables import table
from kvbook.accounting.weights import weights_nbytes

# Every size differs from the others, so that a swapped one shows.
BASE = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "pad_token_id": 0,
}
GQA = {**BASE, "num_key_value_heads": 2}
WIDE = {**GQA, "head_dim": 20}
GPT = {"vocab_size": 101, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 37}
MOE = {"moe_intermediate_size": 28, "num_experts_per_tok": 2}
GROUPS = {"n_group": 2, "topk_group": 1}
DEEPSEEK = {
    **BASE,
    **MOE,
    **GROUPS,
    "num_key_value_heads": 6,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
}
SHARED = {**WIDE, **MOE, **GROUPS, "n_routed_experts": 8, "n_shared_experts": 2}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
BIASED = {"attention_bias": True}
EIGHT, STEPS = {"num_hidden_layers": 8}, {"decoder_sparse_step": 2}
SIZES = {
    "llama": [WIDE, {**GQA, **BIASED, **TIED}, {**GQA, "mlp_bias": True}],
    "mistral": [WIDE],
    "ministral3": [WIDE],
    "qwen2": [GQA, {**GQA, **TIED}],
    "qwen3": [WIDE, {**WIDE, **BIASED}],
    "gemma": [WIDE],
    "gemma2": [WIDE, {**WIDE, **UNTIED}],
    "gemma3_text": [WIDE],
    "phi3": [GQA],
    "phi": [GQA],
    "olmo": [GQA],
    "olmo2": [GQA],
    "olmo3": [GQA],
    "cohere": [GQA, {**GQA, "use_qk_norm": True}],
    "cohere2": [WIDE],
    "granite": [GQA],
    "smollm3": [GQA],
    "seed_oss": [WIDE, {**WIDE, "attention_bias": False}],
    "exaone4": [WIDE],
    "glm": [WIDE],
    "glm4": [WIDE, {**WIDE, "attention_bias": False}],
    "gpt2": [GPT, {**GPT, "n_inner": 60}],
    "gptj": [{**GPT, "rotary_dim": 4}],
    "gpt_neox": [BASE, {**BASE, "attention_bias": False}],
    "opt": [{**BASE, "ffn_dim": 80, "word_embed_proj_dim": 48, "max_position_embeddings": 37}],
    "bloom": [{"vocab_size": 101, "hidden_size": 48, "n_layer": 3, "n_head": 6}],
    "falcon": [
        {**BASE, "multi_query": True},
        {**BASE, "new_decoder_architecture": True, "num_kv_heads": 2},
        {**BASE, "multi_query": False, "parallel_attn": False, "bias": True},
    ],
    "starcoder2": [GQA, {**GQA, "use_bias": False}],
    "stablelm": [GQA, {**GQA, "use_qkv_bias": True}],
    "mixtral": [{**GQA, "num_local_experts": 5}],
    "phimoe": [{**GQA, "num_local_experts": 5}],
    "olmoe": [{**GQA, "num_experts": 5}],
    "minimax_m2": [{**WIDE, "num_local_experts": 5}],
    "gpt_oss": [{**WIDE, "num_local_experts": 5}],
    "qwen2_moe": [
        {
            **GQA,
            **MOE,
            "num_experts": 5,
            "shared_expert_intermediate_size": 36,
            "decoder_sparse_step": 2,
        }
    ],
    "qwen3_moe": [
        {**WIDE, **MOE, "num_experts": 5, "mlp_only_layers": [1]},
        {**WIDE, **MOE, **EIGHT, "num_experts": 5, "decoder_sparse_step": 3},
        {**WIDE, **MOE, **EIGHT, "num_experts": 5, "mlp_only_layers": [3, 2], **STEPS},
    ],
    "deepseek_v2": [DEEPSEEK, {**DEEPSEEK, "q_lora_rank": None}],
    "deepseek_v3": [DEEPSEEK, {**DEEPSEEK, **BIASED}],
    "dots1": [{**SHARED, "first_k_dense_replace": 1}],
    "glm4_moe": [{**SHARED, "first_k_dense_replace": 2, "use_qk_norm": True}],
    "llama4_text": [
        {
            **WIDE,
            "num_local_experts": 5,
            "intermediate_size_mlp": 44,
            "interleave_moe_layer_step": 2,
        },
        {
            **WIDE,
            **EIGHT,
            "num_local_experts": 5,
            "intermediate_size_mlp": 44,
            "interleave_moe_layer_step": 3,
        },
    ],
}
CASES = [(name, sizes) for name, variants in SIZES.items() for sizes in variants]


def meta_count(config) -> int:
    """Parameters of transformers' model, without allocating any."""
    transformers.logging.set_verbosity_error()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_the_count_is_that_of_transformers(name, sizes):
    config = CONFIG_MAPPING[name](**sizes)
    expected = meta_count(config)
    assert parameter_count({"model_type": name, **sizes}) == expected
    assert parameter_count(config.to_dict()) == expected


@pytest.mark.parametrize(
    ("step", "first", "sparse"),
    [
        (1, 1, [1, 2, 3, 4, 5, 6]),
        (2, 1, [2, 4, 6]),
        (3, 1, [3, 6]),
        (3, 4, [6]),
        (2, 0, [0, 2, 4, 6]),
    ],
)
def test_experts_come_in_each_layer_that_the_frequency_divides(step, first, sparse):
    config = {**SHARED, "model_type": "dots1", "num_hidden_layers": 7}
    config |= {"first_k_dense_replace": first, "moe_layer_freq": step}
    dense = parameter_count({**config, "first_k_dense_replace": 7})
    hidden, inner, width = 48, 28, 80
    more = (8 + 2) * 3 * hidden * inner + 8 * hidden - 3 * hidden * width
    assert parameter_count(config) == dense + len(sparse) * more


def test_no_shared_experts_are_none():
    config = {**SHARED, "model_type": "dots1", "first_k_dense_replace": 1}
    assert parameter_count({**config, "n_shared_experts": None}) == (
        parameter_count({**config, "n_shared_experts": 0})
    )


def test_every_family_of_the_table_is_checked():
    assert set(table("weights")["families"]) == {*SIZES, "kimi_k2"}, "kimi_k2 is deepseek_v3"


LLAMA_2_7B = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
FULL_SIZE = {
    6_738_415_616: LLAMA_2_7B,
    8_030_261_248: {
        **LLAMA_2_7B,
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
    },
    46_702_792_704: {
        **LLAMA_2_7B,
        "model_type": "mixtral",
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
    },
    7_615_616_512: {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
    124_439_808: {
        "model_type": "gpt2",
        "vocab_size": 50257,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
    },
    671_026_404_352: {
        "model_type": "deepseek_v3",
        "vocab_size": 129280,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "moe_layer_freq": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "tie_word_embeddings": False,
    },
}


@pytest.mark.parametrize("expected", FULL_SIZE)
def test_models_in_full_size(expected):
    config = FULL_SIZE[expected]
    assert parameter_count(config) == expected
    sizes = {key: value for key, value in config.items() if key != "model_type"}
    assert meta_count(CONFIG_MAPPING[config["model_type"]](**sizes)) == expected


def test_the_bytes_follow_the_precision_that_the_file_names():
    assert weights_nbytes(LLAMA_2_7B)[0] == 13_476_831_232
    assert weights_nbytes({**LLAMA_2_7B, "torch_dtype": "float32"})[0] == 26_953_662_464
    unnamed = {key: value for key, value in LLAMA_2_7B.items() if key != "torch_dtype"}
    nbytes, how = weights_nbytes(unnamed)
    assert nbytes == 13_476_831_232
    assert "names no precision" in how


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "no_such_family"}, "no_such_family"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"torch_dtype": "int3"}, "int3"),
        ({"vocab_size": None}, "vocab_size is missing"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"vision_config": {"hidden_size": 3}}, "vision_config"),
    ],
)
def test_what_cannot_be_counted_asks_for_the_bytes(change, named):
    with pytest.raises(ConfigError, match="--weights-bytes") as caught:
        weights_nbytes({**LLAMA_2_7B, **change})
    assert named in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(CASES),
    st.data(),
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.just([1]) | st.just("x"),
)
def test_whatever_stands_in_a_file_gives_a_count_or_one_sentence(case, data, value):
    name, sizes = case
    keys = [*sizes, "mlp_only_layers", "moe_layer_freq", "moe_layers", "mlp_layer_types"]
    key = data.draw(st.sampled_from([*keys, "tie_word_embeddings", "attention_bias"]))
    try:
        result = parameter_count({"model_type": name, **sizes, key: value})
    except ConfigError as error:
        result = str(error)
    assert "\n" not in result if isinstance(result, str) else result >= 0
