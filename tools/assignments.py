"""Make each assignment's student notebook and autograder zip from its one source.

    python tools/assignments.py                      all, into _build/assignments
    python tools/assignments.py 01 --out FOLDER      those whose name starts with 01

The student notebooks go to `book/assignments` too, from where the book hands them out. Beside each lies
`NN_name_solution.ipynb`, the same notebook with the reference solution.

A source is `assignments/NN_name/notebook.py`, in jupytext's percent format with otter-grader's raw
delimiter cells. Two kinds of cell stand in a TESTS block, each with `points` and a `title`:

- a cell tagged `check` holds plain asserts. Students see it after the question, and it is repeated
  as a test that counts. Of these alone otter shows a student on Gradescope whether they pass.
- any other cell holds one function, `test_something(the student's functions)`, and stays hidden.

Into every hidden test go `assignments/guard.py` and the source's cells tagged `given`, so that no
test trusts what a submission may have changed, and those tagged `secret`, which no student sees.
`wrong/*.py` are wrong answers, for the tests.

Everybody can read these sources. Where the environment has ASSIGNMENTS_SECRET, hidden tests draw other
inputs: `SEED`, which sources may use in their secret cells, comes from it. Without a secret it is 0.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jupytext
import nbformat
import yaml
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_raw_cell

ROOT = Path(__file__).resolve().parent.parent
ASSIGNMENTS = ROOT / "assignments"
# As seen from here, since it is printed: without the machine's folders.
DEFAULT = Path(os.path.relpath(ROOT / "_build/assignments"))
PUBLISHED = ROOT / "book" / "assignments"  # what students get, the same with any secret
POINTS = 10  # of every assignment
SECONDS = 20  # for one hidden test
HANDED_OUT = "handed_out.json"  # in the zip, for grade.py: the student notebook's code cells
INPUTS = {  # by whether there is a secret
    True: "Hidden tests: your own inputs, from ASSIGNMENTS_SECRET.",
    False: "Hidden tests: the public inputs (no ASSIGNMENTS_SECRET).",
}
ENVIRONMENT = {"dependencies": ["pytorch-cpu>=2.6,<3"]}  # of conda-forge, for Gradescope's image
CONFIG = {
    "init_cell": False,
    "check_all_cell": False,
    "export_cell": False,
    "python_version": "3.11",
    "tests": {"ok_format": False},
    "environment": "environment.yml",
    "generate": {"show_stdout": False, "show_hidden": False, "points_possible": POINTS},
}


def sources(starts: tuple[str, ...] = ("",)) -> list[Path]:
    """The assignments' folders, in order; only those whose name starts so."""
    found = sorted(path.parent for path in ASSIGNMENTS.glob("[0-9][0-9]_*/notebook.py"))
    return [folder for folder in found if folder.name.startswith(starts)]


# The source


@dataclass(frozen=True)
class Hidden:
    """One hidden test: its name, what it is worth, and its function as text."""

    name: str
    points: float
    title: str
    code: str

    @property
    def cell(self) -> NotebookNode:
        """The cell that otter-grader reads."""
        hidden = not self.name.startswith("check_")
        config = {"hidden": hidden, "points": self.points, "failure_message": self.label}
        lines = "\n".join(f"{key}: {json.dumps(value)}" for key, value in config.items())
        marked = f'""" # BEGIN TEST CONFIG\n{lines}\n""" # END TEST CONFIG\n{self.code}'
        return new_code_cell(marked)

    @property
    def label(self) -> str:
        """What a report calls it."""
        return f"{self.name}. {self.title}"


def marker(cell: NotebookNode) -> str:
    """What a raw delimiter cell says, such as BEGIN TESTS; empty for any other cell."""
    found = re.match(r"# (?:BEGIN|END) [A-Z ]+", cell.source) if cell.cell_type == "raw" else None
    return found.group().lstrip("# ").strip() if found else ""


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def defined(code: str) -> list[str]:
    """The functions and classes that a piece of code defines at its top."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in ast.parse(code).body if isinstance(node, kinds)]


def read_source(folder: Path) -> NotebookNode:
    """The source as a notebook; ValueError where a cell is not what this tool understands."""
    notebook = jupytext.read(folder / "notebook.py")
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = NotebookNode(kernelspec=notebook.metadata["kernelspec"])
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:03d}"
        if cell.cell_type == "raw" and not marker(cell):
            raise ValueError(f"{folder.name}, cell {number}: an unknown raw cell, {cell.source!r}.")
    return notebook


def answers(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """The cells that students write, by the function or class that each defines."""
    found, inside = {}, False
    for cell in notebook.cells:
        if marker(cell) in {"BEGIN SOLUTION", "END SOLUTION"}:
            inside = marker(cell) == "BEGIN SOLUTION"
        elif inside:
            found.update(dict.fromkeys(defined(cell.source), cell))
    return found


def hidden(cell: NotebookNode, number: int, given: str, names: list[str]) -> Hidden:
    """The hidden test that a cell of a TESTS block stands for."""
    if "check" in tags(cell):
        used = {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
        name, body = f"check_{number}", cell.source
        takes = [known for known in names if known in used]
    else:
        (function,) = ast.parse(cell.source).body
        if not (isinstance(function, ast.FunctionDef) and function.name.startswith("test_")):
            raise ValueError(f"A hidden test is one function test_*, not {cell.source!r}.")
        name, body = function.name, "\n".join(ast.unparse(line) for line in function.body)
        takes = [argument.arg for argument in function.args.args]
    if not takes or (unknown := set(takes) - set(names)):
        raise ValueError(f"{name} takes {takes or unknown}, which no answer defines.")
    guard = (ASSIGNMENTS / "guard.py").read_text()
    checked = "".join(f", honest({answer}) as {answer}" for answer in takes)
    short = "in_short(), " if "check" in tags(cell) else ""
    missing = (f"assert {a} is not None, 'the notebook does not define {a}'" for a in takes)
    lines = [
        f"def {name}({', '.join(takes)}):",
        textwrap.indent(guard, "    "),
        *(f"    {line}" for line in missing),
        "    refuse_forgery()",
        f"    with {short}deadline({SECONDS}){checked}:",
        textwrap.indent(f"{given}\n{body}", " " * 8),
    ]
    title = cell.metadata["title"]
    if re.search(r'["\\\n]', title):
        raise ValueError(f"The title of {name} must have no quotes or backslashes.")
    return Hidden(name, cell.metadata["points"], title, ast.unparse(ast.parse("\n".join(lines))))


def seed(folder: Path, secret: str) -> int:
    """What shifts the inputs of an assignment's hidden tests; 0 without a secret."""
    name = f"{secret}/{folder.name}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[:4], "big") // 2 if secret else 0


def hidden_tests(notebook: NotebookNode, seed: int = 0) -> Iterator[tuple[NotebookNode, Hidden]]:
    """Each cell of the TESTS blocks, and the hidden test that it stands for."""
    known = [cell.source for cell in notebook.cells if {"given", "secret"} & {*tags(cell)}]
    given = "\n".join([f"SEED = {seed}", *known])
    names, inside, number = list(answers(notebook)), False, 0
    for cell in notebook.cells:
        if marker(cell) in {"BEGIN TESTS", "END TESTS"}:
            inside = marker(cell) == "BEGIN TESTS"
        elif inside and "secret" not in tags(cell):
            number += "check" in tags(cell)
            yield cell, hidden(cell, number, given, names)


def address() -> str:
    """Where the repository lives, as `make publish-config` wrote it down; empty while it has no address."""
    return yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"] or ""


def linked(brief: str, address: str) -> str:
    """The brief with a link to its lesson, where the book's repository has an address."""
    if not address:
        return brief
    return re.sub(r"`(notebooks/\w+\.ipynb)`", rf"[`\1`]({address}/blob/main/\1)", brief)


def master(folder: Path, secret: str = "") -> NotebookNode:
    """The notebook that otter-grader's `assign` reads."""
    notebook = read_source(folder)
    notebook.cells[0].source = linked(notebook.cells[0].source, address())
    made = {id(cell): test for cell, test in hidden_tests(notebook, seed(folder, secret))}
    total = sum(test.points for test in made.values())
    if total != POINTS:
        raise ValueError(f"The tests of {folder.name} give {total} points, not {POINTS}.")
    config = "# ASSIGNMENT CONFIG\n" + json.dumps(CONFIG, indent=2)
    cells, checks = [new_raw_cell(config, id="config")], []
    for cell in notebook.cells:
        if "secret" in tags(cell):
            continue
        if test := made.get(id(cell)):
            if "check" in tags(cell):
                checks.append(new_code_cell(cell.source, id=f"{cell.id}-check"))
            cell = test.cell
        elif marker(cell) == "BEGIN QUESTION":
            cell.source += "\ncheck_cell: false"
        cell.metadata = NotebookNode()
        cells.append(cell)
        if marker(cell) == "END QUESTION":
            cells += checks
            checks = []
    notebook.cells = cells
    return notebook


# What is made of it


def repack(made: Path, archive: Path) -> None:
    """The same zip with its files in order and without times: the same sources give the same bytes."""
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(archive, "w") as new:
        for entry in sorted(old.infolist(), key=lambda entry: entry.filename):
            info = zipfile.ZipInfo(entry.filename)  # of 1980
            info.external_attr, info.create_system = entry.external_attr, 3
            new.writestr(info, old.read(entry), zipfile.ZIP_DEFLATED)


@contextlib.contextmanager
def quiet_kernels(folder: Path) -> Iterator[None]:
    """Kernels that start meanwhile do not warn that they talk over TCP, on this one machine."""
    profile = folder / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text("get_config().Application.log_level = 40\n")
    before = os.environ.get("IPYTHONDIR")
    os.environ["IPYTHONDIR"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("IPYTHONDIR")
        if before is not None:
            os.environ["IPYTHONDIR"] = before


def assign(folder: Path, out: Path, run: bool, secret: str = "") -> tuple[Path, Path]:
    """Let otter-grader make the student notebook and the zip; with `run`, grade the reference."""
    from otter.assign import main

    with tempfile.TemporaryDirectory() as work:
        path = Path(work, f"{folder.name}.ipynb")
        nbformat.write(master(folder, secret), path)
        Path(work, "environment.yml").write_text(yaml.safe_dump(ENVIRONMENT))
        quiet = quiet_kernels(Path(work, "ipython"))
        with contextlib.redirect_stdout(io.StringIO()), quiet:
            main(str(path), str(Path(work, "made")), no_pdfs=True, no_run_tests=not run)
        (made,) = Path(work, "made/autograder").glob("*.zip")
        student = nbformat.read(Path(work, "made/student", path.name), 4)
        code = [cell.source for cell in student.cells if cell.cell_type == "code"]
        with zipfile.ZipFile(made, "a") as zipped:
            zipped.writestr(HANDED_OUT, json.dumps(code, indent=1))
        out.mkdir(parents=True, exist_ok=True)
        target, archive = out / path.name, out / f"{folder.name}_autograder.zip"
        repack(made, archive)
    student.metadata.pop("otter", None)  # all tests run at the end, from the zip
    for number, cell in enumerate(student.cells):
        cell.id, cell.metadata = f"cell-{number:03d}", NotebookNode()
    nbformat.validate(student)
    nbformat.write(student, target)
    return target, archive


def submission(folder: Path, replacement: str = "") -> NotebookNode:
    """A student's notebook with the reference solutions, but for what the replacement defines."""
    notebook = read_source(folder)
    found = answers(notebook)
    wrong = set(defined(replacement))
    if wrong - set(found):
        raise ValueError(f"{folder.name} has no answer {sorted(wrong - set(found))}.")
    for name in wrong:
        found[name].source = replacement
    never = {id(cell) for cell, _ in hidden_tests(notebook) if "check" not in tags(cell)}
    never |= {id(c) for c in notebook.cells if c.cell_type == "raw" or "secret" in tags(c)}
    notebook.cells = [copy.deepcopy(cell) for cell in notebook.cells if id(cell) not in never]
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
    return notebook


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: the score that it must get, and the hidden test that must fail."""

    path: Path
    score: float
    fails: str
    code: str


def wrongs(folder: Path) -> list[Wrong]:
    """The wrong answers beside a source."""
    found = []
    for path in sorted((folder / "wrong").glob("*.py")):
        code = path.read_text()
        said = re.search(r"^# score: ([\d.]+)  fails: (\w+)$", code, re.M)
        if said is None:
            raise ValueError(f"{path.name} must say `# score: N  fails: NAME`.")
        found.append(Wrong(path, float(said[1]), said[2], code))
    return found


def test_files(archive: Path, folder: Path) -> list[Path]:
    """The tests of an autograder zip, unpacked into a folder."""
    with zipfile.ZipFile(archive) as packed:
        names = sorted(n for n in packed.namelist() if re.fullmatch(r"tests/[^/]+\.py", n))
        return [Path(packed.extract(name, folder)) for name in names]


def main() -> int:
    parser = argparse.ArgumentParser(description="Make student notebooks and autograder zips.")
    parser.add_argument("names", nargs="*", help="only assignments whose folder starts so")
    parser.add_argument("--out", type=Path, default=DEFAULT)
    parser.add_argument("--no-run", action="store_true", help="do not grade the reference solution")
    options = parser.parse_args()
    folders = sources(tuple(options.names) or ("",))
    if not folders:
        parser.error(f"no assignment's folder starts with {' or '.join(options.names)}")
    secret = os.environ.get("ASSIGNMENTS_SECRET", "")
    for folder in folders:
        student, archive = assign(folder, options.out, not options.no_run, secret)
        solution = options.out / f"{folder.name}_solution.ipynb"
        nbformat.write(submission(folder), solution)
        PUBLISHED.mkdir(exist_ok=True)
        shutil.copy(student, PUBLISHED)
        print(f"{folder.name}: {student.name} for students, {archive.name} for the grader")
    print(f"They are in {options.out}, with a solution of each.")
    print(INPUTS[bool(secret)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
