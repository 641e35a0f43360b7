"""Runs inside the sandbox: `otter run` on /in/submission.ipynb, its results.json to standard output.

Standard output carries the line "started", once otter is there, and at the end one JSON object, {"results":
..., "errors": [...]}; all that the notebook prints goes to standard error. Whatever runs in here may forge
that object: the outside checks its form and its bounds, and cannot check more.

This is process 1 of the sandbox, so the notebook's process cannot end it, and it is closed to other
processes: they do not reach its files and its memory through /proc.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

PR_SET_DUMPABLE = 4


def close_to_others() -> None:
    """Let no other process of this user open what this one has open (see `man 2 prctl`)."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which process 1 does not heed


def first_errors(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most three errors of executed cells: their "cell" (as Jupyter numbers them), "type" and "text"."""
    found = []
    for cell in cells:
        number = cell["metadata"].get("submission_cell")
        for output in cell.get("outputs", []):
            if output["output_type"] == "error" and number:
                said = {"type": str(output["ename"])[:100], "text": str(output["evalue"])[:2000]}
                found.append({"cell": number, **said})
    return found[:3]


def main() -> None:
    close_to_others()
    memory_bytes = int(sys.argv[1])
    results_to = os.dup(1)  # not inherited by the notebook's process
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    from otter.run import main as otter_run

    os.write(results_to, b"started\n")
    out = Path("out").resolve()  # in the sandbox's own memory
    out.mkdir()
    graded = otter_run(
        "/in/submission.ipynb", autograder="/in/autograder.zip", output_dir=str(out), no_logo=True
    )
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    cells = graded.notebook.cells if graded.notebook else []
    with os.fdopen(results_to, "w", encoding="utf-8") as pipe:
        json.dump({"results": results, "errors": first_errors(cells)}, pipe)


if __name__ == "__main__":
    main()
