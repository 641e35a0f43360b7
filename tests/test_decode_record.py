"""The decode record: the arithmetic of made-up times, what a record must be like, a quick run."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kvbook.accounting import ConfigError
from kvbook.lessons.decoder import Decoder
from kvbook.measure import decode, record, run
from kvbook.measure.benches import attention, growth, rate, transient
from kvbook.measure.benches.bench import exponents, ratio, same, spread
from kvbook.measure.benches.models import SMALL, by_columns, decoder, llama
from kvbook.measure.registry import RECORDS, load

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {"model": "smollm2-135m", "quick": True, "budget_bytes": None}


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "kvbook", "measure", "--what", "decode", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, cwd=ROOT)


# Arithmetic


def test_the_exponent_of_a_power_is_found() -> None:
    sizes = [64, 128, 512]
    assert exponents(sizes, [7.0, 7.0, 7.0]) == [0, 0]
    assert exponents(sizes, [3e-5 * n for n in sizes]) == pytest.approx([1, 1])
    assert exponents(sizes, [2 * n**2 for n in sizes]) == pytest.approx([2, 2])
    assert exponents([1, 10, 100], [5, 50, 5]) == pytest.approx([1, -1])
    with pytest.raises(ValueError, match="argument"):
        exponents(sizes, [1.0, 2.0])


def test_a_ratio_is_taken_in_each_round_before_the_median() -> None:
    slower, faster = [2.0, 30.0, 4.0], [1.0, 10.0, 1.0]  # 2, 3, 4; medians alone would give 4
    assert ratio(slower, faster) == 3


def test_quartiles() -> None:
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == {"low": 2, "median": 3, "high": 4}
    assert spread([7.0]) == {"low": 7, "median": 7, "high": 7}


def test_the_figures_of_made_up_rounds() -> None:
    times = {name: [0.5, 0.25] for name in (*rate.OURS, *rate.THEIRS)}
    times |= {"StaticCache": [1.0, 1.0], "growing": [0.1, 0.1]}
    found = rate.figures({"rounds": 2}, {"bytes": 12, "seconds": times, "read": [48.0, 96.0]})
    assert found["steps_per_s"]["preallocated"] == {"low": 2.5, "median": 3, "high": 3.5}
    assert found["times_as_fast"]["growing"] == {"DynamicCache": 3.75, "StaticCache": 10}
    assert found["times_as_fast"]["preallocated"] == {"DynamicCache": 1, "StaticCache": 3}
    assert found["of_read"]["preallocated"] == 0.5
    assert found["of_read"]["StaticCache"] == (0.25 + 0.125) / 2
    shares = attention.figures(
        {"rounds": 2}, {"bytes": 12, "seconds": {"grouped": [0.5, 0.25]}, "read": [48.0, 96.0]}
    )
    assert shares == {"of_read": {"grouped": 0.5}}
    assert transient.figures({}, {"layer": 40, "transient": 10}) == {"layers": 0.25}
    times = {"cached": [[1.0, 9.0, 2.0], [2.0, 2.0, 2.0]], "uncached": [[1.0] * 3, [4.0] * 3]}
    found = growth.figures({"contexts": [32, 64], "rounds": 3}, times)
    assert found["median"] == {"cached": [2, 2], "uncached": [1, 4]}
    assert same(found["exponents"], {"cached": [0], "uncached": [2]})


def test_numbers_are_compared_to_a_billionth_and_types_are_not_mixed() -> None:
    assert same({"a": [1.0, 2]}, {"a": [1.0 + 1e-12, 2.0]})
    assert not same({"a": [1.0, 2]}, {"a": [1.0, 2.1]})
    assert not same({"a": 1, "b": 2}, {"a": 1})
    assert not same([1, 2], [1])
    assert not same(True, 1)


# What is timed


def test_every_contender_computes_the_same() -> None:
    found = rate.rate("small", "float32", prompt=5, rounds=2, steps=3, device="cpu")
    assert max(found["apart"].values()) < 1e-5
    assert found["apart"]["StaticCache"] > 0  # it was another computation
    rows = 2 * SMALL.n_layers * SMALL.n_kv_heads * SMALL.head_dim * 4
    weights = sum(p.numel() for p in Decoder(SMALL).parameters()) * 4
    assert found["bytes"] == weights + (5 + 1 + 3) * rows


def test_a_contender_with_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(ours: Decoder) -> Decoder:
        turned = by_columns(ours)
        turned.blocks[1].mlp.up_proj.weight.mul_(1.5)
        return turned

    monkeypatch.setattr(rate, "by_columns", wrong)
    with pytest.raises(ValueError, match="by columns's logits"):
        rate.rate("small", "float32", prompt=5, rounds=1, steps=1, device="cpu")


def test_weights_are_shared_with_transformers_and_turned_for_the_variant() -> None:
    ours = decoder("small", "float32", "cpu")
    theirs, turned = llama(ours), by_columns(ours)
    names = dict(theirs.named_parameters())
    shared = names["model.layers.2.mlp.down_proj.weight"]
    assert shared.data_ptr() == ours.blocks[2].mlp.down_proj.weight.data_ptr()
    assert theirs.lm_head.weight.data_ptr() == ours.embed.weight.data_ptr()
    for one, other in zip(ours.parameters(), turned.parameters(), strict=True):
        assert torch.equal(one, other)
        assert other.T.is_contiguous() if other.ndim == 2 else other.is_contiguous()


def test_the_forms_of_attention_agree_where_heads_share_rows() -> None:
    q, k, v = torch.randn(3, 6, 1, 8), torch.randn(3, 2, 11, 8), torch.randn(3, 2, 11, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(attention.grouped(q, k, v), expected)
    torch.testing.assert_close(attention.products(q, k.transpose(2, 3), v), expected)


def test_a_transient_is_one_layer_of_k_where_the_cache_is_joined_anew() -> None:
    found = transient.transient("small", "growing", "float32", context=900, device="cpu")
    assert found["layer"] == 900 * SMALL.n_kv_heads * SMALL.head_dim * 4
    assert 0.9 < found["transient"] / found["layer"] < 1.1
    found = transient.transient("small", "preallocated", "float32", context=900, device="cpu")
    assert found["transient"] < found["layer"] / 2


# Records


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    path = tmp_path_factory.mktemp("decode") / "quick.json"
    done = command("--quick", "--device", "cpu", "--out", path)
    assert done.returncode == 0, done.stderr
    return done.stdout, record.read(path)


def test_a_quick_run_ends_with_a_sound_record(quick: tuple[str, dict]) -> None:
    text, made = quick
    assert [point["job"] for point in made["points"]] == decode.plan("cpu", SETTINGS)
    assert {point["job"]["what"] for point in made["points"]} == set(decode.BENCHES)
    assert (made["record"], made["finished"]) == ("decode", True)
    assert made["versions"]["transformers"]
    assert made["command"].startswith("python -m kvbook measure --what decode --out quick.json")
    assert "says nothing about speed" in text
    assert all(len(line) <= 110 for line in text.splitlines()[:-1])


def point(record: dict, what: str) -> dict:
    return next(point for point in record["points"] if point["job"]["what"] == what)


WRONG = {
    "a time that is text": lambda r: point(r, "rate")["result"]["seconds"].update(growing=["1"]),
    "no times": lambda r: point(r, "rate")["result"]["seconds"].update(growing=[]),
    "a truth value": lambda r: point(r, "rate")["result"].update(bytes=True),
    "half a byte": lambda r: point(r, "rate")["result"].update(bytes=1.5),
    "a NaN": lambda r: point(r, "attention")["result"]["read"].append(float("nan")),
    "a time below 0": lambda r: point(r, "growth")["result"]["cached"][0].append(-1.0),
    "a time of 0": lambda r: point(r, "rate")["result"]["read"].__setitem__(0, 0.0),
    "a round too few": lambda r: point(r, "rate")["result"]["seconds"]["growing"].pop(),
    "a round too few for attention": lambda r: point(r, "attention")["result"]["read"].pop(),
    "a job of more rounds": lambda r: point(r, "growth")["job"].update(rounds=99),
    "a context too few": lambda r: point(r, "growth")["result"]["cached"].pop(),
    "another exponent": lambda r: point(r, "growth")["result"]["figures"]["exponents"].update(
        cached=[0.0, 0.0]
    ),
    "another ratio": lambda r: point(r, "rate")["result"]["figures"]["of_read"].update(growing=9.0),
    "another contender": lambda r: point(r, "rate")["result"]["seconds"].update(vllm=[1.0]),
    "a field too many": lambda r: point(r, "transient")["result"].update(user="me"),
    "a field missing": lambda r: point(r, "transient")["result"].pop("layer"),
    "a layer of nothing": lambda r: point(r, "transient")["result"].update(layer=0),
    "a job's field too many": lambda r: point(r, "rate")["job"].update(host="me"),
    "a job's field missing": lambda r: point(r, "rate")["job"].pop("steps"),
    "an unknown cache": lambda r: point(r, "transient")["job"].update(kind="nonesuch"),
    "an unknown dtype": lambda r: point(r, "rate")["job"].update(dtype="float99"),
    "a list for a dtype": lambda r: point(r, "rate")["job"].update(dtype=["float32"]),
    "an unknown model": lambda r: point(r, "growth")["job"].update(model="/root/model"),
    "no context": lambda r: point(r, "growth")["job"].update(contexts=[]),
    "an unknown bench": lambda r: point(r, "rate")["job"].update(what="grid"),
    "another device's point": lambda r: point(r, "rate")["job"].update(device="cuda"),
    "no job": lambda r: r["points"].append({"result": {}}),
    "no dict for a job": lambda r: r["points"][0].update(job="rate"),
    "no dict for a result": lambda r: r["points"][0].update(result=[1]),
    "another kind of record": lambda r: r.update(record="memory"),
    "a path": lambda r: r.update(command="python -m kvbook measure --out /root/x.json"),
    "no date": lambda r: r.update(date="yesterday"),
    "a missing part": lambda r: r.pop("driver"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_record_with_something_wrong_is_rejected(quick: tuple[str, dict], what: str) -> None:
    broken = copy.deepcopy(quick[1])
    record.check(broken)
    WRONG[what](broken)
    with pytest.raises(ConfigError) as caught:
        record.check(broken)
    assert "\n" not in str(caught.value)


def test_the_newest_of_a_kind_is_found(quick: tuple[str, dict], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(quick[1]))
    (tmp_path / "decode_mine.json").write_text(json.dumps(quick[1]))
    assert record.newest(tmp_path, "cpu") is None
    assert record.newest(tmp_path, "cpu", "decode")[0] == "a.json"


# Refusals


@pytest.mark.parametrize(
    "settings", [{"model": "llama-2-7b"}, {"budget_bytes": 2**26}], ids=["model", "budget"]
)
def test_what_decode_does_not_take_is_refused(settings: dict) -> None:
    with pytest.raises(ConfigError, match="--"):
        decode.plan("cpu", SETTINGS | settings)


def test_missing_transformers_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^transformers is missing.*pip install it\.$"):
        run.measure(tmp_path / "x.json", "cpu", SETTINGS, "measure", what="decode")
    assert list(tmp_path.iterdir()) == []


def test_checking_a_record_needs_no_transformers() -> None:
    script = (
        "import sys; sys.modules['transformers'] = None\n"
        "from pathlib import Path\n"
        "from kvbook.measure.record import newest\n"
        "assert newest(Path('measurements'), 'cpu', 'decode')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_every_kind_of_record_has_a_recipe() -> None:
    for name in RECORDS:
        assert load(name).measure
