"""The table of times beside their aims: what it says of a time, not how long anything takes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return import_module("speed")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize(("taken", "over"), [(2999.9, False), (3000.0, False), (3000.1, True)])
def test_a_time_over_its_aim_is_marked(
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    taken: float,
    over: bool,
) -> None:
    monkeypatch.setattr(tool, "seconds", lambda work: taken)
    tool.tell("make everything", lambda: None, 3000)
    told = capsys.readouterr().out
    assert f"{taken:.1f} s   aim 3,000 s" in told
    assert told.rstrip().endswith("over") is over


def test_seconds_are_those_of_the_work(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 107.5])
    monkeypatch.setattr(tool.time, "monotonic", lambda: next(clock))
    done = []
    assert tool.seconds(lambda: done.append(1)) == 7.5
    assert done == [1]


def test_every_lesson_that_may_take_longer_exists(tool: ModuleType) -> None:
    lessons = {path.stem for path in tool.lessons.sources()}
    assert tool.LONGER.keys() < lessons


def test_what_make_said_is_told_when_it_fails(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("good:\n\t@true\nbad:\n\t@echo the reason; false\n")
    tool.made("good", tmp_path)()
    with pytest.raises(RuntimeError, match=r"^make bad failed:\nthe reason\n"):
        tool.made("bad", tmp_path)()


def test_a_clean_checkout_holds_what_is_committed_alone(tool: ModuleType) -> None:
    with tool.checkout() as place:
        assert (place / "Makefile").read_text()
        assert not (place / "_build").exists()
    assert not place.exists()
