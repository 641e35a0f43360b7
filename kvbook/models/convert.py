"""A GGUF file of the Llama family, converted once to what the lessons load quickly.

The converted files record a fingerprint of this module's own text, so that a copy made by
another version of it is never used.
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvbook.models.cache import ModelFileError

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer

FINGERPRINT = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
CONTROL = 3  # llama.cpp's token type of special tokens

METADATA = {  # DecoderConfig's names -> GGUF's; head_dim is the number of dimensions RoPE turns
    "vocab_size": "llama.vocab_size",
    "dim": "llama.embedding_length",
    "n_layers": "llama.block_count",
    "n_heads": "llama.attention.head_count",
    "n_kv_heads": "llama.attention.head_count_kv",
    "head_dim": "llama.rope.dimension_count",
    "ffn_dim": "llama.feed_forward_length",
    "max_seq_len": "llama.context_length",
    "rope_theta": "llama.rope.freq_base",
    "norm_eps": "llama.attention.layer_norm_rms_epsilon",
}
TENSORS = {  # GGUF's names inside a block -> Decoder's
    "attn_norm": "attention_norm",
    "attn_q": "attention.q_proj",
    "attn_k": "attention.k_proj",
    "attn_v": "attention.v_proj",
    "attn_output": "attention.o_proj",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def state_dict(reader: "GGUFReader", config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights in fp32, under the names of Decoder.state_dict() (embedding tied to the output).

    Raises ModelFileError where the file's metadata contradicts config.
    """
    from gguf import dequantize

    for name, key in METADATA.items():
        if not math.isclose(found := _scalar(reader, key), config[name], rel_tol=1e-6):
            raise ModelFileError(f"The GGUF says {key} = {found}, not {config[name]} ({name}).")
    weights = {}
    for tensor in reader.tensors:
        weight = torch.tensor(dequantize(tensor.data, tensor.tensor_type), dtype=torch.float32)
        if ".attn_q." in tensor.name:
            weight = halves(weight, config["n_heads"])
        elif ".attn_k." in tensor.name:
            weight = halves(weight, config["n_kv_heads"])
        weights[_name(tensor.name)] = weight
    return weights


def halves(weight: Tensor, n_heads: int) -> Tensor:
    """Reorder the rows of a q or k projection [n_heads * head_dim, dim] for RoPE in two halves.

    GGUF lays the pair that RoPE turns in neighbouring rows (2i, 2i + 1) of a head; the decoder, as
    transformers does, turns rows (i, i + head_dim / 2). llama.cpp's converter permutes, this undoes.
    """
    pairs = weight.unflatten(0, (n_heads, -1, 2))  # [n_heads, head_dim / 2, 2, dim]
    return pairs.transpose(1, 2).reshape(weight.shape).contiguous()


def tokenizer(reader: "GGUFReader") -> "Tokenizer":
    """The byte-level BPE tokenizer that the metadata describes, split as SmolLM2 splits text.

    A GGUF names its pre-tokenizer ("smollm") and leaves the rule to the reader: every digit stands
    alone, then GPT-2's pattern.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if (rule := _strings(reader, "tokenizer.ggml.pre")[0]) != "smollm":
        raise ModelFileError(f"The GGUF asks for the pre-tokenizer {rule!r}, not 'smollm'.")
    tokens = _strings(reader, "tokenizer.ggml.tokens")
    merges = _strings(reader, "tokenizer.ggml.merges")
    kinds = reader.fields["tokenizer.ggml.token_type"]
    special = [
        token for token, i in zip(tokens, kinds.data, strict=True) if kinds.parts[i][0] == CONTROL
    ]
    built = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[_pair(merge) for merge in merges],
        )
    )
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True) for token in special])
    return built


def _name(name: str) -> str:
    """Decoder's name of a GGUF tensor."""
    plain = name.removesuffix(".weight")
    if plain in ("token_embd", "output_norm"):
        return {"token_embd": "embed.weight", "output_norm": "norm.weight"}[plain]
    _, layer, part = plain.split(".")
    return f"blocks.{layer}.{TENSORS[part]}.weight"


def _scalar(reader: "GGUFReader", key: str) -> float:
    field = reader.fields[key]
    return field.parts[field.data[0]][0].item()


def _strings(reader: "GGUFReader", key: str) -> list[str]:
    field = reader.fields[key]
    return [bytes(field.parts[i]).decode() for i in field.data]


def _pair(merge: str) -> tuple[str, str]:
    left, right = merge.split(" ")
    return left, right
