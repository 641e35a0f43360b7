"""Grade a class: .venv/bin/python assignments/grade.py SUBMISSIONS/ --assignment 01 [--jobs 2]

Each submission runs by itself inside bubblewrap, without a network, with limits on time and memory. The same
command again goes on where it was interrupted. Nothing of a submission runs outside the sandbox.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1024):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1024")
    return int(text)


def _arguments(given: list[str] | None) -> argparse.Namespace:
    more = (__doc__ or "").partition("\n")[2]
    parser = argparse.ArgumentParser(prog="grade.py", description=more.strip(), usage=None)
    parser.add_argument(
        "submissions", type=Path, help="the folder of the submissions, or an export's zip"
    )
    parser.add_argument(
        "--assignment", metavar="NN", help="its number; `make assignments` builds it"
    )
    parser.add_argument("--autograder", type=Path, metavar="ZIP", help="a zip of your own instead")
    parser.add_argument(
        "--out", type=Path, metavar="CSV", help="the table (grades_NN.csv, NN the assignment)"
    )
    parser.add_argument(
        "--jobs", type=_count, default=None, help="how many at a time on this machine (its cores)"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="a dask scheduler, as tcp://10.0.0.1:8786"
    )
    parser.add_argument(
        "--seconds", type=_positive, default=300.0, help="wall clock per submission (300)"
    )
    parser.add_argument(
        "--cell-seconds", type=_positive, default=20.0, help="processor time per cell (20)"
    )
    parser.add_argument("--memory", type=_positive, default=4.0, help="GiB per submission (4)")
    args = parser.parse_args(given)
    if (args.assignment is None) == (args.autograder is None):
        parser.error("give either --assignment NN or --autograder ZIP")
    if args.jobs is not None and args.scheduler is not None:
        parser.error("--jobs is for this machine; a scheduler has its own workers")
    if args.out is None:
        number = (args.assignment or "").zfill(2)
        args.out = Path(f"grades_{number}.csv" if args.assignment else "grades.csv")
    return args


def main(given: list[str] | None = None) -> int:
    """The exit status: 0 all graded, 1 some not, 2 nothing could be done, 130 interrupted."""
    args = _arguments(given)
    try:
        from grading import autograder, course, sandbox
    except ModuleNotFoundError as error:
        return _stop(
            f"the package {error.name!r} is missing; start it as `.venv/bin/python assignments/grade.py`, "
            "after `make assignments` has made .venv."
        )
    if args.scheduler is None and (problem := sandbox.missing()):
        return _stop(
            f"{problem} On macOS and Windows, upload the assignment's autograder zip to Gradescope instead: "
            "it grades in containers of its own. See the page for instructors."
        )
    limits = sandbox.Limits(args.seconds, args.cell_seconds, int(args.memory * 1024))
    out = args.out
    try:
        if out.suffix != ".csv":
            raise ValueError(
                f"{str(out)!r} must end in .csv; the records get a folder of that name."
            )
        if out.is_dir() or not out.parent.is_dir():
            raise ValueError(
                f"{str(out)!r} cannot be written: it must be a file in a folder that exists."
            )
        if out.resolve().is_relative_to(args.submissions.resolve()):
            raise ValueError(
                f"{str(out)!r} lies among the submissions; put it elsewhere with --out."
            )
        zipped = args.autograder or autograder.locate(args.assignment)
        done = course.grade(
            args.submissions,
            autograder.load(zipped),
            out,
            limits,
            jobs=args.jobs or (1 if args.scheduler else len(os.sched_getaffinity(0))),
            scheduler=args.scheduler,
        )
    except ValueError as error:
        return _stop(str(error))
    except OSError as error:
        return _stop(f"{error.strerror or error}: {error.filename or out}")
    except KeyboardInterrupt:
        print(
            f"\nInterrupted; what is graded is kept. The same command goes on: {out}",
            file=sys.stderr,
        )
        return 130
    known = f", {done.known_before} known from before" if done.known_before else ""
    print(f"{done.rows} submissions: {done.graded_now} graded now{known}. The table: {out}")
    if done.not_graded:
        print(
            f"{done.not_graded} could not be graded; the table says why. Run it again.",
            file=sys.stderr,
        )
    return 1 if done.not_graded else 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _stop(sentence: str) -> int:
    print(f"grade.py: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, _interrupt
    )  # as a Ctrl-C: the table is written, and the sandboxes end
    sys.exit(main())
