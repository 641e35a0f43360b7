"""The heads explorer's Python side, and that its page computes what `kvbook.accounting` computes."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbook.accounting import ConfigError, cache_spec, facts, kv_head_choices
from kvbook.accounting.latent import with_latent
from kvbook.explorer.heads import HeadsExplorer, is_plain

ROOT = Path(__file__).parent.parent
PLAIN = [model for model in facts.models() if is_plain(cache_spec(model.config))]
POINT = {"n_kv_heads": 4, "loss": 1.5, "spread": 0.01, "seeds": 3}

ASK = """
import { readFileSync } from "node:fs";
import { figures } from "./kvbook/explorer/src/heads/figures.js";
import { fromTraits } from "./kvbook/explorer/src/heads/state.js";
const answers = JSON.parse(readFileSync(0, "utf8")).map((traits) => {
  const { now } = figures(fromTraits((name) => traits[name]));
  return [now.perToken, now.users];
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


def drawn(rng: random.Random) -> HeadsExplorer:
    """An explorer with settings by chance."""
    model = rng.choice(PLAIN)
    return HeadsExplorer(
        model=model.id,
        gpu=rng.choice([gpu.name for gpu in facts.gpus()]),
        context=rng.choice([1, 4096, 2**20, rng.randint(1, 2**20)]),
        kind=rng.choice(["heads", "latent"]),
        n_kv_heads=rng.choice(kv_head_choices(cache_spec(model.config))),
        latent_width=rng.choice([512, rng.randint(1, 2**16)]),
        rope_width=rng.choice([64, rng.randint(1, 2**16)]),
    )


def test_it_starts_where_the_lesson_s_point_is() -> None:
    explorer = HeadsExplorer()
    assert repr(explorer) == "HeadsExplorer(llama-2-7b on A100 80GB, 0 measured)"
    assert explorer.n_kv_heads == 8
    assert explorer.token_nbytes == 32 * 8 * (128 + 128) * 2
    assert explorer.users == (80 * 10**9 - 2 * 6_738_415_616) // (4096 * 131_072) == 123
    explorer.n_kv_heads = 32  # as the page sets it
    assert explorer.users == 30
    explorer.kind = "latent"
    assert explorer.token_nbytes == 32 * 576 * 2
    assert HeadsExplorer(model="smollm2-135m").n_kv_heads == 1


def test_a_latent_of_deepseek_s_widths_is_deepseek_s() -> None:
    deepseek = cache_spec(facts.model("deepseek-v3").config)
    assert deepseek.bytes_per_token("float16") == 70_272
    llama = cache_spec(facts.model("llama-3.1-405b").config)
    assert set(with_latent(llama, 512, 64).layers) == set(deepseek.layers)
    assert with_latent(llama, 512, 64).nbytes(100, tensor_parallel=8) == 126 * 576 * 2 * 100
    for model in ("deepseek-v3", "gemma-3-27b", "jamba-v0.1"):
        with pytest.raises(ConfigError, match="Not every layer keeps K and V of the whole"):
            with_latent(cache_spec(facts.model(model).config), 512, 64)


def test_the_page_s_figures_are_python_s() -> None:
    rng = random.Random(7)
    explorers = [drawn(rng) for _ in range(200)]
    states = [{name: getattr(one, name) for name in one.start} for one in explorers]
    assert ask(ASK, states) == [[one.token_nbytes, one.users] for one in explorers]
    assert len({one.users for one in explorers}) > 50


def test_it_starts_with_the_same_settings_in_the_page_as_in_python() -> None:
    explorer = HeadsExplorer()
    start, models = ask(
        'import { INITIAL, PLAIN, toTraits } from "./kvbook/explorer/src/heads/state.js";'
        "console.log(JSON.stringify([toTraits(INITIAL), PLAIN.map((m) => m.id)]));"
    )
    assert explorer.start == start
    assert models == [model.id for model in PLAIN]
    assert set(explorer.start) | {"start", "link", "series", "series_heads"} == {
        name for name in explorer.trait_names(sync=True) if not name.startswith("_")
    } - {"layout", "tabbable", "tooltip", "comm"}


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    series = [
        {"n_kv_heads": np.int64(n), "loss": np.float64(1.5), "spread": 0, "seeds": 3}
        for n in (8, 2)
    ]
    explorer = HeadsExplorer(series, "SmolLM2 135M", context=np.int64(64))
    state = explorer.get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-heads" in state["_css"]
    plain = json.loads(json.dumps({key: v for key, v in state.items() if key != "layout"}))
    assert (plain["model"], plain["context"], plain["series_heads"]) == ("smollm2-135m", 64, 8)
    assert plain["series"] == [
        {"n_kv_heads": n, "loss": 1.5, "spread": 0.0, "seeds": 3} for n in (2, 8)
    ]
    assert HeadsExplorer(series, series_heads=16).series_heads == 16


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "llama-9"}, 'model is "llama-9"; it must be one of llama-2-7b, '),
        (
            {"model": "deepseek-v3"},
            "model is 'deepseek-v3', whose layers do not all keep K and V alike; use llama-2-7b, ",
        ),
        ({"gpu": "A100"}, 'gpu is "A100"; that could be A100 40GB or A100 80GB: say which.'),
        ({"context": 0}, "context is 0; it must be a whole number from 1 to 1048576."),
        ({"kind": "mla"}, "kind is 'mla'; it must be one of heads, latent."),
        ({"n_kv_heads": 5}, "n_kv_heads is 5; it must be one of 1, 2, 4, 8, 16, 32."),
        ({"latent_width": 0}, "latent_width is 0; it must be a whole number from 1 to 65536."),
        ({"rope_width": 1.5}, "rope_width is 1.5; it must be a whole number from 1 to 65536."),
        ({"series": [POINT] * 13}, "series has 13 points; 12 are the most."),
        ({"series": [POINT, POINT]}, "series has n_kv_heads 4 twice; each must be there once."),
        ({"series": [{**POINT, "loss": float("nan")}]}, "loss is nan; it must be a number from 0"),
        ({"series": [{"n_kv_heads": 4}]}, "loss is None; it must be a number from 0 to 1000."),
        ({"series": [POINT], "series_heads": 2}, "series_heads is 2; it must be a whole number"),
        ({"series": [POINT], "series_heads": 6}, "series has n_kv_heads 4; it must divide 6 query"),
        (
            {"series": [POINT, {**POINT, "n_kv_heads": 3}]},
            "series has n_kv_heads 3; it must divide 4 query heads.",
        ),
        ({"series": [1, 2]}, "series is [1, 2]; it must be a list of mappings with n_kv_heads,"),
        ({"series": None}, "series is None; it must be a list of mappings with n_kv_heads,"),
        ({"series": (one for one in [POINT])}, "it must be a list of mappings with n_kv_heads,"),
        ({"series": "four"}, "series is 'four'; it must be a list of mappings with n_kv_heads,"),
    ],
)
def test_what_is_not_known_or_out_of_range_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        HeadsExplorer(**changes)
    assert "\n" not in str(told.value)
