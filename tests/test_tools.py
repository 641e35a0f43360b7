"""The tools say what is stale and what a machine lacks; each test breaks one thing to hear it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the lessons' tool reads, to break at will."""
    for name in ("tools", "notebooks", "book", "kvbook", "measurements"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "vendor"),
        )
    shutil.copy(ROOT / "_config.yml", tmp_path)
    return tmp_path


def check(copy: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, copy / "tools/lessons.py", "--check", *names]
    return subprocess.run(command, capture_output=True, text=True)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_fresh_tree_is_current(copy: Path) -> None:
    result = check(copy)
    assert (result.returncode, result.stderr) == (0, "")


STALE = {
    "exported module": ("kvbook/lessons/decoder.py", "class Block", "class  Block"),
    "code of a source": ("notebooks/01_decoder.py", "manual_seed(0)", "manual_seed(1)"),
    "text of a source": ("notebooks/01_decoder.py", "Last, the loop.", "At last, the loop."),
    "text of a notebook": ("notebooks/01_decoder.ipynb", "Last, the loop.", "At last, the loop."),
    "a tag": ("notebooks/01_decoder.ipynb", '"export"', '"hide-input"'),
    "an imported module": ("kvbook/plotting.py", '"""', '"""A changed module. '),
    "a bundle": ("kvbook/explorer/static/attention.js", "render", "rendre"),
    "data": ("kvbook/palette.json", "#", "#0"),
    "a module imported by a module": ("kvbook/models/convert.py", '"""', '"""A changed module. '),
    "reference data": ("kvbook/models/smollm2_reference.json", "logits", "logit"),
    "the landing page": ("book/index.py", "80 * GB", "81 * GB"),
    "the setup cell": ("tools/setup_cell.py", "import sys", "import sys  # too"),
    "the book's address": ("_config.yml", '\n  url: "', '\n  url: "https://github.com/a'),
    "the version that a notebook names": (
        "notebooks/03_cost.ipynb",
        "with kvbook ",
        "with kvbook 9",
    ),
}
PAGE = {"the landing page": "index", "the version that a notebook names": "03"}  # others: lesson 1


@pytest.mark.parametrize("what", STALE)
def test_whatever_is_stale_fails(copy: Path, what: str) -> None:
    name, old, new = STALE[what]
    edit(copy / name, old, new)
    result = check(copy, PAGE.get(what, "01"))
    assert result.returncode == 1
    assert re.search(r"^stale: .+ \(run `make lessons`\)$", result.stderr, re.M)


@pytest.mark.parametrize("text", ["", "<<<<<<< ours", "{}"])
def test_a_broken_notebook_is_said_in_one_line(copy: Path, text: str) -> None:
    (copy / "notebooks/01_decoder.ipynb").write_text(text)
    result = check(copy, "01")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "notebooks/01_decoder.py or its notebook: " in result.stderr


SOURCE = """# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 99 — A title

# %% tags=["export"]
number = 1

# %%
print(number)
"""
FAULTS = {
    "no Python": ("number = 1", "number = = 1", "SyntaxError: .+ in 'number = = 1'"),
    "a cell that fails": ("print(number)", "1 / 0", "a cell fails with ZeroDivisionError: .+"),
    "no title": ("# # Lesson 99 — A title", "# No title", "ValueError: its first cell must .+"),
    "no text": ("# %% [markdown]\n# # Lesson 99 — A title\n", "", "ValueError: its first .+"),
    "no kernel": (SOURCE[: SOURCE.index("# %%")], "", "ValueError: .+ kernelspec .+"),
    "nothing": (SOURCE, "", "ValueError: .+"),
}


def lessons_99(copy: Path, text: str, newline: str = "\n") -> subprocess.CompletedProcess[str]:
    (copy / "notebooks/99_x.py").write_text(text, newline=newline)
    command = [sys.executable, copy / "tools/lessons.py", "99"]
    return subprocess.run(command, capture_output=True, text=True, cwd=copy / "book")


@pytest.mark.parametrize("what", FAULTS)
def test_a_page_s_fault_is_said_in_one_line_and_nothing_is_half_written(
    copy: Path, what: str
) -> None:
    old, new, said = FAULTS[what]
    result = lessons_99(copy, SOURCE.replace(old, new))
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert re.fullmatch(f"kvbook: notebooks/99_x.py: {said}", last)
    assert (result.stderr == last + "\n") is (what != "a cell that fails")
    assert not (copy / "notebooks/99_x.ipynb").exists()
    assert not [*copy.rglob("*.partial")]
    module = copy / "kvbook/lessons/x.py"
    assert module.exists() is (what == "a cell that fails")  # its code is Python, so it is exported


def test_a_page_may_have_windows_lines_and_is_made_from_any_folder(copy: Path) -> None:
    result = lessons_99(copy, SOURCE, newline="\r\n")
    assert result.returncode == 0, result.stderr
    assert "\r" not in (copy / "notebooks/99_x.ipynb").read_text()
    assert "number = 1" in (copy / "kvbook/lessons/x.py").read_text().splitlines()
    assert lessons_99(copy, SOURCE).stdout == ""  # nothing to do


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tools/setup_cell.py", "@title Setup", "@title Set up"),
        ("notebooks/01_decoder.py", "Last, the loop.", "At last, the loop."),
    ],
    ids=["the setup cell", "a text"],
)
def test_a_change_of_words_keeps_the_outputs_and_needs_no_run(
    copy: Path, name: str, old: str, new: str
) -> None:
    notebook = copy / "notebooks/01_decoder.ipynb"
    before = notebook.read_text()
    edit(copy / name, old, new)
    command = [sys.executable, copy / "tools/lessons.py", "01"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "outputs kept" in result.stdout
    assert notebook.read_text() == before.replace(old, new)
    assert check(copy, "01").returncode == 0


def test_a_data_file_beside_the_page_counts(copy: Path) -> None:
    (copy / "notebooks/numbers.csv").write_text("1")
    edit(
        copy / "notebooks/01_decoder.py",
        "weights, tokens = watch(",
        'name = "numbers.csv"\nweights, tokens = watch(',
    )
    script = (
        "import lessons\n"
        "path = lessons.sources()[0]\n"
        "print(lessons.fingerprint(path, lessons.read_source(path)))"
    )
    prints = []
    for content in ("1", "2"):
        (copy / "notebooks/numbers.csv").write_text(content)
        run = [sys.executable, "-c", script]
        prints.append(
            subprocess.run(
                run, capture_output=True, text=True, check=True, cwd=copy / "tools"
            ).stdout
        )
    assert prints[0] != prints[1]


def test_a_notebook_or_module_without_a_source_is_named(copy: Path) -> None:
    (copy / "kvbook/lessons/left_over.py").write_text("")
    (copy / "notebooks/99_gone.ipynb").write_text("{}")
    result = check(copy, "01")
    assert result.returncode == 1
    assert "kvbook/lessons/left_over.py has no source" in result.stderr
    assert "notebooks/99_gone.ipynb has no source" in result.stderr


def test_a_run_prints_no_warning_of_the_kernel(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import lessons\n"
        "from nbformat.v4 import new_code_cell, new_notebook\n"
        "notebook = new_notebook(cells=[new_code_cell('1 + 1')])\n"
        "lessons.execute(notebook, Path('.'))\n"
        "print(notebook.cells[0].outputs[0].data['text/plain'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tools")},
    )
    assert (result.stdout, result.stderr) == ("2\n", "")


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder for the PATH with a shell and the small tools alone."""
    for name in ("sh", "sed", "printf", "env"):
        (tmp_path / name).symlink_to(shutil.which(name))
    return tmp_path


def run(command: list[str | Path], path: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": os.environ.get("HOME", "/"), **extra}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def pretend(folder: Path, name: str, answer: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho {answer}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("node", "npm", "fine"),
    [
        (None, None, False),
        ("v18.19.0", "9.2.0", False),
        ("v20.0.0", None, False),
        ("v20.0.0", "10", True),
    ],
)
def test_missing_or_old_node_is_said_in_one_line(
    bare_path: Path, node: str | None, npm: str | None, fine: bool
) -> None:
    for name, answer in (("node", node), ("npm", npm)):
        if answer:
            pretend(bare_path, name, answer)
    result = run(["sh", ROOT / "tools/need_node.sh"], bare_path)
    assert (result.returncode == 0) is fine
    assert len(result.stderr.splitlines()) == (0 if fine else 1)
    if not fine:
        assert "Node.js 20 or newer" in result.stderr
        assert (node or "none") in result.stderr


def test_no_python_that_fits_is_said_in_one_line(bare_path: Path, tmp_path: Path) -> None:
    pretend(bare_path, "python3", 'Python 3.9.2; [ "$1" = --version ]')
    result = run(["sh", ROOT / "tools/make_venv.sh", tmp_path / "venv"], bare_path)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "3.11, 3.12 or 3.13" in result.stderr
    assert "Python 3.9.2" in result.stderr
    assert not (tmp_path / "venv").exists()


def test_a_browser_that_cannot_run_is_named(bare_path: Path) -> None:
    result = run(
        [sys.executable, "tools/browser.py"], bare_path, KVBOOK_CHROMIUM="/no/such/browser"
    )
    assert result.returncode == 1
    assert "/no/such/browser" in result.stderr
    assert len(result.stderr.splitlines()) == 1
