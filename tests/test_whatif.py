"""What other KV heads or a window would save; every size here differs, so that a swap shows."""

import pytest

from kvbook.accounting import ConfigError, cache_spec, kv_head_choices, what_if

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 9,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "head_dim": 32,
    "hidden_size": 384,
}
GEMMA = {**LLAMA, "model_type": "gemma3_text", "sliding_window": 100, "sliding_window_pattern": 3}
LATENT = {**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 40, "qk_rope_head_dim": 8}
WHISPER = {
    "model_type": "whisper",
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "d_model": 64,
    "max_source_positions": 150,
}
TOKEN = 2 * 6 * 32 * 2  # bytes of one token in one layer of LLAMA


def test_kv_heads_scale_every_layer_with_keys_and_values():
    for config in (LLAMA, GEMMA):
        spec = cache_spec(config)
        for heads in (1, 2, 3, 4, 12):
            assert what_if(spec, n_kv_heads=heads).nbytes(500) * 6 == spec.nbytes(500) * heads


def test_latents_and_cross_caches_keep_their_heads():
    latent = cache_spec(LATENT)
    assert what_if(latent, n_kv_heads=3) == latent
    whisper = what_if(cache_spec(WHISPER), n_kv_heads=1)
    assert [(layer.kind, layer.n_kv_heads) for layer in whisper.layers] == [
        ("full", 1),
        ("full", 1),
        ("cross", 4),
        ("cross", 4),
    ]


def test_a_window_bounds_full_layers_and_counts_the_sinks_on_top():
    spec = what_if(cache_spec(LLAMA), window=70, sinks=4)
    assert {layer.kind for layer in spec.layers} == {"sliding"}
    assert spec.nbytes(50) == 9 * TOKEN * 50
    assert spec.nbytes(5000) == 9 * TOKEN * 74
    assert spec.nbytes(5000, policy="all_layers_full") == 9 * TOKEN * 5000


def test_each_kth_full_layer_stays_full():
    spec = what_if(cache_spec(LLAMA), window=70, full_every=4)
    full = [index for index, layer in enumerate(spec.layers) if layer.window is None]
    assert full == [3, 7]
    assert spec.nbytes(5000) == TOKEN * (7 * 70 + 2 * 5000)
    assert what_if(cache_spec(LLAMA), window=70, full_every=1) == cache_spec(LLAMA)
    assert what_if(cache_spec(LLAMA), window=70, full_every=10) == what_if(
        cache_spec(LLAMA), window=70
    )


def test_layers_that_slide_already_keep_their_window_and_are_not_counted():
    spec = cache_spec(GEMMA)
    assert [layer.window for layer in spec.layers] == [100, 100, None] * 3
    changed = what_if(spec, window=70, full_every=2)
    assert [layer.window for layer in changed.layers] == [
        100,
        100,
        70,
        100,
        100,
        None,
        100,
        100,
        70,
    ]


def test_latents_may_slide():
    spec = what_if(cache_spec(LATENT), window=70)
    assert spec.nbytes(5000) == 9 * 48 * 2 * 70
    assert {layer.kind for layer in spec.layers} == {"latent"}


def test_the_choices_of_kv_heads():
    assert kv_head_choices(cache_spec(LLAMA)) == [1, 2, 3, 4, 6, 12]
    assert kv_head_choices(cache_spec(LATENT)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n_kv_heads": 5}, "n_kv_heads is 5, which does not divide 12 attention heads."),
        ({"n_kv_heads": 0}, "n_kv_heads is 0; it must be a whole number from 1 to 1099511627776."),
        ({"window": 0}, "window is 0; it must be a whole number from 1 to 1099511627776."),
        ({"sinks": 4}, "sinks is 4, but there is no window that they would stay beside."),
        ({"window": 9, "sinks": -1}, "sinks is -1; it must be a whole number from 0 to"),
        ({"full_every": 2}, "full_every is 2, but no window makes the others slide."),
        ({"window": 9, "full_every": 0}, "full_every is 0; it must be a whole number from 1 to"),
    ],
)
def test_what_makes_no_sense_is_named(change, sentence):
    with pytest.raises(ConfigError) as caught:
        what_if(cache_spec(LLAMA), **change)
    assert str(caught.value).startswith(sentence)


def test_a_latent_that_slides_already_keeps_its_window():
    config = {
        **LATENT,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"] * 3,
    }
    spec = cache_spec({**config, "sliding_window": 100})
    assert [(x.kind, x.window) for x in spec.layers[:3]] == [
        ("latent", 100),
        ("latent", None),
        ("latent", None),
    ]
    changed = what_if(spec, window=70, full_every=2)
    assert [layer.window for layer in changed.layers[:3]] == [100, 70, None]
    assert {layer.kind for layer in changed.layers} == {"latent"}
    assert what_if(spec, n_kv_heads=3) == spec
