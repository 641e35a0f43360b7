"""How long the lessons, the book and the checks take on this machine, each beside its aim.

    python tools/speed.py            every lesson, `make book` with nothing to do, `make check`
    python tools/speed.py --whole    `make test` from a clean checkout as well: half an hour

It prints a table and records nothing: the times belong to this machine and to what else runs on it.
Nothing in the tree changes: lessons run in memory, and the clean checkout lies in a temporary folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lessons

ROOT = Path(__file__).resolve().parent.parent
LESSON, LONGER = 60, {"07_gqa": 90, "08_quantized": 90}  # seconds
BOOK, CHECK, TEST = 30, 300, 1800


def seconds(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def made(target: str, folder: Path = ROOT) -> Callable[[], object]:
    """`make target`, silent. Raises RuntimeError with its last lines if it fails."""

    def run() -> None:
        done = subprocess.run(
            ["make", "--no-print-directory", target], cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise RuntimeError(f"make {target} failed:\n{last}")

    return run


def execution(path: Path) -> Callable[[], object]:
    """A page from the start of its kernel to its last cell; its outputs are thrown away."""
    return lambda: lessons.execute(lessons.read_source(path), path.parent)


@contextlib.contextmanager
def checkout() -> Iterator[Path]:
    """A clean checkout of HEAD, in a temporary folder."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "book"
        subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True)
        yield place


def tell(name: str, work: Callable[[], object], aim: int) -> None:
    taken = seconds(work)
    print(f"{name:<28} {taken:7.1f} s   aim {aim:5,} s{'   over' * (taken > aim)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Times of the lessons, the book and the checks.")
    parser.add_argument("--whole", action="store_true", help="time `make test` too")
    whole = parser.parse_args().whole
    print(f"on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    try:
        for path in lessons.sources()[:-1]:
            tell(path.stem, execution(path), LONGER.get(path.stem, LESSON))
        made("book")()  # now there is nothing to do
        tell("make book, nothing changed", made("book"), BOOK)
        tell("make check", made("check"), CHECK)
        if whole:
            with checkout() as place:
                tell("make test, clean checkout", made("test", place), TEST)
    except Exception as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
