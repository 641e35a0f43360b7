"""The attention explorer's Python side: what it keeps, what it refuses, how it answers its front end.

`python tests/test_explorer.py` writes tests/data/attention_vectors.json, which the JavaScript tests read too.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kvbook.explorer.attention import MAX_CHARS, MAX_TOKENS, AttentionExplorer, quantise

VECTORS = Path(__file__).parent / "data" / "attention_vectors.json"
TOKENS = ["The", " cat", "\n", " <b>", " cat"]


def causal(n_layers: int, n_heads: int, n: int, seed: int = 0) -> np.ndarray:
    """Random causal attention weights, [n_layers, n_heads, n, n]; RandomState draws the same for ever."""
    scores = 2 * np.random.RandomState(seed).randn(n_layers, n_heads, n, n)
    w = np.tril(np.exp(scores))
    return w / w.sum(-1, keepdims=True)


def make(**options: Any) -> AttentionExplorer:
    return AttentionExplorer(causal(2, 3, 5), TOKENS, **options)


def attention_vectors() -> dict[str, Any]:
    """A small table, and each of its rows looked up by plain indexing: what both languages must find."""
    w = causal(2, 3, 5)
    rows = []
    for layer, head, query in np.ndindex(2, 3, 5):
        codes = [round(255 * float(share)) for share in w[layer, head, query, : query + 1]]
        rows.append({"layer": layer, "head": head, "query": query, "codes": codes})
        rows[-1]["top"] = codes.index(max(codes))
    explorer = make()
    return {
        "shape": explorer.shape,
        "tokens": explorer.tokens,
        "weights": explorer.weights,
        "rows": rows,
    }


def test_the_shared_vectors_are_current() -> None:
    assert json.loads(VECTORS.read_text()) == attention_vectors(), f"run {Path(__file__).name}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_eight_bits_keep_a_share_within_half_a_step(dtype: torch.dtype) -> None:
    given = torch.tensor(causal(2, 3, 7, seed=1)).to(dtype)
    codes = np.frombuffer(
        base64.b64decode(AttentionExplorer(given, ["a"] * 7).weights), dtype=np.uint8
    ).reshape(2, 3, -1)
    rows, columns = np.tril_indices(7)
    error = np.abs(codes / 255 - given.double().numpy()[:, :, rows, columns]).max()
    assert 1 / 1000 < error <= 1 / 510 + 1e-9


def test_a_tensor_and_an_array_give_the_same() -> None:
    w = causal(2, 3, 5)
    tensor = torch.tensor(w, requires_grad=True)
    assert np.array_equal(quantise(w), quantise(tensor))
    assert np.array_equal(quantise(w), quantise(w.tolist()))


def broken(change: Callable[[np.ndarray], Any]) -> np.ndarray:
    w = causal(2, 3, 5)
    return w if (new := change(w)) is None else new


def set_at(place: tuple[int, ...], value: float) -> Callable[[np.ndarray], None]:
    return lambda w: w.__setitem__(place, value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w[0], r"weights has shape \[3, 5, 5\]; it must be \[n_layers, n_heads, n, n\]."),
        (lambda w: w[..., :4], r"weights has shape \[2, 3, 5, 4\]"),
        (lambda w: w[:0], r"weights has shape \[0, 3, 5, 5\]"),
        (set_at((1, 2, 3, 1), np.nan), "weights holds NaN or infinity."),
        (set_at((1, 2, 3, 1), -0.1), "no share of attention is below 0."),
        (set_at((1, 2, 3, 4), 1e-3), "not causal: a query gives attention to a later key."),
        (lambda w: 0.9 * w, "A row of weights misses the sum 1 by 0.1."),
        (lambda w: causal(2, 3, 6), "weights is for 6 tokens, but tokens has 5."),
    ],
)
def test_weights_that_are_not_attention_are_refused(change: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AttentionExplorer(broken(change), TOKENS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layer": 2}, "The start has layer 2; it must be 0 to 1."),
        ({"head": -1}, "The start has head -1; it must be 0 to 2."),
        ({"query": 5}, "The start has query 5; it must be 0 to 4."),
        ({"query": 1.5}, "The start has query 1.5"),
        ({"presets": [{"label": "a", "head": 3}]}, "Preset 'a' has head 3; it must be 0 to 2."),
        ({"presets": [{"head": 1}]}, "needs a label"),
        ({"presets": [{"label": "nothing"}]}, "needs a label and one of layer, head, query"),
    ],
)
def test_places_outside_the_table_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        make(**options)


def test_tokens_must_be_few_strings() -> None:
    with pytest.raises(ValueError, match="tokens must be strings"):
        AttentionExplorer(causal(1, 1, 2), [5, 6])
    n = MAX_TOKENS + 1
    with pytest.raises(ValueError, match=f"The text has {n} tokens; {MAX_TOKENS} are the most"):
        AttentionExplorer(causal(1, 1, n), ["a"] * n)


def test_repr_and_start() -> None:
    explorer = make(layer=1, head=2)
    assert repr(explorer) == "AttentionExplorer(2 layers × 3 heads × 5 tokens)"
    assert explorer.start == {"layer": 1, "head": 2, "query": 4}
    assert make(query=0).query == 0


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    state = make().get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-explorer" in state["_css"]
    json.dumps({key: value for key, value in state.items() if key != "layout"})


@pytest.fixture
def live() -> tuple[AttentionExplorer, Callable[..., list[dict[str, Any]]]]:
    """An explorer whose compute makes a token of each word, and a way to send it a message."""

    def compute(text: str) -> tuple[np.ndarray, list[str]]:
        words = text.split()
        if "boom" in words:
            raise RuntimeError("out of memory")
        if "other" in words:
            return causal(2, 4, 3), ["a"] * 3
        return causal(2, 3, len(words), seed=9), words

    presets = [{"label": "a", "layer": 1, "query": 2}, {"label": "b", "query": 3}]
    explorer = make(compute=compute, presets=presets, head=1)
    sent: list[dict[str, Any]] = []
    explorer.send = lambda content, buffers=None: sent.append(content)

    def ask(**message: Any) -> list[dict[str, Any]]:
        sent.clear()
        explorer._handle_custom_msg(message, [])
        return list(sent)

    return explorer, ask


def test_hello_is_answered_only_where_something_can_be_computed(live: Any) -> None:
    _, ask = live
    assert ask(type="hello") == [{"type": "hello"}]
    assert ask(type="unknown") == []
    mute = make()
    mute.send = lambda *_: pytest.fail("answered without compute")
    for message in ({"type": "hello"}, {"type": "text", "text": "a b"}, {"type": "reset"}):
        mute._handle_custom_msg(message, [])


def test_a_sentence_replaces_the_table_and_reset_brings_it_back(live: Any) -> None:
    explorer, ask = live
    before = explorer.get_state()
    explorer.layer = 1
    assert ask(type="text", text="one two three", id="7") == [{"type": "done", "id": "7"}]
    assert explorer.tokens == ["one", "two", "three"]
    assert explorer.shape == [2, 3, 3]
    assert (explorer.layer, explorer.head, explorer.query) == (1, 1, 2)
    assert explorer.presets == [{"label": "a", "layer": 1}]  # a query meant a token of the old text
    codes = quantise(causal(2, 3, 3, seed=9))
    assert explorer.weights == base64.b64encode(codes.tobytes()).decode()
    assert ask(type="reset", id="8") == [{"type": "done", "id": "8"}]
    assert explorer.get_state() == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("  ", "Type a sentence first."),
        (None, "Type a sentence first."),
        ("a" * (MAX_CHARS + 1), f"The sentence has {MAX_CHARS + 1} characters"),
        ("a " * (MAX_TOKENS + 1), f"The text has {MAX_TOKENS + 1} tokens"),
        ("boom", "RuntimeError: out of memory"),
        ("other", "another number of layers or heads"),
    ],
)
def test_a_sentence_that_fails_changes_nothing_and_says_why(
    live: Any, text: Any, sentence: str
) -> None:
    explorer, ask = live
    before = explorer.get_state()
    [answer] = ask(type="text", text=text, id="3")
    assert (answer["type"], answer["id"]) == ("error", "3")
    assert sentence in answer["message"]
    assert explorer.get_state() == before


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(attention_vectors(), indent=1) + "\n")
