"""The roofline explorer's Python side, and that its page computes what `kvbook.accounting` computes."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbook.accounting import ConfigError, cache_spec, facts, kv_head_choices, parameter_count
from kvbook.accounting import roofline as roof
from kvbook.accounting.dense import dense_weights, is_dense
from kvbook.accounting.tables import table
from kvbook.accounting.whatif import what_if
from kvbook.explorer.roofline import MAX_BATCH, WEIGHTS, RooflineExplorer

ROOT = Path(__file__).parent.parent
DENSE = [model for model in facts.models() if is_dense(model)]
RATED = [gpu.name for gpu in facts.gpus() if gpu.fp16_flops_dense]
POINT = {
    "label": "a",
    "phase": "decode",
    "tokens": 1,
    "flops": 2e9,
    "nbytes": 1e9,
    "seconds": 0.5,
}

ASK = """
import { readFileSync } from "node:fs";
import { figures } from "./kvbook/explorer/src/roofline/figures.js";
import { fromTraits } from "./kvbook/explorer/src/roofline/state.js";
const answers = JSON.parse(readFileSync(0, "utf8")).map((traits) => {
  const { prefill, decode } = figures(fromTraits((name) => traits[name]));
  return [prefill, decode].map((p) => [
    p.tokens, p.weightFlops, p.attentionFlops, p.weightBytes, p.cacheBytes,
    p.seconds, p.tokensPerS, p.boundBy,
  ]);
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


def drawn(rng: random.Random) -> RooflineExplorer:
    """An explorer with settings by chance, most of them not where they start."""
    model = rng.choice(DENSE)
    return RooflineExplorer(
        model=model.id,
        gpu=rng.choice([*RATED, "own"]),
        prompt=rng.choice([1, 512, 2**20, rng.randint(1, 2**20)]),
        context=rng.choice([1, 1024, 2**20, rng.randint(1, 2**20)]),
        batch=rng.choice([1, 1, 7, 512, MAX_BATCH]),
        n_kv_heads=rng.choice([None, *kv_head_choices(cache_spec(model.config))]),
        weights=rng.choice(WEIGHTS),
        cache_dtype=rng.choice(list(table("dtypes")["dtypes"])),
        own_gb_per_s=round(rng.uniform(0.01, 900), 3),
        own_tflops=round(rng.uniform(0.0001, 9), 4),
    )


def test_it_starts_where_the_lesson_s_point_is() -> None:
    explorer = RooflineExplorer()
    assert repr(explorer) == "RooflineExplorer(llama-2-7b on A100 80GB)"
    assert (explorer.prefill.bound_by, explorer.decode.bound_by) == ("compute", "memory")
    # by hand: all parameters but the embedding table, 2 B each; 1,024 tokens of 524,288 B
    read = 2 * (6_738_415_616 - 32_000 * 4096) + 1024 * 524_288
    assert explorer.decode.work.nbytes == read
    assert explorer.decode.tokens_per_s == pytest.approx(2.039e12 / read)
    assert explorer.decode.seconds == pytest.approx(read / 2.039e12)
    explorer.batch = 64  # as the page sets it
    assert explorer.decode.work.cache_bytes == 64 * 1024 * 524_288


def test_the_sums_agree_with_the_shape_but_for_the_norms() -> None:
    shape = roof.Shape(32, 32, 32, 128, 4096, 11_008, 32_000)
    found = dense_weights(facts.model("llama-2-7b"))
    assert found.unembed_weights == shape.unembed_weights
    assert found.layer_weights - shape.layer_weights == (2 * 32 + 1) * 4096
    by_shape = roof.decode_step(shape, 1024)
    now = RooflineExplorer().decode.work
    assert now.attention_flops == by_shape.attention_flops
    assert now.cache_bytes == by_shape.cache_bytes
    assert now.weight_flops == pytest.approx(by_shape.weight_flops, rel=1e-4)


HEADS = "num_key_value_heads"


@pytest.mark.parametrize("model", [m for m in DENSE if HEADS in m.config], ids=lambda m: m.id)
def test_other_kv_heads_change_the_weights_as_a_config_with_them_does(model: facts.Model) -> None:
    spec = cache_spec(model.config)
    before = parameter_count(model.config)
    for heads in kv_head_choices(spec):
        changed = what_if(spec, n_kv_heads=heads)
        more = dense_weights(model).with_cache(spec, changed).layer_weights
        more -= dense_weights(model).layer_weights
        missed = parameter_count({**model.config, HEADS: heads}) - before - more
        biases = more // model.config["hidden_size"] if model.config["model_type"] == "qwen2" else 0
        assert missed == biases  # qwen2's of keys and values, one to each row of weights


def test_models_that_read_what_the_text_chooses_are_left_out() -> None:
    left_out = {model.id for model in facts.models()} - {model.id for model in DENSE}
    assert {
        "mixtral-8x7b",
        "deepseek-v3",
        "jamba-v0.1",
        "gpt-oss-20b",
        "whisper-large-v3",
    } < left_out
    assert len(DENSE) >= 14
    with pytest.raises(ConfigError, match="mixtral-8x7b is not a dense model"):
        dense_weights(facts.model("mixtral-8x7b"))
    assert ask(
        'import { DENSE, RATED } from "./kvbook/explorer/src/roofline/state.js";'
        "console.log(JSON.stringify([DENSE.map((m) => m.id), RATED.map((g) => g.name)]));"
    ) == [[model.id for model in DENSE], RATED]


def test_the_page_s_figures_are_python_s() -> None:
    rng = random.Random(6)
    explorers = [drawn(rng) for _ in range(300)]
    states = [{name: getattr(one, name) for name in one.start} for one in explorers]
    for explorer, phases in zip(explorers, ask(ASK, states), strict=True):
        for bound, found in zip((explorer.prefill, explorer.decode), phases, strict=True):
            counts = [float(n) for n in vars(bound.work).values()]
            assert [float(n) for n in found[:5]] == counts, explorer.get_state(list(explorer.start))
            assert found[5] == pytest.approx(bound.seconds, rel=1e-12)
            assert found[6] == pytest.approx(bound.tokens_per_s, rel=1e-12)
            assert found[7] == bound.bound_by


def test_it_starts_with_the_same_settings_in_the_page_as_in_python() -> None:
    explorer = RooflineExplorer()
    assert explorer.start == ask(
        'import { INITIAL, toTraits } from "./kvbook/explorer/src/roofline/state.js";'
        "console.log(JSON.stringify(toTraits(INITIAL)));"
    )
    assert set(explorer.start) | {"start", "link", "measured", "measured_with"} == {
        name for name in explorer.trait_names(sync=True) if not name.startswith("_")
    } - {"layout", "tabbable", "tooltip", "comm"}


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    work = roof.decode_step(roof.Shape(3, 6, 2, 5, 7, 11, 13), np.int64(9).item())
    point = RooflineExplorer.point("decode, batch 1", "decode", work, np.float64(0.25))
    explorer = RooflineExplorer(
        "SmolLM2 135M", "own", np.int64(64), weights=32, measured=[point], own_gb_per_s=12.5
    )
    state = explorer.get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-roofline" in state["_css"]
    plain = json.loads(json.dumps({key: v for key, v in state.items() if key != "layout"}))
    assert (plain["model"], plain["gpu"], plain["prompt"]) == ("smollm2-135m", "own", 64)
    assert plain["measured"] == [
        {
            "label": "decode, batch 1",
            "phase": "decode",
            "tokens": 1,
            "flops": float(work.flops),
            "nbytes": float(work.nbytes),
            "seconds": 0.25,
        }
    ]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "llama-9"}, 'model is "llama-9"; it must be one of llama-2-7b, '),
        (
            {"model": "mixtral-8x7b"},
            "model is 'mixtral-8x7b', whose weights read per token are not",
        ),
        ({"gpu": "A100"}, 'gpu is "A100"; that could be A100 40GB or A100 80GB: say which.'),
        ({"gpu": "H100 NVL"}, "fp16_flops_dense of H100 NVL is not known; give a rate yourself."),
        ({"prompt": 0}, "prompt is 0; it must be a whole number from 1 to 1048576."),
        ({"context": 4096.0}, "context is 4096.0; it must be a whole number"),
        ({"batch": 65_537}, "batch is 65537; it must be a whole number from 1 to 65536."),
        ({"n_kv_heads": 5}, "n_kv_heads is 5, which does not divide 32 attention heads."),
        ({"weights": "6"}, "weights is '6'; it must be one of 32, 16, 8, 4."),
        ({"cache_dtype": "int2"}, "cache_dtype is 'int2'; it must be one of float32, float16, "),
        ({"own_gb_per_s": 0}, "own_gb_per_s is 0; it must be a number from 0.01 to 1000000."),
        ({"own_tflops": float("inf")}, "own_tflops is inf; it must be a number"),
        ({"measured": [POINT] * 65}, "measured has 65 points; 64 are the most."),
        ({"measured": [{**POINT, "label": ""}]}, "label is ''; it must be a text of 1 to 60"),
        (
            {"measured": [{**POINT, "phase": "x"}]},
            "phase is 'x'; it must be one of prefill, decode",
        ),
        ({"measured": [{**POINT, "seconds": 0}]}, "seconds is 0; it must be a number from 1e-09"),
        ({"measured": [{"label": "b", "phase": "decode"}]}, "tokens is None; it must be a whole"),
    ],
)
def test_what_is_not_known_or_out_of_range_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        RooflineExplorer(**changes)
    assert "\n" not in str(told.value)


def test_what_was_measured_with_must_be_settings() -> None:
    under = {"model": "smollm2-135m", "weights": "32", "cache_dtype": "float32", "context": 64}
    assert RooflineExplorer(measured_with=under).measured_with == under
    with pytest.raises(ValueError, match="measured_with has 'size'; it takes model, gpu"):
        RooflineExplorer(measured_with={"size": 3})
    with pytest.raises(ValueError, match="nonesuch"):
        RooflineExplorer(measured_with={"model": "nonesuch"})
