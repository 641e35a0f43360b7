"""The class grader without its sandbox: what it finds, what it reads, what it believes, what it writes."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import grade as program
import pytest
from grading import autograder, course, notebook, records, sandbox, submissions, table, task
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
    ],
)
def test_unreadable_notebooks_say_why(raw, why):
    with pytest.raises(notebook.UnreadableError, match=why):
        notebook.prepare(raw, 20)


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
    assert kept["metadata"] == {"submission_cell": 2}
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
    return json.dumps(
        {"results": {"tests": tests}, "errors": ["cell 2: NameError"], **more}
    ).encode()


def test_results_that_are_believed():
    assert task.believed(answer(), POINTS) == (POINTS, "")
    scores, reason = task.believed(answer(q1=1.5), POINTS)
    assert scores == {"q1": 1.5, "q2": 4.0}
    assert reason == "q1: adds; first error: cell 2: NameError"


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (b"", "no results"),
        (b"[]", "otter's form"),
        (b"\xff", "otter's form"),
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
    assert first["reason"] == "two lines; note"
    assert (second["score"], second["q1"], second["student"]) == ("", "", "'-b")
    assert [path.name for path in tmp_path.iterdir()] == ["g.csv"]


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
