"""The records of lesson 8: perplexity through codes, and the time of reading them."""

from __future__ import annotations

import copy
import json
from math import exp
from pathlib import Path

import pytest
import torch

from kvbook.accounting import ConfigError
from kvbook.lessons.quantized import FORMATS
from kvbook.measure import codes_points, quality_points, record
from kvbook.measure.quality import change

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {"model": "smollm2-135m", "quick": False, "budget_bytes": None}


def stored(what: str) -> dict:
    found = record.newest(ROOT / "measurements", "cpu", what)
    assert found
    return found[1]


def test_the_plan_has_every_format_and_each_half() -> None:
    jobs = quality_points.plan("cpu", SETTINGS)
    pairs = [(job["format"], job["only"]) for job in jobs]
    coded = [name for name in FORMATS if name != "float16"]
    expected = {("float32", None), ("float16", None)}
    expected |= {(name, only) for name in coded for only in (None, "keys", "values")}
    assert (pairs[0], len(pairs), set(pairs)) == (("float32", None), len(expected), expected)
    assert len({quality_points.label(job) for job in jobs}) == len(jobs)
    quick = quality_points.plan("cpu", SETTINGS | {"quick": True})
    assert 3 < len(quick) < len(jobs)


@pytest.mark.parametrize("module", [quality_points, codes_points])
def test_another_model_is_refused(module) -> None:
    with pytest.raises(ConfigError, match="llama"):
        module.plan("cpu", SETTINGS | {"model": "llama-2-7b"})


def test_what_a_token_takes() -> None:
    takes = {"float32": 46_080, "float16": 23_040, "int8": 11_880, "fp8_e5m2": 11_520}
    takes |= {
        "int4_token": 6_480,
        "int4_group": 7_200,
        "int4_group_tail": 7_200,
        "int4": 7_200,
        "int2": 4_320,
    }
    for name, nbytes in takes.items():
        job = {"format": name, "only": None, "device": "cpu"}
        assert quality_points.bytes_per_token(job) == nbytes
        if name in ("int8", "int4"):
            half = quality_points.bytes_per_token({**job, "only": "keys"})
            assert half == (nbytes + 23_040) // 2


def test_what_a_token_takes_with_its_share_of_a_tail() -> None:
    tail = 30 * 3 * 32 * 64 * 2
    takes = {"float32": 46_080, "float16": 23_040, "int8": 11_880, "int4_group": 7_200}
    takes |= {"int4_group_tail": 7_200 + tail / 1024, "int4": 7_200 + tail / 1024}
    for name, nbytes in takes.items():
        job = {"format": name, "only": None, "device": "cpu"}
        assert quality_points.bytes_at(job, 1024) == nbytes
    values = {"format": "int4", "only": "values", "device": "cpu"}  # no keys are coded, none wait
    assert quality_points.bytes_at(values, 1024) == (7_200 + 23_040) / 2
    assert "  7,560 " in quality_points.answer(stored("quality"))


def test_rows_compare_with_float32_as_change_does() -> None:
    losses = torch.rand(2, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    other = losses + torch.tensor([0.1, 0.5, 0.9]).double().repeat_interleave(32)
    other += 0.01 * torch.rand(2, 96, dtype=torch.float64)
    points = []
    for name, values in (("int8", other), ("float32", losses)):
        means = values.unflatten(1, (-1, 32)).mean(-1).tolist()
        result = {"bits_per_value": 8.25, "bytes_per_token": 5, "perplexity": 1.0, "losses": means}
        points.append({"job": {"format": name, "only": None}, "result": result})
    [row] = quality_points.rows({"points": points})
    expected = change(other, losses)
    assert row["change"] == pytest.approx(expected.ratio)
    assert row["error"] == pytest.approx(expected.error)
    assert quality_points.rows({"points": points[:1]}) == []


def test_an_error_is_not_below_what_the_stretches_show() -> None:
    base = torch.zeros(4, 8, dtype=torch.float64)
    apart = torch.tensor([0.0, 0.1, 0.2, 0.3]).double()[:, None].expand(4, 8)
    found = quality_points.compared(apart.tolist(), base.tolist())
    spread = apart[:, 0].std() / 2  # of 4 means, each sure of itself
    assert found.error == pytest.approx(exp(0.15) * float(spread))
    assert found.error > 2 * change(apart, base, block=1).error
    alone = quality_points.compared(apart[:, :1].T.tolist(), base[:, :1].T.tolist())
    assert alone == change(apart[:, :1].T, base[:, :1].T, block=1)


def point(kept: dict, number: int = 5) -> dict:
    return kept["points"][number % len(kept["points"])]


WRONG_QUALITY = {
    "a byte": lambda p: p["result"].update(bytes_per_token=1 + p["result"]["bytes_per_token"]),
    "a bit": lambda p: p["result"].update(bits_per_value=7.0),
    "a perplexity": lambda p: p["result"].update(perplexity=40.0),
    "a truth value": lambda p: p["result"].update(perplexity=True),
    "a text": lambda p: p["result"]["losses"][0].__setitem__(0, "3"),
    "not a number": lambda p: p["result"]["losses"][0].__setitem__(0, float("nan")),
    "a stretch missing": lambda p: p["result"]["losses"].pop(),
    "a block missing": lambda p: p["result"]["losses"][0].pop(),
    "no list": lambda p: p["result"].update(losses=5),
    "a field too many": lambda p: p["result"].update(user="me"),
    "a field missing": lambda p: p["result"].pop("losses"),
    "an unknown format": lambda p: p["job"].update(format="int5"),
    "another device": lambda p: p["job"].update(device="cuda"),
    "another length": lambda p: p["job"].update(tokens=512),
    "no result": lambda p: p.pop("result"),
}


@pytest.mark.parametrize("what", WRONG_QUALITY)
def test_a_wrong_quality_record_is_rejected(what: str) -> None:
    kept = stored("quality")
    kept |= {"points": kept["points"][:7], "finished": False}
    record.check(kept)
    WRONG_QUALITY[what](point(kept))
    with pytest.raises(ConfigError) as caught:
        record.check(kept)
    assert "\n" not in str(caught.value)


def test_the_recorded_perplexity_is_that_of_the_losses() -> None:
    for each in stored("quality")["points"]:
        losses = torch.tensor(each["result"]["losses"], dtype=torch.float64)
        assert each["result"]["perplexity"] == pytest.approx(exp(losses.mean()), rel=1e-5)


WRONG_CODES = {
    "a byte": lambda p: p["result"].update(nbytes=5),
    "a round missing": lambda p: p["result"]["read"].pop(),
    "no time": lambda p: p["result"]["tiles"].__setitem__(0, 0.0),
    "a text": lambda p: p["result"]["tiles"].__setitem__(0, "fast"),
    "null where it must not be": lambda p: p["result"].update(float32=None),
    "a number for a list": lambda p: p["result"].update(outside=0.1),
    "compiled in no time": lambda p: p["result"].update(compile_seconds=-1.0),
    "a field too many": lambda p: p["result"].update(user="me"),
    "another batch": lambda p: p["job"].update(batch=3),
    "no job": lambda p: p.pop("job"),
}


@pytest.mark.parametrize("what", WRONG_CODES)
def test_a_wrong_record_of_times_is_rejected(what: str) -> None:
    kept = stored("codes")
    record.check(kept)
    WRONG_CODES[what](point(kept))
    with pytest.raises(ConfigError) as caught:
        record.check(kept)
    assert "\n" not in str(caught.value)


def test_without_a_compiler_the_record_says_so() -> None:
    kept = copy.deepcopy(stored("codes"))
    for each in kept["points"]:
        each["result"].update(compiled=None, compile_seconds=None)
    record.check(kept)
    assert codes_points.answer(kept).count("could not be compiled") == len(kept["points"])


def test_rates_are_bytes_over_medians() -> None:
    times = {way: [2.0] * 15 for way in codes_points.WAYS} | {"read": [1.0] * 15}
    rows = codes_points.rows({**times, "nbytes": 66, "compile_seconds": 1.0})
    shares = [share for *_, share in rows]
    assert shares == [0.5, 0.25, *[66 / 2 / 256] * 4]
    assert [nbytes for _, _, nbytes, _ in rows] == [256, 128, 66, 66, 66, 66]


def test_where_compiling_fails_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", broken)
    found = codes_points.codes("cpu", batch=2, context=64)
    assert (found["compiled"], found["compile_seconds"]) == (None, None)
    assert len(found["tiles"]) == len(found["read"]) == codes_points.ROUNDS
    assert json.dumps(found)


@pytest.mark.parametrize(("count", "tokens"), [(4, 10**6), (0, 8), (2, 0)])
def test_pieces_that_the_text_does_not_have_are_refused(count: int, tokens: int) -> None:
    with pytest.raises(ValueError, match=f"count is {count} and tokens {tokens:,}"):
        quality_points.pieces(count, tokens)


def test_pieces_lie_evenly_from_the_first_token_on() -> None:
    found = quality_points.pieces(3, 10)
    whole = quality_points.pieces(1, 17_071)[0]  # the text has 17,072 tokens
    step = (17_072 - 11) // 2
    assert found.tolist() == [whole[at : at + 11].tolist() for at in (0, step, 2 * step)]


def test_bits_are_those_of_the_bytes_of_each_format() -> None:
    """As `quality` computes them, for every format, and no others pass the check."""
    kept = stored("quality")
    takes = {"int8": 8.25, "fp8_e5m2": 8.0, "int4_token": 4.5, "int4": 5.0, "int2": 3.0}
    for each in kept["points"]:
        job, result = each["job"], each["result"]
        if job["only"] is None and job["format"] in takes:
            assert result["bits_per_value"] == takes[job["format"]]
        for factor in (0.5, 1.01):
            wrong = {"job": job, "result": result | {"bits_per_value": 0.0}}
            wrong["result"]["bits_per_value"] = factor * result["bits_per_value"]
            with pytest.raises(ConfigError, match="bits_per_value"):
                quality_points.check(wrong, kept)
