"""Kinds of layouts, each under the key names of several families, and files that are refused.

The sums in the middle column are written as layers × KV heads × (K + V) × 2 bytes.
"""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbook.accounting import ConfigError, cache_spec
from kvbook.accounting.facts import models
from kvbook.accounting.tables import table

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_size": 4096,
}
UNKNOWN = {**LLAMA, "model_type": "no_such_family"}

# (config, bytes a token in bfloat16 below every window, and beyond them)
CASES = {
    # Names of the sizes
    "chatglm3": (
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "num_attention_heads": 32,
            "hidden_size": 4096,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
        },
        28 * 2 * 256 * 2,
        28 * 2 * 256 * 2,
    ),
    "chatglm without multi-query": (
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "num_attention_heads": 32,
            "hidden_size": 4096,
            "multi_query_group_num": 2,
        },
        28 * 32 * 256 * 2,
        28 * 32 * 256 * 2,
    ),
    "dbrx": (
        {
            "model_type": "dbrx",
            "d_model": 6144,
            "n_heads": 48,
            "n_layers": 40,
            "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
        },
        40 * 8 * 256 * 2,
        40 * 8 * 256 * 2,
    ),
    "mpt with groups": (
        {
            "model_type": "mpt",
            "n_layers": 32,
            "n_heads": 24,
            "d_model": 3072,
            "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 8},
        },
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    "mpt multi-query": (
        {
            "model_type": "mpt",
            "n_layers": 32,
            "n_heads": 24,
            "d_model": 3072,
            "attn_config": {"attn_type": "multiquery_attention"},
        },
        32 * 1 * 256 * 2,
        32 * 1 * 256 * 2,
    ),
    "falcon-rw, no multi-query": (
        {
            "model_type": "RefinedWeb",
            "n_layer": 24,
            "n_head": 32,
            "hidden_size": 2048,
            "multi_query": False,
        },
        24 * 32 * 128 * 2,
        24 * 32 * 128 * 2,
    ),
    "falcon-40b as first published, where the groups say it": (
        {
            "model_type": "RefinedWeb",
            "n_layer": 60,
            "n_head": 128,
            "n_head_kv": 8,
            "hidden_size": 8192,
        },
        122_880,
        122_880,
    ),
    "falcon-7b as first published": (
        {
            "model_type": "RefinedWebModel",
            "n_layer": 32,
            "n_head": 71,
            "hidden_size": 4544,
        },
        32 * 1 * 128 * 2,
        32 * 1 * 128 * 2,
    ),
    "falcon by default": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "num_attention_heads": 64,
            "num_kv_heads": 8,
            "hidden_size": 4096,
        },
        32 * 1 * 128 * 2,
        32 * 1 * 128 * 2,
    ),
    "codeshell": (
        {
            "model_type": "codeshell",
            "n_layer": 42,
            "n_head": 32,
            "n_embd": 4096,
            "num_query_groups": 8,
            "group_query_attention": True,
        },
        42 * 8 * 256 * 2,
        42 * 8 * 256 * 2,
    ),
    "step3, one wide head": (
        {
            "model_type": "step3_vl",
            "text_config": {
                "model_type": "step3_text",
                "hidden_size": 7168,
                "num_hidden_layers": 61,
                "num_attention_heads": 64,
                "num_attention_groups": 1,
                "head_dim": 256,
                "share_q_dim": 2048,
            },
            "vision_config": {"num_hidden_layers": 63, "num_attention_heads": 16},
        },
        61 * 1 * 512 * 2,
        61 * 1 * 512 * 2,
    ),
    # Sizes that differ from layer to layer
    "openelm": (
        {
            "model_type": "openelm",
            "num_transformer_layers": 4,
            "num_query_heads": [12, 12, 16, 20],
            "num_kv_heads": [3, 3, 4, 5],
            "head_dim": 64,
            "model_dim": 1280,
        },
        15 * 128 * 2,
        15 * 128 * 2,
    ),
    "decilm": (
        {
            **LLAMA,
            "model_type": "deci",
            "num_key_value_heads": 4,
            "num_key_value_heads_per_layer": [4] * 4 + [2] * 28,
        },
        (16 + 56) * 256 * 2,
        (16 + 56) * 256 * 2,
    ),
    "nemotron-nas": (
        {
            "model_type": "nemotron-nas",
            "num_hidden_layers": 4,
            "num_attention_heads": 64,
            "hidden_size": 8192,
            "num_key_value_heads": None,
            "block_configs": [
                {"attention": {"n_heads_in_group": 8, "no_op": False}},
                {"attention": {"n_heads_in_group": None, "no_op": True}},
                {"attention": {"n_heads_in_group": 16, "replace_with_linear": False}},
                {"attention": {"n_heads_in_group": None, "replace_with_linear": True}},
            ],
        },
        (8 + 4) * 256 * 2,
        (8 + 4) * 256 * 2,
    ),
    "nemotron-nas, one layer slides": (
        {
            "model_type": "nemotron-nas",
            "num_hidden_layers": 3,
            "num_attention_heads": 64,
            "hidden_size": 8192,
            "num_key_value_heads": None,
            "block_configs": [
                {"attention": {"n_heads_in_group": 8, "window_length": None}},
                {"attention": {"n_heads_in_group": 16, "window_length": 512}},
                {"attention": {"num_key_value_heads": 2, "window_length": 100}},
            ],
        },
        (8 + 4 + 2) * 256 * 2,
        8 * 256 * 2,
    ),
    "bert as a decoder": (
        {**LLAMA, "model_type": "bert", "is_decoder": True},
        32 * 32 * 256 * 2,
        32 * 32 * 256 * 2,
    ),
    "kimi-k2 without its rank": (
        {**LLAMA, "model_type": "kimi_k2", "num_key_value_heads": 32},
        32 * 576 * 2,
        32 * 576 * 2,
    ),
    # Windows
    "exaone4, letters": (
        {
            "model_type": "exaone4",
            "num_hidden_layers": 64,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "hidden_size": 5120,
            "sliding_window": 4096,
            "sliding_window_pattern": "LLLG",
        },
        64 * 8 * 256 * 2,
        16 * 8 * 256 * 2,
    ),
    "exaone4, the last layer is full": (
        {
            "model_type": "exaone4",
            "num_hidden_layers": 6,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "hidden_size": 5120,
            "sliding_window": 4096,
            "sliding_window_pattern": "LLLG",
        },
        6 * 8 * 256 * 2,
        2 * 8 * 256 * 2,
    ),
    "exaone4 without a window": (
        {
            "model_type": "exaone4",
            "num_hidden_layers": 30,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 2048,
            "sliding_window": None,
            "sliding_window_pattern": None,
        },
        30 * 8 * 128 * 2,
        30 * 8 * 128 * 2,
    ),
    "cohere2, a number": (
        {
            **LLAMA,
            "model_type": "cohere2",
            "num_key_value_heads": 8,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
        32 * 8 * 256 * 2,
        8 * 8 * 256 * 2,
    ),
    "qwen2, the last layers slide": (
        {
            "model_type": "qwen2",
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "hidden_size": 3584,
            "use_sliding_window": True,
            "sliding_window": 4096,
            "max_window_layers": 21,
        },
        28 * 4 * 256 * 2,
        21 * 4 * 256 * 2,
    ),
    "qwen2, all layers slide": (
        {
            **LLAMA,
            "model_type": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 4096,
            "max_window_layers": 0,
        },
        32 * 32 * 256 * 2,
        0,
    ),
    "starcoder2, all layers slide": (
        {
            "model_type": "starcoder2",
            "num_hidden_layers": 40,
            "num_attention_heads": 48,
            "num_key_value_heads": 4,
            "hidden_size": 6144,
            "sliding_window": 4096,
        },
        40 * 4 * 256 * 2,
        0,
    ),
    "gpt-neo, local and global": (
        {
            "model_type": "gpt_neo",
            "num_layers": 24,
            "num_heads": 16,
            "hidden_size": 2048,
            "window_size": 256,
            "attention_types": [[["global", "local"], 12]],
        },
        24 * 16 * 256 * 2,
        12 * 16 * 256 * 2,
    ),
    "baichuan-m1, sliding layers have other heads": (
        {
            "model_type": "baichuan_m1",
            "num_hidden_layers": 4,
            "num_attention_heads": 20,
            "num_key_value_heads": 2,
            "num_swa_attention_heads": 40,
            "num_swa_key_value_heads": 8,
            "hidden_size": 5120,
            "sliding_window": 8192,
            "sliding_window_layers": [1, 3],
        },
        (2 * 2 * 512 + 2 * 8 * 256) * 2,
        2 * 2 * 512 * 2,
    ),
    "smollm3, switched off": (
        {
            **LLAMA,
            "model_type": "smollm3",
            "num_key_value_heads": 8,
            "use_sliding_window": False,
            "sliding_window": 512,
            "no_rope_layers": [1, 1, 1, 0] * 8,
        },
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    "mistral, a list of windows": (
        {**LLAMA, "model_type": "mistral", "sliding_window": [None, 4096, 4096, 100]},
        32 * 8 * 256 * 2,
        8 * 8 * 256 * 2,
    ),
    "phi3 without a window": (
        {**LLAMA, "model_type": "phi3"},
        32 * 32 * 256 * 2,
        32 * 32 * 256 * 2,
    ),
    "gemma2, window null": (
        {**LLAMA, "model_type": "gemma2", "num_key_value_heads": 8, "sliding_window": None},
        32 * 8 * 512 * 2,
        32 * 8 * 512 * 2,
    ),
    # Latents
    "minicpm3": (
        {
            "model_type": "minicpm3",
            "num_hidden_layers": 62,
            "num_attention_heads": 40,
            "num_key_value_heads": 40,
            "hidden_size": 2560,
            "kv_lora_rank": 256,
            "q_lora_rank": 768,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 32,
        },
        62 * 288 * 2,
        62 * 288 * 2,
    ),
    "longcat, two attentions a layer": (
        {
            "model_type": "longcat_flash",
            "num_layers": 28,
            "num_attention_heads": 64,
            "hidden_size": 6144,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
        56 * 576 * 2,
        56 * 576 * 2,
    ),
    "deepseek-vl2-tiny, latents switched off": (
        {
            "model_type": "deepseek_vl_v2",
            "language_config": {
                "model_type": "deepseek_v2",
                "num_hidden_layers": 12,
                "num_attention_heads": 10,
                "num_key_value_heads": 10,
                "hidden_size": 1280,
                "kv_lora_rank": None,
                "qk_rope_head_dim": 0,
                "v_head_dim": 0,
                "use_mla": False,
            },
        },
        12 * 10 * 256 * 2,
        12 * 10 * 256 * 2,
    ),
    # Few layers attend
    "kimi-linear, counted from 1": (
        {
            "model_type": "kimi_linear",
            "num_hidden_layers": 27,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "hidden_size": 2304,
            "head_dim": 72,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27]},
        },
        7 * 576 * 2,
        7 * 576 * 2,
    ),
    "granite-4-h": (
        {
            "model_type": "granitemoehybrid",
            "num_hidden_layers": 4,
            "num_attention_heads": 12,
            "num_key_value_heads": 4,
            "hidden_size": 1536,
            "layer_types": ["mamba", "attention", "mamba", "mamba"],
        },
        1 * 4 * 256 * 2,
        1 * 4 * 256 * 2,
    ),
    "bamba": (
        {
            **LLAMA,
            "model_type": "bamba",
            "num_key_value_heads": 8,
            "attn_layer_indices": [9, 18, 27],
        },
        3 * 8 * 256 * 2,
        3 * 8 * 256 * 2,
    ),
    "zamba2, twice the width": (
        {
            "model_type": "zamba2",
            "num_hidden_layers": 81,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "hidden_size": 3584,
            "kv_channels": 112,
            "num_query_groups": 32,
            "hybrid_layer_ids": [6, 11, 17],
        },
        3 * 32 * 448 * 2,
        3 * 32 * 448 * 2,
    ),
    "recurrent gemma": (
        {
            "model_type": "recurrent_gemma",
            "num_hidden_layers": 26,
            "num_attention_heads": 10,
            "num_key_value_heads": 1,
            "hidden_size": 2560,
            "attention_window_size": 2048,
            "_block_types": ["recurrent", "recurrent", "attention"],
        },
        8 * 1 * 512 * 2,
        0,
    ),
    "plamo2, the middle of each period": (
        {
            "model_type": "plamo2",
            "num_hidden_layers": 10,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "hidden_size_per_head": 128,
            "hidden_size": 2048,
            "mamba_step": 4,
            "attention_window_size": 2048,
        },
        2 * 4 * 256 * 2,  # layers 2 and 6
        0,
    ),
    "ring-linear, groups and a tail": (
        {
            "model_type": "bailing_moe_linear",
            "num_hidden_layers": 22,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "hidden_size": 2048,
            "layer_group_size": 5,
        },
        6 * 4 * 256 * 2,
        6 * 4 * 256 * 2,
    ),
    "minimax-m1": (
        {
            "model_type": "minimax_m1",
            "num_hidden_layers": 4,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hidden_size": 6144,
            "attn_type_list": [0, 0, 0, 1],
        },
        1 * 8 * 256 * 2,
        1 * 8 * 256 * 2,
    ),
    "rwkv": ({"model_type": "rwkv", "num_hidden_layers": 32, "hidden_size": 4096}, 0, 0),
    # Layers that share
    "hunyuan-large, every second layer": (
        {
            "model_type": "hunyuan",
            "num_hidden_layers": 64,
            "num_attention_heads": 80,
            "num_key_value_heads": 8,
            "attention_head_dim": 128,
            "hidden_size": 6400,
            "use_cla": True,
            "cla_share_factor": 2,
        },
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    "hymba, groups of layers": (
        {
            "model_type": "hymba",
            "num_hidden_layers": 8,
            "num_attention_heads": 25,
            "num_key_value_heads": 5,
            "hidden_size": 1600,
            "sliding_window": 1024,
            "global_attn_idx": [0, 3, 7],
            "kv_reuse_group": [[1, 2], [4, 5]],
        },
        6 * 5 * 128 * 2,
        3 * 5 * 128 * 2,
    ),
    "phi-4-mini-flash, half of the layers reuse one": (
        {
            "model_type": "phi4flash",
            "num_hidden_layers": 32,
            "num_attention_heads": 40,
            "num_key_value_heads": 20,
            "hidden_size": 2560,
            "sliding_window": 512,
            "mb_per_layer": 2,
        },
        9 * 20 * 128 * 2,
        1 * 20 * 128 * 2,
    ),
    # Cross caches
    "bart": (
        {
            "model_type": "bart",
            "d_model": 1024,
            "encoder_layers": 6,
            "decoder_layers": 12,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 16,
            "num_hidden_layers": 6,
        },
        2 * 12 * 16 * 128 * 2,
        2 * 12 * 16 * 128 * 2,
    ),
    "llama 3.2 vision, cross layers instead of others": (
        {
            "model_type": "mllama",
            "text_config": {
                "model_type": "mllama_text_model",
                "num_hidden_layers": 40,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "hidden_size": 4096,
                "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
            },
            "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
        },
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    # Nested files leave out what equals the defaults
    "llava, everything by default": (
        {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}},
        32 * 32 * 256 * 2,
        32 * 32 * 256 * 2,
    ),
    "qwen3-omni, nested twice": (
        {
            "model_type": "qwen3_omni_moe",
            "thinker_config": {
                "model_type": "qwen3_omni_moe_thinker",
                "text_config": {
                    "model_type": "qwen3_omni_moe_text",
                    "num_hidden_layers": 48,
                    "num_attention_heads": 32,
                    "num_key_value_heads": 4,
                    "head_dim": 128,
                    "hidden_size": 2048,
                },
            },
            "talker_config": {"num_hidden_layers": 20},
        },
        48 * 4 * 256 * 2,
        48 * 4 * 256 * 2,
    ),
    "qwen2-vl, sizes at the top beside a nested rest": (
        {
            **LLAMA,
            "model_type": "qwen2_vl",
            "num_key_value_heads": 8,
            "text_config": {"model_type": "qwen2_vl_text"},
        },
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    "internvl": (
        {
            "model_type": "internvl_chat",
            "llm_config": {**LLAMA, "model_type": "internlm2", "num_key_value_heads": 8},
            "vision_config": {"num_hidden_layers": 24},
        },
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    "mimo, sliding layers have twice the heads": (
        {
            "model_type": "mimo_v2",
            "num_hidden_layers": 8,
            "num_attention_heads": 12,
            "num_key_value_heads": 3,
            "hidden_size": 96,
            "head_dim": 20,
            "v_head_dim": 12,
            "sliding_window": 100,
        },
        (2 * 3 + 6 * 6) * 32 * 2,  # layers 0 and 5 are full
        2 * 3 * 32 * 2,
    ),
    "gemma 4, whose last layer is full whatever the file says": (
        {
            **LLAMA,
            "model_type": "gemma4_text",
            "num_hidden_layers": 5,
            "num_key_value_heads": 3,
            "num_attention_heads": 6,
            "head_dim": 20,
            "global_head_dim": 28,
            "layer_types": ["sliding_attention"] * 5,
            "sliding_window": 100,
        },
        (4 * 3 * 40 + 3 * 56) * 2,
        3 * 56 * 2,
    ),
    "latents of which each second layer reuses another's": (
        {
            **LLAMA,
            "model_type": "mistral_large4_text",
            "num_hidden_layers": 5,
            "kv_lora_rank": 24,
            "qk_rope_head_dim": 6,
            "kv_source_layers": [0, 0, 2, 1, 4],
        },
        3 * 30 * 2,
        3 * 30 * 2,
    ),
    # Families that the table does not know
    "unknown, standard fields": (
        {**UNKNOWN, "num_key_value_heads": 8, "sliding_window": None, "rope_theta": 1e4},
        32 * 8 * 256 * 2,
        32 * 8 * 256 * 2,
    ),
    "unknown, names its layers": (
        {
            **UNKNOWN,
            "sliding_window": 4096,
            "layer_types": ["sliding_attention", "full_attention"] * 16,
        },
        32 * 32 * 256 * 2,
        16 * 32 * 256 * 2,
    ),
    "unknown, with keys that change nothing": (
        {
            **UNKNOWN,
            "num_shared_experts": 2,
            "shared_expert_intermediate_size": 512,
            "rope_local_base_freq": 10000.0,
            "decoder_start_token_id": 1,
            "tie_encoder_decoder": False,
            "vision_config": {"sliding_window": 3},
        },
        32 * 32 * 256 * 2,
        32 * 32 * 256 * 2,
    ),
    "unknown, names its layers and says more about them": (
        {
            **UNKNOWN,
            "sliding_window": 4096,
            "sliding_window_pattern": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 16,
        },
        32 * 32 * 256 * 2,
        16 * 32 * 256 * 2,
    ),
    "unknown, every eighth layer attends": (
        {**UNKNOWN, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16},
        4 * 32 * 256 * 2,
        4 * 32 * 256 * 2,
    ),
    "unknown, a letter for each layer": (
        {
            **UNKNOWN,
            "num_hidden_layers": 4,
            "hybrid_override_pattern": "M-*M",
            "mamba_head_dim": 64,
        },
        1 * 32 * 256 * 2,
        1 * 32 * 256 * 2,
    ),
    "unknown, window switched off": (
        {**UNKNOWN, "sliding_window": 4096, "use_sliding_window": False},
        32 * 32 * 256 * 2,
        32 * 32 * 256 * 2,
    ),
    "unknown, latents": (
        {**UNKNOWN, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128},
        32 * 576 * 2,
        32 * 576 * 2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_layout_of_a_kind(name):
    config, below, beyond = CASES[name]
    before = copy.deepcopy(config)
    spec = cache_spec(config)
    assert spec.bytes_per_token() == below
    assert spec.bytes_per_token(beyond=True) == beyond
    assert config == before, "the caller's config was changed"


def test_an_unknown_family_says_so():
    assert "no_such_family is not in the table" in cache_spec(UNKNOWN).notes[0]
    assert cache_spec(LLAMA).notes == ()


def test_a_nested_family_counts_where_the_table_knows_it_and_else_the_outer_one():
    part = {**LLAMA, "num_key_value_heads": 8}
    for outer, inner, family in (
        ("qwen2_vl", "no_such_text", "qwen2_vl"),
        ("no_such_family", "mistral", "mistral"),
        ("no_such_family", "no_such_text", "no_such_text"),
        ("no_such_family", None, "no_such_family"),
        (None, None, "a config without model_type"),
    ):
        spec = cache_spec({"model_type": outer, "text_config": {**part, "model_type": inner}})
        assert spec.family == family
        assert spec.bytes_per_token() == 32 * 8 * 256 * 2
        known = family in table("families")["families"]
        assert any("is not in the table" in note for note in spec.notes) != known


def test_defaults_are_named_and_count_at_the_top_only_where_files_may_leave_them_out():
    config = {**LLAMA, "model_type": "mistral"}
    assert "num_key_value_heads is not in the file; mistral takes 8." in cache_spec(config).notes
    with pytest.raises(ConfigError, match="num_attention_heads is missing"):
        cache_spec({"model_type": "llama", "num_hidden_layers": 32})


def test_a_list_of_windows_gives_each_layer_its_own():
    config = {**LLAMA, "model_type": "mistral", "sliding_window": [None, 4096, 300, 100]}
    spec = cache_spec(config)
    assert [layer.window for layer in spec.layers[:5]] == [None, 4096, 300, 100, None]
    assert spec.windows == (100, 300, 4096)


def test_an_image_fixes_the_length_of_a_cross_cache():
    spec = cache_spec(CASES["llama 3.2 vision, cross layers instead of others"][0])
    tokens = {layer.tokens for layer in spec.layers if layer.kind == "cross"}
    assert tokens == {4 * (40 * 40 + 1)}
    assert "The cross cache holds one image of 6404 tokens." in spec.notes


def test_a_cross_cache_whose_length_is_not_known_is_as_long_as_the_context():
    mllama = CASES["llama 3.2 vision, cross layers instead of others"][0]
    for vision in ({}, {"image_size": 560, "patch_size": 14}, {"image_size": None}):
        spec = cache_spec({**mllama, "vision_config": vision})
        assert {layer.tokens for layer in spec.layers} == {None}
        assert "The cross cache holds as many image tokens as the context has." in spec.notes
    spec = cache_spec(CASES["bart"][0])
    assert "The cross cache holds as many encoder tokens as the context has." in spec.notes


def test_the_layers_of_jamba_come_at_their_offset():
    config = {
        "model_type": "jamba",
        "num_hidden_layers": 16,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "hidden_size": 64,
        "attn_layer_period": 8,
        "attn_layer_offset": 4,
    }
    for offset, full in ((4, [4, 12]), (0, [0, 8]), (7, [7, 15])):
        layers = cache_spec({**config, "attn_layer_offset": offset}).layers
        assert [index for index, layer in enumerate(layers) if layer.kind == "full"] == full


KINDS = {"full": "F", "sliding": "S", "chunked": "C", "latent": "L"}
KINDS |= {"shared": "=", "state": "~", "none": "."}
SMALL = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_size": 64,
    "sliding_window": 5,
    "attn_window_size": 5,
    "attention_chunk_size": 5,
}
LAID_OUT = [  # the kinds in the order of the layers, and the file
    ("SSSSF", {"model_type": "gemma4_text", "layer_types": ["sliding_attention"] * 5}),
    ("SSSSSFSF", {"model_type": "gemma4_text"}),  # each sixth, and the last
    ("SSFSSFF", {"model_type": "exaone4", "sliding_window_pattern": "LLG"}),
    ("SSFSSFS", {"model_type": "exaone4", "sliding_window_pattern": 3}),
    ("FSSSFSS", {"model_type": "cwm"}),  # the first of each four
    ("~S~S~", {"model_type": "plamo2"}),  # the middle of each two
    ("~~S~~~S", {"model_type": "plamo2", "mamba_step": 4}),
    ("FSSSSFSS", {"model_type": "mimo_v2"}),  # the first, and each sixth
    ("~~F~~FFF", {"model_type": "bailing_moe_linear", "layer_group_size": 3}),
    ("~~F~~~~F~~~~~F~", {"model_type": "zamba", "attn_layer_period": 6, "attn_layer_offset": 4}),
    ("FFFSS", {"model_type": "dots1", "max_window_layers": 3}),
    ("FF", {"model_type": "dots1", "max_window_layers": 3}),
    ("~F~~F", {"model_type": "bamba", "attn_layer_indices": [1, 4]}),
    (
        "FS=S=F",
        {"model_type": "hymba", "global_attn_idx": [0, 5], "kv_reuse_group": [[1, 2], [3, 4]]},
    ),
    ("F==F==F", {"model_type": "hunyuan", "use_cla": True, "cla_share_factor": 3}),
    ("F=F=F", {"model_type": "hunyuan", "use_cla": True}),
    ("FFFFF", {"model_type": "hunyuan", "use_cla": False, "cla_share_factor": 3}),
    ("~S~S~F.=", {"model_type": "phi4flash"}),
    ("SSSSF==", {"model_type": "gemma3n_text", "num_kv_shared_layers": 2}),
    ("~S~S~", {"model_type": "recurrent_gemma", "block_types": ["recurrent", "attention"]}),
    (
        "FSFSS",
        {"model_type": "gpt_neo", "attention_types": [[["global", "local"], 2], [["local"], 1]]},
    ),
    ("CCCFCC", {"model_type": "llama4_text"}),
    ("CCCFCC", {"model_type": "llama4_text", "no_rope_layers": []}),
    ("FCCFC", {"model_type": "llama4_text", "no_rope_layers": [0, 1, 1, 0, 1]}),
    ("~F~~~F", {"model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": 1}),
    ("FSSFSS", {"model_type": "mistral", "sliding_window": [None, 3, 4]}),
    (
        "FSF",
        {
            "model_type": "step3p5",
            "num_nextn_predict_layers": 2,  # which come after and do not count
            "layer_types": ["full_attention", "sliding_attention"] * 2 + ["sliding_attention"],
        },
    ),
    (
        "~L~L",
        {
            "model_type": "kimi_linear",
            "linear_attn_config": {"full_attn_layers": [2, 4]},
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 4,
        },
    ),
]


@pytest.mark.parametrize(("kinds", "more"), LAID_OUT)
def test_each_layer_has_the_kind_that_its_place_says(kinds, more):
    spec = cache_spec({**SMALL, "num_hidden_layers": len(kinds), **more})
    assert "".join(KINDS[layer.kind] for layer in spec.layers) == kinds


def test_a_file_nests_its_model_three_deep_at_most():
    config = {**LLAMA, "num_key_value_heads": 8}
    for _ in range(3):
        config = {"model_type": "no_such_family", "text_config": config}
        assert cache_spec(config).bytes_per_token() == 32 * 8 * 256 * 2
    with pytest.raises(ConfigError, match="num_hidden_layers is missing"):
        cache_spec({"model_type": "no_such_family", "text_config": config})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (77, 77),
        (2**31, 2**31),
        (2**31 + 1, None),
        (0, None),
        (True, None),
        (7.0, None),
        (None, None),
    ],
)
def test_the_longest_context_is_told_if_it_is_a_size(given, told):
    assert cache_spec({**LLAMA, "max_position_embeddings": given}).max_context == told
    assert cache_spec(LLAMA).max_context is None
    assert cache_spec({**LLAMA, "num_attention_heads": 16}).n_heads == 16


def test_sizes_of_one_layer_win():
    config = {**LLAMA, "per_layer_config": {"07": {"head_dim": 64, "num_key_value_heads": 4}}}
    layers = cache_spec(config).layers
    assert (layers[7].n_kv_heads, layers[7].k_dim, layers[7].v_dim) == (4, 64, 64)
    assert (layers[8].n_kv_heads, layers[8].k_dim, layers[8].v_dim) == (32, 128, 128)
    own = {
        "0": {"v_head_dim": 48},
        "1": {"head_dim": 64, "v_head_dim": 48},
        "31": {"head_dim": None},
    }
    layers = cache_spec({**LLAMA, "per_layer_config": own}).layers
    assert [(layers[i].k_dim, layers[i].v_dim) for i in (0, 1, 31)] == [
        (128, 48),
        (64, 48),
        (128, 128),
    ]


def test_states_are_counted_apart():
    config = {
        "model_type": "mamba",
        "num_hidden_layers": 64,
        "hidden_size": 2560,
        "state_size": 16,
        "conv_kernel": 4,
        "expand": 2,
    }
    spec = cache_spec(config)
    assert spec.nbytes(8192) == 0
    assert spec.state_bytes() == 64 * 5120 * (16 + 4) * 2
    assert spec.state_bytes(batch=3, bytes_per_value=4) == 64 * 5120 * 20 * 12
    assert "no KV cache" in " ".join(spec.notes)
    assert cache_spec(LLAMA).state_bytes() == 0
    unknown = cache_spec(CASES["minimax-m1"][0])
    assert unknown.state_bytes() is None
    assert any("layers without keys and values are not counted" in note for note in unknown.notes)


@pytest.mark.parametrize(
    ("size", "counted"),
    [(0, True), (2**31, True), (2**31 + 1, False), (-1, False), (True, False), (1.5, False)],
)
def test_states_are_counted_if_their_sizes_are_numbers(size, counted):
    config = {"model_type": "mamba", "num_hidden_layers": 3, "hidden_size": 10, "conv_kernel": 4}
    spec = cache_spec({**config, "expand": 2, "state_size": size})
    note = "The constant states are not counted: state_size does not give a number."
    assert (note in spec.notes) != counted
    assert spec.state_values == (3 * 2 * 10 * (size + 4) if counted else None)


# (what is wrong, what the sentence must name)
WRONG = {
    "a bool for a number": ({**LLAMA, "num_key_value_heads": True}, "num_key_value_heads is true"),
    "a float": ({**LLAMA, "num_key_value_heads": 8.0}, "num_key_value_heads is 8.0"),
    "a string": ({**LLAMA, "hidden_size": "4096"}, 'hidden_size is "4096"'),
    "not a number": ({**LLAMA, "hidden_size": float("nan")}, "hidden_size is NaN"),
    "zero layers": ({**LLAMA, "num_hidden_layers": 0}, "num_hidden_layers is 0"),
    "a billion layers": ({**LLAMA, "num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
    "a huge number": ({**LLAMA, "hidden_size": 10**5000}, "hidden_size is"),
    "a list for a number": ({**LLAMA, "head_dim": [128]}, "head_dim is [128]"),
    "a list of heads of the wrong length": (
        {**LLAMA, "num_key_value_heads": [8] * 31},
        "num_key_value_heads has 31 entries",
    ),
    "a wrong entry in a list": (
        {**LLAMA, "num_key_value_heads": [8] * 31 + [0]},
        "num_key_value_heads[31] is 0",
    ),
    "two keys that contradict": ({**LLAMA, "n_layer": 24}, "n_layer is 24"),
    "no multiple": ({**LLAMA, "hidden_size": 4100}, "hidden_size 4100"),
    "model_type is no string": ({**LLAMA, "model_type": 7}, "model_type is 7"),
    "an unknown layer": ({**LLAMA, "layer_types": ["odd"] * 32}, 'layer_types names "odd"'),
    "layers in a number": ({**LLAMA, "layer_types": 32}, "layer_types is 32"),
    "a switch in a string": (
        {**LLAMA, "model_type": "qwen2", "use_sliding_window": "false", "max_window_layers": 2},
        'use_sliding_window is "false"',
    ),
    "an index out of range": (
        {**LLAMA, "model_type": "bamba", "attn_layer_indices": [9, 32]},
        "attn_layer_indices is 32",
    ),
    "an index from 0 where 1 is first": (
        {
            **CASES["kimi-linear, counted from 1"][0],
            "linear_attn_config": {"full_attn_layers": [0]},
        },
        "full_attn_layers is 0",
    ),
    "an offset beyond the period": (
        {**LLAMA, "model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": 4},
        "attn_layer_offset is 4",
    ),
    "a rule with sliding layers, no window": (
        {**LLAMA, "model_type": "hymba", "global_attn_idx": [0]},
        "attn_window_size is missing",
    ),
    "windows for some layers": (
        {**LLAMA, "model_type": "mistral", "sliding_window": [None] * 31},
        "sliding_window has 31 entries",
    ),
    "a wrong window in a list": (
        {**LLAMA, "model_type": "mistral", "sliding_window": [None, 0]},
        "sliding_window[1] is 0",
    ),
    "sliding layers, window null": (
        {**LLAMA, "layer_types": ["sliding_attention"] * 32, "sliding_window": None},
        "sliding_window is null",
    ),
    "sliding layers, no window": (
        {**LLAMA, "layer_types": ["sliding_attention"] * 32},
        "sliding_window is missing",
    ),
    "a hybrid that does not say which layers attend": (
        {**LLAMA, "model_type": "granitemoehybrid"},
        "layer_types is missing",
    ),
    "a latent without its rotary part": ({**UNKNOWN, "kv_lora_rank": 512}, "qk_rope_head_dim"),
    "more layers share than there are": (
        {**LLAMA, "model_type": "gemma3n_text", "num_kv_shared_layers": 32, "head_dim": 128},
        "num_kv_shared_layers is 32",
    ),
    "an encoder": ({**LLAMA, "model_type": "bert"}, "encoder"),
    "unknown, a window for which layers?": ({**UNKNOWN, "sliding_window": 4096}, "sliding_window"),
    "unknown, window switched on": (
        {**UNKNOWN, "sliding_window": 4096, "use_sliding_window": True},
        "use_sliding_window",
    ),
    "unknown, multi-query": ({**UNKNOWN, "multi_query": True}, "multi_query is true"),
    "unknown, recurrent": ({**UNKNOWN, "mamba_d_state": 16}, "mamba_d_state is 16"),
    "unknown, other heads in some layers": (
        {
            **UNKNOWN,
            "sliding_window": 4096,
            "swa_num_key_value_heads": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 16,
        },
        "swa_num_key_value_heads is 2",
    ),
    "unknown, shared": ({**UNKNOWN, "num_kv_shared_layers": 4}, "num_kv_shared_layers is 4"),
    "unknown, with an encoder": ({**UNKNOWN, "is_encoder_decoder": True}, "is_encoder_decoder"),
    "unknown, interval": ({**UNKNOWN, "full_attention_interval": 4}, "full_attention_interval"),
    "not an object": ([1, 2], "JSON object"),
    "unknown, latents switched off": (
        {**UNKNOWN, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "use_mla": False},
        "use_mla is false",
    ),
    "unknown, with a cross cache": (
        {**UNKNOWN, "add_cross_attention": True},
        "add_cross_attention",
    ),
    "chatglm, groups without a count": (
        {**LLAMA, "model_type": "chatglm", "multi_query_attention": True},
        "multi_query_group_num is missing; multi_query_attention needs it.",
    ),
    "codeshell, groups without a count": (
        {**LLAMA, "model_type": "codeshell"},
        "num_query_groups is missing; group_query_attention needs it.",
    ),
    "mpt, groups without a count": (
        {
            **LLAMA,
            "model_type": "mpt",
            "attn_config": {"attn_type": "grouped_query_attention"},
        },
        "attn_config.kv_n_heads is missing; attn_config.attn_type needs it.",
    ),
    "falcon-40b as first published, without groups": (
        {**LLAMA, "model_type": "RefinedWeb"},
        "n_head_kv is missing; RefinedWeb needs it.",
    ),
    "latents whose rank is null": (
        {**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": None},
        "kv_lora_rank is null; deepseek_v3 caches latents and needs it.",
    ),
    "heads that are null": (
        {**LLAMA, "num_attention_heads": None, "num_key_value_heads": 8},
        "num_attention_heads is null; it must be a whole number.",
    ),
    "heads that are null where all layers slide": (
        {
            **LLAMA,
            "model_type": "mistral",
            "num_attention_heads": None,
            "num_key_value_heads": None,
            "head_dim": 128,
            "sliding_window": 100,
        },
        "num_attention_heads is null; it must be a whole number.",
    ),
    "heads beyond the width": (
        {**LLAMA, "num_attention_heads": 2**31},
        "num_attention_heads is 2147483648, which does not divide hidden_size 4096",
    ),
    "gpt-neo of another depth": (
        {**LLAMA, "model_type": "gpt_neo", "num_hidden_layers": 12},
        "attention_types is missing; what gpt_neo takes without it is for 24 layers, not 12.",
    ),
    "a window of a block": (
        {
            **LLAMA,
            "num_hidden_layers": 1,
            "model_type": "nemotron-nas",
            "block_configs": [{"attention": {"n_heads_in_group": 8, "window_length": 0}}],
        },
        "block_configs[0].attention.window_length is 0",
    ),
    "one entry of a list that does not divide": (
        {
            **LLAMA,
            "num_hidden_layers": 3,
            "num_attention_heads": [32, 32, 12],
            "num_key_value_heads": [8, 8, 8],
            "head_dim": 128,
        },
        "num_key_value_heads is 8, which does not divide 12 attention heads.",
    ),
    "no layers listed": (
        {**LLAMA, "layer_types": []},
        "layer_types has 0 entries; it must have 32, one a layer.",
    ),
    "more layers listed than there are": (
        {**LLAMA, "layer_types": ["full_attention"] * 33},
        "layer_types has 33 entries; it must have 32, one a layer.",
    ),
    "sources for some layers": (
        {
            **CASES["latents of which each second layer reuses another's"][0],
            "kv_source_layers": [0],
        },
        "kv_source_layers must be a list of 5 layer numbers.",
    ),
    "sources in a number": (
        {**CASES["latents of which each second layer reuses another's"][0], "kv_source_layers": 5},
        "kv_source_layers must be a list of 5 layer numbers.",
    ),
    "a source that comes later": (
        {
            **CASES["latents of which each second layer reuses another's"][0],
            "kv_source_layers": [0, 2, 2, 2, 2],
        },
        "kv_source_layers is 2; it must be a whole number from 0 to 1.",
    ),
    "an offset before the period": (
        {**LLAMA, "model_type": "jamba", "attn_layer_period": 4, "attn_layer_offset": -1},
        "attn_layer_offset is -1; it must be a whole number from 0 to 3.",
    ),
    "sizes of a layer in a number": (
        {**LLAMA, "per_layer_config": {"03": 5}},
        "per_layer_config.3 is 5; it must be an object.",
    ),
    "sizes of layers in a list": (
        {**LLAMA, "per_layer_config": [{"head_dim": 64}]},
        "per_layer_config must be an object with layer numbers as keys.",
    ),
    "a width from a list of heads": (
        {**LLAMA, "num_attention_heads": [32] * 32},
        "head_dim is missing; it cannot be derived from a list of heads.",
    ),
    "a switch in a number": (
        {**LLAMA, "model_type": "mpt", "attn_config": {"attn_type": 5}},
        "attn_config.attn_type is 5; it must be a string.",
    ),
    "a switch that is neither": (
        {**LLAMA, "model_type": "qwen2", "use_sliding_window": "no", "max_window_layers": 2},
        'use_sliding_window is "no"; it must be true or false.',
    ),
    "groups that share, in a number": (
        {**LLAMA, "model_type": "hymba", "attn_window_size": 9, "kv_reuse_group": 5},
        "kv_reuse_group is 5; it must be a list of lists of layers.",
    ),
    "groups that share, without their lists": (
        {**LLAMA, "model_type": "hymba", "attn_window_size": 9, "kv_reuse_group": [[1, 2], 3]},
        "kv_reuse_group is [[1, 2], 3]; it must be a list of lists of layers.",
    ),
    "a layer of a group that is not there": (
        {**LLAMA, "model_type": "hymba", "attn_window_size": 9, "kv_reuse_group": [[1, 32]]},
        "kv_reuse_group is 32; it must be a whole number from 0 to 31.",
    ),
    "a cycle of nothing": (
        {**LLAMA, "model_type": "recurrent_gemma", "block_types": []},
        "block_types is []; it must be a list of layer names.",
    ),
    "a cycle in a number": (
        {**LLAMA, "model_type": "recurrent_gemma", "block_types": 3},
        "block_types is 3; it must be a list of layer names.",
    ),
    "a list of layers in a number": (
        {**LLAMA, "model_type": "bamba", "attn_layer_indices": 9},
        "attn_layer_indices is 9; it must be a list of layer numbers.",
    ),
    "repeated layers in a number": (
        {**LLAMA, "model_type": "gpt_neo", "attention_types": 9},
        "attention_types is 9; it must be a list of [[names], times].",
    ),
    "a repeat without its times": (
        {**LLAMA, "model_type": "gpt_neo", "attention_types": [[["global"]]]},
        'attention_types is [[["global"]]]; it must be a list of [[names], times].',
    ),
    "too few repeated layers": (
        {**LLAMA, "model_type": "gpt_neo", "attention_types": [[["global", "local"], 9]]},
        "attention_types gives 18 layers; it must give 32.",
    ),
    "too many repeated layers": (
        {**LLAMA, "model_type": "gpt_neo", "attention_types": [[["global"], 31], [["local"], 2]]},
        "attention_types gives 33 layers; it must give 32.",
    ),
    "blocks in a number": (
        {**LLAMA, "model_type": "nemotron-nas", "block_configs": 5},
        "block_configs must be a list of 32 objects, one a layer.",
    ),
    "blocks for some layers": (
        {**LLAMA, "model_type": "nemotron-nas", "block_configs": [{"attention": {}}] * 31},
        "block_configs must be a list of 32 objects, one a layer.",
    ),
    "a block without attention": (
        {**LLAMA, "model_type": "nemotron-nas", "block_configs": [{"attention": {}}, {}] * 16},
        "block_configs[1] must be an object that holds an attention object.",
    ),
    "a block whose group does not divide": (
        {
            **LLAMA,
            "model_type": "nemotron-nas",
            "block_configs": [{"attention": {"n_heads_in_group": 5}}] * 32,
        },
        "block_configs[0].attention.n_heads_in_group is 5; it must divide the heads.",
    ),
    "a key that is a number": ({**UNKNOWN, 5: 1}, "The key 5 of the config is not a string."),
    "a layer that is a number": (
        {**LLAMA, "per_layer_config": {7: {"head_dim": 64}}},
        "The key 7 of per_layer_config is not a string.",
    ),
    "a nested key that is a number": (
        {"model_type": "llava", "text_config": {**LLAMA, 3: 1}},
        "The key 3 of the nested config is not a string.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_config_is_refused_in_one_sentence(name):
    config, named = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        cache_spec(config)
    sentence = str(caught.value)
    assert named in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 300


def test_a_known_family_may_have_keys_that_say_nothing_about_its_cache():
    assert cache_spec({**LLAMA, "mamba_d_state": 16, "some_window": 3}) == cache_spec(LLAMA)


GROUPED = [
    {"n_kv_head": 8},
    {"num_kv_head": 8},
    {"kv_heads": 8},
    {"num_kv_attention_heads": 8},
    {"num_attention_heads_kv": 8},
    {"num_heads_kv": 8},
    {"attention_config": {"n_kv_heads": 8}},
    {"attn_config": {"num_kv_heads": 8, "num_heads": 32, "attn_type": "softmax"}},
    {"attn_cfg": {"num_heads_kv": 8}},
    {"attention": {"num_key_value_heads": 8}},
]


@pytest.mark.parametrize("more", GROUPED, ids=str)
def test_an_unknown_family_may_name_its_kv_heads_in_many_ways(more):
    assert cache_spec({**UNKNOWN, **more}).bytes_per_token() == 32 * 8 * 256 * 2
    with pytest.raises(ConfigError, match="must be equal"):
        cache_spec({**UNKNOWN, "num_key_value_heads": 4, **more})


REFUSED = {
    # heads and their widths
    "num_kv_groups": 8,
    "num_key_value_groups": 8,
    "n_query_groups": 8,
    "num_groups": 4,
    "kv_dim": 1024,
    "gqa_ratio": 4,
    "mqa": True,
    "qk_head_dim": 192,
    "qk_nope_head_dim": 128,
    "key_value_head_dim": 64,
    "head_dim_k": 64,
    "value_dim": 64,
    "attn_config.kv_groups": 4,
    "attn_config.num_heads": 16,
    "attention.head_dim": 64,
    # which layers attend, and how
    "mixer_types": ["attention", "mamba"],
    "token_mixer": "mamba",
    "token_mixers": ["mamba"],
    "attention_types": ["linear"],
    "attention_type": "block_sparse",
    "attention_free": True,
    "attention_layout": "SSF",
    "attn_layer_idx": [1],
    "layers_config": [{"attention": False}],
    "layer_kinds": ["linear"],
    "kda_layers": [1],
    "gdn_layers": [1],
    "rnn_layers": [1],
    "is_linear": True,
    "attn_mode": "chunk",
    "delta_net": True,
    "use_mla": True,
    "sparse_attention_config": {"block": 64},
    "attn_every": 2,
    "dense_attention_every_n_layers": 2,
    "num_kv_layers": 4,
    "compress_rate": 4,
    "compression_ratio": 4.0,
    "mamba_config": {"state": 16},
    "attention_config.window_size": 128,
}


@pytest.mark.parametrize("path", REFUSED)
def test_an_unknown_family_is_refused_where_it_may_cache_otherwise(path):
    part, dot, key = path.rpartition(".")
    more = {part: {key: REFUSED[path]}} if dot else {key: REFUSED[path]}
    with pytest.raises(ConfigError) as caught:
        cache_spec({**UNKNOWN, **more})
    assert str(caught.value).startswith(f"{path} is ")
    assert "no_such_family is not known" in str(caught.value)


@pytest.mark.parametrize(
    "more",
    [
        {"num_kv_groups": 1},  # a 1 changes nothing in a factor alone
        {"num_kv_layers": 1.0},
        {"gqa_ratio": True},
        {"head_dim": 128, "attn_config": {"head_dim": 128.0}},
    ],
    ids=str,
)
def test_an_unknown_family_is_refused_at_what_only_looks_harmless(more):
    with pytest.raises(ConfigError, match=r"^\w+(\.\w+)? is (1|1\.0|128\.0|true)[,;] "):
        cache_spec({**UNKNOWN, **more})


def test_an_unknown_family_may_repeat_a_size_that_was_read():
    more = {
        "head_dim": 128,
        "num_key_value_heads": 8,
        "attn_config": {"head_dim": 128, "kv_heads": 8},
    }
    assert cache_spec({**UNKNOWN, **more}).bytes_per_token() == 32 * 8 * 256 * 2


PLAIN = {
    "attention_type": "full",
    "attention_types": ["full_attention"] * 32,
    "attention_bias": True,
    "attention_dropout": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "attn_implementation": "sdpa",
    "_attn_implementation": "flash_attention_2",
    "attention_multiplier": 0.0078125,
    "attn_logit_softcapping": 50.0,
    "attention_softmax_in_fp32": True,
    "compression_ratio": 1.0,
    "gqa_ratio": 1,
    "clip_qkv": 8,
    "qkv_bias": True,
    "use_qk_norm": True,
    "scale_attn_by_inverse_layer_idx": True,
    "query_pre_attn_scalar": 256,
    "use_memory_efficient_attention": True,
    "n_group": 4,
    "topk_group": 2,
    "no_rope_layers": [1, 0],
    "mlp_only_layers": [1],
    "num_mtp_layers": 1,
    "use_mla": False,
    "num_experts": 8,
    "quantization_config": {"bits": 4, "group_size": 128},
    "compression_config": {"format": "pack"},
    "vision_config": {"num_key_value_heads": 3, "head_dim": 3},
    "attn_config": {"attn_type": "multihead_attention", "clip_qkv": 8, "softmax_scale": None},
    "max_window_layers": 28,
}


@pytest.mark.parametrize("key", PLAIN)
def test_an_unknown_family_is_answered_where_nothing_speaks_of_its_cache(key):
    spec = cache_spec({**UNKNOWN, "num_key_value_heads": 8, key: PLAIN[key]})
    assert spec.bytes_per_token() == 32 * 8 * 256 * 2
    assert "no_such_family is not in the table" in spec.notes[0]


def test_plain_presets_are_answered_under_any_name():
    plain = {
        *("llama-2-7b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "mistral-7b-v0.3"),
        *("mixtral-8x7b", "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b"),
        *("qwen3-235b-a22b", "deepseek-v3", "kimi-k2", "glm-4.5-air", "phi-4", "command-r"),
        *("smollm2-135m", "gpt2", "jamba-v0.1", "nemotron-nano-9b-v2", "gpt-oss-20b"),
    }
    answered = set()
    for model in models():
        if "text_config" in model.config:
            continue
        renamed = {**model.config, "model_type": "foo"}
        try:
            spec = cache_spec(renamed)
        except ConfigError:
            continue
        answered.add(model.id)
        assert spec.nbytes(5000) == cache_spec(model.config).nbytes(5000), model.id
        assert "foo is not in the table" in spec.notes[0]
    assert plain <= answered


def test_an_explicit_width_of_a_state_wins_over_the_expansion():
    falcon = {
        "model_type": "falcon_mamba",
        "num_hidden_layers": 64,
        "hidden_size": 4096,
        "intermediate_size": 8192,
        "expand": 16,
        "state_size": 16,
        "conv_kernel": 4,
    }
    assert cache_spec(falcon).state_values == 64 * 163_840
    assert cache_spec({**falcon, "model_type": "mamba"}).state_values == 64 * 163_840
    derived = {**falcon, "intermediate_size": None, "expand": 2}
    assert cache_spec(derived).state_values == 64 * 163_840
    jamba = {**LLAMA, "model_type": "jamba", "intermediate_size": 9, "mamba_expand": 2}
    assert cache_spec(jamba).state_values == 28 * 2 * 4096 * (16 + 4)


def test_a_block_slides_by_its_own_window():
    spec = cache_spec(CASES["nemotron-nas, one layer slides"][0])
    assert [layer.kind for layer in spec.layers] == ["full", "sliding", "sliding"]
    assert spec.nbytes(600) == (8 * 600 + 4 * 512 + 2 * 100) * 256 * 2


def test_a_family_takes_its_default_rank_with_a_note():
    notes = cache_spec(CASES["kimi-k2 without its rank"][0]).notes
    assert "kv_lora_rank is not in the file; kimi_k2 takes 512." in notes


def test_the_cross_cache_of_dia_has_heads_of_its_own():
    config = {
        "model_type": "dia",
        "decoder_config": {
            "model_type": "dia_decoder",
            "num_hidden_layers": 3,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "cross_num_key_value_heads": 8,
            "cross_head_dim": 96,
            "hidden_size": 2048,
        },
    }
    layers = cache_spec(config).layers
    assert {(x.n_kv_heads, x.k_dim, x.v_dim) for x in layers if x.kind == "full"} == {(4, 128, 128)}
    assert {(x.n_kv_heads, x.k_dim, x.v_dim) for x in layers if x.kind == "cross"} == {(8, 96, 96)}
    assert cache_spec(config).bytes_per_token() == 3 * (4 * 256 + 8 * 192) * 2


class Counted(dict):
    """A dict that counts how often its keys are gone through."""

    passes = 0

    def items(self):
        self.passes += 1
        return super().items()

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def test_sizes_of_single_layers_are_looked_up_in_a_few_passes():
    listed = Counted({str(layer): {"num_key_value_heads": 4} for layer in range(32)})
    spec = cache_spec({**LLAMA, "per_layer_config": listed})
    assert spec.bytes_per_token() == 32 * 4 * 256 * 2
    assert listed.passes <= 4, "once for each layer is quadratic"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 40)
    | st.just(10**30)
    | st.floats()
    | st.sampled_from(["", "M*", "full_attention", "sliding_attention", "true"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=6,
)


def paths(config, before=()):
    """Where every value of a config stands, at any depth."""
    for key, value in config.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_whatever_stands_in_a_file_gives_bytes_or_one_sentence(data):
    config = copy.deepcopy(CASES[data.draw(st.sampled_from(sorted(CASES)))][0])
    *way, last = data.draw(st.sampled_from(list(paths(config))))
    part = config
    for key in way:
        part = part[key]
    part[last] = data.draw(values)
    if data.draw(st.booleans()):
        part["model_type"] = data.draw(st.sampled_from(sorted(table("families")["families"])))
    try:
        result = cache_spec(config).nbytes(1000)
    except ConfigError as error:
        result = str(error)
    assert "\n" not in result if isinstance(result, str) else result >= 0


def test_half_of_a_decoder_decoder_has_states_of_its_own():
    kinds = [
        layer.kind
        for layer in cache_spec(CASES["phi-4-mini-flash, half of the layers reuse one"][0]).layers
    ]
    assert kinds == ["state", "sliding"] * 8 + ["state", "full"] + ["none", "shared"] * 7
