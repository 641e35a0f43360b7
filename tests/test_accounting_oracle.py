"""transformers as an independent witness: tiny models run, and what their caches hold is weighed.

Known differences of transformers, each named where it is allowed for:
- a growing cache (DynamicCache) keeps window - 1 tokens of a sliding layer, because the next token
  joins them before it attends; its cache of fixed size (StaticCache) has room for the window;
- GPT-Neo's cache keeps every token of its local layers, although they never read them again.
"""

import dataclasses
import json

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, DynamicCache, StaticCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from kvbook.accounting import ConfigError, cache_spec
from kvbook.accounting.tables import table

BATCH, TOKENS, WINDOW = 3, 11, 7
BELOW = 5  # tokens, below the window
VOCAB = 71

# Every size differs from the others, so that a swapped one shows.
MHA = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "pad_token_id": 0,
}
GQA = {**MHA, "num_key_value_heads": 2}
WIDE = {**GQA, "head_dim": 20}
SLIDING = {"sliding_window": WINDOW}
MOE = {"moe_intermediate_size": 12, "num_experts_per_tok": 2}
LATENT = {
    **MHA,
    "num_key_value_heads": 6,
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
}
DEEPSEEK = {
    **LATENT,
    **MOE,
    "n_routed_experts": 4,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
}
GPT = {"vocab_size": VOCAB, "n_embd": 48, "n_layer": 5, "n_head": 6, "n_positions": 37}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 12, "mamba_d_state": 4, "mamba_n_groups": 1}

PLAIN = {
    "llama": WIDE,
    "qwen3": WIDE,
    "smollm3": GQA,
    "mixtral": {**GQA, "num_local_experts": 3},
    "gpt2": GPT,
    "gptj": {**GPT, "rotary_dim": 4},
    "gpt_neox": MHA,
    "gpt_bigcode": {**GPT, "multi_query": True},
    "opt": {**MHA, "ffn_dim": 40, "word_embed_proj_dim": 48, "max_position_embeddings": 64},
    "bloom": {"vocab_size": VOCAB, "hidden_size": 48, "n_layer": 5, "n_head": 6},
    "mpt": {"vocab_size": VOCAB, "d_model": 48, "n_layers": 5, "n_heads": 4},
    "falcon": {**MHA, "multi_query": True},
    "dbrx": {
        "vocab_size": VOCAB,
        "d_model": 48,
        "n_heads": 6,
        "n_layers": 5,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 20, "moe_num_experts": 3, "hidden_size": 48},
    },
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "minicpm3": LATENT,
    "longcat_flash": {
        **LATENT,
        "num_layers": 2,
        "head_dim": 8,
        "ffn_hidden_size": 30,
        "expert_ffn_hidden_size": 12,
        "n_routed_experts": 4,
        "moe_topk": 2,
        "zero_expert_num": 1,
    },
    "kimi_linear": {
        **LATENT,
        "moe_intermediate_size": 12,
        "q_lora_rank": None,
        "num_experts": 4,
        "num_experts_per_token": 2,
        "num_expert_group": 2,
        "topk_group": 1,
        "linear_attn_config": {
            "full_attn_layers": [2, 5],
            "kda_layers": [1, 3, 4],
            "num_heads": 6,
            "head_dim": 8,
            "short_conv_kernel_size": 3,
        },
    },
    "jamba": {
        **GQA,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "num_experts": 2,
        "use_mamba_kernels": False,
        "mamba_d_state": 4,
        "mamba_dt_rank": 3,
    },
    "bamba": {**GQA, **MAMBA, "attn_layer_indices": [1, 3]},
    "granitemoehybrid": {
        **GQA,
        **MAMBA,
        "layer_types": ["mamba", "attention", "mamba", "mamba", "attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 20,
    },
    "falcon_h1": {**WIDE, **MAMBA, "mamba_d_ssm": 96},
    "zamba2": {
        **MHA,
        "num_hidden_layers": 4,
        "num_key_value_heads": 6,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "n_mamba_heads": 8,
        "mamba_d_state": 4,
        "num_mem_blocks": 1,
        "adapter_rank": 4,
    },
    "nemotron_h": {
        **WIDE,
        "hybrid_override_pattern": "M*-M*",
        "mamba_num_heads": 8,
        "mamba_head_dim": 12,
        "ssm_state_size": 4,
        "n_groups": 1,
    },
    "qwen3_next": {
        **WIDE,
        **MOE,
        "num_experts": 2,
        "shared_expert_intermediate_size": 16,
        "full_attention_interval": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 6,
        "linear_value_head_dim": 10,
    },
    "minimax": {
        **WIDE,
        "num_local_experts": 3,
        "layer_types": ["full_attention", "linear_attention"] * 2 + ["full_attention"],
        "block_size": 4,
    },
    "lfm2": {**GQA, "full_attn_idxs": [1, 3], "block_multiple_of": 8},
    "mamba": {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "state_size": 4,
        "time_step_rank": 3,
    },
    "zamba": {
        **MHA,
        "num_key_value_heads": 6,
        "attn_layer_period": 4,
        "attn_layer_offset": 1,
        "mamba_d_state": 4,
        "mamba_dt_rank": 3,
        "n_mamba_heads": 2,
        "use_mamba_kernels": False,
    },
    "mamba2": {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_heads": 8,
        "head_dim": 12,
        "state_size": 4,
        "n_groups": 2,
    },
}
NO_STATES = {"minimax"}  # a family whose states are not counted
WINDOWED = {
    "mistral": {**WIDE, **SLIDING},
    "phi3": {**GQA, **SLIDING},
    "starcoder2": {**GQA, **SLIDING},
    "qwen2": {**GQA, **SLIDING, "use_sliding_window": True, "max_window_layers": 3},
    "gemma2": {**WIDE, **SLIDING},
    "gemma3_text": {**WIDE, **SLIDING, "num_hidden_layers": 7},
    "gemma3n_text": {
        **WIDE,
        **SLIDING,
        "num_hidden_layers": 7,
        "num_kv_shared_layers": 2,
        "layer_types": (["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"]) * 2,
        "hidden_size_per_layer_input": 6,
        "vocab_size_per_layer_input": VOCAB,
        "laurel_rank": 4,
        "altup_num_inputs": 2,
    },
    "gemma4_text": {
        **WIDE,
        **SLIDING,
        "num_hidden_layers": 6,
        "global_head_dim": 28,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 6,
        "vocab_size_per_layer_input": VOCAB,
    },
    "cohere2": {**GQA, **SLIDING},
    "olmo3": {**GQA, **SLIDING},
    "exaone4": {**WIDE, **SLIDING},
    "cwm": {**WIDE, **SLIDING},
    "gpt_oss": {**WIDE, **SLIDING, "num_local_experts": 3, "num_experts_per_tok": 2},
    "afmoe": {**WIDE, **SLIDING, **MOE, "num_experts": 4, "n_group": 1, "topk_group": 1},
    "llama4_text": {
        **WIDE,
        "num_hidden_layers": 6,
        "attention_chunk_size": WINDOW,
        "num_local_experts": 3,
        "intermediate_size_mlp": 30,
    },
    "mimo_v2_flash": {
        **WIDE,
        **SLIDING,
        **MOE,
        "v_head_dim": 12,
        "num_attention_heads": 12,
        "num_key_value_heads": 3,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
    },
    "inkling_text": {
        **WIDE,
        **MOE,
        "swa_head_dim": 28,
        "swa_num_key_value_heads": 3,
        "swa_num_attention_heads": 6,
        "sliding_window_size": WINDOW,
        "n_routed_experts": 4,
        "local_layer_ids": [0, 2, 3],
    },
}
WINDOWED["gemma3n_text"]["layer_types"] = WINDOWED["gemma3n_text"]["layer_types"][:7]


@pytest.fixture(autouse=True)
def quiet():
    """One thread, the same weights each time, and none of transformers' advice."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def run(config, tokens, cache=None):
    """A cache that a random model filled with BATCH × tokens; transformers' or the given one."""
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(1, VOCAB, (BATCH, tokens))
    with torch.no_grad():
        given = {} if cache is None else {"cache": cache}
        result = model(input_ids=ids, use_cache=True, **given)
    for name in ("past_key_values", "cache_params"):
        if name in result:
            return result[name]
    raise AssertionError("the model returned no cache")


def held(cache) -> int:
    """Bytes of the keys and values in a cache of transformers, layer by layer."""
    kept = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(
        tensor.numel() * tensor.element_size()
        for tensor in kept
        if isinstance(tensor, torch.Tensor)
    )


def held_states(cache) -> int:
    """Bytes of the states that stay constant: convolution and recurrent ones."""
    total = 0
    for layer in cache.layers:
        for name in ("conv_states", "recurrent_states"):
            kept = getattr(layer, name, None) or {}
            kept = list(kept.values()) if isinstance(kept, dict) else [kept]
            total += sum(t.numel() * t.element_size() for t in kept if torch.is_tensor(t))
    return total


def both_ways(name, sizes):
    """A config as a person wrote it, and as transformers writes it with all defaults."""
    config = CONFIG_MAPPING[name](**sizes)
    return config, [{"model_type": name, **sizes}, json.loads(json.dumps(config.to_dict()))]


@pytest.mark.parametrize("name", PLAIN)
def test_a_cache_without_windows_holds_what_is_counted(name):
    config, files = both_ways(name, PLAIN[name])
    cache = run(config, TOKENS)
    weighed, states = held(cache), held_states(cache)
    for file in files:
        assert cache_spec(file).nbytes(TOKENS, BATCH, "float32") == weighed
    assert weighed > 0 or name in ("mamba", "mamba2")
    whole = cache_spec(files[1])  # all sizes of the states are in this one
    assert name in NO_STATES or whole.state_bytes(BATCH, bytes_per_value=4) == states


@pytest.mark.parametrize("name", WINDOWED)
def test_a_cache_with_windows_holds_what_is_counted(name):
    config, files = both_ways(name, WINDOWED[name])
    below, beyond = held(run(config, BELOW)), held(run(config, TOKENS))
    cache = StaticCache(config=config, max_cache_len=TOKENS)
    fixed = held(run(config, TOKENS, cache))
    for file in files:
        spec = cache_spec(file)
        assert spec.windows == (WINDOW,)
        assert spec.nbytes(BELOW, BATCH, "float32") == below
        assert spec.nbytes(TOKENS, BATCH, "float32") == fixed
        assert one_token_less(spec).nbytes(TOKENS, BATCH, "float32") == beyond
        assert below < beyond < fixed < spec.nbytes(TOKENS, BATCH, "float32", "all_layers_full")


def one_token_less(spec):
    """The same spec with windows of one token less: what a growing cache keeps between steps."""
    layers = [
        dataclasses.replace(layer, window=layer.window - 1) if layer.window else layer
        for layer in spec.layers
    ]
    return dataclasses.replace(spec, layers=tuple(layers))


def test_gpt_neo_keeps_all_tokens_of_its_local_layers():
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "num_layers": 4,
        "num_heads": 6,
        "attention_types": [[["global", "local"], 2]],
        "window_size": WINDOW,
    }
    config, files = both_ways("gpt_neo", sizes)
    weighed = held(run(config, TOKENS))
    for file in files:
        spec = cache_spec(file)
        assert spec.nbytes(TOKENS, BATCH, "float32", "all_layers_full") == weighed
        assert spec.nbytes(TOKENS, BATCH, "float32") < weighed
        assert spec.nbytes(BELOW, BATCH, "float32") == held(run(config, BELOW))


SEQ2SEQ = {
    "vocab_size": VOCAB,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 44,
    "max_position_embeddings": 64,
}
T5 = {
    "vocab_size": VOCAB,
    "d_model": 48,
    "d_kv": 10,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
}


@pytest.mark.parametrize("name", ["bart", "m2m_100", "t5", "umt5"])
def test_a_decoder_holds_a_cross_cache_too(name):
    sizes = T5 if "t5" in name else SEQ2SEQ
    config, files = both_ways(name, sizes)
    model = AutoModelForSeq2SeqLM.from_config(config).eval()
    source, target = torch.randint(1, VOCAB, (2, BATCH, TOKENS))
    with torch.no_grad():
        cache = model(input_ids=source, decoder_input_ids=target, use_cache=True).past_key_values
    weighed = held(cache.self_attention_cache) + held(cache.cross_attention_cache)
    for file in files:
        assert cache_spec(file).nbytes(TOKENS, BATCH, "float32") == weighed


def test_whisper_holds_a_cross_cache_of_fixed_length():
    frames = 14
    sizes = {**SEQ2SEQ, "max_source_positions": frames, "max_target_positions": 20}
    sizes |= {"num_mel_bins": 5, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config, files = both_ways("whisper", {**sizes, "decoder_start_token_id": 1})
    model = transformers.WhisperForConditionalGeneration(config).eval()
    sound, target = torch.randn(BATCH, 5, 2 * frames), torch.randint(1, VOCAB, (BATCH, TOKENS))
    with torch.no_grad():
        cache = model(sound, decoder_input_ids=target, use_cache=True).past_key_values
    weighed = held(cache.self_attention_cache) + held(cache.cross_attention_cache)
    for file in files:
        assert cache_spec(file).nbytes(TOKENS, BATCH, "float32") == weighed


def test_mllama_replaces_layers_by_cross_layers():
    sizes = {**GQA, "num_hidden_layers": 4, "cross_attention_layers": [1, 3]}
    rope = {"rope_type": "default", "rope_theta": 1e4}
    config = transformers.MllamaConfig(text_config={**sizes, "rope_parameters": rope}).text_config
    model = transformers.MllamaForCausalLM(config).eval()
    ids, image = torch.randint(1, VOCAB, (BATCH, TOKENS)), torch.randn(BATCH, TOKENS, 48)
    with torch.no_grad():
        cache = model(input_ids=ids, cross_attention_states=image, use_cache=True).past_key_values
    spec = cache_spec({"model_type": "mllama_text_model", **sizes})
    assert spec.nbytes(TOKENS, BATCH, "float32") == held(cache)


def test_recurrent_gemma_slides_in_every_third_layer():
    sizes = {
        **MHA,
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "attention_window_size": WINDOW,
    }
    config, files = both_ways("recurrent_gemma", sizes)
    cache = DynamicCache(config=config)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        model(input_ids=torch.randint(1, VOCAB, (BATCH, BELOW)), cache=cache, use_cache=True)
    for file in files:
        spec = cache_spec(file)
        assert spec.nbytes(BELOW, BATCH, "float32") == held(cache)
        assert spec.bytes_per_token(beyond=True) == 0


ROLES = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked"}
NO_RULE = {"cohere2_moe", "flint", "glm5_next_text", "granitemoehybrid", "kimi_linear", "lfm3"}
NO_RULE |= {"muse_glimmer_text", "muse_spark_text"}  # they refuse a file without its layers


def test_the_rules_of_families_give_the_layers_that_transformers_gives():
    """Without the list of layers, as older files are: the family's rule must give the same."""
    compared = set()
    for name, entry in table("families")["families"].items():
        if name not in CONFIG_MAPPING or "error" in entry:
            continue
        config = CONFIG_MAPPING[name]().to_dict()
        text = config.get("text_config", config)
        types = text.pop("layer_types", None)
        if types is None:
            continue
        compared.add(name)
        file = json.loads(json.dumps(config))
        if name in NO_RULE:
            with pytest.raises(ConfigError, match="layer_types is missing"):
                cache_spec(file)
            continue
        layers = cache_spec(file).layers
        latent = any(layer.kind == "latent" for layer in layers)
        for layer, given in zip(layers, types, strict=True):
            attends = ROLES.get(given, "full" if given == "indexed_attention" else given)
            if attends in ROLES.values() and layer.kind != "shared":
                assert layer.kind == ("latent" if latent else attends), name
            elif attends in ("linear_attention", "conv"):
                assert layer.kind == "state", name
    assert compared >= NO_RULE
    assert len(compared) > 50
