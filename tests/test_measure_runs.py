"""A run of `measure` from outside: odd files, signals, a closed stderr, options that are not used."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvbook.accounting import ConfigError
from kvbook.measure import blocks, record, run
from kvbook.measure.command import ended_by_signals
from kvbook.measure.progress import Progress
from kvbook.measure.registry import RECORDS, load

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {"model": "smollm2-135m", "quick": True, "budget_bytes": None}


def pretended(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
    for job in jobs:
        found = {"append": 18_000, "fork": 500, "free": 1_000, "start": 500}
        found |= {"live": 1, "in_use": 1, "copies": 1}
        yield job, found | dict.fromkeys((*blocks.MEDIANS, *blocks.QUARTILES), 1.0)


def stops(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
    yield next(pretended(jobs))
    raise KeyboardInterrupt


def measured(path: Path, source=pretended, force: bool = False) -> str:
    return run.measure(path, "cpu", SETTINGS, "measure", force, "blocks", source)


# The record on its way


def test_the_empty_record_is_written_before_the_first_measurement(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    def looks(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
        kept = record.read(path)
        assert (kept["points"], kept["finished"]) == ([], False)
        yield from pretended(jobs)

    measured(path, looks)
    assert record.read(path)["finished"]


def test_a_record_that_could_not_be_read_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "device_facts", lambda device: {"type": "cpu", "name": "me@host"})
    with pytest.raises(ConfigError, match="me@host"):
        measured(tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


def test_a_processor_with_its_clock_in_its_name_is_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "Intel(R) Xeon(R) CPU @ 2.20GHz"
    monkeypatch.setattr(run, "device_facts", lambda device: {"type": "cpu", "name": name})
    measured(tmp_path / "x.json")
    assert record.read(tmp_path / "x.json")["device"]["name"] == name


def test_a_kill_while_writing_leaves_the_old_record_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "mine.json"
    record.write(path, {"points": []})
    before = path.read_text()
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        record.write(path, {"points": [1]})
    assert path.read_text() == before


def test_force_goes_on_with_an_unfinished_record_of_this_run(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with pytest.raises(KeyboardInterrupt):
        measured(path, stops)
    asked: list[dict] = []

    def notes(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
        asked.extend(jobs)
        return pretended(jobs)

    measured(path, notes, force=True)
    assert len(asked) == 1
    measured(path, notes, force=True)  # it is finished now: all of it, anew
    assert len(asked) == 3


def test_force_replaces_a_broken_record_of_this_kind(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"record": "blocks", "settings": {}}')
    with pytest.raises(ConfigError, match="missing or unknown"):
        measured(path)
    measured(path, force=True)
    assert record.read(path)["finished"]


def test_writing_that_fails_leaves_the_old_record_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    measured(path)
    before, kept = path.read_text(), record.read(path)

    def full(self: Path, text: str, **options: object) -> None:
        self.write_bytes(text[:100].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ConfigError, match="No space left"):
        record.write(path, kept)
    assert path.read_text() == before
    assert [left.name for left in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("name", ["a" * 300 + ".json", "\ud800.json", "folder/x.json"])
def test_a_name_that_cannot_be_is_told_in_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(ConfigError, match=r"cannot be (reached|written): .+\.$"):
        measured(tmp_path / name)


ODD = {
    "nothing": "",
    "depth": "[" * 200_000,
    "a deep record": '{"record": "blocks", "points": ' + "[" * 900 + "]" * 900 + "}",
    "a long number": "1" * 5_000,
    "no text": "\x00",
    "a list": "[]",
    "a list for a kind": '{"record": [], "points": []}',
    "a number for points": '{"record": "blocks", "points": 5}',
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("mend", [False, True])
def test_an_odd_file_is_told_in_one_sentence(tmp_path: Path, what: str, mend: bool) -> None:
    path = tmp_path / "x.json"
    path.write_text(ODD[what])
    with pytest.raises(ConfigError, match=r"^x\.json") as caught:
        record.read(path, mend)
    assert "\n" not in str(caught.value)
    record.kind_of(path)
    assert record.newest(tmp_path / "nowhere", "cpu") is None


# Options


@pytest.mark.parametrize("what", [name for name in RECORDS if name != "memory"])
@pytest.mark.parametrize(
    ("option", "given"),
    [("--model", {"model": "llama-2-7b"}), ("--budget", {"budget_bytes": 2**26})],
)
def test_an_option_without_a_use_is_refused(what: str, option: str, given: dict) -> None:
    with pytest.raises(ConfigError, match=f"^{option}.*{what}"):
        load(what).plan("cpu", SETTINGS | given)


# Processes


def children(pid: int) -> set[int]:
    """The processes below a process, by what the system says."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                if after_name[0] != "Z" and int(after_name[1]) == pid:
                    found |= {int(entry.name)} | children(int(entry.name))
        except (OSError, IndexError):
            continue
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(done, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(done())


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_measuring_processes_too(tmp_path: Path, number: int) -> None:
    line = [sys.executable, "-m", "kvbook", "measure", "--what", "blocks", "--device", "cpu"]
    started = subprocess.Popen(
        [*line, "--out", str(tmp_path / "x.json")],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # under nohup it is ignored
    )
    try:
        assert until(lambda: len(children(started.pid)) >= 2)  # a process, and its fork
        below = children(started.pid)
        started.send_signal(number)
        assert started.wait(30) == 128 + number
        assert until(lambda: not any(map(alive, below)), 10)
    finally:
        started.kill()
        started.wait()
    kept = record.read(tmp_path / "x.json")  # what was measured until then
    assert not kept["finished"]


def test_signals_are_put_back_and_an_ignored_one_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            with pytest.raises(SystemExit) as caught:
                signal.raise_signal(signal.SIGTERM)
            assert caught.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


# Progress

BAR = (
    "from kvbook.measure.progress import Progress\n"
    "bar = Progress(3)\n"
    "for _ in range(3):\n"
    "    bar.step('x')\n"
    "    bar.done()\n"
    "bar.close()\n"
    "print('whole')"
)


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", ""])
def test_without_a_stderr_there_is_no_bar_and_no_failure(how: str) -> None:
    if how == "2>/dev/full" and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    line = f'exec "$0" -c "$1" {how}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, BAR], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "whole\n")
    assert bool(done.stderr) == (how == "")


def test_a_closed_stderr_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "e").open("w") as stream:
        pass
    monkeypatch.setattr(sys, "stderr", stream)
    bar = Progress(1)
    bar.step("x")
    bar.close()
