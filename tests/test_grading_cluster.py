"""Many gradings at a time: an interrupted run goes on, and a cluster loses a worker and nothing else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import psutil
import pytest
from grading import engine
from grading_help import notebook, rows, small_autograder, start

pytestmark = pytest.mark.grading
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers do not know this file
GOOD = "def add(a, b):\n    return a + b\n\n\ndef double(x):\n    return 2 * x"
HALF = "def add(a, b):\n    return a - b\n\n\ndef double(x):\n    return 2 * x"
ANSWERS = {"ada": GOOD, "bob": HALF, "cleo": "add = double = None", "dora": f"{GOOD}\nx = 1"}
SCORES = {"ada": "7", "bob": "4", "cleo": "0", "dora": "7"}
PATIENCE = 180


def wait(until: Callable[[], object], what: str) -> object:
    """Wait for something to be true, and return it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if value := until():
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE} s")


@pytest.fixture
def course(tmp_path) -> Path:
    """A folder with in/, of four submissions, and small.zip."""
    (tmp_path / "in").mkdir()
    for name, answer in ANSWERS.items():
        (tmp_path / "in" / f"{name}.ipynb").write_bytes(notebook(answer))
    (tmp_path / "small.zip").write_bytes(small_autograder())
    return tmp_path


def arguments(course: Path) -> list[object]:
    return [course / "in", "--autograder", course / "small.zip", "--out", course / "grades.csv"]


def scores(course: Path) -> dict[str, str]:
    return {name.split(".")[0]: row["score"] for name, row in rows(course / "grades.csv").items()}


def filed(course: Path) -> dict[str, int]:
    """The records, and when each was written."""
    return {p.name: p.stat().st_mtime_ns for p in (course / "grades.records").glob("*.json")}


def sandboxes(pid: int) -> list[psutil.Process]:
    try:
        below = psutil.Process(pid).children(recursive=True)
        return [child for child in below if child.name() == "bwrap"]
    except psutil.NoSuchProcess:
        return []


def test_an_interrupted_run_goes_on(course):
    """Ctrl-C, a polite end and a kill, each while the next submission is being graded."""
    ways = [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)]
    for number, (sign, status) in enumerate(ways, start=1):
        before = filed(course)
        running = start(*arguments(course), "--jobs", "1")
        wait(lambda n=number: len(filed(course)) == n, "a first result")
        inside = wait(lambda p=running: sandboxes(p.pid), "the next sandbox")
        running.send_signal(sign)
        _, said = running.communicate(timeout=PATIENCE)
        assert running.returncode == status, said
        assert before.items() <= filed(course).items()
        wait(
            lambda these=inside: not any(map(psutil.Process.is_running, these)), "the sandbox's end"
        )
        if sign != signal.SIGKILL:
            assert "The same command goes on" in said
            assert "Traceback" not in said
            assert list(scores(course).values()).count("") == 4 - number
    before = filed(course)
    running = start(*arguments(course), "--jobs", "2")
    out, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert "1 graded now, 3 known from before" in out
    assert before.items() <= filed(course).items()
    assert scores(course) == SCORES
    assert not list(course.rglob("*.partial"))


@pytest.fixture
def cluster(tmp_path) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A scheduler and two workers on the loopback address, as a course's cluster has them."""
    log = (tmp_path / "cluster.log").open("w+")
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    quiet = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": tmp_path}
    hosted = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = subprocess.Popen([*dask, *hosted, "--port", "0"], **quiet)
    workers: list[subprocess.Popen] = []

    def address() -> str:
        found = re.search(r"(tcp://127\.0\.0\.1:\d+)", (tmp_path / "cluster.log").read_text())
        return found[1] if found else ""

    try:
        at = str(wait(address, "the scheduler's start"))
        one = [sys.executable, "-m", "distributed.cli.dask_worker", at, *hosted]
        one += ["--nthreads", "1", "--no-nanny", "--memory-limit", "0"]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        workers += [subprocess.Popen(one, env=environment, **quiet) for _ in range(2)]
        yield at, workers
    finally:
        for process in [*workers, scheduler]:
            process.kill()
            process.wait()
        log.close()


def traced(name: bytes, folder: str, code: int) -> dict:
    """Stands for a grading: it writes down when it starts and when it ends."""
    import os
    import time
    from pathlib import Path

    notes = Path(folder, f"{name.decode()}.{os.getpid()}")
    Path(f"{notes}.start").touch()
    time.sleep(0.5)
    Path(f"{notes}.end").touch()
    return {"code": code}


def test_a_killed_worker_loses_only_what_it_held(cluster, tmp_path):
    """Nothing is lost, no result that came home is done again, and each comes home once.

    What the killed worker was at is done again; so may be a result that it had not yet sent.
    """
    at, workers = cluster
    folder = tmp_path / "notes"
    folder.mkdir()
    victim = workers[0]
    names = {f"n{number}": f"n{number}".encode() for number in range(12)}
    got, home, killed = [], set(), set()

    def at_work() -> set[str]:
        starts = folder.glob(f"*.{victim.pid}.start")
        return {path.name.split(".")[0] for path in starts if not path.with_suffix(".end").exists()}

    with engine.client(1, at) as client:
        wait(lambda: len(client.scheduler_info()["workers"]) == 2, "two workers")
        for key, result, problem in engine.spread(client, traced, names, str(folder), 3):
            assert not problem
            got.append((key, result, problem))
            if len(got) == 3:
                home = {key for key, _, _ in got}
                killed = wait(at_work, "the first worker at work")
                victim.kill()
    assert sorted(got) == sorted((key, {"code": 3}, "") for key in names)
    begun = {path.name.split(".")[0] for path in folder.glob(f"*.{victim.pid}.start")}
    started = Counter(path.name.split(".")[0] for path in folder.glob("*.start"))
    again = {name for name, times in started.items() if times > 1}
    assert set(started) == set(names)
    assert killed <= again <= begun - home
    assert max(started.values()) == 2
    assert all(list(folder.glob(f"{name}.*.end")) for name in names)


def test_a_class_on_a_cluster_that_loses_a_worker(cluster, course):
    (course / "in/dora.ipynb").unlink()
    at, (victim, _) = cluster
    running = start(*arguments(course), "--scheduler", at)
    inside = wait(lambda: sandboxes(victim.pid), "a sandbox of the first worker")
    victim.kill()
    out, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert "3 submissions: 3 graded now" in out
    assert scores(course) == {name: SCORES[name] for name in ("ada", "bob", "cleo")}
    assert not any(map(psutil.Process.is_running, inside))


def test_no_scheduler_gets_one_sentence(course, monkeypatch):
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 1)
    with (
        pytest.raises(ValueError, match="No dask scheduler answers at 'tcp://127"),
        engine.client(1, "tcp://127.0.0.1:9"),
    ):
        pass
