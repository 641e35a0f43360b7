"""The bits explorer's Python side, and that its page counts as the caches of lesson 8 do."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kvbook.accounting import cache_spec, facts
from kvbook.explorer.bits import HALVES, BitsExplorer, formats, is_uniform
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.quantized import FORMATS, Cast, QuantizedCache, Waiting

ROOT = Path(__file__).parent.parent
UNIFORM = [model.id for model in facts.models() if is_uniform(model)]
ROW: dict[str, Any] = {
    "format": "int8",
    "only": None,
    "bits_per_value": 8.25,
    "bytes_per_token": 11_880,
    "perplexity": 30.5,
    "change": 0.0002,
    "error": 0.0004,
}
SAMPLE = [[0.5, -9.0, 0.1], [0.2, 7.0, -0.3]]

ASK = """
import { readFileSync } from "node:fs";
import { figures } from "./kvbook/explorer/src/bits/figures.js";
import { fromTraits } from "./kvbook/explorer/src/bits/state.js";
const answers = JSON.parse(readFileSync(0, "utf8")).map((traits) => {
  const { chosen } = figures(fromTraits((name) => traits[name]), { measured: [], channels: [] });
  return [chosen.bits, chosen.token.all, chosen.sequence.all, chosen.users];
});
console.log(JSON.stringify(answers));
"""


def ask(code: str, given: Any = None) -> Any:
    """What a piece of the page's JavaScript answers."""
    node = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "--eval", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return json.loads(node.stdout)


def test_the_vectors_are_current() -> None:
    tool = ROOT / "tools/make_bits_vectors.py"
    result = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_the_formats_are_those_of_the_lesson() -> None:
    assert list(formats()) == list(FORMATS)
    for name, halves in FORMATS.items():
        for half, codec in zip(HALVES, halves, strict=True):
            told = formats()[name][half]
            if isinstance(codec, Cast):
                bits = torch.empty(0, dtype=codec.dtype).element_size() * 8
                assert told == {"cast": str(codec.dtype).removeprefix("torch."), "bits": bits}
            elif isinstance(codec, Waiting):
                assert told == {**vars(codec.codec), "waits": codec.tokens}
            else:
                assert told == vars(codec), (name, half)


@pytest.mark.parametrize("only", [None, *HALVES])
@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_are_those_of_the_lesson_s_cache(name: str, only: str | None) -> None:
    spec = cache_spec(facts.model("smollm2-135m").config)
    layer = spec.layers[0]
    sizes = {"n_layers": len(spec.layers), "n_heads": 9, "n_kv_heads": layer.n_kv_heads}
    config = DecoderConfig(
        49_152, 576, **sizes, head_dim=layer.k_dim, ffn_dim=1536, max_seq_len=256
    )
    for context in (32, 70, 256):
        explorer = BitsExplorer(format=name, only=only, model="smollm2-135m", context=context)
        cache = QuantizedCache(config, 1, context, format=name, only=only, dtype=torch.bfloat16)
        assert explorer.sequence_nbytes == cache.nbytes
        if context == 256:
            cache.lengths[:] = 256
            assert explorer.bytes_per_token == cache.nbytes_used / 256


def test_it_starts_where_the_lesson_s_point_is() -> None:
    explorer = BitsExplorer([ROW], SAMPLE)
    assert repr(explorer) == "BitsExplorer(int4, 1 measured)"
    assert explorer.channel == 2  # the smallest
    assert (explorer.bits_per_value, explorer.bytes_per_token) == (5, 163_840)
    tail = 32 * 32 * 32 * 128 * 2  # 32 tokens of 32 layers, 32 heads, 128 values of 2 B
    assert explorer.sequence_nbytes == 4096 * 163_840 + tail
    assert explorer.users == (80_000_000_000 - 2 * 6_738_415_616) // explorer.sequence_nbytes == 97
    explorer.format, explorer.only = "int8", "keys"  # as the page sets them
    assert repr(explorer) == "BitsExplorer(int8, keys alone, 1 measured)"
    assert explorer.bytes_per_token == 32 * 32 * (128 + 2 + 256)


def test_the_page_s_figures_are_python_s() -> None:
    rng = random.Random(8)
    explorers = [
        BitsExplorer(
            format=rng.choice(list(FORMATS)),
            only=rng.choice([None, *HALVES]),
            model=rng.choice(UNIFORM),
            gpu=rng.choice([gpu.name for gpu in facts.gpus()]),
            context=rng.choice([1, 31, 4096, 2**20, rng.randint(1, 2**20)]),
        )
        for _ in range(200)
    ]
    states = [{name: getattr(one, name) for name in one.start} for one in explorers]
    for one, found in zip(explorers, ask(ASK, states), strict=True):
        assert found == [one.bits_per_value, one.bytes_per_token, one.sequence_nbytes, one.users]


def test_it_starts_with_the_same_settings_in_the_page_as_in_python() -> None:
    explorer = BitsExplorer()
    found, models = ask(
        'import { INITIAL, toTraits, UNIFORM } from "./kvbook/explorer/src/bits/state.js";'
        "console.log(JSON.stringify([toTraits(INITIAL), UNIFORM.map(({ id }) => id)]));"
    )
    assert explorer.start == found
    assert models == UNIFORM
    assert set(explorer.start) | {"start", "link", "measured", "channels", "measured_on"} == {
        name for name in explorer.trait_names(sync=True) if not name.startswith("_")
    } - {"layout", "tabbable", "tooltip", "comm"}


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    sample = np.asarray(SAMPLE, dtype=np.float32)
    explorer = BitsExplorer([ROW], sample.tolist(), context=np.int64(512))
    state = explorer.get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-bits" in state["_css"]
    plain = json.loads(json.dumps({key: v for key, v in state.items() if key != "layout"}))
    assert plain["context"] == 512
    assert plain["measured"] == [{key: v for key, v in ROW.items() if key != "bytes_per_token"}]
    assert len(plain["channels"]) == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "int3"}, "format is 'int3'; it must be one of float16, bfloat16, int8, "),
        ({"only": "both"}, "only is 'both'; it must be one of keys, values."),
        ({"compare": "fp8"}, "compare is 'fp8'; it must be one of float16, "),
        ({"channel": 3}, "channel is 3; it must be a whole number from 0 to 2."),
        ({"model": "gemma-3-27b"}, "model is 'gemma-3-27b', whose layers are not all alike; use "),
        ({"gpu": "A100"}, 'gpu is "A100"; that could be A100 40GB or A100 80GB: say which.'),
        ({"context": 0}, "context is 0; it must be a whole number from 1 to 1048576."),
        ({"measured_on": ""}, "measured_on is ''; it must be a text of 1 to 60 characters."),
        ({"measured": [ROW, ROW]}, "measured has 'int8' with only None twice."),
        ({"measured": [{**ROW, "format": "x"}]}, "format is 'x'; it must be one of float16"),
        ({"measured": [{**ROW, "only": "k"}]}, "only is 'k'; it must be one of keys, values."),
        ({"measured": [{**ROW, "error": -1}]}, "error is -1; it must be a number from 0"),
        ({"measured": [5]}, "measured holds 5; it must be a list of dicts."),
        ({"measured": ROW}, "measured is {'format': 'int8', "),
        ({"measured": 5}, "measured is 5; it must be a list of dicts."),
        ({"measured": "int8"}, "measured is 'int8'; it must be a list of dicts."),
        ({"channels": [5]}, "a token of channels is 5; it must be a list of numbers."),
        ({"channels": 5}, "channels is 5; it must be a list of lists of numbers."),
        ({"measured": [{"format": "int8"}]}, "bits_per_value is None; it must be a number from 1"),
        ({"channels": [[1.0], [1.0, 2.0]]}, "channels has rows of [1, 2] numbers; all must have"),
        ({"channels": [[1.0]] * 129}, "channels has 129 tokens; 128 are the most."),
        ({"channels": [[float("nan")]]}, "a key of channels is nan; it must be a number from"),
    ],
)
def test_what_is_not_known_or_out_of_range_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        BitsExplorer(**{"channels": SAMPLE, **changes})
    assert "\n" not in str(told.value)
