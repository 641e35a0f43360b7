"""Runs inside the sandbox: `otter run` on /in/submission.ipynb, its results.json to standard output.

Standard output carries one JSON object, {"results": ..., "errors": [...]}, written once at the end; all that
the notebook prints goes to standard error. Whatever runs in here may forge that object: the outside checks its
form and its bounds, and cannot check more.
"""

import json
import os
import resource
import sys


def first_errors(notebook) -> list:
    """At most three errors of the executed notebook, as 'cell 3: NameError: ...'. Cell 1 is the student's first."""
    found = []
    cells = [c for c in notebook.cells if c.cell_type == "code"] if notebook else []
    numbers = {}
    for cell in cells:
        number = cell.get("metadata", {}).get("submission_cell")
        if number:
            numbers[id(cell)] = number
    for cell in cells:
        for output in cell.get("outputs", []):
            if output.get("output_type") == "error" and id(cell) in numbers:
                text = f"{output.get('ename', '')}: {output.get('evalue', '')}".splitlines()[0]
                found.append(f"cell {numbers[id(cell)]}: {text[:200]}")
    return found[:3]


def main() -> None:
    memory_bytes = int(sys.argv[1])
    results_to = os.dup(1)  # not inherited by the notebook's process
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    from otter.run import main as otter_run

    os.mkdir("/tmp/out")
    graded = otter_run(
        "/in/submission.ipynb", autograder="/in/autograder.zip", output_dir="/tmp/out", no_logo=True
    )
    with open("/tmp/out/results.json", encoding="utf-8") as file:
        results = json.load(file)
    with os.fdopen(results_to, "w", encoding="utf-8") as pipe:
        json.dump({"results": results, "errors": first_errors(graded.notebook)}, pipe)


if __name__ == "__main__":
    main()
