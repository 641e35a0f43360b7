"""Grade one prepared notebook: what a worker does, on this machine or another.

The function goes to the workers by value: they need this Python's packages and bubblewrap, no repository.

Of what comes out of a sandbox, only what cannot carry a message goes into the table: points, names of tests
that the autograder has, an error's place and kind. The texts of errors are in the log, for the teacher alone:
a submission can write into them what the hidden tests say.
"""

from __future__ import annotations

import builtins
import json
import math
import re
from typing import Any

from grading import sandbox
from grading.sandbox import Limits

STARTED = b"started\n"  # what inside.py says before any of the student's code runs
# Stands before the package of this name: importing that takes seconds (it compiles a grammar), in otter and
# again in the notebook's kernel, and jsonschema does without it.
# What Python says where names are all that varies: these texts go into the table, with names that the
# notebook holds itself.
PLAIN = (
    r"name '(\w+)' is not defined",
    r"No module named '(\w+)'",
    r"'(\w+)' object has no attribute '(\w+)'",
    r"(\w+)\(\) missing 1 required positional argument: '(\w+)'",
    r"(\w+)\(\) got an unexpected keyword argument '(\w+)'",
)
SHADOWS = {"rfc3987_syntax.py": b'raise ImportError("not in here: slow, and not needed")\n'}


def grade_one(
    notebook: bytes,
    autograder: bytes,
    inside: bytes,
    expected: dict[str, float],
    labels: dict[str, list[str]],
    limits: Limits,
) -> dict[str, Any]:
    """Grade `notebook` with the zip `autograder`; `inside` is the program that runs in the sandbox.

    Args:
        expected: the points that each question is worth; other results are not believed.
        labels: what the tests of each question are called; other names are not believed.

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
    command = [sandbox.PYTHON, "/in/inside.py", str(limits.memory_mib * sandbox.MIB)]
    done = sandbox.run(command, files, limits)
    started = done.out.startswith(STARTED)
    if (done.code < 0 and not done.why) or not started:
        said = done.log.split() if not started else []  # not yet the student's
        raise RuntimeError(
            f"the sandbox did not do its work (status {done.code}) {' '.join(said)[-200:]}".strip()
        )
    scores, reason, log = dict.fromkeys(expected, 0.0), "", done.log
    try:
        if done.why:
            raise ValueError(f"stopped: {done.why}")
        scores, lost, errors = believed(done.out.removeprefix(STARTED), expected, labels)
        if errors:
            log = f"{_told(errors)}\n{log}"
            lost += [f"first error: {told(errors[0], notebook)}"] if lost else []
        reason = "; ".join(lost)
    except ValueError as error:
        reason = f"{error}{_hint(done.log, done.why)}"
    return {"scores": scores, "reason": reason, "seconds": done.seconds, "log": log}


def believed(
    out: bytes, expected: dict[str, float], labels: dict[str, list[str]]
) -> tuple[dict[str, float], list[str], list[dict[str, Any]]]:
    """Scores by question, where points are missing, and errors of cells, from what the sandbox wrote.

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
        errors = [
            {"cell": int(e["cell"]), "type": str(e["type"])[:100], "text": str(e["text"])[:2000]}
            for e in errors[:3]
        ]
        if not all(0 < error["cell"] < 10**5 for error in errors):
            raise ValueError("no cell has such a number")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("the results are not in otter's form") from None
    if not scores:
        raise ValueError("no results: the notebook's process did not reach its end")
    if worth != expected:
        raise ValueError(
            "the results are not believed: their questions or points are not this assignment's"
        )
    if not all(math.isfinite(s) and 0 <= s <= expected[name] for name, s in scores.items()):
        raise ValueError("the results are not believed: a score is outside 0 and its maximum")
    lost = []
    for name in expected:
        if scores[name] < expected[name]:
            failed = dict.fromkeys(failed_tests(texts[name]))
            known = [label.rstrip(".") for label in labels.get(name, [])]
            lost.append(f"{name}: {', '.join(f for f in failed if f in known) or 'points lost'}")
    return {name: scores[name] for name in expected}, lost, errors


def told(error: dict[str, Any], notebook: bytes) -> str:
    """An error's cell and kind, with its text where that holds nothing but names of the notebook itself."""
    kind = getattr(builtins, error["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return f"cell {error['cell']}: an error of a kind of its own"
    place, text = f"cell {error['cell']}: {error['type']}", error["text"]
    if issubclass(kind, SyntaxError) and (line := re.search(r"line (\d{1,5})\)$", text)):
        return f"{place}, line {line[1]}"
    names = {
        *re.findall(r"\w+", notebook.decode("utf-8", "replace")),
        *dir(builtins),
        "Tensor",
        "NoneType",
    }
    for pattern in PLAIN:
        found = re.fullmatch(pattern, text)
        if found and all(name in names and len(name) < 50 for name in found.groups()):
            return f"{place}: {text}"
    return place


def _told(errors: list[dict[str, Any]]) -> str:
    """All that errors said, for the log."""
    lines = [f"cell {e['cell']}: {e['type']}: {e['text']}" for e in errors]
    return sandbox.CONTROL.sub(
        "?", "\n".join(["What the notebook's cells ended with:", *lines, ""])
    )


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
    """What the log tells on a submission without results, in words of ours."""
    if why:
        return ""
    if "DeadKernelError" in log or "Kernel died" in log:
        return ": the notebook ended its own process (os._exit, a crash, or memory)"
    if "No space left on device" in log:
        return ": it filled the room for its files, which is as large as its memory"
    return "; the log says more" if log.strip() else ""
