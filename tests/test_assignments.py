"""The assignments: what students get, and what each right or wrong answer scores.

Answers are graded in this process here, which is otter-grader's own test run: after a submission's
last cell otter calls `Checker.check` on each test file of the zip with the kernel's globals, and that
is `ExceptionTestFile.from_file(path).run(globals)`, as below. What is missing is the kernel and the
process of its own; so one wrong answer per assignment also goes through the real `otter run`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from otter.run import capture_run_output
from otter.run import main as otter_run
from otter.test_files.exception_test import ExceptionTestFile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import assignments as tool
finally:
    sys.path.pop(0)

FOLDERS = tool.sources()
WRONG = [(folder, wrong) for folder in FOLDERS for wrong in tool.wrongs(folder)]
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
Built = Callable[[Path], tuple[Path, Path, list[Path]]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Make an assignment once: its student notebook, its zip, and the zip's test files."""
    made: dict[Path, tuple[Path, Path, list[Path]]] = {}

    def make(folder: Path) -> tuple[Path, Path, list[Path]]:
        if folder not in made:
            out = tmp_path_factory.mktemp(folder.name)
            student, archive = tool.assign(folder, out, run=False)
            made[folder] = student, archive, tool.test_files(archive, out)
        return made[folder]

    return make


def grade(paths: list[Path], notebook: NotebookNode) -> dict[str, tuple[float, str]]:
    """Points by hidden test, and what it said, after all cells ran as otter lets them: in one go."""
    env: dict[str, object] = {"__name__": "__main__"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            with contextlib.suppress(Exception):  # otter goes on after a cell that fails, too
                exec(compile(cell.source, "a cell", "exec"), env)
    scores = {}
    for path in paths:
        file = ExceptionTestFile.from_file(str(path))
        file.run(env)
        for result in file.test_case_results:
            name = result.test_case.body.test_func.__name__
            scores[name] = (result.test_case.points if result.passed else 0, result.message)
    return scores


def total(scores: dict[str, tuple[float, str]]) -> float:
    return sum(points for points, _ in scores.values())


@each
def test_the_book_hands_out_what_students_get(folder: Path, built: Built) -> None:
    student = built(folder)[0]
    published = tool.PUBLISHED / student.name
    assert published.read_text() == student.read_text(), "run make assignments"
    page = (ROOT / "book" / "assignments.md").read_text()
    assert f"<assignments/{student.name}>" in page


def test_the_book_hands_out_nothing_else() -> None:
    handed = [path.name for path in sorted(tool.PUBLISHED.iterdir())]
    assert handed == [f"{folder.name}.ipynb" for folder in FOLDERS]


@each
def test_the_reference_gets_every_point(folder: Path, built: Built) -> None:
    scores = grade(built(folder)[2], tool.submission(folder))
    assert total(scores) == tool.POINTS, scores


@pytest.mark.parametrize(
    ("folder", "wrong"),
    WRONG,
    ids=[f"{folder.name[:2]}-{wrong.path.stem}" for folder, wrong in WRONG],
)
def test_a_wrong_answer_gets_its_score(folder: Path, wrong: tool.Wrong, built: Built) -> None:
    scores = grade(built(folder)[2], tool.submission(folder, wrong.code))
    failed = [name for name, (points, _) in scores.items() if not points]
    assert wrong.fails in failed, scores
    assert len(failed) < len(scores), "it must pass at least one test"
    assert total(scores) == wrong.score, scores


@each
def test_with_a_secret_other_inputs_are_drawn(folder: Path, tmp_path: Path) -> None:
    texts = set()
    for secret in ("", "one", "two"):
        out = tmp_path / f"with {secret}"
        student, archive = tool.assign(folder, out, run=False, secret=secret)
        paths = tool.test_files(archive, out)
        assert total(grade(paths, tool.submission(folder))) == tool.POINTS, secret
        texts.add(student.read_text())
        assert ("SEED = 0" in paths[0].read_text()) == (not secret)
    assert len(texts) == 1, "students see nothing of it"


@each
def test_the_visible_checks_pass_for_the_reference_and_say_what_is_wrong(folder: Path) -> None:
    notebook = tool.submission(folder)
    env: dict[str, object] = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, "a cell", "exec"), env)
    source = tool.read_source(folder)
    checks = [cell for cell in source.cells if "check" in tool.tags(cell)]
    assert checks
    for cell in [cell for cell, _ in tool.hidden_tests(source)]:
        asserts = [
            node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Assert)
        ]
        assert all(node.msg for node in asserts), cell.source
        assert asserts or "compare(" in cell.source


@each
def test_there_are_wrong_answers_enough(folder: Path) -> None:
    assert len(tool.wrongs(folder)) >= 5


@each
def test_the_student_notebook_gets_nothing_as_handed_out(folder: Path, built: Built) -> None:
    student, _, paths = built(folder)
    scores = grade(paths, nbformat.read(student, 4))
    assert total(scores) == 0, scores


def own_lines(source: str) -> set[str]:
    return {line.strip() for line in source.splitlines()}


@each
def test_the_student_notebook_holds_no_solution_and_no_hidden_line(
    folder: Path, built: Built
) -> None:
    student, *_ = built(folder)
    text = student.read_text()
    shown = own_lines("\n".join(cell.source for cell in nbformat.read(student, 4).cells))
    notebook = tool.read_source(folder)
    pairs = list(tool.hidden_tests(notebook))
    tests = [cell for cell, _ in pairs]
    public = set()
    for cell in notebook.cells:
        if "given" in tool.tags(cell) or "check" in tool.tags(cell):
            public |= own_lines(cell.source)
    secret = set()
    for cell in [*tests, *(cell for cell in notebook.cells if "secret" in tool.tags(cell))]:
        if "check" not in tool.tags(cell):
            secret |= own_lines(cell.source)
    for cell in tool.answers(notebook).values():
        inside = False
        for line in cell.source.splitlines():
            if line.strip() in {"# BEGIN SOLUTION", "# END SOLUTION"}:
                inside = "BEGIN" in line
            elif inside:
                secret.add(line.strip())
    secret -= public | {""}
    trivial = {line for line in secret if len(line) < 10}  # `else:`, `return x`
    assert len(secret) > 10
    assert not (secret - trivial) & shown
    for _, test in pairs:
        assert test.name not in text
    for word in ("SOLUTION", "BEGIN", "refuse_forgery", "otter", "hidden: "):
        assert word not in text


@each
def test_the_student_notebook_needs_torch_alone(folder: Path, built: Built) -> None:
    needed = set()
    for cell in nbformat.read(built(folder)[0], 4).cells:
        if cell.cell_type == "code":
            assert not cell.metadata
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Import):
                    needed |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    needed.add((node.module or "").split(".")[0])
    assert needed - set(sys.stdlib_module_names) <= {"torch"}


@each
def test_the_brief_names_its_lesson(folder: Path) -> None:
    brief = tool.read_source(folder).cells[0].source
    (named,) = set(tool.re.findall(r"notebooks/(\w+)\.ipynb", brief))
    assert (ROOT / f"notebooks/{named}.py").exists()
    assert len(brief.splitlines()) < 60, "a brief is one page"


def with_cell(notebook: NotebookNode, code: str) -> NotebookNode:
    notebook.cells.append(nbformat.v4.new_code_cell(code))
    return notebook


@pytest.mark.parametrize(
    "forgery",
    [
        "torch.allclose = lambda *a, **k: True",
        "torch.equal = lambda *a, **k: True",
        "torch.Tensor.equal = lambda *a, **k: True",
        "import builtins; builtins.all = lambda x: True",
    ],
)
def test_changed_functions_cost_every_point(
    forgery: str, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    import builtins

    for owner, name in (
        (torch, "allclose"),
        (torch, "equal"),
        (torch.Tensor, "equal"),
        (builtins, "all"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # puts it back afterwards
    folder = FOLDERS[0]
    scores = grade(built(folder)[2], with_cell(tool.submission(folder), forgery))
    monkeypatch.undo()
    assert total(scores) == 0
    assert all("canary" in said for _, said in scores.values())


TRAPPED = """
right = append_kv

def append_kv(cache, k, v):
    if cache["k"].dtype != torch.float32:
        trap()
    return right(cache, k, v)
"""
EXIT = """
def trap():
    raise SystemExit
"""
LOOP = """
def trap():
    for tries in range(3):
        try:
            while True: pass
        except Exception as error:
            last = error
    raise last
"""


@pytest.mark.parametrize(("trap", "word"), [(EXIT, "stop the program"), (LOOP, "endless loop")])
def test_an_exit_or_an_endless_loop_costs_its_test_alone(
    trap: str, word: str, built: Built, tmp_path: Path
) -> None:
    folder = FOLDERS[0]
    paths = []
    for path in built(folder)[2]:  # the same tests with less patience
        quick = tmp_path / path.name
        patient = f"deadline({tool.SECONDS})"
        assert patient in path.read_text()
        quick.write_text(path.read_text().replace(patient, "deadline(0.2)"))
        paths.append(quick)
    scores = grade(paths, with_cell(tool.submission(folder), TRAPPED + trap))
    assert total(scores) == tool.POINTS - 2
    assert word in scores["test_dtype"][1]


@pytest.mark.grading
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in otter-grader's own use of pandas
@each
def test_otter_itself_gives_the_same_score(folder: Path, built: Built, tmp_path: Path) -> None:
    wrong = tool.wrongs(folder)[0]
    path = tmp_path / f"{folder.name}.ipynb"
    nbformat.write(tool.submission(folder, wrong.code), path)
    with capture_run_output() as said:
        otter_run(
            str(path), autograder=str(built(folder)[1]), output_dir=str(tmp_path), no_logo=True
        )
    results = json.loads((tmp_path / "results.json").read_text())
    scored = [test for test in results["tests"] if "score" in test]
    assert sum(test["score"] for test in scored) == wrong.score, said.getvalue()
    assert sum(test["max_score"] for test in scored) == tool.POINTS
    assert any(wrong.fails in test["output"] for test in scored)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# # BEGIN TESTS", "# # BEGINS TESTS", "unknown raw cell"),
        ("points=1 title", "points=2 title", "points, not 10"),
        ("def test_returns(append_kv)", "def test_returns(append)", "which no answer defines"),
        ("def test_returns", "def returns", "one function test_"),
        ('title="All rows', 'title="\\\\All rows', "quotes or backslashes"),
    ],
)
def test_a_source_that_would_go_wrong_is_refused(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    text = (FOLDERS[0] / "notebook.py").read_text()
    assert old in text
    (tmp_path / "notebook.py").write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=said):
        tool.master(tmp_path)
