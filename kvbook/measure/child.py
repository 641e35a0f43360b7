"""python -m kvbook.measure.child RECORD: jobs as JSON lines on stdin, one JSON line on stdout for each.

A line back is {"result": ...}, or {"error": one sentence}; after an error no further job is run.
"""

import json
import os
import sys
from typing import Any


def main() -> int:
    """Run every job of standard input: on a GPU in this process, else each in a fork of its own.

    A fork begins with PyTorch imported and nothing else done, which a fresh interpreter would need
    seconds for. This process itself computes nothing, so no thread of PyTorch's runs in it.
    """
    from kvbook.measure.registry import load

    measure = load(sys.argv[1]).measure

    def run(job: dict[str, Any]) -> int:
        try:
            answer: dict[str, Any] = {"result": measure[job.pop("what")](**job)}
        except Exception as error:  # whatever it is, the parent says it in one line
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps(answer), flush=True)
        return int("error" in answer)

    for line in sys.stdin.read().splitlines():
        job = json.loads(line)
        if status := run(job) if job["device"] == "cuda" else _in_a_fork(run, job):
            return status
    return 0


def _in_a_fork(run: Any, job: dict[str, Any]) -> int:
    """What `run` returns in a process of its own; 1 if that process dies."""
    if pid := os.fork():
        return int(os.waitpid(pid, 0)[1] != 0)
    status = 1
    try:
        status = run(job)
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
