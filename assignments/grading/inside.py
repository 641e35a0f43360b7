"""Runs inside the sandbox: `otter run` on /in/submission.ipynb, its results.json to standard output.

Standard output carries the line "started", once otter is there, and at the end one JSON object, {"results":
..., "errors": [...]}; all that the notebook prints goes to standard error. Whatever runs in here may forge
that object: the outside checks its form and its bounds, and cannot check more.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any


def first_errors(cells: list[dict[str, Any]]) -> list[str]:
    """At most three errors of executed cells, as 'cell 3: NameError: ...'; the student's first is cell 1."""
    found = []
    for cell in cells:
        number = cell["metadata"].get("submission_cell")
        for output in cell.get("outputs", []):
            if output["output_type"] == "error" and number:
                text = f"{output['ename']}: {output['evalue']}".splitlines()[0]
                found.append(f"cell {number}: {text[:200]}")
    return found[:3]


def main() -> None:
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
