"""What a teacher and a student are told, from the real assignments' zips: by the table, and by Gradescope."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml
from grading import autograder, notebook, task
from grading_help import ROOT
from grading_help import notebook as made
from otter.run.run_autograder.autograder_config import AutograderConfig
from otter.test_files import GradingResults
from otter.test_files.exception_test import ExceptionTestFile

sys.path.insert(0, str(ROOT / "tools"))
try:
    import assignments as tool
finally:
    sys.path.pop(0)

APPEND, BYTES, PAGED = (
    ROOT / "assignments" / name for name in ("01_append_kv", "04_bytes", "06_paged")
)


class Built:
    """An assignment, built: its student notebook, its zip as grade.py reads it, and its test files."""

    def __init__(self, folder: Path, out: Path) -> None:
        self.folder = folder
        self.student, self.archive = tool.assign(folder, out, run=False)
        self.zip = autograder.load(self.archive)
        self.paths = tool.test_files(self.archive, out)

    def graded(self, raw: bytes) -> dict:
        """What otter hands to Gradescope for this submission."""
        env: dict[str, object] = {"__name__": "__main__"}
        for cell in json.loads(notebook.prepare(raw, 20))["cells"]:
            if "submission_cell" in cell["metadata"]:
                with contextlib.suppress(Exception):
                    exec(compile(cell["source"], "a cell", "exec"), env)
        files = [ExceptionTestFile.from_file(str(path)) for path in self.paths]
        for file in files:
            file.run(env)
        with zipfile.ZipFile(self.archive) as archive:
            config = AutograderConfig(json.loads(archive.read("otter_config.json")))
        return GradingResults(files).to_gradescope_dict(config)

    def why(self, raw: bytes) -> list[str]:
        """The table's column `reason` for this submission, in its parts."""
        out = json.dumps({"results": self.graded(raw), "errors": []}).encode()
        results = task.believed(out, self.zip.points)
        prepared = notebook.prepare(raw, 20)
        return task.reasons(
            results, self.zip.points, self.zip.labels, prepared, self.zip.handed_out
        )

    def answered(self, *changes: tuple[str, str]) -> bytes:
        """A submission with the reference, changed."""
        (cell,) = tool.answers(tool.read_source(self.folder)).values()
        code = cell.source
        for old, new in changes:
            assert code.count(old) == 1
            code = code.replace(old, new)
        cells = [c.source for c in tool.read_source(self.folder).cells if "given" in tool.tags(c)]
        return made(*cells, code)


@pytest.fixture(scope="module")
def append(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(APPEND, tmp_path_factory.mktemp("append"))


@pytest.fixture(scope="module")
def nbytes(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(BYTES, tmp_path_factory.mktemp("bytes"))


def test_the_reason_is_the_tests_own_sentence(nbytes: Built) -> None:
    (said,) = nbytes.why(nbytes.answered(("return nbytes", "return float(nbytes)")))
    assert "(the result is a float)" in said
    assert nbytes.why(nbytes.answered()) == []


def test_a_notebook_that_defines_something_else_says_so_first(append: Built, nbytes: Built) -> None:
    for wrong in (
        nbytes.answered(),
        append.answered(("def append_kv(", "def append(")),
    ):
        first, tests = append.why(wrong)
        assert first == "the notebook does not define append_kv"
        assert tests.startswith(
            "append_kv: check_1. The first rows are stored as they come, check_2"
        )


def test_the_notebook_as_it_was_handed_out_says_so_first(append: Built) -> None:
    assert append.why(append.student.read_bytes())[0] == task.UNTOUCHED


def test_gradescope_shows_a_student_the_checks(append: Built) -> None:
    """A student with 0 points is not told that all passed, and sees no hidden test."""
    public, question = append.graded(append.student.read_bytes())["tests"]
    assert (public["visibility"], public["status"]) == ("visible", "failed")
    assert "check_1. The first rows are stored as they come." in public["output"]
    assert "test_" not in public["output"]
    assert (question["visibility"], question["score"]) == ("hidden", 0)
    one = append.graded(append.answered((".dtype", ".dtype and None")))["tests"]
    assert 0 < one[1]["score"] < 10
    assert one[0]["status"] == "passed"


def test_a_submission_writes_nothing_into_what_gradescope_shows(append: Built) -> None:
    raising = "def append_kv(*rows):\n    raise {}('all of the hidden tests')"
    lying = "def append_kv(cache, k, v):\n    cache['k'] = 'all of the hidden tests'"
    for code in (raising.format("ValueError"), raising.format("AssertionError"), lying):
        public, question = append.graded(made("import torch", code))["tests"]
        assert "the same check in the notebook says why" in public["output"]
        assert "all of the hidden tests" not in public["output"]
        assert question["score"] == 0


def test_gradescope_gets_no_cuda(append: Built) -> None:
    with zipfile.ZipFile(append.archive) as archive:
        wanted = yaml.safe_load(archive.read("environment.yml"))["dependencies"]
    (packages,) = [entry["pip"] for entry in wanted if isinstance(entry, dict)]
    assert not [name for name in packages if name.startswith("torch")]
    assert "pytorch-cpu>=2.6,<3" in wanted
    assert any(name.startswith("otter-grader") for name in packages)


@pytest.mark.parametrize(
    ("secret", "said"), [("words", "your own inputs"), ("", "the public inputs (no ASSIGN")]
)
def test_the_tool_says_whose_inputs_and_writes_the_solution(
    secret: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def built(folder: Path, out: Path, run: bool, secret: str) -> tuple[Path, Path]:
        (out / f"{folder.name}.ipynb").touch()
        return out / f"{folder.name}.ipynb", out / f"{folder.name}_autograder.zip"

    monkeypatch.setattr(tool, "assign", built)
    monkeypatch.setattr(tool, "PUBLISHED", tmp_path / "book")
    monkeypatch.setattr(sys, "argv", ["assignments.py", "04", "--out", str(tmp_path)])
    monkeypatch.setenv("ASSIGNMENTS_SECRET", secret)
    assert tool.main() == 0
    assert f"Hidden tests: {said}" in capsys.readouterr().out
    solution = nbformat.read(tmp_path / "04_bytes_solution.ipynb", 4)
    assert any("return nbytes" in cell.source for cell in solution.cells)


def test_a_brief_links_its_lesson_where_the_book_has_an_address() -> None:
    brief = "lesson 3 (`notebooks/03_cost.ipynb`), to the end"
    assert tool.linked(brief, "") == brief
    address = "https://github.com/OWNER/NAME"
    there = f"[`notebooks/03_cost.ipynb`]({address}/blob/main/notebooks/03_cost.ipynb)"
    assert tool.linked(brief, address) == f"lesson 3 ({there}), to the end"
    for folder in tool.sources():
        source = tool.read_source(folder).cells[0].source
        assert tool.linked(source, address).count(f"({address}/blob/main/notebooks/") == 1


def test_kernels_start_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("", "elsewhere"):
        monkeypatch.setenv("IPYTHONDIR", before) if before else monkeypatch.delenv(
            "IPYTHONDIR", raising=False
        )
        with tool.quiet_kernels(tmp_path / f"at {before}"):
            config = Path(os.environ["IPYTHONDIR"], "profile_default/ipython_kernel_config.py")
            assert "log_level = 40" in config.read_text()
        assert os.environ.get("IPYTHONDIR", "") == before


def test_the_page_for_instructors_links_the_lessons_and_keeps_their_order() -> None:
    page = (ROOT / "book" / "instructors.md").read_text()
    needs = {}
    for folder in tool.sources():
        (lesson,) = tool.re.findall(
            r"notebooks/(\w+)\.ipynb", tool.read_source(folder).cells[0].source
        )
        number, needs[int(folder.name[:2])] = int(lesson[:2]), int(lesson[:2])
        row = tool.re.search(rf"^\| {int(folder.name[:2])} \| .*$", page, tool.re.M)
        assert row is not None
        assert f"| [{number}](../notebooks/{lesson}.ipynb) |" in row[0]
    assert "(assignments.md)" in page
    weeks = tool.re.findall(
        r"^\| (?:first|second|third|fourth) \| (.*) \| (.*) \|$", page, tool.re.M
    )
    given: list[int] = []
    last = 0
    for lessons, assignments in weeks:
        last = max(map(int, tool.re.findall(r"\d+", lessons)))
        given += map(int, tool.re.findall(r"\d+", assignments))
        assert all(needs[number] <= last for number in given)
    assert sorted(given) == sorted(needs)
    assert [needs[number] for number in given] == sorted(needs[number] for number in given)


@pytest.mark.parametrize("folder", tool.sources(), ids=lambda folder: folder.name)
def test_checks_and_brief_tell_a_beginner_what_to_do(folder: Path) -> None:
    """On the notebook as it is handed out each check says a sentence; the brief is not ambiguous."""
    source = tool.read_source(folder)
    brief = " ".join(source.cells[0].source.split())
    assert tool.re.search(r"up to, but not including, \"|to the end of \"", brief)
    assert "A check that prints nothing has passed. These two count;" in brief
    title = tool.re.search(r"(?:including,|end of) \"(.+?)\"", brief)
    (lesson,) = tool.re.findall(r"notebooks/(\w+)\.ipynb", brief)
    assert title is not None
    assert f"# ### {title[1]}\n" in (ROOT / "notebooks" / f"{lesson}.py").read_text()
    (answer,) = {id(cell): cell for cell in tool.answers(source).values()}.values()
    solution = r"( *)# BEGIN SOLUTION\n.*?# END SOLUTION"
    stub = tool.re.sub(solution, r"\1...", answer.source, flags=tool.re.S)
    assert stub != answer.source
    env: dict[str, object] = {}
    checks = []
    for cell in source.cells:
        if "given" in tool.tags(cell) or cell is answer:
            exec(stub if cell is answer else cell.source, env)
        elif "check" in tool.tags(cell):
            checks.append(cell.source)
    assert len(checks) == 2
    for check in checks:
        with pytest.raises(AssertionError, match=r"\w+ \w+ .*"):
            exec(check, env)


def test_each_check_of_the_blocks_says_what_it_expects() -> None:
    checks = [c.source for c in tool.read_source(PAGED).cells if "check" in tool.tags(c)]
    for check in checks:
        assert check.count("assert ") == check.count(", not ")
