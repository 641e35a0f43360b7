"""Carry each page from its text source to its executed notebook, and to the module it exports.

    python tools/lessons.py              what changed: export, update, execute
    python tools/lessons.py --force 01   the same for pages whose name starts with 01, changed or not
    python tools/lessons.py --check      change nothing; exit 1 and name every copy that is stale

A page is `notebooks/NN_name.py` or `book/index.py`, in jupytext's percent format. Beside it lies the
notebook, with outputs. Cells tagged `export` become `kvbook/lessons/name.py`. A notebook records a
fingerprint of all that its outputs depend on: when that differs, the page is executed again.

Two cells stand in notebooks alone. After the title: `tools/setup_cell.py`, which installs kvbook where
it is missing, from `repository.url` in `_config.yml`. At a lesson's end: what it was executed with.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import jupytext
import nbformat
import yaml
from jupytext.combine import combine_inputs_with_outputs
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

ROOT = Path(__file__).resolve().parent.parent
LESSONS = ROOT / "kvbook" / "lessons"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
UNSET = 'REPOSITORY = ""'


def sources() -> list[Path]:
    """The pages' text sources, in the order in which later ones build on earlier ones."""
    return [*sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py")), ROOT / "book" / "index.py"]


def tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def read_source(path: Path) -> NotebookNode:
    """The page as a notebook without outputs, its cells numbered so that ids never change by chance."""
    notebook = jupytext.read(path)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    if "kernelspec" not in notebook.metadata:
        raise ValueError("it does not begin with the kernelspec that the other pages begin with")
    if not (notebook.cells and notebook.cells[0].source.startswith("# ")):
        raise ValueError("its first cell must be its title, text that begins with '# '")
    notebook.metadata = NotebookNode(kernelspec=notebook.metadata["kernelspec"])
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:03d}"
    return notebook


# The cells that stand in notebooks alone


def repository() -> str:
    """The book's address, `repository.url` in _config.yml; empty while it has none."""
    return yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"] or ""


def setup_cell(address: str, shown: bool = True) -> NotebookNode:
    """The cell that installs kvbook from a Git address where it is missing, folded.

    Where the page leaves it out, it is for those who open the notebook elsewhere.
    """
    text = (ROOT / "tools" / "setup_cell.py").read_text().strip()
    assert text.count(UNSET) == 1, f"tools/setup_cell.py must have one line {UNSET}"
    text = text.replace(UNSET, f'REPOSITORY = "{address}"')
    folds = {"cellView": "form", "jupyter": {"source_hidden": True}}  # in Colab, in JupyterLab
    prompt = {"code_prompt_show": "Setup: installs kvbook where it is missing"}
    metadata = {"tags": ["hide-input" if shown else "remove-cell"], "mystnb": prompt, **folds}
    return new_code_cell(text, id="setup", metadata=metadata, execution_count=1)


def versions() -> dict[str, str]:
    """What a page that is executed now is executed with."""
    own = re.search(r'^__version__ = "(.+)"$', (ROOT / "kvbook/__init__.py").read_text(), re.M)
    assert own, "kvbook/__init__.py gives no __version__"
    return {"kvbook": own[1], "torch": version("torch")}


def versions_cell(found: dict[str, str]) -> NotebookNode:
    """The line that says what a lesson was executed with."""
    named = f"kvbook {found['kvbook']} and PyTorch {found['torch']}"
    return new_markdown_cell(f"*This page was executed with {named}.*", id="versions")


def assembled(path: Path, source: NotebookNode, found: dict[str, str]) -> NotebookNode:
    """A page's notebook: its source with the cells that stand in notebooks alone."""
    is_lesson = path.parent.name == "notebooks"
    notebook = copy.copy(source)
    notebook.cells = [source.cells[0], setup_cell(repository(), is_lesson), *source.cells[1:]]
    if is_lesson:
        notebook.cells.append(versions_cell(found))
    return notebook


def own_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells of a notebook that come from its source."""
    return [cell for cell in notebook.cells if cell.get("id") not in ("setup", "versions")]


def restamp(path: Path) -> bool:
    """Give a page's notebook the setup cell of today, outputs kept; whether that changed it."""
    target = path.with_suffix(".ipynb")
    notebook = read_notebook(target)
    if notebook is None:
        return False
    before = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        if cell.get("id") == "setup":
            cell.source = setup_cell(repository()).source
    if before == [cell.source for cell in notebook.cells]:
        return False
    write(target, notebook)
    return True


# Exported modules


def exported(path: Path, notebook: NotebookNode) -> tuple[Path, str] | None:
    """Where a page's `export` cells go, and the module's text; None for a page without such cells."""
    cells = [cell.source.strip() for cell in notebook.cells if "export" in tags(cell)]
    if not cells:
        return None
    first = next(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    title = first.splitlines()[0].lstrip("# ")
    name = path.relative_to(ROOT).as_posix()
    head = f'"""{title}. Generated from {name} by `make lessons`: edit that."""'
    module = LESSONS / f"{path.stem.split('_', 1)[1]}.py"
    gap = "\n\n" if cells[0].startswith(("import ", "from ")) else "\n\n\n"  # as ruff formats it
    return module, head + gap + "\n\n\n".join(cells) + "\n"


# What a page's outputs depend on


def imported(tree: ast.AST) -> Iterator[Path]:
    """The files of the kvbook modules that a piece of code imports, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "kvbook":
                for depth in range(1, len(parts) + 1):
                    base = ROOT.joinpath(*parts[:depth])
                    yield from filter(Path.is_file, (base.with_suffix(".py"), base / "__init__.py"))


def named_files(tree: ast.AST, folder: Path) -> Iterator[Path]:
    """The files that string literals in a piece of code name, relative to a folder."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if re.fullmatch(r"[\w./-]+\.\w+", text) and not text.startswith("/"):
                path = (folder / text).resolve()
                if path.is_file() and path.is_relative_to(ROOT):
                    yield path


def dependencies(code: str, folder: Path) -> list[Path]:
    """Every kvbook module that code reaches, and every data file that it or they name by a literal."""
    tree = ast.parse(code)
    found = {*named_files(tree, ROOT), *named_files(tree, folder)}
    queue = list(imported(tree))
    while queue:
        path = queue.pop()
        if path not in found:
            found.add(path)
            module = ast.parse(path.read_text())
            found.update(named_files(module, path.parent))
            queue.extend(imported(module))
    return sorted(found)


def fingerprint(path: Path, notebook: NotebookNode) -> str:
    """A sha256 over the page's code cells, the kvbook modules they reach, and the data those name."""
    cells = [
        [cell.source, *sorted(tags(cell))] for cell in notebook.cells if cell.cell_type == "code"
    ]
    code = "\n".join(re.sub(r"^[%!].*", "", source, flags=re.M) for source, *_ in cells)
    files = [
        [needed.relative_to(ROOT).as_posix(), hashlib.sha256(needed.read_bytes()).hexdigest()]
        for needed in dependencies(code, path.parent)
    ]
    return hashlib.sha256(json.dumps([cells, files]).encode()).hexdigest()


# Outputs


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run a page from top to bottom and keep its outputs; a cell that fails ends the run."""
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--Application.log_level=40"],  # errors only: it warns that TCP is used
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    notebook.metadata.get("language_info", {}).pop("version", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "remove-output" in tags(cell):
            cell.outputs = []  # a live widget: it means nothing without the kernel that drives it
    keep_shown_widgets(notebook)


def keep_shown_widgets(notebook: NotebookNode) -> None:
    """Drop the state of every widget that no stored output shows."""
    if not (saved := notebook.metadata.get("widgets", {}).get(WIDGET_STATE)):
        return
    queue = [
        output.data[WIDGET_VIEW]["model_id"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if WIDGET_VIEW in output.get("data", {})
    ]
    kept: dict[str, NotebookNode] = {}
    while queue:
        model = queue.pop()
        if model not in kept and model in saved["state"]:
            kept[model] = saved["state"][model]
            queue += re.findall(r"IPY_MODEL_(\w+)", json.dumps(kept[model]))
    if kept:
        saved["state"] = dict(sorted(kept.items()))
    else:
        del notebook.metadata["widgets"]


# The two commands


def same_inputs(one: NotebookNode, other: NotebookNode) -> bool:
    def inputs(notebook: NotebookNode) -> list:
        return [[cell.cell_type, cell.source, dict(cell.metadata)] for cell in notebook.cells]

    return inputs(one) == inputs(other)


def read_notebook(path: Path) -> NotebookNode | None:
    return nbformat.read(path, as_version=4) if path.exists() else None


def export(path: Path) -> None:
    """Write the module that a page exports, where its text has changed."""
    if module := exported(path, read_source(path)):
        target, text = module
        ast.parse(text)  # what is no Python must not take the place of what is
        if not target.exists() or target.read_text() != text:
            put(target, text)
            print(f"{path.relative_to(ROOT)}: wrote {target.relative_to(ROOT)}")


def build(path: Path, force: bool) -> None:
    """Bring one page's notebook up to date, executing it when its fingerprint changed."""
    name = path.relative_to(ROOT)
    source = read_source(path)
    stored = read_notebook(path.with_suffix(".ipynb"))
    known = stored.metadata.get("kvbook", {}) if stored else {}
    current = fingerprint(path, source)
    if force or stored is None or known.get("sha256") != current or "versions" not in known:
        print(f"{name}: executing", flush=True)
        found = versions()
        notebook = assembled(path, source, found)
        execute(notebook, path.parent)
    else:
        found = known["versions"]
        if same_inputs(assembled(path, source, found), stored):
            return
        print(f"{name}: text updated, outputs kept")
        ids = [cell.id for cell in source.cells]
        metadata = stored.metadata
        stored.cells = own_cells(stored)
        source = combine_inputs_with_outputs(source, stored)
        for cell, identifier in zip(source.cells, ids, strict=True):
            cell.id = identifier
        notebook = assembled(path, source, found)
        notebook.metadata = metadata
    notebook.metadata["kvbook"] = {"sha256": current, "versions": found}
    write(path.with_suffix(".ipynb"), notebook)


def write(path: Path, notebook: NotebookNode) -> None:
    """Store a notebook whole or not at all."""
    nbformat.validate(notebook)
    put(path, nbformat.writes(notebook) + "\n")


def put(path: Path, text: str) -> None:
    """Replace a file at once: whoever is stopped leaves the old one or the new one, whole."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def stale(path: Path) -> list[str]:
    """What is out of date for one page, a sentence each."""
    name = path.relative_to(ROOT)
    notebook = read_source(path)
    found = []
    if module := exported(path, notebook):
        target, text = module
        if not target.exists() or target.read_text() != text:
            found.append(f"{target.relative_to(ROOT)} is not what {name} exports")
    stored = read_notebook(path.with_suffix(".ipynb"))
    if stored is None:
        return [*found, f"{name} has no notebook beside it"]
    known = stored.metadata.get("kvbook", {})
    if "versions" not in known:
        return [*found, f"{name.with_suffix('.ipynb')} does not say what it was executed with"]
    if not same_inputs(assembled(path, notebook, known["versions"]), stored):
        found.append(f"the code or text of {name.with_suffix('.ipynb')} is not that of {name}")
    if known.get("sha256") != fingerprint(path, notebook):
        found.append(f"the outputs of {name.with_suffix('.ipynb')} come from other code or data")
    return found


def readable_or_stale(path: Path) -> list[str]:
    """What is out of date for one page, or in a sentence why that cannot be told."""
    try:
        return stale(path)
    except Exception as error:  # whatever a broken file brings: named, and the other pages go on
        return [f"{path.relative_to(ROOT)} or its notebook: {reason(error)}"]


def reason(error: Exception) -> str:
    """What went wrong with a page, in one line."""
    if isinstance(error, CellExecutionError):
        name, text = error.ename, str(error.evalue)
    else:
        name, text = type(error).__name__, str(error)
    line = (text.strip().splitlines() or [""])[0]
    if isinstance(error, SyntaxError) and error.text:
        line = f"{error.msg} in {error.text.strip()!r}"
    return (
        f"a cell fails with {name}: {line}" if name != type(error).__name__ else f"{name}: {line}"
    )


def orphans() -> list[str]:
    """Notebooks and exported modules that no source gives."""
    pages = [path for path in sources() if path.exists()]
    given = {path.with_suffix(".ipynb") for path in pages} | {LESSONS / "__init__.py"}
    given |= {LESSONS / f"{path.stem.split('_', 1)[1]}.py" for path in pages if "_" in path.stem}
    present = [*(ROOT / "notebooks").glob("*.ipynb"), *LESSONS.glob("*.py")]
    return [f"{path.relative_to(ROOT)} has no source" for path in present if path not in given]


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Bring lessons up to date, or check that they are."
    )
    parser.add_argument("names", nargs="*", help="only pages whose file name starts so")
    parser.add_argument("--check", action="store_true", help="change nothing, name what is stale")
    parser.add_argument("--force", action="store_true", help="execute even what did not change")
    options = parser.parse_args()
    pages = [p for p in sources() if not options.names or p.name.startswith(tuple(options.names))]
    if not pages:
        parser.error(f"no page's name starts with {' or '.join(options.names)}")
    if options.check:
        found = [line for path in pages for line in readable_or_stale(path)] + orphans()
        for line in found:
            print(f"stale: {line} (run `make lessons`)", file=sys.stderr)
        return bool(found)
    try:
        for path in pages:  # all before any runs: a page may import what a later one exports
            export(path)
        for path in pages:
            build(path, options.force)
    except Exception as error:  # one page's fault ends the run; what was written before it is whole
        if isinstance(error, CellExecutionError):
            print(error, file=sys.stderr)  # the cell, and where in it
        print(f"kvbook: {path.relative_to(ROOT)}: {reason(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
