"""How many submissions a minute: bare `otter run` one after another, and grade.py with 1 and 2 jobs.

    python tools/grading_rate.py                  40 submissions of assignment 1
    python tools/grading_rate.py --submissions 6  a quick look

It prints a table and records nothing: the rate belongs to this machine and to what else runs on it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import assignments  # noqa: E402


def course(top: Path, count: int) -> tuple[Path, Path]:
    """A folder of `count` different submissions, right and wrong ones in turn, and the autograder's zip."""
    folder = assignments.sources(("01",))[0]
    _, archive = assignments.assign(folder, top / "built", run=False)
    answers = ["", *(wrong.code for wrong in assignments.wrongs(folder))]
    (top / "in").mkdir()
    for number in range(count):
        made = assignments.submission(folder, answers[number % len(answers)])
        made.cells.append(new_code_cell(f"student = {number}", id=f"student-{number}"))
        nbformat.write(made, top / "in" / f"s{number:03d}.ipynb")
    return top / "in", archive


def seconds(*command: object) -> float:
    started = time.monotonic()
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="Submissions graded per minute.")
    parser.add_argument("--submissions", type=int, default=40)
    count = parser.parse_args().submissions
    with tempfile.TemporaryDirectory() as work:
        top = Path(work)
        folder, archive = course(top, count)
        otter = Path(sys.executable).with_name("otter")
        taken = {
            "otter run, one after another": sum(
                seconds(otter, "run", "--no-logo", "-a", archive, "-o", top, path)
                for path in sorted(folder.iterdir())
            )
        }
        for jobs in (1, 2):
            given = ["--autograder", archive, "--out", top / f"{jobs}.csv", "--jobs", jobs]
            name = f"grade.py --jobs {jobs}"
            taken[name] = seconds(sys.executable, ROOT / "assignments/grade.py", folder, *given)
    bare = next(iter(taken.values()))
    print(f"{count} submissions of assignment 1")
    for name, time_taken in taken.items():
        rate = 60 * count / time_taken
        print(f"  {name:<28} {rate:6.1f} per minute  {bare / time_taken:5.2f} times bare otter")


if __name__ == "__main__":
    main()
