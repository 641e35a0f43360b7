"""Lesson 3's formula, against a sum over every value; every size differs, so that a swap shows."""

import pytest

from kvbook.lessons.cost import token_nbytes

SIZES = {"n_layers": 3, "n_kv_heads": 5, "head_dim": 7, "bytes_per_value": 4}


def test_a_token_takes_a_key_and_a_value_for_each_layer_and_head() -> None:
    values = [
        (half, layer, head, channel)
        for half in "kv"
        for layer in range(3)
        for head in range(5)
        for channel in range(7)
    ]
    assert token_nbytes(**SIZES) == 4 * len(values)
    assert token_nbytes(32, 32, 128, 2) == 524_288  # Llama 2 7B in fp16
    assert token_nbytes(1, 1, 1, 1) == 2


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True, None])
def test_what_is_no_count_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(
        ValueError, match=rf"^{name} is .*; it must be a whole number, at least 1\.$"
    ):
        token_nbytes(**SIZES | {name: value})
