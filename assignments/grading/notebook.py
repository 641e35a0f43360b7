"""A submitted file becomes the notebook that is graded: its code and text, no outputs, Python 3's kernel.

Dropping the outputs is what makes a 50 MB notebook small. A first cell is added that stops a student's cell
that runs too long, again and again, so that a loop costs the question it is in and not the whole submission.

A large file is read by this module in a process of its own with a limit on memory: a few bytes of JSON can
become many in Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

MAX_FILE_MB = 200
MAX_SOURCE_MB = 5
MAX_CELLS = 5000
READ_HERE_MB = 1  # at most 30 MB in Python
READER_MIB = 2048
READER_SECONDS = 120

TIMER = """\
def _start_timers():
    import signal

    def tick(*_):
        raise TimeoutError("stopped after {seconds:g} s: an infinite loop, or far too slow")

    def arm(*_):  # processor time, so that a busy machine changes no score; and a sleeper's wall-clock time
        signal.setitimer(signal.ITIMER_PROF, {seconds}, {seconds})
        signal.setitimer(signal.ITIMER_REAL, 3 * {seconds}, 3 * {seconds})

    def disarm(*_):
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)

    def stop():
        disarm()
        for event, function in (("pre_run_cell", arm), ("post_run_cell", disarm)):
            get_ipython().events.unregister(event, function)

    signal.signal(signal.SIGPROF, tick)
    signal.signal(signal.SIGALRM, tick)
    get_ipython().events.register("pre_run_cell", arm)
    get_ipython().events.register("post_run_cell", disarm)
    get_ipython().stop_timers = stop


_start_timers()
del _start_timers
"""
NO_TIMER = "get_ipython().stop_timers()"  # the tests come after this cell, and each has a deadline of its own


class UnreadableError(ValueError):
    """The submission is no notebook that can be graded; the message says why, for its student."""


def prepare(raw: bytes, cell_seconds: float) -> bytes:
    """The notebook to grade, as JSON, from the bytes of a submitted file.

    Raises:
        UnreadableError: it is not a notebook of format 4 with code in it, or too large without its outputs.
    """
    if len(raw) > MAX_FILE_MB * 10**6:
        raise UnreadableError(
            f"The file has {len(raw) / 1e6:.0f} MB; up to {MAX_FILE_MB} MB are read."
        )
    return (_prepared if len(raw) <= READ_HERE_MB * 10**6 else _apart)(raw, cell_seconds)


def _apart(raw: bytes, cell_seconds: float) -> bytes:
    command = [sys.executable, "-I", __file__, str(cell_seconds)]
    try:
        done = subprocess.run(command, input=raw, capture_output=True, timeout=READER_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnreadableError(f"The file takes more than {READER_SECONDS} s to read.") from None
    if done.returncode == 3:
        raise UnreadableError(done.stderr.decode())
    if done.returncode:
        raise UnreadableError(f"The file takes more than {READER_MIB} MiB of memory to read.")
    return done.stdout


def _main() -> int:
    """`python notebook.py SECONDS < submitted > prepared`; status 3 and a sentence where it is unreadable."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (READER_MIB * 2**20, READER_MIB * 2**20))
    try:
        sys.stdout.buffer.write(_prepared(sys.stdin.buffer.read(), float(sys.argv[1])))
    except UnreadableError as error:
        sys.stderr.buffer.write(str(error).encode())
        return 3
    return 0


def _prepared(raw: bytes, cell_seconds: float) -> bytes:
    cells = _cells(raw)
    kept: list[dict[str, Any]] = [_code(TIMER.format(seconds=cell_seconds), {}, "timer")]
    size = runs = 0
    for number, cell in enumerate(cells, start=1):
        source = _source(cell, number)
        size += len(source)
        if cell.get("cell_type") == "code":
            runs += bool(
                source.strip()
            )  # what Jupyter shows as [1], [2], ... after a run of all cells
            kept.append(_code(source, {"submission_cell": runs or 1}, f"cell-{number}"))
    if size > MAX_SOURCE_MB * 10**6:
        raise UnreadableError(
            f"The notebook holds {size / 1e6:.1f} MB of code and text without its outputs; "
            f"up to {MAX_SOURCE_MB} MB are graded."
        )
    if len(kept) == 1:
        raise UnreadableError("The notebook holds no code cell.")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    kept.append(_code(NO_TIMER, {}, "no-timer"))
    return json.dumps(
        {"cells": kept, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    ).encode()


def _cells(raw: bytes) -> list[dict[str, Any]]:
    if not raw.strip():
        raise UnreadableError("The file is empty.")
    try:
        data = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UnreadableError("The file is not a notebook: it is not UTF-8 text.") from None
    except (ValueError, RecursionError):
        raise UnreadableError("The file is not a notebook: it is not JSON.") from None
    if isinstance(data, dict) and "worksheets" in data:
        raise UnreadableError(
            "The notebook is in format 3; open and save it in JupyterLab, then submit it again."
        )
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UnreadableError("The file is JSON but not a notebook: it has no list of cells.")
    if len(cells) > MAX_CELLS:
        raise UnreadableError(f"The notebook has {len(cells)} cells; up to {MAX_CELLS} are graded.")
    return cells


def _source(cell: dict[str, Any], number: int) -> str:
    source = cell.get("source", "")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        raise UnreadableError(f"Cell {number} of the notebook has no text as its source.")
    return source.encode(
        "utf-8", "replace"
    ).decode()  # half a surrogate pair cannot be written again


def _code(source: str, metadata: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": name,
        "metadata": metadata,
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


if __name__ == "__main__":
    sys.exit(_main())
