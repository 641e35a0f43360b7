"""The capacity explorer's Python side, and that its page computes what `kvbook.accounting` computes."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbook.accounting import ConfigError, facts
from kvbook.accounting.tables import table
from kvbook.explorer.capacity import POLICIES, WEIGHTS, CapacityExplorer

ROOT = Path(__file__).parent.parent
CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 5,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 24,
    "hidden_size": 96,
    "note": 'it\'s "quoted" é \\ END $HOME `x`',
}

ASK = """
import { readFileSync } from "node:fs";
import { command, python } from "./kvbook/explorer/src/capacity/commands.js";
import { figures } from "./kvbook/explorer/src/capacity/figures.js";
import { fromTraits } from "./kvbook/explorer/src/capacity/state.js";
const answers = JSON.parse(readFileSync(0, "utf8")).map((traits) => {
  const state = fromTraits((name) => traits[name]);
  const found = figures(state);
  const { users, sequence, cache } = found;
  return { users, sequence, cache, python: python(state, found), command: command(state, found) };
});
console.log(JSON.stringify(answers));
"""


def in_the_page(explorers: list[CapacityExplorer]) -> list[dict[str, Any]]:
    """What the page computes and writes for each, asked of its JavaScript in one process."""
    states = [{name: getattr(one, name) for name in one.start} for one in explorers]
    node = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "--eval", ASK],
        input=json.dumps(states),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    answers: list[dict[str, Any]] = json.loads(node.stdout)
    return answers


def drawn(rng: random.Random) -> CapacityExplorer:
    """An explorer with settings by chance, most of them not where they start."""
    while True:
        window = rng.choice([None, None, rng.randint(1, 9000)])
        settings = {
            "model": rng.choice(facts.models()).id,
            "gpu": rng.choice([*(gpu.name for gpu in facts.gpus()), "own"]),
            "memory": rng.choice(["nominal", "reported"]),
            "own_gb": round(rng.uniform(1, 2000), 3),
            "weights": rng.choice(list(WEIGHTS)),
            "context": rng.choice([1, 4096, 2**20, rng.randint(1, 2**20)]),
            "cache_dtype": rng.choice(list(table("dtypes")["dtypes"])),
            "n_kv_heads": rng.choice([None, 1, 2, 4, 8]),
            "window": window,
            "sinks": rng.randint(0, 9) if window else 0,
            "full_every": rng.choice([None, 2, 5]) if window else None,
            "policy": rng.choice(POLICIES),
            "reserve": rng.choice([None, rng.randint(1, 2**18)]),
            "block_size": rng.choice([1, 7, 16, 256]),
            "tensor_parallel": rng.choice([1, 1, 2, 8]),
            "utilization": rng.choice([1, 0.9, 0.85, round(rng.uniform(0.01, 1), 6)]),
            "overhead_gb": rng.choice([0, 1.5, round(rng.uniform(0, 9), 4)]),
        }
        try:
            return CapacityExplorer(**settings)
        except ConfigError:  # heads that do not divide
            continue


def test_it_starts_where_the_book_s_point_is() -> None:
    explorer = CapacityExplorer()
    assert (explorer.users, explorer.sequence_bytes) == (30, 2**31)
    assert repr(explorer) == "CapacityExplorer(llama-2-7b on A100 80GB)"
    assert explorer.start == {name: getattr(explorer, name) for name in explorer.start}
    explorer.context = 8192  # as the page sets it
    assert explorer.users == 15


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    explorer = CapacityExplorer("Llama 3.1-8B", "h100 sxm", np.int64(8192), n_kv_heads=4, weights=8)
    state = explorer.get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-capacity" in state["_css"]
    plain = json.loads(json.dumps({key: v for key, v in state.items() if key != "layout"}))
    assert (plain["model"], plain["gpu"], plain["context"]) == ("llama-3.1-8b", "H100 SXM", 8192)
    assert plain["start"] == {name: plain[name] for name in plain["start"]}
    assert plain["weights"] == "8"


def test_it_starts_with_the_same_settings_in_the_page_as_in_python() -> None:
    ask = (
        'import { INITIAL, toTraits } from "./kvbook/explorer/src/capacity/state.js";'
        "console.log(JSON.stringify(toTraits(INITIAL)));"
    )
    node = ["node", "--no-warnings", "--input-type=module", "--eval", ask]
    out = subprocess.run(node, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    explorer = CapacityExplorer()
    assert json.loads(out) == explorer.start
    assert set(explorer.start) | {"start", "link"} == {
        name for name in explorer.trait_names(sync=True) if not name.startswith("_")
    } - {"layout", "tabbable", "tooltip", "comm"}


def test_the_page_s_figures_are_python_s() -> None:
    rng = random.Random(5)
    explorers = [drawn(rng) for _ in range(400)]
    for explorer, answer in zip(explorers, in_the_page(explorers), strict=True):
        assert answer["users"] == explorer.users, explorer.get_state(list(explorer.start))
        assert answer["sequence"] == explorer.sequence_bytes
        assert answer["cache"] == explorer.batch * explorer.sequence_bytes


STATES: list[dict[str, Any]] = [
    {},
    {"context": 5000, "cache_dtype": "int4", "policy": "paged", "block_size": 64},
    {"model": "gemma-3-27b", "policy": "all_layers_full", "gpu": "H200", "memory": "reported"},
    {"model": "deepseek-v3", "weights": "released", "gpu": "H200", "tensor_parallel": 8},
    {"model": "llama-3.1-70b", "tensor_parallel": 4, "overhead_gb": 1.7, "utilization": 0.93},
    {"context": 900, "policy": "reserve", "utilization": 0.9},
    {"config": CONFIG, "parameters": 123_456_789, "gpu": "own", "own_gb": 1.25},
    {"config": CONFIG, "parameters": 10**9, "n_kv_heads": 2, "window": 64, "sinks": 4},
    {"n_kv_heads": 8, "window": 512, "full_every": 3, "cache_dtype": "int8"},
    {"context": 2**20},
]


def test_the_copied_python_and_the_copied_command_run_and_agree() -> None:
    explorers = [CapacityExplorer(**state) for state in STATES]
    bash = shutil.which("bash")
    assert bash
    commands = 0
    for explorer, answer in zip(explorers, in_the_page(explorers), strict=True):
        run = [sys.executable, "-c", answer["python"]]
        out = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, check=True).stdout
        assert out == f"{explorer.sequence_bytes:,} B a sequence, {explorer.users} users\n"
        if "why" in answer["command"]:
            assert explorer.n_kv_heads or explorer.window
            continue
        text = answer["command"]["text"]
        assert text.count("python -m kvbook size ") == 1
        text = text.replace("python -m kvbook size ", f"'{sys.executable}' -m kvbook size --json ")
        done = subprocess.run([bash, "-c", text], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        said = json.loads(done.stdout)
        assert said["users"] == explorer.users
        assert said["sequence_bytes"] == explorer.sequence_bytes
        assert said["bytes"] == explorer.batch * explorer.sequence_bytes
        commands += 1
    assert commands == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": "llama-9"}, 'model is "llama-9"; it must be one of llama-2-7b, '),
        ({"gpu": "A100"}, 'gpu is "A100"; that could be A100 40GB or A100 80GB: say which.'),
        ({"model": "own"}, 'model is "own"; give its config too.'),
        ({"config": "{"}, "config is not JSON"),
        ({"config": "[1]"}, "config is JSON, but not an object with keys and values."),
        ({"config": "[" * 10**5}, "config is not JSON"),
        ({"config": {"model_type": "nothing"}, "parameters": 5}, "num_hidden_layers is missing"),
        ({"config": {"odd": {1}}}, "config is not JSON"),
        ({"context": 0}, "context is 0; it must be a whole number from 1 to 1048576."),
        ({"context": 4096.0}, "context is 4096.0; it must be a whole number"),
        ({"context": True}, "context is True; it must be a whole number"),
        ({"batch": 100_001}, "batch is 100001; it must be a whole number from 1 to 100000."),
        ({"cache_dtype": "int2"}, "cache_dtype is 'int2'; it must be one of float32, float16, "),
        ({"n_kv_heads": 5}, "n_kv_heads is 5, which does not divide 32 attention heads."),
        ({"weights": "6"}, "weights is '6'; it must be one of released, 32, 16, 8, 4."),
        ({"memory": "all"}, "memory is 'all'; it must be one of nominal, reported."),
        ({"policy": "full"}, "policy is 'full'; it must be one of exact, reserve, paged"),
        ({"tensor_parallel": 3}, "tensor_parallel is 3; it must be one of 1, 2, 4, 8, 16."),
        ({"utilization": 1.1}, "utilization is 1.1; it must be a number from 0.01 to 1."),
        ({"utilization": float("nan")}, "utilization is nan; it must be a number"),
        ({"overhead_gb": "2"}, "overhead_gb is '2'; it must be a number from 0 to 10000."),
        ({"full_every": 1, "window": 9}, "full_every is 1; it must be a whole number from 2 to"),
        ({"sinks": -1}, "sinks is -1; it must be a whole number from 0 to 1024."),
    ],
)
def test_what_is_not_known_or_out_of_range_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        CapacityExplorer(**changes)
    assert "\n" not in str(told.value)


def test_the_parameters_of_a_known_family_are_counted() -> None:
    llama = facts.model("llama-2-7b")
    explorer = CapacityExplorer(config=llama.config)
    assert (explorer.model, explorer.parameters, explorer.users) == ("own", llama.parameters, 30)
