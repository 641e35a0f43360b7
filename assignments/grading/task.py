"""Grade one prepared notebook: what a worker does, on this machine or another.

The function goes to the workers by value: they need this Python's packages and bubblewrap, no repository.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

from grading import sandbox
from grading.sandbox import Limits

STARTED = b"started\n"  # what inside.py says before any of the student's code runs
# Stands before the package of this name: importing that takes seconds (it compiles a grammar), in otter and
# again in the notebook's kernel, and jsonschema does without it.
SHADOWS = {"rfc3987_syntax.py": b'raise ImportError("not in here: slow, and not needed")\n'}


def grade_one(
    notebook: bytes, autograder: bytes, inside: bytes, expected: dict[str, float], limits: Limits
) -> dict[str, Any]:
    """Grade `notebook` with the zip `autograder`; `inside` is the program that runs in the sandbox.

    Args:
        expected: the points that each question is worth; other results are not believed.

    Returns:
        {"scores": {question: points}, "reason": str, "seconds": float, "log": str}; a submission that gave no
        believable results has 0 for each question.

    Raises:
        RuntimeError: there is no sandbox on this machine, or it was killed, or has no otter: that is not the
            student's doing, and nothing was graded.
    """
    if problem := sandbox.missing():
        raise RuntimeError(problem)
    files = {
        "submission.ipynb": notebook,
        "autograder.zip": autograder,
        "inside.py": inside,
        **SHADOWS,
    }
    command = [sys.executable, "/in/inside.py", str(limits.memory_mib * sandbox.MIB)]
    done = sandbox.run(command, files, limits)
    if (done.code < 0 and not done.why) or not done.out.startswith(STARTED):
        raise RuntimeError(
            f"the sandbox did not do its work (status {done.code}){_hint(done.log, '')}"
        )
    scores, reason = dict.fromkeys(expected, 0.0), ""
    try:
        if done.why:
            raise ValueError(f"stopped: {done.why}")
        scores, reason = believed(done.out.removeprefix(STARTED), expected)
    except ValueError as error:
        reason = f"{error}{_hint(done.log, done.why)}"
    return {"scores": scores, "reason": reason, "seconds": done.seconds, "log": done.log}


def believed(out: bytes, expected: dict[str, float]) -> tuple[dict[str, float], str]:
    """Scores by question, and why points are missing, from what the sandbox wrote.

    Raises:
        ValueError: there are no results, or they are not what this autograder could have given.
    """
    if not out:
        raise ValueError("no results")
    try:
        answer = json.loads(out)
        tests, errors = answer["results"]["tests"], answer["errors"]
        graded = {t["name"]: t for t in tests if "score" in t}
        texts = {name: str(test.get("output", "")) for name, test in graded.items()}
        scores = {name: float(test["score"]) for name, test in graded.items()}
        worth = {name: float(test["max_score"]) for name, test in graded.items()}
        first = str(errors[0]) if errors else ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("the results are not in otter's form") from None
    if not scores:
        raise ValueError("no results: the notebook's process did not reach its end")
    if worth != expected:
        raise ValueError(
            "the results are not believed: their questions or points are not this assignment's"
        )
    if not all(math.isfinite(s) and 0 <= s <= expected[name] for name, s in scores.items()):
        raise ValueError("the results are not believed: a score is outside 0 and its maximum")
    lost = [
        f"{name}: {', '.join(failed_tests(texts[name])) or 'points lost'}"[:500]
        for name in expected
        if scores[name] < expected[name]
    ]
    if lost and first:
        lost.append(f"first error: {first}")
    return {name: scores[name] for name in expected}, "; ".join(lost)


def failed_tests(text: str) -> list[str]:
    """The failed tests in otter's summary of one question: their failure messages, or their names."""
    names, message, last = [], "", ""
    for line in map(str.strip, text.splitlines()):
        if found := re.fullmatch(r".* message: (.+)", line):
            message = found[1]
        elif line.endswith(" result:"):
            last = message or line.removesuffix(" result:")
            message = ""
        elif line.startswith("❌") and last:
            names.append(last.rstrip("."))
            last = ""
    return names


def _hint(log: str, why: str) -> str:
    """What the log says on a submission without results."""
    if why:
        return ""
    if "DeadKernelError" in log or "Kernel died" in log:
        return ": the notebook ended its own process (os._exit, a crash, or memory)"
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")
    return f": {last[:200]}" if last else ""
