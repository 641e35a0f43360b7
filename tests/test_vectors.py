"""The vectors that JavaScript is held to are those that Python's accounting gives now."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
VECTORS = "tests/data/accounting_vectors.json"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the tool reads and writes, to break at will."""
    for name in (
        "tools/make_vectors.py",
        "tools/odd_configs.py",
        "tests/data/kv_sizes.json",
        VECTORS,
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / "tools/make_vectors.py", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_vectors_are_current():
    result = make(ROOT, "--check")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_changed_number_is_named_and_written_again(copy: Path):
    text = (copy / VECTORS).read_text()
    (copy / VECTORS).write_text(text.replace("2199912448", "2199912449", 1))
    result = make(copy, "--check")
    assert result.returncode == 1
    assert VECTORS in result.stderr
    assert make(copy).returncode == 0
    assert (copy / VECTORS).read_text() == text


def test_names_that_are_numbers_stand_in_the_order_in_which_javascript_lists_them():
    maps = []

    def find(value: object) -> None:
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, dict | list):
                find(item)
        if isinstance(value, dict) and "map" in value:
            maps.append([name for name in value["map"] if name.isdecimal()])

    find(json.loads((ROOT / "kvbook/accounting/families.json").read_text()))
    assert sum(map(bool, maps)) >= 3
    assert all(names == sorted(names, key=int) for names in maps)
