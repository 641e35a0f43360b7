"""Configs with something wrong, odd or hostile in them, the same ones on every run."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

Config = dict[str, Any]


class Pick(Random):
    """The same choices on every version of Python: only random() is the same on all."""

    def one(self, choices: Any) -> Any:
        """One of them."""
        return choices[self.below(len(choices))]

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1."""
        return int(self.random() * n)


def odd_configs(pick: Pick, sources: list[Config], count: int) -> Iterator[str]:
    """Texts of config files: the small kinds as they are, then sources and kinds with changes."""
    kinds = [{**SMALL, **kind} for kind in KINDS]
    plain = {**SMALL, "model_type": "unheard_of", "sliding_window": None}
    yield from (json.dumps({**plain, **more}) for more in UNHEARD)
    yield from (json.dumps(kind) for kind in kinds)
    sources = [*sources, *kinds, *kinds]
    for turn in range(count):
        config = json.loads(json.dumps(sources[turn % len(sources)]))
        for _ in range(pick.one([1, 1, 1, 2, 3])):
            config = mutated(pick, config)
        yield json.dumps(config, ensure_ascii=pick.random() < 0.5)


def mutated(pick: Pick, config: Config) -> Config:
    """The config with one thing changed; perhaps inside another one."""
    kind = pick.below(10)
    keys = [key for key in config if key != "model_type"]
    value = json.loads(pick.one(VALUES))
    if kind == 0 and keys:
        del config[pick.one(keys)]
    elif kind in (1, 2) and keys:
        config[pick.one(keys)] = value
    elif kind == 3:
        config[pick.one(NAMES)] = value
    elif kind == 4:
        config["model_type"] = pick.one(TYPES)
    elif kind == 5:
        return {"model_type": pick.one([*TYPES, "outer"]), pick.one(PLACES): config}
    elif kind == 6:
        lists = [key for key in keys if isinstance(config[key], list) and config[key]]
        if lists:
            config[pick.one(lists)].append(value)
        else:
            layers = config.get("num_hidden_layers")
            n = layers if isinstance(layers, int) and 0 < layers < 200 else 12
            config["layer_types"] = [pick.one(["full_attention", "sliding_attention"])] * n
    elif kind in (7, 8):
        place: Any = config
        while inside := [
            item for item in children(place) if isinstance(item, dict | list) and item
        ]:
            place = pick.one(inside)
            if pick.random() < 0.4:
                break
        if place:
            place[pick.one(list(place) if isinstance(place, dict) else range(len(place)))] = value
    else:
        numbers = [key for key in keys if type(config[key]) is int]
        if numbers:
            config[pick.one(numbers)] += pick.one([-1, 1, 3])
    return config


def children(value: Any) -> list[Any]:
    """What an object or a list holds."""
    return list(value.values()) if isinstance(value, dict) else value


def words(text: str) -> list[str]:
    """What stands between its spaces."""
    return text.split()


VALUES = words(r"""
null true false 0 1 2 3 -1 7 64 1.5 32.0 -0.0 1e-7 1e16 1e22 -12.5e-9 NaN Infinity 2147483648 2147483649
9007199254740993 "" "32" "\u00e9\n\"\\" "\u2028\ud83d\ude00" "<b>x</b>" "full_attention" "LLLG" "M*-E"
{} [] [1,2] [[1]] {"a":[null,2.0]} [0,1,0,1] [[["a"],2]] ["full_attention"]
""")
VALUES += ["1" + "0" * 30, "-1" + "0" * 20, json.dumps("x" * 100), json.dumps([1] * 40)]
"""As JSON, so that each use has its own."""

NAMES = words("""
model_type layer_types layers_block_type hybrid_override_pattern block_configs per_layer_config n_layer n_head
num_key_value_heads num_kv_heads head_dim v_head_dim global_head_dim index_head_dim multi_query attn_config
sliding_window use_sliding_window max_window_layers attention_chunk_size num_kv_shared_layers
kv_lora_rank qk_rope_head_dim text_config is_decoder is_encoder_decoder my_window_size cross_x x_config
__proto__ constructor toString hasOwnProperty
""")
TYPES = words("""
llama qwen3 gemma3_text falcon jamba deepseek_v3 gpt_oss mllama_text_model t5 zamba hunyuan bert unheard_of
constructor __proto__ toString
""")
TYPES.append("")
UNHEARD: list[Config] = [
    *({key: 2} for key in ("kv_heads", "num_kv_groups", "qk_head_dim", "attn_every", "gqa_ratio")),
    *({key: 1} for key in ("gqa_ratio", "compression_ratio", "kv_dim")),
    {"compression_ratio": 1.0},
    {"attention_type": "full"},
    {"attention_type": "linear", "layer_types": ["full_attention"] * 4},
    {"attention_types": ["full"] * 4},
    {"mixer_types": ["x"]},
    {"attn_config": {"num_heads_kv": 2, "num_heads": 8}},
    {"attn_config": {"num_heads": 4}},
    {"attn_config": {"clip_qkv": 8, "head_dim": None}},
    {"attention_config": {"kv_heads": 4}, "num_kv_heads": 2},
    {"mamba_config": {"a": 1}},
    {"vision_config": {"kv_heads": 1}},
    {"use_mla": False, "kv_lora_rank": 16, "qk_rope_head_dim": 4},
    {"qk_head_dim": 20, "kv_lora_rank": 16, "qk_rope_head_dim": 4},
    {"add_cross_attention": True},
]
"""What an unknown family may say beside the usual."""
PLACES = ["text_config", "llm_config", "decoder", "__proto__", "constructor"]

SMALL = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512, "sliding_window": 70}
KINDS: list[Config] = [
    {"model_type": "llama", "per_layer_config": {"1": {"num_key_value_heads": 2, "head_dim": 32}}},
    {"model_type": "llama", "per_layer_config": {"03": {"v_head_dim": 16}, "9" * 5000: {}}},
    {"model_type": "hymba", "global_attn_idx": [0, 3], "kv_reuse_group": [[1, 2]]},
    {"model_type": "gpt_neo", "attention_types": [[["global", "local"], 2]]},
    {"model_type": "gpt_neo", "attention_types": [[["global"] * 200, 4], [["local"], 1]]},
    {"model_type": "openelm", "num_query_heads": [8, 8, 12, 12], "num_kv_heads": [2, 2, 3, 3]},
    {"model_type": "mistral", "sliding_window": [70, None]},
    {"model_type": "hunyuan", "use_cla": True, "cla_share_factor": 2},
    {"model_type": "zamba", "attn_layer_period": 2, "attn_layer_offset": 1},
    {"model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0], "use_sliding_window": True},
    {"model_type": "minimax_text_01", "attn_type_list": [0, 1, 0, 1]},
    {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-M"},
    {"model_type": "line\nbreak \u202e" * 10, "layer_types": ["full_attention"] * 4},
    {"model_type": "unheard_of", "line\nbreak_window": 3},
    {"model_type": "bert", "is_decoder": True},
    {"model_type": "llama", "text_config": {"model_type": "qwen2", "num_attention_heads": 2}},
    {"model_type": "bailing_moe_linear", "layer_group_size": 3},
    {"model_type": "gemma4_text", "layer_types": ["full_attention", "sliding_attention"] * 2},
    {"model_type": "vision-encoder-decoder", "decoder": {"model_type": "gpt2", "n_layer": 2}},
    {
        "model_type": "step3p5",
        "layer_types": ["full_attention"] * 5,
        "num_nextn_predict_layers": 1,
    },
    {
        "model_type": "deci",
        "block_configs": [
            {"attention": {"n_heads_in_group": 4}},
            {"attention": {"no_op": True}},
            {"attention": {"num_key_value_heads": 2}},
            {"attention": {"replace_with_linear": True}},
        ],
    },
    {
        "model_type": "mistral_large4_text",
        "kv_source_layers": [0, 0, 2, 2],
        "kv_lora_rank": 64,
        "qk_rope_head_dim": 16,
    },
    {
        "model_type": "mllama_text_model",
        "cross_attention_layers": [1],
        "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
    },
    {
        "model_type": "kimi_linear",
        "linear_attn_config": {
            "full_attn_layers": [4],
            "num_heads": 3,
            "head_dim": 8,
            "short_conv_kernel_size": 4,
        },
    },
    {"model_type": "RefinedWeb", "n_head_kv": 2},
    {"model_type": "RefinedWeb", "multi_query": False},
    {"model_type": "RefinedWeb"},
    {"model_type": "falcon_mamba", "intermediate_size": 96, "expand": 16},
    {"model_type": "kimi_k2"},
    {"model_type": "deepseek_v3", "kv_lora_rank": None},
    {"model_type": "chatglm", "multi_query_attention": True},
    {"model_type": "mpt", "attn_config": {"attn_type": "grouped_query_attention"}},
    {"model_type": "gpt_neo"},
    {"model_type": "llama", "num_attention_heads": None, "num_key_value_heads": 2},
    {"model_type": "llama", "num_attention_heads": 2**31},
    {
        "model_type": "nemotron-nas",
        "block_configs": [{"attention": {"n_heads_in_group": 4, "window_length": 9}}] * 4,
    },
    {
        "model_type": "mpt",
        "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 2},
    },
]
"""Layouts that few presets have, small."""
