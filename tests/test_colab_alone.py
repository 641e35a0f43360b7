"""Each lesson's notebook alone, in an empty folder, in an environment that holds what Colab brings.

The environments are made afresh, the second like the first but with ipywidgets 8. Their torch is the
pinned one, linked file by file with its metadata, so that pip sees it as installed; all else comes from
the pip of this machine. No path leads from them to
this folder or to the pinned environment: kvbook can only come from the setup cell, which installs it from
a Git address, here a local one. HOME is new, and there is no GPU.

Two lessons run whole, one in each environment; of the others the setup cell and the imports run. With
KVBOOK_ALONE=all in the environment every lesson runs whole in both.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution, version
from pathlib import Path

import nbformat
import pytest

from kvbook.models.cache import cache_folder

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
COLAB = [  # what it brings: the versions that matter, others as they go with them
    *("numpy<2.2", "matplotlib<3.11", "ipywidgets==7.7.1", "ipykernel<7", "ipython<8"),
    *("notebook<7", "jupyter-client<8", "traitlets<5.8", "nbclient<0.11"),
]
KINDS = {"ipywidgets 7.7.1": [], "ipywidgets 8": ["ipywidgets==8.*"]}  # the second: with these
RUNS = [("ipywidgets 7.7.1", "03_cost"), ("ipywidgets 8", "05_users")]
if os.environ.get("KVBOOK_ALONE") == "all":
    RUNS = [(kind, path.stem) for kind in KINDS for path in NOTEBOOKS]

RUN = """
import sys
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError
for turn in range(3):  # on a busy machine a kernel of these versions may miss a message, and wait for ever
    notebook = nbformat.read(sys.argv[1], 4)
    try:
        NotebookClient(notebook, timeout=150, kernel_name="python3").execute()
        break
    except CellTimeoutError:
        if turn == 2:
            raise
nbformat.write(notebook, sys.argv[1])
"""
GUARD = (ROOT / "tests/stores_only.py").read_text() + "\nStoresOnly().__enter__()"

pytestmark = pytest.mark.colab


def imports(notebook: nbformat.NotebookNode) -> list[str]:
    """The import statements at the top of a notebook's code cells."""
    trees = [ast.parse(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    nodes = [node for tree in trees for node in tree.body]
    return [ast.unparse(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Git address of this folder as it stands: what pip may need of it, committed."""
    copy = tmp_path_factory.mktemp("repository")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("kvbook", "measurements"):
        ignored = shutil.ignore_patterns("__pycache__", "*mine.json")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    nobody = ["-c", "user.name=nobody", "-c", "user.email=nobody", "-c", "commit.gpgsign=false"]
    for command in (["init"], ["add", "."], [*nobody, "commit", "--message", "as it stands"]):
        subprocess.run(["git", *command], cwd=copy, check=True, capture_output=True)
    return copy.as_uri()


def environment(home: Path) -> dict[str, str]:
    """Few variables: a new HOME, pip as it is configured here, and the model where it lies."""
    network = re.compile("PIP_.*|SSL_.*|REQUESTS_.*|.*_PROXY|LANG", re.I)
    kept = {name: value for name, value in os.environ.items() if network.fullmatch(name)}
    pip = [sys.executable, "-m", "pip", "cache", "dir"]
    kept["PIP_CACHE_DIR"] = subprocess.run(pip, capture_output=True, text=True).stdout.strip()
    if (own := Path.home() / ".config/pip/pip.conf").exists():
        kept["PIP_CONFIG_FILE"] = str(own)
    git = Path(shutil.which("git") or "git").parent
    path = os.pathsep.join([str(git), os.defpath])
    fixed = {"HOME": str(home), "PATH": path, "KVBOOK_CACHE": str(cache_folder())}
    return {**kept, **fixed, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def linked(source: str | Path, place: str | Path) -> None:
    """The file at another place: as a link, or as a copy where links cannot be."""
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)


def link_torch(target: Path) -> None:
    """Every file of the installed torch, as a link, or as a copy where links cannot be."""
    torch = distribution("torch")
    for file in torch.files or []:
        source, place = Path(str(torch.locate_file(file))), target / file
        if ".." in file.parts or file.suffix == ".pyc" or not source.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        linked(source, place)


class Alone:
    """A fresh environment without kvbook."""

    def __init__(self, folder: Path, like: Alone | None, brings: list[str]) -> None:
        """In this folder; like another, link by link, if there is one, with these packages."""
        self.python = folder / "env/bin/python"
        if like is None:
            subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        else:
            source = like.python.parent.parent
            shutil.copytree(source, folder / "env", symlinks=True, copy_function=linked)
        (self.packages,) = (folder / "env/lib").glob("python*/site-packages")
        (folder / "home").mkdir()
        self.variables = environment(folder / "home")
        if like is None:
            link_torch(self.packages)
            brings = [f"torch=={version('torch')}", *brings]
        if brings:
            self.run(folder, "-m", "pip", "install", "--quiet", "--no-compile", *brings)

    def run(self, folder: Path, *arguments: str) -> str:
        """Run Python there; its output."""
        done = subprocess.run(
            [self.python, *arguments],
            cwd=folder,
            env=self.variables,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        return done.stdout

    def state(self) -> dict[str, object]:
        """Every package's version, and which files torch and numpy are."""
        listed = json.loads(self.run(self.packages, "-m", "pip", "list", "--format", "json"))
        files = [self.packages / name / "__init__.py" for name in ("torch", "numpy")]
        found: dict[str, object] = {path.parent.name + " file": path.stat()[1] for path in files}
        return {**found, **{entry["name"]: entry["version"] for entry in listed}}


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Alone]:
    """One of each kind, each without kvbook, made from the same first one."""
    first = Alone(tmp_path_factory.mktemp("colab"), None, COLAB)
    return {
        kind: Alone(tmp_path_factory.mktemp("alone"), first, brings)
        for kind, brings in KINDS.items()
    }


@pytest.fixture(params=KINDS)
def alone(request: pytest.FixtureRequest, environments: dict[str, Alone]) -> Alone:
    return environments[request.param]


def setup_of(notebook: nbformat.NotebookNode, address: str) -> nbformat.NotebookNode:
    """The notebook's own setup cell, with this address in it."""
    (cell,) = (cell for cell in notebook.cells if cell.get("id") == "setup")
    assert notebook.cells.index(cell) == 1
    lines = [line for line in cell.source.splitlines() if line.startswith("REPOSITORY = ")]
    assert len(lines) == 1
    cell.source = cell.source.replace(lines[0], f'REPOSITORY = "{address}"')
    return cell


def test_the_setup_cell_brings_kvbook_and_replaces_nothing(
    alone: Alone, address: str, tmp_path: Path
) -> None:
    before = alone.state()
    assert "kvbook" not in before
    cell = setup_of(nbformat.read(NOTEBOOKS[0], 4), address)
    said = alone.run(tmp_path, "-c", cell.source + "\nimport kvbook\nprint(kvbook.__file__)")
    assert said.splitlines()[-1].startswith(str(alone.packages))
    after = alone.state()
    assert after.pop("kvbook")
    assert {name: after[name] for name in before} == before
    assert alone.run(tmp_path, "-c", cell.source) == ""  # the second time it has nothing to do
    assert list(tmp_path.iterdir()) == []


def test_every_lesson_finds_its_modules_and_the_records(
    alone: Alone, address: str, tmp_path: Path
) -> None:
    notebooks = [nbformat.read(path, 4) for path in NOTEBOOKS]
    (setup,) = {setup_of(notebook, address).source for notebook in notebooks}  # one for all
    lines = [setup, *(line for notebook in notebooks for line in imports(notebook))]
    lines.append("from kvbook.measure import record\nprint(sorted(record.book_folder().iterdir()))")
    said = alone.run(tmp_path, "-c", "\n".join(lines))
    kept = [path.name for path in (ROOT / "measurements").iterdir() if "mine" not in path.name]
    assert all(name in said for name in kept)


@pytest.mark.parametrize(("alone", "name"), RUNS, indirect=["alone"])
def test_a_lesson_runs_whole(alone: Alone, address: str, tmp_path: Path, name: str) -> None:
    path = ROOT / "notebooks" / f"{name}.ipynb"
    notebook = nbformat.read(path, 4)
    setup_of(notebook, address)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    guard = nbformat.v4.new_code_cell(GUARD)
    notebook.cells.insert(2, guard)
    nbformat.write(notebook, tmp_path / path.name)
    alone.run(tmp_path, "-c", RUN, path.name)
    assert [left.name for left in tmp_path.iterdir()] == [path.name]
