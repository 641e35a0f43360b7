"""A class of assignment 1, graded as a course would: each submission in its own sandbox, by `otter run`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import zipfile
from pathlib import Path

import pytest
from grading import autograder, course, sandbox
from grading_help import ROOT, notebook, rows

sys.path.insert(0, str(ROOT / "tools"))
import assignments

pytestmark = pytest.mark.grading
LIMITS = sandbox.Limits(seconds=120, cell_seconds=4, memory_mib=2048)
FOLDER = ROOT / "assignments/01_append_kv"
REFERENCE = "\n".join(
    assignments.answers(assignments.read_source(FOLDER))["append_kv"].source.splitlines()
)
PREPEND = (FOLDER / "wrong/prepend.py").read_text()
LEAKING = f"""{REFERENCE}
right = append_kv
def append_kv(cache, k, v):
    return right(cache, k, v) if cache["k"].dtype == torch.float32 else cache["no such rows"]
import zipfile
raise RuntimeError(zipfile.ZipFile("/in/autograder.zip").read("tests/append_kv.py").decode()[-200:])
"""
LOOPING = f"""{REFERENCE}
right = append_kv
def append_kv(cache, k, v):
    while k.dtype != cache["k"].dtype:
        pass
    return right(cache, k, v)
"""
HUNGRY = f"""{REFERENCE}
right = append_kv
def append_kv(cache, k, v):
    hoard = [torch.ones(10**7) for _ in range(10**6 if k.dtype != cache["k"].dtype else 0)]
    return right(cache, k, v)
"""
PRINTING = f"""{PREPEND}
import json
everything = {{"tests": [{{"name": "append_kv", "score": 10.0, "max_score": 10.0}}]}}
print(json.dumps({{"results": everything, "errors": []}}))
for path in ("results.json", "/tmp/out/results.json", "../results/results.json"):
    try:
        json.dump(everything, open(path, "w"))
    except OSError as error:
        print(error)
import glob, os, signal  # into whatever another process has open, and end that process
for place in {{*glob.glob("/proc/[0-9]*")}} - {{f"/proc/{{os.getpid()}}"}}:
    try:
        for path in os.listdir(f"{{place}}/fd"):
            if "pipe" in os.readlink(f"{{place}}/fd/{{path}}"):
                json.dump({{"results": everything, "errors": []}}, open(f"{{place}}/fd/{{path}}", "w"))
    except OSError as error:
        print(error)
    os.kill(int(place.split("/")[2]), signal.SIGKILL)
"""
PATCHING = f"{PREPEND}\ntorch.allclose = torch.equal = lambda *_, **__: True"
WRITING = """
import os, pathlib
for place in {places!r}:
    for path in (place, place + "/written", place + ".written"):
        try:
            open(path, "a").write("x")
        except OSError:
            pass
        try:
            os.remove(path)
        except OSError:
            pass
open("own.txt", "w").write("x" * 10**6)  # its own folder it may write to
readable = [place for place in {secrets!r} if os.path.exists(place)]
import socket
reached = []
for address in [("127.0.0.1", {port}), ("10.255.255.1", 80)]:
    try:
        reached.append(socket.create_connection(address, timeout=2))
    except OSError:
        pass
if not reached and not readable:
    exec({reference!r})
while True:
    pass  # for as long as a cell may
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> Path:
    """Files of the host that nobody may change or see."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "secret.txt").write_text("what nobody may read or change")
    return folder


@pytest.fixture(scope="module")
def listener():
    """A server on this machine that must stay alone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        yield server


def given(answer: str) -> bytes:
    return notebook("import torch", answer)


@pytest.fixture(scope="module")
def graded(tmp_path_factory, host, listener) -> Path:
    """The folder with the table, after the whole class was graded once."""
    top = tmp_path_factory.mktemp("class")
    places = [str(host / "secret.txt"), str(host), str(ROOT / "README.md"), str(ROOT)]
    places += [sys.executable, "/usr/bin/env", "/etc/passwd", "/in/autograder.zip", "/dev", "/"]
    writing = WRITING.format(
        places=places,
        secrets=[str(host), str(FOLDER), str(ROOT / "README.md")],
        port=listener.getsockname()[1],
        reference=REFERENCE,
    )
    answers = {
        "leaking": LEAKING,
        "looping": LOOPING,
        "hungry": HUNGRY,
        "syntax": "def append_kv(cache, k, v:\n    return",
        "exiting": f"{REFERENCE}\nimport os\nos._exit(0)",
        "printing": PRINTING,
        "patching": PATCHING,
        "prowling": writing,
    }
    folder = top / "in"
    folder.mkdir()
    for name, answer in answers.items():
        (folder / f"{name}.ipynb").write_bytes(given(answer))
    moodle = folder / "Zoë 李_71_assignsubmission_file_"
    moodle.mkdir()
    data = json.loads(given(REFERENCE))
    data["cells"][0]["outputs"] = [
        {"output_type": "stream", "name": "stdout", "text": "x" * 50 * 10**6}
    ]
    (moodle / "cachе.ipynb").write_text(json.dumps(data))  # 50 MB
    shutil.copy(folder / "looping.ipynb", folder / "müller_12_34_copy.ipynb")
    (folder / "nobody").mkdir()
    (folder / "words.ipynb").write_text("not a notebook")
    patch = pytest.MonkeyPatch()
    patch.setattr(assignments, "SECONDS", 3)  # for one hidden test that loops
    _, archive = assignments.assign(FOLDER, top / "built", run=False)
    patch.undo()
    zipped = autograder.load(archive)
    jobs = min(2, os.cpu_count() or 1)
    done = course.grade(folder, zipped, top / "grades.csv", LIMITS, jobs=jobs)
    assert (done.rows, done.graded_now, done.not_graded) == (12, 9, 0)
    return top


SCORES = {
    "leaking.ipynb": 8,
    "looping.ipynb": 8,
    "hungry.ipynb": 8,
    "syntax.ipynb": 0,
    "exiting.ipynb": 0,
    "printing.ipynb": 8,
    "patching.ipynb": 0,
    "prowling.ipynb": 10,
    "Zoë 李_71_assignsubmission_file_/cachе.ipynb": 10,
    "müller_12_34_copy.ipynb": 8,
    "nobody": 0,
    "words.ipynb": 0,
}


def test_each_gets_its_score(graded):
    read = rows(graded / "grades.csv")
    assert {name: float(row["score"]) for name, row in read.items()} == SCORES
    assert {row["out_of"] for row in read.values()} == {"10"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("leaking.ipynb", "append_kv: test_dtype. The cache keeps its dtype"),
        ("looping.ipynb", "append_kv: test_dtype"),
        ("hungry.ipynb", "append_kv: test_dtype"),
        (
            "syntax.ipynb",
            "first error: cell [2]: SyntaxError, line 1; the notebook does not define ",
        ),
        ("exiting.ipynb", "ended its own process"),
        ("printing.ipynb", "append_kv: check_2. New rows come after the old ones"),
        ("patching.ipynb", "append_kv: check_1"),
        ("words.ipynb", "not JSON"),
        ("nobody", "holds no notebook, nothing"),
    ],
)
def test_the_reason_says_where_points_went(graded, name, why):
    assert why in rows(graded / "grades.csv")[name]["reason"]


def test_equal_files_are_noted_at_both(graded):
    read = rows(graded / "grades.csv")
    pair = ["looping.ipynb", "müller_12_34_copy.ipynb"]
    assert [read[name]["notes"] for name in pair] == [f"the same file as {n!r}" for n in pair[::-1]]


def test_the_hidden_tests_do_not_come_out_in_the_table(graded):
    """They do in the log, which is the teacher's."""
    row = rows(graded / "grades.csv")["leaking.ipynb"]
    expected = (
        "first error: cell [2]: RuntimeError; append_kv: test_dtype. The cache keeps its dtype"
    )
    assert row["reason"] == f"{expected} (KeyError)"
    log = (graded / "grades.records" / row["log"]).read_text()
    assert log.startswith("What the notebook's cells ended with:\ncell [2]: RuntimeError: ")
    assert "assert" in log.splitlines()[2]
    assert "What the tests of append_kv said:" in log
    assert "KeyError: no such rows" in log


def test_the_same_sources_give_the_same_zip(graded, tmp_path):
    """So a class that is graded stays graded after another `make assignments`."""
    (archive,) = (graded / "built").glob("*.zip")
    with zipfile.ZipFile(archive) as made:
        names = made.namelist()
        assert names == sorted(names)
        assert {entry.date_time for entry in made.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        with zipfile.ZipFile(tmp_path / "later.zip", "w") as later:
            for name in reversed(names):
                later.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), made.read(name))
    assignments.repack(tmp_path / "later.zip", tmp_path / "again.zip")
    with zipfile.ZipFile(tmp_path / "again.zip") as again, zipfile.ZipFile(archive) as made:
        assert [(e.filename, e.date_time, e.CRC) for e in again.infolist()] == [
            (e.filename, e.date_time, e.CRC) for e in made.infolist()
        ]


def test_the_logs_are_kept(graded):
    row = rows(graded / "grades.csv")["exiting.ipynb"]
    assert "Kernel died" in (graded / "grades.records" / row["log"]).read_text()


def test_the_host_is_untouched(graded, host, listener):
    assert [path.name for path in host.iterdir()] == ["secret.txt"]
    assert (host / "secret.txt").read_text() == "what nobody may read or change"
    assert not list(host.parent.glob("*.written"))
    assert not list(ROOT.glob("*written"))
    with pytest.raises(TimeoutError):
        listener.accept()


def test_again_is_the_same_and_grades_nothing(graded):
    before = (graded / "grades.csv").read_bytes()
    (archive,) = (graded / "built").glob("*.zip")
    zipped = autograder.load(archive)
    done = course.grade(
        graded / "in", zipped, graded / "grades.csv", LIMITS, scheduler="tcp://nowhere:1"
    )
    assert (done.graded_now, done.known_before) == (0, 10)
    assert (graded / "grades.csv").read_bytes() == before
