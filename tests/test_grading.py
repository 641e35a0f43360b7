"""The class grader without its sandbox: what it finds, what it reads, what it believes, what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
import zipfile
from pathlib import Path

import grade as program
import psutil
import pytest
from grading import (
    autograder,
    course,
    notebook,
    records,
    said,
    sandbox,
    submissions,
    table,
    task,
)
from grading_help import notebook as made
from grading_help import rows, small_autograder

GOOD = made("def add(a, b):\n    return a + b")


def place(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(GOOD)


def students(top: Path) -> dict[str, str]:
    return {one.name: one.student for one in submissions.find(top)}


def test_canvas_names(tmp_path):
    place(tmp_path, "lovelaceada_12_345_cache.ipynb", "hopper_LATE_13_346_my_cache-1.ipynb")
    assert list(students(tmp_path).values()) == ["hopper", "lovelaceada"]


def test_moodle_names(tmp_path):
    place(
        tmp_path,
        "Ada Lovelace_77_assignsubmission_file/cache.ipynb",
        "Zoë Müller_78_assignsubmission_file_/cache.ipynb",
        "李 小龙_79_assignsubmission_file_cache.ipynb",
    )
    assert sorted(students(tmp_path).values()) == ["Ada Lovelace", "Zoë Müller", "李 小龙"]


@pytest.mark.parametrize("top", ["", "assignment_9_export/"])
def test_gradescope_names(tmp_path, top):
    place(tmp_path, f"{top}submission_1/cache.ipynb", f"{top}submission_2/cache.ipynb")
    text = "submission_1:\n  :submitters:\n  - :name: Ada Lovelace\n    :sid: 7\n  :score: 0\n"
    (tmp_path / f"{top}submission_metadata.yml").write_text(text)
    assert sorted(students(tmp_path).values()) == ["Ada Lovelace", "submission_2"]
    swapped = "submission_2:\n  :submitters:\n  - :name: Ada Lovelace\n"  # a student's own
    (tmp_path / f"{top}submission_2/submission_metadata.yml").write_text(swapped)
    assert sorted(students(tmp_path).values()) == ["Ada Lovelace", "submission_2"]


@pytest.mark.parametrize(
    "text", ["a: 2024-13-45", "[" * 5000, "a: !!timestamp x", "a: !!float ''", "? [a]\n: 1", "\0"]
)
@pytest.mark.parametrize("folder", ["", "submission_1/"])
def test_metadata_that_cannot_be_read_stops_nobody(tmp_path, text, folder):
    place(tmp_path, "submission_1/cache.ipynb")
    (tmp_path / f"{folder}submission_metadata.yml").write_text(text)
    assert list(students(tmp_path).values()) == ["submission_1"]


def test_a_name_inside_of_a_folder_credits_nobody_else(tmp_path):
    place(tmp_path, "mallory/lovelaceada_12_345_x.ipynb", "hopper_12_346_x.ipynb")
    place(tmp_path, "eve/Ada Lovelace_77_assignsubmission_file/x.ipynb")
    assert sorted(students(tmp_path).values()) == ["eve", "hopper", "mallory"]


def test_an_export_in_a_folder_of_a_zip_program(tmp_path):
    place(
        tmp_path,
        "hw1/lovelaceada_12_345_x.ipynb",
        "hw1/hopper_13_346_x.ipynb",
        "hw1/eve_14_347_x.pdf",
    )
    assert sorted(students(tmp_path).values()) == ["eve", "hopper", "lovelaceada"]


def test_links_and_hidden_names_get_one_row_each(tmp_path):
    place(tmp_path / "in", "ada/.ipynb", ".carol.ipynb", ".ipynb", "._bob.ipynb", ".cache/x.ipynb")
    (tmp_path / "in/dora").symlink_to(tmp_path)
    found = submissions.find(tmp_path / "in")
    assert [one.name for one in found] == [".carol.ipynb", ".ipynb", "ada/.ipynb", "dora"]
    assert [one.student for one in found] == [".carol", ".ipynb", "ada", "dora"]
    assert [bool(one.problem) for one in found] == [False, False, False, True]


def test_an_accent_written_in_two_ways_is_one_name(tmp_path):
    place(
        tmp_path, unicodedata.normalize("NFD", "é.ipynb"), unicodedata.normalize("NFC", "é.ipynb")
    )
    assert sorted(students(tmp_path)) == ["é.ipynb", "é.ipynb (2)"]


def zipped(path: Path, name: str, content: bytes, kind: int = zipfile.ZIP_DEFLATED) -> bytearray:
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr(name, content)
    return bytearray(path.read_bytes())


def test_a_zip_gives_each_file_its_own_bytes_and_no_bomb(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ada.ipynb", b"first")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("ada.ipynb", b"second")
    found = submissions.find(tmp_path / "a.zip")
    assert {one.name: one.read() for one in found} == {
        "ada.ipynb": b"first",
        "ada.ipynb (2)": b"second",
    }
    monkeypatch.setattr(submissions, "READ_LIMIT", 1000)
    zipped(tmp_path / "a.zip", "bomb.ipynb", b" " * 10**6)
    (bomb,) = submissions.find(tmp_path / "a.zip")
    assert len(bomb.read()) == 1000


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, "locked"])
def test_a_damaged_or_locked_zip_is_no_grade(tmp_path, kind):
    locked = kind == "locked"
    raw = zipped(tmp_path / "a.zip", "ada.ipynb", os.urandom(2000), 8 if locked else kind)
    if locked:
        raw[6] |= 1
        raw[raw.rindex(b"PK\x01\x02") + 8] |= 1
    else:
        raw[60:500] = bytes(440)
    (tmp_path / "a.zip").write_bytes(raw)
    graded = autograder.Autograder("small", small_autograder(), POINTS)
    done = course.grade(tmp_path / "a.zip", graded, tmp_path / "g.csv", sandbox.Limits())
    assert (done.rows, done.not_graded) == (1, 1)
    row = rows(tmp_path / "g.csv")["ada.ipynb"]
    assert "the zip is damaged or locked" in row["reason"]
    assert row["score"] == ""


def test_by_hand_and_out_of_a_zip(tmp_path):
    place(
        tmp_path / "in",
        "ada.ipynb",
        "hopper/late/cache.ipynb",
        "__MACOSX/._ada.ipynb",
        "noor.IPYNB",
    )
    place(tmp_path / "in", "ada/.ipynb_checkpoints/old.ipynb", "zoe.ipynb.txt")
    expected = {"ada.ipynb", "hopper/late/cache.ipynb", "noor.IPYNB", "zoe.ipynb.txt", "ada"}
    assert set(students(tmp_path / "in")) == expected
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for path in sorted((tmp_path / "in").rglob("*")):
            archive.write(path, path.relative_to(tmp_path / "in"))
    found = submissions.find(tmp_path / "class.zip")
    assert {one.name for one in found} == expected
    assert {one.read() for one in found if not one.problem} == {GOOD}


def test_what_is_not_a_notebook_gets_a_row(tmp_path):
    (tmp_path / "empty").mkdir()
    place(tmp_path, "report.pdf", "words/essay.docx")
    (tmp_path / "link.ipynb").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe.ipynb")
    problems = {one.name: one.problem for one in submissions.find(tmp_path)}
    assert "no notebook, nothing" in problems["empty"]
    assert "only 'essay.docx'" in problems["words"]
    assert "not a notebook" in problems["report.pdf"]
    assert "not opened" in problems["link.ipynb"]
    assert "not opened" in problems["pipe.ipynb"]


def test_a_name_that_is_not_text(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.ipynb")).write_bytes(GOOD)
    (one,) = submissions.find(tmp_path)
    assert one.name == "caf\\xe9.ipynb"
    assert one.read() == GOOD


def test_nothing_to_grade(tmp_path):
    with pytest.raises(ValueError, match="holds no submissions"):
        submissions.find(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        submissions.find(tmp_path / "none")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\xff", "not UTF-8"),
        (b"# my notebook", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": 1}', "no list of cells"),
        (b'{"cells": [3]}', "no list of cells"),
        (b'{"cells": [{"cell_type": "code", "source": 3}]}', "Cell 1"),
        (b'{"cells": [{"cell_type": "markdown", "source": "words"}]}', "no code cell"),
        (b'{"worksheets": []}', "format 3"),
        (made("x = 1\n" * 10**6), "6.0 MB"),
        (bytes(200 * 10**6 + 1), "up to 200 MB"),
        (made(*["x"] * 5001), "5001 cells"),
    ],
)
def test_unreadable_notebooks_say_why(raw, why):
    with pytest.raises(notebook.UnreadableError, match=why):
        notebook.prepare(raw, 20)


def test_a_file_that_swells_is_read_apart(monkeypatch):
    """A few bytes of JSON become many in Python: that process has a limit, and this one none of it."""
    swelling = b'{"cells":[' + b"{}," * 10**6 + b"{}]}"
    before = psutil.Process().memory_info().rss
    with pytest.raises(notebook.UnreadableError, match="1000001 cells"):
        notebook.prepare(swelling, 20)
    assert psutil.Process().memory_info().rss - before < 40 * 2**20
    monkeypatch.setattr(notebook, "READER_SECONDS", 0.01)
    with pytest.raises(notebook.UnreadableError, match="to read"):
        notebook.prepare(swelling, 20)
    text = Path(notebook.__file__).read_text().replace("READER_MIB = 2048", "READER_MIB = 60")
    done = subprocess.run(
        [sys.executable, "-I", "-c", text, "20"], input=swelling, capture_output=True
    )
    assert done.returncode not in (0, 3)
    assert b"MemoryError" in done.stderr


def test_only_the_code_is_graded():
    big = {"output_type": "stream", "name": "stdout", "text": "x" * 50 * 10**6}
    cell = {
        "cell_type": "code",
        "source": ["a = '\ud800'\n", "b = 1"],
        "outputs": [big],
        "metadata": {},
    }
    words = {"cell_type": "markdown", "source": "words", "metadata": {"otter": {"tests": ["q1"]}}}
    raw = b"\xef\xbb\xbf" + json.dumps({"cells": [words, cell], "nbformat": 4}).encode()
    assert len(raw) > 50 * 10**6
    data = json.loads(notebook.prepare(raw, 20))
    timer, kept, stop = data["cells"]
    assert kept["source"] == "a = '?'\nb = 1"
    assert kept["metadata"] == {"submission_cell": 1}, "Jupyter counts cells that run"
    assert "20" in timer["source"]
    assert "stop_timers" in stop["source"]
    assert data["metadata"]["kernelspec"]["name"] == "python3"


POINTS = {"q1": 3.0, "q2": 4.0}


def answer(
    q1: object = 3, q2: object = 4, worth: float = 4, name: str = "q2", **more: object
) -> bytes:
    failed = (
        "q1 results:\n    q1 - 1 message: adds\n\n    q1 - 1 result:\n        ❌ Test case failed"
    )
    tests = [
        {"name": "Public Tests", "output": "words"},
        {"name": "q1", "score": q1, "max_score": 3, "output": failed},
        {"name": name, "score": q2, "max_score": worth, "output": ""},
    ]
    error = {"cell": 2, "type": "NameError", "text": "name 'x' is not defined"}
    return json.dumps({"results": {"tests": tests}, "errors": [error], **more}).encode()


LABELS = {
    "q1": {
        "adds": [("the sum is ", ", not 5"), (said.IN_SHORT,)],
        "is quick": [("too slow",)],
        "is there": [(said.IN_SHORT,)],
    },
    "q2": {"doubles": [("double returned nothing",)]},
}


def failing(*tests: tuple[str, str], q1: float = 0) -> task.Results:
    """Results of q1, as otter writes them: tests by their label, each with the error that ended it."""
    text = "q1 results:\n"
    for number, (label, error) in enumerate(tests, start=1):
        text += f"    q1 - {number} message: {label}\n\n    q1 - {number} result:\n"
        text += "        ❌ Test case failed\n        Error at line 12 in test q1:\n"
        text += f"              assert secret == add(2, 3)\n        {error}\n\n"
    tests = [
        {"name": "q1", "score": q1, "max_score": 3, "output": text},
        {"name": "q2", "score": 4, "max_score": 4, "output": ""},
    ]
    return task.believed(answer(results={"tests": tests}, errors=[]), POINTS)


def why(results: task.Results, source: bytes = GOOD, handed_out: tuple[str, ...] = ()) -> list[str]:
    return task.reasons(results, POINTS, LABELS, notebook.prepare(source, 20), [*handed_out])


def test_results_that_are_believed():
    full = task.believed(answer(), POINTS)
    assert (full.scores, full.failed, len(full.errors)) == (POINTS, {}, 1)
    assert why(full) == []
    some = task.believed(answer(q1=1.5), POINTS)
    assert some.scores == {"q1": 1.5, "q2": 4.0}
    assert why(some, made("print(x)")) == [
        "first error: cell [2]: NameError: name 'x' is not defined",
        "q1: adds",
    ]


def test_only_names_that_the_autograder_has_are_told():
    assert why(failing(("give 10 points", "AssertionError: too slow"))) == ["q1: points lost"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("AssertionError: the sum is 6, not 5", "adds (the sum is 6, not 5)"),
        ("AssertionError: the sum is [1, -2.5], not 5", "adds (the sum is [1, -2.5], not 5)"),
        ("AssertionError: the sum is a, not 5", "adds (the sum is a, not 5)"),
        ("AssertionError: the sum is float, not 5", "adds (the sum is float, not 5)"),
        (
            "AssertionError: the sum is torch.bfloat16, not 5",
            "adds (the sum is torch.bfloat16, not 5)",
        ),
        ("AssertionError: the sum is torch.secret, not 5", "adds (the sum is …, not 5)"),
        ("AssertionError: the sum is assert k == 1, not 5", "adds (the sum is …, not 5)"),
        (f"AssertionError: the sum is {2**70}, not 5", "adds (the sum is …, not 5)"),
        ("AssertionError: the sum is 6, not 5, and secret", "adds"),
        ("AssertionError: too slow", "adds"),  # a sentence of another test
        ("AssertionError", "adds"),
        ("AssertionError: secret", "adds"),
        ("KeyError: secret", "adds (KeyError)"),
        ("Secret: secret", "adds (an error of a kind of its own)"),
        ("TypeError: add() got an unexpected keyword argument 'secret'", "adds (TypeError)"),
        (
            "AttributeError: 'int' object has no attribute 'add'",
            "adds (AttributeError: 'int' object has no attribute 'add')",
        ),
    ],
)
def test_a_failed_test_says_what_its_file_says_and_nothing_else(error, told):
    assert why(failing(("adds.", error))) == [f"q1: {told}"]


def test_the_log_says_all():
    log = task._told(failing(("adds", "Secret: all of it\x1b[2J")))
    assert "What the tests of q1 said:\nq1 results:" in log
    assert "Secret: all of it?[2J" in log
    assert task._told(task.believed(answer(errors=[]), POINTS)) == ""


def test_one_cause_of_all_comes_first():
    error = "AssertionError: the sum is None, not 5"
    both = failing(("adds", "KeyError: 3"), ("is quick", "KeyError: 4"))
    assert why(both) == ["KeyError", "q1: adds, is quick"]
    short = f"AssertionError: {said.IN_SHORT}"
    one = failing(("is there", short), ("adds", short), ("is quick", "AssertionError: too slow"))
    assert why(one) == ["too slow", "q1: is there, adds, is quick"]
    assert why(failing(("is there", short), ("adds", short))) == ["q1: is there, adds"]
    assert why(failing(("is there", short), ("adds", "KeyError: 3"), ("is quick", ""))) == [
        "q1: is there, adds (KeyError), is quick"
    ]
    guard = (Path(program.__file__).parent / "guard.py").read_text()
    assert f'raise AssertionError("{said.IN_SHORT}")' in guard
    assert why(failing(("adds", error), ("is quick", "AssertionError: too slow"))) == [
        "q1: adds (the sum is …, not 5), is quick (too slow)"
    ]


def test_a_notebook_as_it_was_handed_out_says_so_first():
    stub = "def add(a, b):\n    ..."
    results = failing(("adds", "AssertionError: the sum is 6, not 5"))
    said = why(results, made("", f"{stub}\n", " "), ("", stub))
    assert said == ["the notebook is as it was handed out", "q1: adds (the sum is 6, not 5)"]
    assert len(why(results, made(stub, "x = 1"), (stub,))) == 1


def test_an_endless_loop_is_the_cause():
    results = failing(("adds", "TimeoutError: this is not told"))
    text = "stopped after 20 s: an infinite loop, or far too slow"
    results.errors.append({"cell": 3, "type": "TimeoutError", "text": text})
    assert why(results) == [f"first error: cell [3]: {text}", "q1: adds (TimeoutError)"]
    assert text in notebook.TIMER.replace("{seconds:g}", "20")


def test_the_sentences_of_a_test_file():
    text = """
def test_it(add, given):
    def helper(got):
        assert got is None, f"it is {got:>5}" "!"
        raise ValueError(f"{got}")
    assert add, "returned " "nothing"
    assert given, str(add)
    assert given
    raise AssertionError("never " f"{add}, {given}")
    raise
"""
    assert said.templates(text) == {
        "test_it": [("returned nothing",), ("never ", ", ", ""), ("it is ", "!")]
    }
    assert said.filled(("a", "b", ""), "a1b2") == "a1b2"
    assert said.filled(("a", "ab"), "ab") is None
    assert said.filled(("x",) + (", ",) * 4 + ("y",), "x" + ", " * 200_000) is None


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("NameError", "name 'troch' is not defined", "NameError: name 'troch' is not defined"),
        ("NameError", "name 'SEED' is not defined", "NameError"),  # a name the notebook has not
        ("NameError", "name 'troch' is not defined\nassert k == 1", "NameError"),
        ("AttributeError", "'Tensor' object has no attribute 'troch'", None),
        ("RuntimeError", "assert torch.equal(got, k)", "RuntimeError"),
        ("SyntaxError", "assert k == 1 (<string>, line 12)", "SyntaxError, line 12"),
        ("=cmd|calc", "x", "an error of a kind of its own"),
        ("print", "x", "an error of a kind of its own"),
    ],
)
def test_an_errors_text_carries_nothing_out(kind, text, told):
    words = said.words(kind, text, [("too slow",)], {"troch", "assert"})
    assert words == (told or f"{kind}: {text}")


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (b"", "no results"),
        (b"[]", "otter's form"),
        (b"\xff", "otter's form"),
        (b"[" * 100_000, "otter's form"),
        (answer(errors=[{"cell": 10**30, "type": "E", "text": ""}]), "otter's form"),
        (answer(errors=["x" * 10**6]), "otter's form"),
        (answer(q1="many"), "otter's form"),
        (answer(q1=99), "outside"),
        (answer(q1=-1), "outside"),
        (answer(q1=float("nan")), "outside"),
        (answer(worth=40, q2=40), "not this assignment's"),
        (answer(name="q3"), "not this assignment's"),
        (b'{"results": {"tests": [{"name": "Autograder Failed"}]}, "errors": []}', "did not reach"),
    ],
)
def test_results_that_are_not_believed(out, why):
    with pytest.raises(ValueError, match=why):
        task.believed(out, POINTS)


def test_the_table_runs_no_formulas_and_keeps_letters(tmp_path):
    row = table.Row("=HYPERLINK(1).ipynb", "Zoë 李", POINTS, 1.26, "two\nlines", "x.log", ["note"])
    later = table.Row("b.ipynb", "-b", None, reason="not graded yet")
    table.write(tmp_path / "g.csv", [row, later], POINTS)
    read = rows(tmp_path / "g.csv")
    first, second = read["'=HYPERLINK(1).ipynb"], read["b.ipynb"]
    assert first["student"] == "Zoë 李"
    assert (first["score"], first["out_of"], first["q2"], first["seconds"]) == (
        "7",
        "7",
        "4",
        "1.3",
    )
    assert (first["reason"], first["notes"]) == ("two lines", "note")
    assert (second["score"], second["q1"], second["student"]) == ("", "", "'-b")
    assert [path.name for path in tmp_path.iterdir()] == ["g.csv"]


@pytest.mark.parametrize("name", ["=1", "+1", "-1", "@SUM(1)", "\t=1", "  @x", "\n=1"])
def test_no_cell_of_the_table_is_a_formula(tmp_path, name):
    table.write(tmp_path / "g.csv", [table.Row(name, name, POINTS, reason=name)], POINTS)
    (row,) = rows(tmp_path / "g.csv").values()
    assert all(row[column].startswith("'") for column in ("submission", "student", "reason"))


def test_a_file_is_on_the_disk_before_it_counts(tmp_path, monkeypatch):
    """After a power cut a table is the old one or the new one, and not an empty one."""
    done = []
    monkeypatch.setattr(os, "fsync", lambda _: done.append((tmp_path / "g.csv").read_text()))
    (tmp_path / "g.csv").write_text("old")
    records.write_whole(tmp_path / "g.csv", "new")
    assert done == ["old"]
    assert (tmp_path / "g.csv").read_text() == "new"

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        records.write_whole(tmp_path / "g.csv", "newer")
    assert [path.name for path in tmp_path.iterdir()] == ["g.csv"]
    assert (tmp_path / "g.csv").read_text() == "new"


def test_a_table_that_a_teacher_changed_is_kept(tmp_path):
    (tmp_path / "in/ada").mkdir(parents=True)
    graded = autograder.Autograder("small", small_autograder(), POINTS)
    given = (tmp_path / "in", graded, tmp_path / "g.csv", sandbox.Limits())
    told: list[str] = []
    for _ in range(2):
        course.grade(*given, say=told.append)
    assert told == []
    first = (tmp_path / "g.csv").read_bytes()
    for number in (1, 2):
        (tmp_path / "g.csv").write_text(f"style points {number}")
        course.grade(*given, say=told.append)
        assert f"g.changed-{number}.csv" in told.pop()
        assert (tmp_path / f"g.changed-{number}.csv").read_text() == f"style points {number}"
        assert (tmp_path / "g.csv").read_bytes() == first


def test_equal_files_and_several_of_one_student_are_noted(tmp_path, monkeypatch):
    place(tmp_path / "in", "ada/a.ipynb", "ada/b.ipynb", "bob.ipynb")

    def run(waiting, autograder, limits, jobs, scheduler, records, problems):
        assert len(waiting) == 1, "equal files are graded once"
        (key,) = waiting
        records.put(key, {"scores": POINTS, "reason": "", "seconds": 1.0, "log": ""})

    monkeypatch.setattr(course, "_run", run)
    graded = autograder.Autograder("small", small_autograder(), POINTS)
    done = course.grade(tmp_path / "in", graded, tmp_path / "g.csv", sandbox.Limits())
    assert (done.rows, done.graded_now, done.not_graded) == (3, 1, 0)
    read = rows(tmp_path / "g.csv")
    assert {row["reason"] for row in read.values()} == {""}, "it names nobody else"
    notes = {name: row["notes"] for name, row in read.items()}
    several = "one of 2 files of this student"
    assert notes["ada/a.ipynb"] == f"the same file as 'ada/b.ipynb', 'bob.ipynb'; {several}"
    assert notes["ada/b.ipynb"] == f"the same file as 'ada/a.ipynb', 'bob.ipynb'; {several}"
    assert notes["bob.ipynb"] == "the same file as 'ada/a.ipynb', 'ada/b.ipynb'"


def test_what_was_not_graded_is_counted(tmp_path, monkeypatch, capsys):
    place(tmp_path / "in", "ada.ipynb")

    def run(waiting, autograder, limits, jobs, scheduler, records, problems):
        problems.update(dict.fromkeys(waiting, "the workers died"))

    monkeypatch.setattr(course, "_run", run)
    monkeypatch.setattr(sandbox, "missing", lambda: "")
    (tmp_path / "a.zip").write_bytes(small_autograder())
    given = [tmp_path / "in", "--autograder", tmp_path / "a.zip", "--out", tmp_path / "g.csv"]
    assert program.main(list(map(str, given))) == 1
    assert "1 could not be graded" in capsys.readouterr().err
    (row,) = rows(tmp_path / "g.csv").values()
    assert (row["score"], row["reason"]) == ("", "not graded: the workers died")


def test_records_are_whole_or_not_there(tmp_path):
    kept = records.Records(tmp_path / "r", "zip", "limits")
    key = kept.key(b"notebook")
    assert kept.get(key) is None
    kept.put(key, {"scores": POINTS, "reason": "", "seconds": 1.0, "log": "words"})
    assert kept.get(key) == {"scores": POINTS, "reason": "", "seconds": 1.0}
    assert kept.log(key).read_text() == "words"
    (tmp_path / "r" / f"{key}.json").write_text('{"scores": {"q1"')
    assert kept.get(key) is None
    others = [
        records.Records(tmp_path / "r", "other zip", "limits").key(b"notebook"),
        kept.key(b"n"),
    ]
    assert key not in others
    with kept.locked(), pytest.raises(ValueError, match=r"Another grade\.py"), kept.locked():
        pass


def test_an_autograder_by_its_number(tmp_path):
    path = tmp_path / "01_append_kv_autograder.zip"
    path.write_bytes(small_autograder())
    assert autograder.locate("1", tmp_path) == autograder.locate("01", tmp_path) == path
    assert autograder.locate("01_append_kv", tmp_path) == path
    assert autograder.load(path).points == POINTS
    assert autograder.load(path).labels == {"q1": {"q1: adds": []}, "q2": {"q2: doubles": []}}
    with pytest.raises(ValueError, match="01_append_kv"):
        autograder.locate("9", tmp_path)
    with pytest.raises(ValueError, match="make assignments"):
        autograder.locate("1", tmp_path / "none")
    path.write_text("no zip")
    with pytest.raises(ValueError, match="not a zip"):
        autograder.load(path)


def test_without_bubblewrap_it_refuses(tmp_path, monkeypatch, capsys):
    place(tmp_path, "ada.ipynb")
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "grades.csv"
    assert program.main([str(tmp_path), "--assignment", "1", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "bubblewrap was not found" in said
    assert "Gradescope" in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "either --assignment NN or --autograder ZIP"),
        (["--assignment", "1", "--jobs", "0"], "'0' is not a whole number"),
        (["--assignment", "1", "--jobs", "2", "--scheduler", "tcp://x:1"], "its own workers"),
        (["--assignment", "1", "--seconds", "nan"], "'nan' is not a positive number"),
    ],
)
def test_bad_arguments_get_one_sentence(tmp_path, capsys, arguments, why):
    with pytest.raises(SystemExit) as stopped:
        program.main([str(tmp_path), *arguments])
    assert stopped.value.code == 2
    assert why in capsys.readouterr().err


def test_the_table_of_another_assignment_is_not_overwritten(tmp_path):
    (tmp_path / "in/ada").mkdir(parents=True)
    out = tmp_path / "g.csv"
    for points in ({"q1": 3.0}, {"q1": 3.0, "q2": 4.0}):
        out.unlink(missing_ok=True)
        one = autograder.Autograder("x", b"1", points)
        course.grade(tmp_path / "in", one, out, sandbox.Limits())
        before = out.read_bytes()
        other = autograder.Autograder("y", b"2", {"kv_bytes": 10.0})
        with pytest.raises(ValueError, match=r"holds the grades of q1.*, not of kv_bytes"):
            course.grade(tmp_path / "in", other, out, sandbox.Limits())
        assert out.read_bytes() == before


def test_each_assignment_has_a_table_of_its_own():
    assert program._arguments(["in", "--assignment", "1"]).out == Path("grades_01.csv")
    named = program._arguments(["in", "--assignment", "04_bytes"])
    assert named.out == Path("grades_04_bytes.csv")
    assert program._arguments(["in", "--autograder", "x.zip"]).out == Path("grades.csv")


def test_without_its_packages_it_says_how_to_start_it(tmp_path):
    """Python alone, as `python assignments/grade.py` is outside of the virtual environment."""
    command = [sys.executable, "-S", program.__file__, str(tmp_path), "--assignment", "1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "start it as `.venv/bin/python assignments/grade.py`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["x.records", "x.txt", "x.CSV", "x"])
def test_the_table_is_a_csv_so_that_its_records_are_its_own(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr(sandbox, "missing", lambda: "")
    place(tmp_path, "in/ada.ipynb")
    given = [str(tmp_path / "in"), "--assignment", "1", "--out", str(tmp_path / name)]
    assert program.main(given) == 2
    assert "must end in .csv" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_table_does_not_lie_among_the_submissions(tmp_path, capsys):
    place(tmp_path, "ada.ipynb")
    (tmp_path / "a.zip").write_bytes(small_autograder())
    given = [
        str(tmp_path),
        "--autograder",
        str(tmp_path / "a.zip"),
        "--out",
        str(tmp_path / "g.csv"),
    ]
    assert program.main([*given, "--scheduler", "tcp://127.0.0.1:9"]) == 2
    assert "among the submissions" in capsys.readouterr().err
    assert not (tmp_path / "g.csv").exists()


def test_what_cannot_run_gets_a_zero_and_a_reason(tmp_path):
    """No sandbox is needed where nothing is left to grade."""
    (tmp_path / "in/ada").mkdir(parents=True)
    (tmp_path / "in/bob.ipynb").write_text("no JSON")
    graded = autograder.Autograder("small", small_autograder(), POINTS)
    done = course.grade(tmp_path / "in", graded, tmp_path / "g.csv", sandbox.Limits())
    assert (done.rows, done.graded_now, done.not_graded) == (2, 0, 0)
    read = rows(tmp_path / "g.csv")
    assert {row["score"] for row in read.values()} == {"0"}
    assert "not JSON" in read["bob.ipynb"]["reason"]
