"""The ledger and its record: plain arithmetic beside it, what a record must be like, a quick run."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bs4 import BeautifulSoup

from kvbook import ledger
from kvbook.accounting import ConfigError, cache_spec
from kvbook.lessons.cache import PreallocatedCache
from kvbook.measure import ledger_points, record
from kvbook.measure.run import measure

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {"model": "smollm2-135m", "quick": True, "budget_bytes": None}

# Llama 2 7B: 32 layers of 32 heads of 128, 6,738,415,616 parameters
ROOM = 80 * 10**9 - 2 * 6_738_415_616
PLAIN = 32 * 2 * 32 * 128 * 2
INT8 = 32 * 2 * 32 * (128 + 2)
INT4 = 32 * 2 * 32 * 4 * (16 + 4)
EXPECTED = {  # change: lesson, bytes for one more token, users
    "no cache, the whole text again": (1, 0, None),
    "a cache that grows": (2, PLAIN, ROOM // (4096 * PLAIN)),
    "a cache reserved at once": (2, PLAIN, ROOM // (4096 * PLAIN)),
    "8 KV heads (GQA)": (7, PLAIN // 4, ROOM // (1024 * PLAIN)),
    "1 KV head (MQA)": (7, PLAIN // 32, ROOM // (128 * PLAIN)),
    "a latent of 512 + 64 (MLA)": (7, 32 * 576 * 2, ROOM // (4096 * 32 * 576 * 2)),
    "int8": (8, INT8, ROOM // (4096 * INT8)),
    "int4, keys per channel": (8, INT4, ROOM // (4096 * INT4 + 32 * PLAIN // 2)),
    "window 128, 4 sinks": (9, 0, ROOM // (132 * PLAIN)),
    "blocks of 16": (10, PLAIN, 97),
}


def test_every_row_is_what_plain_arithmetic_gives(tmp_path: Path) -> None:
    rows = ledger.show(10, tmp_path).rows
    found = {row.change: (row.lesson, row.bytes_per_token, row.users) for row in rows}
    assert found == EXPECTED
    assert [users for _, _, users in found.values()][1:9] == [30, 30, 123, 991, 440, 61, 97, 961]


def test_users_of_the_mix_are_counted_one_by_one() -> None:
    taken, users = 0, 0
    while taken + PLAIN * ledger.MIX[users % 10] <= ROOM:
        taken, users = taken + PLAIN * ledger.MIX[users % 10], users + 1
    assert users == 97
    spec = cache_spec(
        {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 5, "hidden_size": 40}
    )
    block = 16 * 3 * 2 * 40 * 2
    assert ledger.admitted(spec, 5 * block, lengths=(17, 1)) == 3  # 2, 1 and 2 blocks
    assert ledger.admitted(spec, 5 * block - 1, lengths=(17, 1)) == 2
    assert ledger.admitted(spec, 0, lengths=(1,)) == 0
    with pytest.raises(ValueError, match="lengths"):
        ledger.admitted(spec, block, lengths=(0,))


@pytest.mark.parametrize("lesson", range(1, 11))
def test_a_lesson_shows_all_changes_made_up_to_it(lesson: int, tmp_path: Path) -> None:
    shown = ledger.show(lesson, tmp_path)
    expected = [change for change, (made, _, _) in EXPECTED.items() if made <= lesson]
    assert [row.change for row in shown.rows] == expected


@pytest.mark.parametrize("lesson", [0, 11, -1, True, 2.0, "3", None])
def test_another_lesson_is_refused_in_one_sentence(lesson: object) -> None:
    with pytest.raises(ValueError, match=r"^lesson is .*; it must be an int from 1 to 10\.$"):
        ledger.show(lesson)  # type: ignore[arg-type]


# Speeds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    text = measure(path, "cpu", SETTINGS, "python -m kvbook measure --what ledger", what="ledger")
    assert "says nothing about speed" in text
    return record.read(path)


@pytest.fixture
def folder(made: dict, tmp_path: Path) -> Path:
    """A CPU record of made-up times beside a newer GPU one."""
    for device, second in (("cpu", 0.5), ("cuda", 0.25)):
        point = copy.deepcopy(made["points"][0])
        point["job"] |= {**ledger_points.WHOLE, "device": device}
        held, capacity = ledger_points.tokens(point["job"])
        for at, (name, way) in enumerate(ledger_points.WAYS.items()):
            spec = cache_spec(MODEL | {"num_key_value_heads": way.n_kv_heads or 3})
            point["result"]["nbytes"][name] = way.predict(spec, held, capacity)
            point["result"]["seconds"][name] = [s * (at + 1) for s in (second, second / 2) * 2]
        points = [{**point, "job": point["job"] | {"part": part}} for part in range(3)]
        facts = {"type": device, "name": f"A {device}"}
        made_up = {"date": "2026-01-02T03:04:05Z", "driver": "1", "device": facts}
        made_up |= {"settings": SETTINGS | {"quick": False}, "points": points}
        (tmp_path / f"ledger_{device}.json").write_text(json.dumps(made | made_up))
    return tmp_path


MODEL = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "head_dim": 64,
    "hidden_size": 576,
}


def test_speeds_stand_beside_their_change_and_devices_are_not_mixed(folder: Path) -> None:
    shown = ledger.show(10, folder)
    rates = {row.change: row.rates for row in shown.rows}
    assert rates["no cache, the whole text again"] == {
        "cpu": {"low": 2, "median": 3, "high": 4},
        "cuda": {"low": 4, "median": 6, "high": 8},
    }
    order = [change for change in rates if "GQA" not in change and "MLA" not in change]
    for at, change in enumerate(order, start=1):
        assert rates[change]["cpu"]["median"] == pytest.approx(3 / at)
        assert rates[change]["cuda"]["median"] == pytest.approx(6 / at)
    assert rates["8 KV heads (GQA)"] == {"cpu": None, "cuda": None}
    assert shown.header[-2:] == ["Tokens per second, CPU", "Tokens per second, GPU"]
    assert "No " not in " ".join(shown.notes)
    for device, words in (("cpu", "CPU"), ("cuda", "GPU")):
        note = next(note for note in shown.notes if note.startswith(f"Tokens per second, {words}"))
        said = ("2026-01-02", f"ledger_{device}.json", "1,024", "of 12 rounds", "PyTorch 2.")
        assert f"A {device}, " in note  # no number of threads, where the record gives none
        assert all(words in note for words in said)


def test_without_a_record_the_table_says_so(folder: Path) -> None:
    (folder / "ledger_cuda.json").unlink()
    shown = ledger.show(2, folder)
    assert "No GPU record of tokens per second exists here." in shown.notes
    assert shown.header[-1] == "Tokens per second, CPU"
    (folder / "ledger_cpu.json").unlink()
    shown = ledger.show(2, folder)
    assert "No CPU and no GPU record of tokens per second exists here." in shown.notes
    assert shown.header[-1] == "Users"


def test_a_quick_record_says_nothing_about_speed(made: dict, tmp_path: Path) -> None:
    (tmp_path / "ledger_cpu.json").write_text(json.dumps(made))
    assert ledger.show(2, tmp_path).header[-1] == "Users"


@pytest.mark.parametrize(
    "odd",
    [
        {"finished": False},
        {"finished": "yes"},
        {"record": "decode"},
        {"device": {"type": "cuda", "name": "A"}},
    ],
)
def test_what_is_no_whole_run_of_this_device_is_not_shown(folder: Path, odd: dict) -> None:
    path = folder / "ledger_cpu.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | odd))
    assert ledger.show(2, folder).header[-1] == "Tokens per second, GPU"
    assert "No CPU record of tokens per second exists here." in ledger.show(2, folder).notes


def first(kept: dict) -> dict:
    return kept["points"][0]


UNSOUND = {
    "no settings": lambda kept: kept.pop("settings"),
    "no versions": lambda kept: kept.pop("versions"),
    "no name": lambda kept: kept["device"].pop("name"),
    "no date": lambda kept: kept.pop("date"),
    "a date like no other": lambda kept: kept.update(date="today"),
    "a number for a date": lambda kept: kept.update(date=5),
    "threads below 1": lambda kept: kept["device"].update(threads=-1),
    "no points": lambda kept: kept["points"].clear(),
    "points of the wrong type": lambda kept: kept.update(points=[1]),
    "a part twice": lambda kept: kept["points"].append(first(kept)),
    "another model": lambda kept: first(kept)["job"].update(model="narrow"),
    "another device": lambda kept: first(kept)["job"].update(device="cuda"),
    "another context": lambda kept: first(kept)["job"].update(context=7),
    "half a round": lambda kept: first(kept)["job"].update(rounds=4.0),
    "a way missing": lambda kept: first(kept)["result"]["seconds"].pop("int8"),
    "a way too many": lambda kept: first(kept)["result"]["seconds"].update(fast=[1.0] * 4),
    "a round missing": lambda kept: first(kept)["result"]["seconds"]["int8"].pop(),
    "no number": lambda kept: first(kept)["result"]["seconds"].update(int8=[float("nan")] * 4),
    "no end": lambda kept: first(kept)["result"]["seconds"].update(int8=[float("inf")] * 4),
    "text": lambda kept: first(kept)["result"]["seconds"].update(int8=["1"] * 4),
    "no time": lambda kept: first(kept)["result"]["seconds"].update(int8=[0.0] * 4),
    "before the start": lambda kept: first(kept)["result"]["seconds"].update(int8=[-1.0] * 4),
    "true": lambda kept: first(kept)["result"]["seconds"].update(int8=[True] * 4),
}


@pytest.mark.parametrize("what", UNSOUND)
def test_an_unsound_record_is_refused_in_one_sentence_and_not_shown(
    folder: Path, what: str
) -> None:
    path = folder / "ledger_cpu.json"
    kept = json.loads(path.read_text())
    UNSOUND[what](kept)
    path.write_text(json.dumps(kept))
    with pytest.raises(
        ValueError, match=r"^ledger_cpu\.json is no record of the ledger: .+\.$"
    ) as caught:
        ledger.show(10, folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\0"])
def test_a_file_that_is_half_written_is_refused(folder: Path, text: str) -> None:
    (folder / "ledger_cpu.json").write_text(text)
    with pytest.raises(ValueError, match=r"^ledger_cpu\.json is not JSON, or too deep\.$"):
        ledger.show(2, folder)


@pytest.mark.parametrize("text", ["[]", "null", "5", "{}"])
def test_json_that_is_no_record_is_refused(folder: Path, text: str) -> None:
    (folder / "ledger_cpu.json").write_text(text)
    with pytest.raises(ValueError, match="no record of the ledger"):
        ledger.show(2, folder)


def test_the_ledger_counts_rates_as_the_record_does(folder: Path) -> None:
    kept = record.read(folder / "ledger_cpu.json")
    shown = {row.change: row.rates["cpu"] for row in ledger.show(10, folder).rows}
    rates = ledger_points.rates(kept)
    assert {change.way: shown[change.words] for change in ledger.CHANGES if change.way} == rates


def test_a_page_that_shows_it_depends_on_no_later_lesson() -> None:
    script = "import sys, kvbook.ledger; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
    text = (ROOT / "kvbook/ledger.py").read_text()
    assert not re.search(r"import.*kvbook\.(lessons|measure)|from kvbook\.(lessons|measure)", text)


def test_the_notes_speak_of_what_the_rows_show(folder: Path) -> None:
    notes = {lesson: " ".join(ledger.show(lesson, folder).notes) for lesson in (2, 7, 8, 9, 10)}
    for word, first in (("averaged weights", 7), ("its tail", 8), ("132", 9), ("The mix", 10)):
        assert next(lesson for lesson, text in notes.items() if word in text) == first


def test_it_prints_aligned_and_within_a_page(folder: Path) -> None:
    shown = ledger.show(10, folder)
    lines = repr(shown).splitlines()
    assert str(shown) == repr(shown)
    assert lines[0] == "The ledger up to lesson 10: each change alone"
    table = lines[2:13]
    ends = [table[0].index(name) + len(name) for name in ("Lesson", "Bytes per token", "Users")]
    for line, row in zip(table[1:], shown.rows, strict=True):
        for end, cell in zip(ends, (row.cells()[i] for i in (0, 2, 3)), strict=True):
            assert line[:end].endswith(cell)
    assert all(len(line) <= 98 for line in lines[14:])


def test_it_shows_as_a_table_with_the_same_cells(folder: Path) -> None:
    shown = ledger.show(10, folder)
    page = BeautifulSoup(shown._repr_html_(), "html.parser")
    assert page.caption.text == shown.caption
    assert [th.text for th in page.find_all("th")] == shown.header
    assert all(th["scope"] == "col" for th in page.find_all("th"))
    cells = [[td.text for td in tr.find_all("td")] for tr in page.tbody.find_all("tr")]
    assert cells == [row.cells() for row in shown.rows]
    assert [p.text for p in page.find_all("p")] == list(shown.notes)


def test_what_does_not_apply_is_a_dash(folder: Path) -> None:
    cells = {row.change: row.cells() for row in ledger.show(10, folder).rows}
    assert cells["no cache, the whole text again"][2:4] == ["0", "—"]
    assert cells["window 128, 4 sinks"][2] == "0 when full"
    assert cells["blocks of 16"][2:4] == ["524,288", "97 on the mix"]
    assert cells["8 KV heads (GQA)"][4:] == ["—", "—"]
    assert cells["a cache that grows"][4] == "1.50 (1.00–2.00)"
    fast = {"low": 8.04, "median": 10.0, "high": 12.06}
    assert ledger.Row(2, "fast", 1, 1, {"cpu": fast}).cells()[4] == "10.0 (8.0–12.1)"


# The record


def test_the_record_in_the_repository_is_shown() -> None:
    name, kept = record.newest(ROOT / "measurements", "cpu", "ledger")
    assert (name, kept["settings"]["quick"], len(kept["points"])) == ("ledger_cpu.json", False, 3)
    rates = {row.change: row.rates.get("cpu") for row in ledger.show(10).rows}
    one = [1 / s for point in kept["points"] for s in point["result"]["seconds"]["int8"]]
    assert min(one) <= rates["int8"]["low"] <= rates["int8"]["median"] <= max(one)
    for change in ledger.CHANGES:
        if change.way:
            points = (point["result"]["seconds"][change.way] for point in kept["points"])
            each = np.array([1 / s for times in points for s in times])
            quartiles = dict(
                zip(("low", "median", "high"), np.percentile(each, [25, 50, 75]), strict=True)
            )
            assert rates[change.words] == pytest.approx(quartiles)
    (note,) = (note for note in ledger.show(10).notes if note.startswith("Tokens per second, CPU"))
    facts = kept["device"]
    for said in (f"{facts['name']} with {facts['threads']} threads", kept["versions"]["torch"]):
        assert said in note
    unmeasured = [change for change, found in rates.items() if found is None]
    assert unmeasured == ["8 KV heads (GQA)", "a latent of 512 + 64 (MLA)"]
    ways = {change.way for change in ledger.CHANGES if change.way}
    assert ways == {*ledger_points.WAYS}


def test_a_quick_run_ends_with_a_sound_record(made: dict) -> None:
    assert made["finished"]
    assert [point["job"] for point in made["points"]] == ledger_points.plan("cpu", SETTINGS)
    found = made["points"][0]["result"]
    row = 2 * 2 * 2 * 32 * 4  # K and V, layers, heads, width, bytes
    assert found["nbytes"]["growing"] == (160 + 1 + 4) * row
    assert found["nbytes"]["preallocated"] == 192 * row
    assert found["nbytes"]["one head"] == 96 * row
    assert found["nbytes"]["int8"] == 192 * 2 * 2 * 2 * (32 + 2)
    assert found["nbytes"]["int4"] == 192 * 2 * 2 * 2 * 20 + 32 * row // 2
    assert found["nbytes"]["window"] == 132 * row
    assert found["nbytes"]["paged"] == 192 * row + 11 * 8
    assert 0 < found["apart"]["none"] < 1e-4  # it was another computation


def test_the_whole_plan_times_every_way_in_turns() -> None:
    jobs = ledger_points.plan("cpu", SETTINGS | {"quick": False})
    assert [job["part"] for job in jobs] == [0, 1, 2]
    assert {job["context"] for job in jobs} == {1024}
    turns = [job["part"] * job["rounds"] + turn for job in jobs for turn in range(job["rounds"])]
    assert turns == list(range(12))  # each way comes first at least once
    assert len({ledger_points.label(job) for job in jobs}) == len(jobs)


def test_a_way_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(PreallocatedCache):
        def update(self, layer, k, v):
            keys, values = super().update(layer, k, v)
            return keys, values * 1.5

    monkeypatch.setattr(ledger_points, "GrowingCache", Wrong)
    with pytest.raises(ValueError, match=r"^growing's logits are .* from preallocated's\.$"):
        ledger_points.ledger("cpu", **ledger_points.QUICK, part=0)


@pytest.mark.parametrize("options", [{"model": "llama-2-7b"}, {"budget_bytes": 2**26}])
def test_what_the_ledger_does_not_take_is_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match="--"):
        ledger_points.plan("cpu", SETTINGS | options)


WRONG = {
    "a byte too many": lambda point: point["result"]["nbytes"].update(int8=1),
    "bytes of no cache": lambda point: point["result"]["nbytes"].update(none=1),
    "half a byte": lambda point: point["result"]["nbytes"].update(none=0.0),
    "a round too few": lambda point: point["result"]["seconds"]["paged"].pop(),
    "no list": lambda point: point["result"]["seconds"].update(paged=0.5),
    "a time of 0": lambda point: point["result"]["seconds"]["paged"].__setitem__(0, 0.0),
    "a time as text": lambda point: point["result"]["seconds"]["paged"].__setitem__(0, "1"),
    "no number": lambda point: point["result"]["seconds"]["none"].__setitem__(0, float("nan")),
    "logits far apart": lambda point: point["result"]["apart"].update(growing=0.5),
    "logits below 0": lambda point: point["result"]["apart"].update(growing=-1e-6),
    "another way": lambda point: point["result"]["seconds"].update(vllm=[1.0, 1.0]),
    "a way missing": lambda point: point["result"]["nbytes"].pop("window"),
    "a field too many": lambda point: point["result"].update(user="me"),
    "a field missing": lambda point: point["result"].pop("apart"),
    "no dict": lambda point: point["result"].update(apart=[0.0]),
    "another job": lambda point: point["job"].update(context=7),
    "a job's field too many": lambda point: point["job"].update(host="me"),
    "no result": lambda point: point.pop("result"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_record_with_something_wrong_is_rejected(made: dict, what: str) -> None:
    broken = copy.deepcopy(made)
    record.check(broken)
    WRONG[what](broken["points"][0])
    with pytest.raises(ConfigError) as caught:
        record.check(broken)
    assert "\n" not in str(caught.value)
