"""Make kvbook/models/smollm2_reference.json: python tools/make_reference.py

What transformers, which reads GGUF files with its own code, says about SmolLM2's: a second opinion
on kvbook's conversion, tokenizer and decoder. Needs transformers and accelerate (which transformers
demands for GGUF files); the tests need neither.
"""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvbook.models import smollm2, text

OUT = Path(smollm2.__file__).with_name("smollm2_reference.json")
PROMPT = ("CANNON, n.", "CAPITAL, n. The seat of misgovernment.")  # first and last words of it
FIVE_TOKENS = "A cache is a small"
PROBES = [0, 28, 198, 314, 1234, 9999, 31415, 49151]  # vocabulary ids
QUESTION = "What is a KV cache?"
STRINGS = [
    "",
    " ",
    "Hello, world!",
    "  two spaces before, two after  ",
    "tabs\tand\nlines\r\n\n\nand   runs of     spaces",
    "1234567890 and 3.14159, 12x34, 2026-11-29",
    "don't, we'll, they've; it's I'd I'M",
    "naïve café – Straße, «Ελληνικά», русский, עברית, العربية",
    "日本語の文章と한국어와中文",
    "emoji 🙂👩‍👩‍👧‍👦🇪🇺 and combining e\u0301 a\u030a",
    "\u00a0\u2003\u200b\ufeff odd spaces",
    "\x00\x07\x7f control",
    "def f(x):\n    return {x: [x**2 for _ in range(10)]}\n",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><repo_name><file_sep>",
    "<|im_start|><|im_end|> a<|im_start|>b <|not_special|> <|im_start",
]
DIGITS = ["a  1", "x   23\n\n 4", "2³⁰ bytes, ½, Ⅷ, ٣٤٥ and\t 7", "  0"]


def main() -> None:
    """Compute everything and write the file."""
    gguf = smollm2.fetch()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    result = {
        "made_by": "tools/make_reference.py",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "gguf_sha256": smollm2.ARCHIVE.member_sha256,
        "logits": logits(model, tokenizer),
        "greedy": greedy(model, tokenizer),
        "chat": {
            "prompt": QUESTION,
            "text": tokenizer.apply_chat_template(
                [{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True
            ),
        },
        "tokenizer": [
            {"text": string, "ids": tokenizer(string).input_ids}
            for string in [*STRINGS, text.devils_dictionary()[:6000]]
        ],
    }
    # transformers reads "smollm" as GPT-2's splitting alone and lets digits join what is before
    # them; SmolLM2's own tokenizer and llama.cpp set every digit apart first.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    result["tokenizer_digits"] = [
        {"text": string, "ids": tokenizer(string).input_ids} for string in DIGITS
    ]
    OUT.write_text(json.dumps(result, ensure_ascii=True) + "\n", encoding="utf-8")


@torch.no_grad()
def logits(model: Any, tokenizer: Any) -> dict[str, Any]:
    """At every position of an excerpt's prompt: the top token and its logit, the logsumexp, probes."""
    book = text.devils_dictionary()
    prompt = book[book.index(PROMPT[0]) : book.index(PROMPT[1]) + len(PROMPT[1])]
    ids = tokenizer(prompt).input_ids
    assert 40 <= len(ids) <= 64, len(ids)
    out = model(torch.tensor([ids])).logits[0]
    return {
        "prompt": prompt,
        "ids": ids,
        "top_id": out.argmax(-1).tolist(),
        "top_logit": rounded(out.amax(-1)),
        "logsumexp": rounded(out.logsumexp(-1)),
        "probe_ids": PROBES,
        "probe_logits": [rounded(row) for row in out[:, PROBES]],
    }


@torch.no_grad()
def greedy(model: Any, tokenizer: Any) -> dict[str, Any]:
    """64 tokens after a prompt of five, and the smallest lead of a chosen token over the second."""
    prompt = torch.tensor([tokenizer(FIVE_TOKENS).input_ids])
    assert prompt.shape == (1, 5)
    ids = model.generate(prompt, max_new_tokens=64, do_sample=False, use_cache=True)
    assert ids.shape == (1, 69), "the continuation ended early"
    first, second = model(ids[:, :-1]).logits[0, 4:].topk(2).values.unbind(-1)
    gap = (first - second).min().item()
    assert gap > 0.05, f"two tokens are only {gap} apart: choose another prompt"
    return {
        "prompt": FIVE_TOKENS,
        "ids": ids[0].tolist(),
        "text": tokenizer.decode(ids[0]),
        "smallest_gap": round(gap, 6),
    }


def rounded(values: torch.Tensor) -> list[float]:
    """Six decimals."""
    return [round(value, 6) for value in values.tolist()]


if __name__ == "__main__":
    main()
