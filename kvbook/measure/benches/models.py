"""The decoder that is timed, and transformers' Llama with the very same weights."""

from typing import Any

import torch
from torch import Tensor

from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.models import smollm2

SMALL = DecoderConfig(
    vocab_size=211,
    dim=48,
    n_layers=3,
    n_heads=6,
    n_kv_heads=2,
    head_dim=8,
    ffn_dim=80,
    max_seq_len=1024,
)
CONFIGS = {"smollm2-135m": DecoderConfig(**smollm2.CONFIG), "small": SMALL}
"""`small` has random weights: it tries the benches out and says nothing about speed."""

NAMES = {
    "attention.": "self_attn.",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "embed.": "embed_tokens.",
    "blocks.": "layers.",
}
"""A part of a decoder's parameter's name -> transformers' name for it."""


def decoder(model: str, dtype: str, device: str) -> Decoder:
    """Lesson 1's decoder with a model's weights, without gradients."""
    kind = getattr(torch, dtype)
    if model == "smollm2-135m":
        with torch.device("meta"):
            ours = Decoder(CONFIGS[model])
        ours.load_state_dict(smollm2.weights(device, kind), assign=True)
    else:
        torch.manual_seed(0)
        ours = Decoder(CONFIGS[model]).to(device, kind)
    return ours.eval().requires_grad_(False)


def by_columns(ours: Decoder) -> Decoder:
    """The same decoder with a copy of every matrix that lies the other way round in memory.

    nn.Linear keeps [out, in] and computes x @ W.T. Here W.T is what is contiguous, [in, out].
    """
    with torch.device("meta"):
        copy = Decoder(ours.config)
    turned = {name: w.T.contiguous().T if w.ndim == 2 else w for name, w in weights(ours).items()}
    copy.load_state_dict(turned, assign=True)
    return copy.eval().requires_grad_(False)


def llama(ours: Decoder) -> Any:
    """transformers' LlamaForCausalLM on a decoder's own weight tensors: nothing is copied."""
    import transformers
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = ours.config
    attention: dict[str, Any] = {"attn_implementation": "sdpa"}
    shape = transformers.LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.dim,
        intermediate_size=config.ffn_dim,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_seq_len,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        rms_norm_eps=config.norm_eps,
        tie_word_embeddings=True,
        **attention,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.device("meta"):
        theirs = transformers.LlamaForCausalLM(shape)
    renamed = {f"model.{_renamed(name)}": weight for name, weight in weights(ours).items()}
    renamed["lm_head.weight"] = ours.embed.weight
    theirs.load_state_dict(renamed, assign=True)
    theirs.model.rotary_emb = LlamaRotaryEmbedding(shape).to(ours.embed.weight.device)
    return theirs.eval().requires_grad_(False)


def weights(ours: Decoder) -> dict[str, Tensor]:
    """A decoder's parameters by name."""
    return dict(ours.named_parameters())


def _renamed(name: str) -> str:
    for part, other in NAMES.items():
        name = name.replace(part, other)
    return name
