"""The assignments: what students get, and what each right or wrong answer scores.

Answers are graded in this process here, which is otter-grader's own test run: after a submission's
last cell otter calls `Checker.check` on each test file of the zip with the kernel's globals, and that
is `ExceptionTestFile.from_file(path).run(globals)`, as below. What is missing is the kernel and the
process of its own; so one wrong answer per assignment also goes through the real `otter run`.

Three kinds of answer lie beside each assignment's source, each file or entry with a line on what it is:

- `wrong/*.py`: a whole wrong answer, with the score that it must get and a test that must fail;
- `wrong/slips.txt`: the reference with one slip, as lines to take out (`- `) and to put in (`+ `);
- `right/*.py`: another right answer, written differently from the reference.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import inspect
import json
import re
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


def reference(folder: Path) -> str:
    """The cell that students write, with its solution."""
    (cell,) = {id(cell): cell for cell in tool.answers(tool.read_source(folder)).values()}.values()
    return cell.source


def slips(folder: Path) -> list[tool.Wrong]:
    """The reference with one slip each, as `wrong/slips.txt` lists them."""
    path, found = folder / "wrong" / "slips.txt", []
    for entry in re.split(r"\n{2,}", path.read_text().strip()):
        name, said, *lines = entry.splitlines()
        head = re.fullmatch(r"# (\w+): .+", name)
        scored = re.fullmatch(r"# score: ([\d.]+)  fails: (\w+)", said)
        assert head, f"{folder.name}: a slip begins with its name and what is wrong, not {name!r}"
        assert scored, f"{folder.name}: {said!r}"
        code, kinds = reference(folder), "".join(line[0] for line in lines)
        assert re.fullmatch(r"(-+\++)+", kinds), f"{folder.name}, {head[1]}: lines out, lines in"
        for hunk in re.finditer(r"(-+)(\++)", kinds):
            old, new = (
                "\n".join(line[2:] for line in lines[slice(*hunk.span(side))]) for side in (1, 2)
            )
            assert code.count(old) == 1, f"{folder.name}, {head[1]}: {old!r} must stand there once"
            code = code.replace(old, new)
        found.append(tool.Wrong(path.parent / head[1], float(scored[1]), scored[2], code))
    return found


WRONG = [(folder, wrong) for folder in FOLDERS for wrong in tool.wrongs(folder) + slips(folder)]
RIGHT = [(folder, path) for folder in FOLDERS for path in sorted(folder.glob("right/*.py"))]
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


@pytest.mark.parametrize(
    ("folder", "path"),
    RIGHT,
    ids=[f"{folder.name[:2]}-{path.stem}" for folder, path in RIGHT],
)
def test_a_right_answer_written_differently_gets_every_point(
    folder: Path, path: Path, built: Built
) -> None:
    scores = grade(built(folder)[2], tool.submission(folder, path.read_text()))
    assert total(scores) == tool.POINTS, scores


@each
def test_there_are_other_right_answers(folder: Path) -> None:
    assert sum(where == folder for where, _ in RIGHT) >= 2


@each
def test_students_see_nothing_of_a_secret(folder: Path, built: Built, tmp_path: Path) -> None:
    student, archive = tool.assign(folder, tmp_path, run=False, secret="one")
    paths = tool.test_files(archive, tmp_path)
    assert total(grade(paths, tool.submission(folder))) == tool.POINTS
    assert student.read_text() == built(folder)[0].read_text()
    assert "SEED = 0" in built(folder)[2][0].read_text()
    assert "SEED = 0" not in paths[0].read_text()


HiddenTests = dict[str, Callable[..., None]]


def seeded(folder: Path) -> tuple[HiddenTests, dict[str, object]]:
    """The hidden tests with a seed that can be set afterwards, and the variable that holds it."""
    marker, env = 987_654_321, dict[str, object]()
    for _, test in tool.hidden_tests(tool.read_source(folder), marker):
        assert test.code.count(f"SEED = {marker}") == 1
        exec(test.code.replace(f"SEED = {marker}", "SEED = DRAWN"), env)
    return {name: made for name, made in env.items() if inspect.isfunction(made)}, env


def solved(folder: Path) -> dict[str, object]:
    """What the cells of a right submission define."""
    env: dict[str, object] = {}
    for cell in tool.submission(folder).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, "a cell", "exec"), env)
    return env


@each
def test_the_reference_gets_every_point_with_any_secret(folder: Path) -> None:
    tests, env = seeded(folder)
    known = solved(folder)
    for number in range(10 if folder.name == "03_generate" else 30):  # that one takes its time
        env["DRAWN"] = tool.seed(folder, f"secret {number}")
        for name, test in tests.items():
            try:
                test(*(known[taken] for taken in inspect.signature(test).parameters))
            except Exception as error:
                pytest.fail(f"{folder.name}, {name}, secret {number}: {error!r}")


def digest(value: object) -> str:
    """What a value holds, as text."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)} {value.tolist()}"
    if isinstance(value, dict):
        return str({name: digest(held) for name, held in value.items()})
    if isinstance(value, (list, tuple)):
        return str([digest(held) for held in value])
    return digest(vars(value)) if hasattr(value, "__dict__") else repr(value)


def watched(answer: object, seen: list[str]) -> object:
    """The same function or class, which also notes what it is given."""

    def noting(function: Callable[..., object], skip: int) -> Callable[..., object]:
        def called(*given: object, **named: object) -> object:
            seen.append(digest([*given[skip:], named]))
            return function(*given, **named)

        return called

    if not isinstance(answer, type):
        assert callable(answer)
        return noting(answer, 0)
    own = {name: made for name, made in vars(answer).items() if inspect.isfunction(made)}
    made = {"__init__": answer.__init__, **own}
    return type(answer.__name__, (answer,), {name: noting(f, 1) for name, f in made.items()})


@each
def test_with_a_secret_each_hidden_test_draws_other_inputs(folder: Path) -> None:
    tests, env = seeded(folder)
    known = solved(folder)
    inputs: dict[str, set[str]] = {name: set() for name in tests if not name.startswith("check_")}
    secrets = ("", "one", "two")
    for secret in secrets:
        env["DRAWN"] = tool.seed(folder, secret)
        for name, drawn in inputs.items():
            seen: list[str] = []
            takes = inspect.signature(tests[name]).parameters
            tests[name](*(watched(known[taken], seen) for taken in takes))
            drawn.add(hashlib.sha256("".join(seen).encode()).hexdigest())
    same = [name for name, drawn in inputs.items() if len(drawn) < len(secrets)]
    assert not same, f"{same} get the same inputs with any secret"


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
