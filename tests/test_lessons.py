"""What every page's source and notebook must be like, and what each exported module may need."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
PAGES = [*LESSONS, ROOT / "book" / "index.ipynb"]
MODULES = sorted(p for p in (ROOT / "kvbook/lessons").glob("*.py") if p.stem != "__init__")

TAGS = {
    "export",
    "hide-input",
    "remove-cell",
    "remove-input",
    "remove-output",
    "raises-exception",
    "nbval-ignore-output",
}
# Cells whose output is a time, a rate, a device or a live widget: page, and how the cell begins.
IGNORED = [
    ("01_decoder", "temperature_slider = "),
    ("01_decoder", "times = {"),
    ("01_decoder", "moves = ["),
    ("02_cache", "whole = ["),
    ("02_cache", "held = PreallocatedCache("),
    ("02_cache", "reading = median_ms("),
    ("02_cache", "context_slider = "),
    ("02_cache", "context_slider.value"),
    ("04_measure", "start = resident_nbytes("),
    ("04_measure", "print(cuda_nbytes()"),
    ("04_measure", "names = ("),
    ("04_measure", "for (kind, context), found in steps.items():\n    low"),
    ("04_measure", 'for batch, found in frontier:\n    print(f"batch {batch}: the last'),
    ("04_measure", "sliders = {"),
    ("04_measure", 'sliders["context"].value'),
    ("05_users", "context_slider = "),
    ("05_users", "context_slider.value"),
    ("06_roofline", "threads = f"),
    ("06_roofline", 'print(f"measured: decode'),
    ("06_roofline", 'print("measured: one sequence'),
    ("07_gqa", 'print(f"ms for one token'),
    ("07_gqa", 'print(f"held-out loss'),  # of a training: its last digits
    ("07_gqa", "for name, runs in steps.items():"),
    ("07_gqa", "heads_slider = "),
    ("07_gqa", "heads_slider.value = 9"),
    ("08_quantized", "near = "),
    ("08_quantized", 'print("this run, 256 tokens'),
    ("08_quantized", 'ways = {\n    "float32'),
    ("08_quantized", "format_choice = "),
    ("08_quantized", "format_choice.value"),
    ("10_paged", "for (_, _, seconds), name"),
    ("10_paged", "for what, times in"),
    ("10_paged", "sliders = {"),
    ("10_paged", 'sliders["block_size"].value'),
    ("09_window", "window_slider = "),
    ("09_window", "sinks_slider.value"),
]
BONES = [
    "What you need",
    "Predict",
    "Build",
    "Measure",
    "Explore",
    "Check yourself",
    "What changed",
    "Next",
]
MYST = re.compile(r"(^|\s)(\{[a-z:-]+\}`|:::+\s*\{|```\{)", re.M)

pages = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
lessons = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def tags(cell: nbformat.NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def test_there_are_lessons() -> None:
    assert LESSONS
    assert MODULES


@pages
def test_executed_once_from_top_to_bottom(path: Path) -> None:
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells)
    assert not any("execution" in cell.metadata for cell in cells)


@pages
def test_no_error_and_no_warning_is_stored(path: Path) -> None:
    for cell in code_cells(path):
        for output in cell.outputs:
            if output.output_type == "error":
                assert "raises-exception" in tags(cell), cell.source
            assert output.get("name") != "stderr", output.text


@pages
def test_only_the_agreed_tags(path: Path) -> None:
    assert set().union(*(tags(cell) for cell in nbformat.read(path, 4).cells)) <= TAGS


PYTHON = [*(ROOT / "notebooks").glob("*.py"), *(ROOT / "kvbook").rglob("*.py")]


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.stem)
def test_numbers_are_formatted_as_python_3_10_can(path: Path) -> None:
    """A `z` in a format, for no "-0.0", came with 3.11; the package and the lessons run on 3.10."""
    specs = [
        part.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue) and node.format_spec
        for part in node.format_spec.values
        if isinstance(part, ast.Constant)
    ]
    assert not [spec for spec in specs if re.match(r"(.?[<>=^])?[-+ ]?z", spec)]


def test_cells_whose_output_is_not_compared_are_listed_and_asserted_after() -> None:
    found = []
    for path in PAGES:
        cells = code_cells(path)
        for cell, following in zip(cells, [*cells[1:], None], strict=True):
            if "nbval-ignore-output" in tags(cell):
                begins = [start for page, start in IGNORED if page == path.stem]
                found += [(path.stem, start) for start in begins if cell.source.startswith(start)]
                assert following is not None, cell.source
                assert "assert" in following.source, cell.source
                assert "nbval-ignore-output" not in tags(following), cell.source
            elif "remove-output" in tags(cell):
                pytest.fail(f"a live widget's cell must not be compared either: {cell.source}")
    assert sorted(found) == sorted(IGNORED)


@pages
def test_markdown_reads_well_without_myst(path: Path) -> None:
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "markdown":
            assert not MYST.search(cell.source), cell.source


@pages
def test_cells_are_short(path: Path) -> None:
    for cell in code_cells(path):
        limit = 45 if "export" in tags(cell) or "hide-input" in tags(cell) else 25
        assert len(cell.source.splitlines()) <= limit, cell.source


@pages
def test_figures_say_in_words_what_they_show(path: Path) -> None:
    for cell in code_cells(path):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 40, cell.source


@pages
def test_stored_widgets_are_those_that_the_page_shows(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    views = [
        output.data["application/vnd.jupyter.widget-view+json"]["model_id"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "application/vnd.jupyter.widget-view+json" in output.get("data", {})
    ]
    saved = notebook.metadata.get("widgets")
    if not views:
        assert saved is None
        return
    state = saved["application/vnd.jupyter.widget-state+json"]["state"]
    assert set(views) <= set(state)
    for view in views:
        assert state[view]["model_module"] == "anywidget", "a published page has no kernel"
        assert "_esm" in state[view]["state"]


@pages
def test_no_output_names_a_place_on_this_machine(path: Path) -> None:
    body = json.dumps([cell.outputs for cell in code_cells(path)])
    for place in (str(ROOT.parent), str(Path.home()), "/tmp/"):
        assert place + "/" not in body


@lessons
def test_a_lesson_has_its_bones_in_order(path: Path) -> None:
    text = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown")
    assert re.match(r"# Lesson \d+ — ", text)
    assert "**The question.**" in text
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert [heading for heading in headings if heading in BONES] == BONES


def answers(path: Path) -> list[str]:
    """The Python code inside a lesson's folded answers."""
    text = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "markdown")
    folds = re.findall(r"<details>(.*?)</details>", text, re.S)
    return [code for fold in folds for code in re.findall(r"```python\n(.*?)```", fold, re.S)]


@lessons
def test_the_code_of_the_folded_answers_runs(path: Path) -> None:
    found = answers(path)
    assert found
    for code in found:
        assert "assert" in code, code
        exec(compile(code, f"an answer of {path.stem}", "exec"), {"__name__": "__answer__"})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_an_exported_module_needs_torch_and_kvbook_alone(path: Path) -> None:
    needed = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            needed.add(node.module or "")
    foreign = {name for name in needed if name.split(".")[0] not in sys.stdlib_module_names}
    assert all(
        re.match(r"torch(\.|$)|kvbook\.(lessons|accounting)(\.|$)", name) for name in foreign
    )

    blocked = ["gguf", "tokenizers", "transformers", "anywidget", "ipywidgets", "matplotlib"]
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
        f"import kvbook.lessons.{path.stem}"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_the_decoder_is_read_in_one_sitting() -> None:
    lines = (ROOT / "kvbook/lessons/decoder.py").read_text().splitlines()
    assert len(lines) < 200


def test_every_data_file_is_named_by_a_module() -> None:
    """The fingerprint of a notebook finds data by the literals that name it; see tools/lessons.py."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import lessons as tool
    finally:
        sys.path.pop(0)
    package = ROOT / "kvbook"
    named = {
        found
        for module in package.rglob("*.py")
        for found in tool.named_files(ast.parse(module.read_text()), module.parent)
    }
    data = {
        path
        for path in package.rglob("*")
        if path.is_file()
        and path.suffix not in {".py", ".md", ".pyc"}
        and "src" not in path.relative_to(package).parts
    }
    assert data
    assert data <= named
