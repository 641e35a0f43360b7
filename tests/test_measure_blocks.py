"""The record of the book-keeping's speed: its counts add up, and what is wrong is refused. No times."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from kvbook.accounting import ConfigError
from kvbook.measure import blocks, kinds, points, record
from kvbook.measure.run import measure

SETTINGS = {"model": "smollm2-135m", "quick": True, "budget_bytes": None}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("records") / "blocks.json"
    text = measure(path, "cpu", SETTINGS, "python -m kvbook measure --what blocks", what="blocks")
    assert "microseconds for one operation" in text
    assert "ten times the blocks, an append to one of a few (near): " in text
    return record.read(path)


def test_a_quick_run_ends_with_a_sound_record(good: dict) -> None:
    assert good["finished"]
    assert [point["job"]["num_blocks"] for point in good["points"]] == [1_000, 10_000]
    for point in good["points"]:
        found = point["result"]
        assert found["append"] == 18_000
        assert found["free"] == found["fork"] + found["start"] == 1_000
        assert found["copies"] > 0
        assert 0 < found["in_use"] < point["job"]["num_blocks"]
        for what in ("append", "near"):
            low, middle, high = (found[f"{what}{end}_us"] for end in ("_low", "", "_high"))
            assert 0 < low <= middle <= high


def test_the_whole_plan_is_a_million_operations_in_pools_of_a_thousand_to_a_million_blocks() -> (
    None
):
    jobs = blocks.plan("cpu", {**SETTINGS, "quick": False})
    assert [job["num_blocks"] for job in jobs] == [10**3, 10**4, 10**5, 10**6]
    assert {job["operations"] for job in jobs} == {10**6}


def test_operations_are_the_same_each_time() -> None:
    first, second = (blocks.operations(1_000, 16, 3_000, "cpu") for _ in range(2))
    assert [first[name] for name in blocks.COUNTS] == [second[name] for name in blocks.COUNTS]


WRONG = {
    "a count": lambda point: point["result"].update(append=5),
    "a number as text": lambda point: point["result"].update(append_us="5"),
    "no number": lambda point: point["result"].update(append_us=float("nan")),
    "a truth value": lambda point: point["result"].update(copies=True),
    "a field too many": lambda point: point["result"].update(user="me"),
    "a field missing": lambda point: point["result"].pop("live"),
    "another job": lambda point: point["job"].update(num_blocks=7),
    "no result": lambda point: point.pop("result"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_points_are_refused(good: dict, what: str) -> None:
    bad = copy.deepcopy(good)
    WRONG[what](bad["points"][0])
    with pytest.raises(ConfigError):
        record.check(bad)


def test_the_record_in_the_repository_is_of_the_whole_plan() -> None:
    path = Path(__file__).resolve().parent.parent / "measurements" / "blocks_cpu.json"
    kept = record.read(path)
    assert kept["settings"]["quick"] is False
    assert len(kept["points"]) == len(blocks.SIZES)
    assert json.loads(path.read_text())["record"] == "blocks"


@pytest.mark.parametrize("context", [31, 32, 33])
def test_the_paged_kind_holds_what_the_accounting_says_of_paging(context: int) -> None:
    job = {"what": "grid", "model": "smollm2-135m", "kind": "paged", "dtype": "float16"}
    job |= {"context": context, "batch": 3, "device": "cpu"}
    found = points.MEASURE["grid"](**{k: v for k, v in job.items() if k != "what"})
    held = found["held"] - found["bookkeeping"]
    assert held == found["predicted"] == 3 * 16 * -(-context // 16) * 23_040
    assert record.unexplained(job, found) == []
    assert found["bookkeeping"] == 3 * 8 * (1 + -(-context // 16))
    assert kinds.KINDS["paged"].policy == "paged"
