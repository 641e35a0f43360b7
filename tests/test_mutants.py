"""The tool that mutates modules: what it changes, and that it tells a killed one from a survivor."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import mutants as tool  # noqa: E402

sys.path.pop(0)


def changed(source: str) -> set[str]:
    """Every mutant's changed lines, without what stays."""
    found = tool.mutants("m.py", source)
    return {" ".join(x[1:].strip() for x in m.diff(source) if x[0] == "+") for m in found}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"x = (a <= b)", "x = (a >= b)"}),
        ("x = a == b != c", {"x = (a != b != c)", "x = (a == b == c)"}),
        ("x = a is None", {"x = (a is not None)"}),
        ("x = a * (b + c)", {"x = (a // (b + c))", "x = a * ((b - c))"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = 3", {"x = (4)", "x = (2)"}),
        ("x = True", {"x = False"}),
        ("x = 'ä' + y", set()),
        ("x: int | None = y", set()),
        ("x = f'{y + 1}'", set()),
        ("def f(x: 'a' = y) -> 3:\n    return x", {"return None"}),
        ("def f(x):\n    return None", set()),
        ("@g(3)\ndef f(x):\n    return", set()),
        ("if a:\n    f(x)", {"if (not (a)):", "pass"}),
        ("if not a:\n    x = y", {"if (a):"}),
        ("raise E(f'{x}')", {"pass"}),
        ("x += y", {"pass"}),
        ("x.y = z", {"pass"}),
        ("'''Says 3.'''", set()),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
    ],
)
def test_what_is_changed(source: str, expected: set[str]) -> None:
    assert changed(source) == expected


def test_places_are_counted_in_bytes_and_lines_may_be_joined() -> None:
    source = "y = 'äöü', (a <\n     b)\n"
    (found,) = {m.text(source) for m in tool.mutants("m.py", source) if "<=" in m.new}
    assert found == "y = 'äöü', ((a <= b))\n"


def test_every_mutant_of_every_module_is_valid_python_and_differs() -> None:
    run = tool.Run(seed=1, count=10**6)
    assert {m.module for m in run.sample} == {*run.sources}
    for mutant in run.sample[:: len(run.sample) // 200]:
        text = mutant.text(run.sources[mutant.module])
        assert compile(text, mutant.module, "exec")
        assert text != run.sources[mutant.module]
        assert tool.tests_of(mutant.module)


def test_the_sample_is_drawn_by_seed() -> None:
    one, same, other = (tool.Run(seed, 30).sample for seed in (1, 1, 2))
    assert one == same != other
    assert len({*one}) == 30


def test_what_is_listed_as_equivalent_is_a_mutant_and_has_a_reason() -> None:
    run = tool.Run(seed=1, count=10**6)
    every = {tool.as_listed(m, m.diff(run.sources[m.module])) for m in run.sample}
    assert {*run.known} <= every
    assert all(len(reason) > 20 for reason in run.known.values())


SOURCE = """def double(x):
    if x > 10:
        raise ValueError(x)
    while x == 3:
        x += 1
    return x * 2
"""
TESTS = """import pytest
from kvbook.lessons.toy import double

def test_double():
    assert double(5) == 10
    assert double(3) == 8
    with pytest.raises(ValueError):
        double(12)
"""
LISTED = """[[mutant]]
module = "kvbook/lessons/toy.py"
old = "if x > 10:"
new = "if x > (9):"
reason = "It is only a trial."
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "kvbook/lessons").mkdir(parents=True)
    (tmp_path / "tests/data").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    for name in ("kvbook/__init__.py", "kvbook/lessons/__init__.py", "pyproject.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "kvbook/lessons/toy.py").write_text(SOURCE)
    (tmp_path / "tests/test_toy.py").write_text(TESTS)
    (tmp_path / tool.EQUIVALENT).write_text(LISTED)
    shutil.copy(ROOT / "tools/mutants.py", tmp_path / "tools")
    return tmp_path


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, folder / "tools/mutants.py", "--patience", "0.5", *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=folder)


def test_survivors_are_named_and_a_second_run_goes_on(toy: Path) -> None:
    first = run(toy)
    assert first.returncode == 1, first.stderr
    assert "    -    if x > 10:\n    +    if (x >= 10):" in first.stdout
    stored = json.loads((toy / tool.RESULTS).read_text())["mutants"].values()
    results = {tuple(entry["diff"])[1].strip("+ "): entry["result"] for entry in stored}
    survivors = {"if (x >= 10):", "if x > (11):"}
    assert {line for line, result in results.items() if result == "survived"} == survivors
    assert results["while (x != 3):"] == results["x += (0)"] == "timeout"
    assert results["return None"] == results["return (x // 2)"] == "killed"
    assert "if x > (9):" not in results
    assert "9 killed, 3 ran too long, 2 survived, 1 equivalent" in first.stdout

    (toy / "tests/test_toy.py").write_text(TESTS.replace("double(12)", "double(11)") + EXACT)
    second = run(toy)
    assert second.returncode == 0, second.stdout
    assert "0 survived, 1 equivalent; 100.0% of" in second.stdout
    assert (toy / "kvbook/lessons/toy.py").read_text() == SOURCE


EXACT = """
def test_ten():
    assert double(10) == 20
"""


def test_tests_that_fail_without_a_mutant_are_refused(toy: Path) -> None:
    (toy / "tests/test_toy.py").write_text("def test_no():\n    assert False\n")
    done = run(toy)
    assert done.returncode == 2
    assert "tests/test_toy.py must pass before anything is mutated." in done.stderr


def test_a_module_without_tests_is_named(toy: Path) -> None:
    (toy / "tests/test_toy.py").unlink()
    done = run(toy)
    assert done.returncode == 2
    assert "kvbook/lessons/toy.py has no tests/test_toy.py" in done.stderr
