"""Grade one prepared notebook: what a worker does, on this machine or another.

The function goes to the workers by value: they need this Python's packages and bubblewrap, no repository.

Of what comes out of a sandbox, only what cannot carry a message goes into the table: points, names of tests
that the autograder has, an error's place and kind, and sentences that the autograder has (see said.py). All
that errors and tests said is in the log, for the teacher alone: a submission can write into it what the
hidden tests say.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from grading import sandbox
from grading.autograder import Labels
from grading.said import IN_SHORT, TIMERS, Failure, failures, words
from grading.sandbox import Limits

STARTED = b"started\n"  # what inside.py says before any of the student's code runs
# Stands before the package of this name: importing that takes seconds (it compiles a grammar), in otter and
# again in the notebook's kernel, and jsonschema does without it.
SHADOWS = {"rfc3987_syntax.py": b'raise ImportError("not in here: slow, and not needed")\n'}
UNTOUCHED = "the notebook is as it was handed out"
SAID_LIMIT = 64 * 1024  # characters of what the tests of a question said, in the log


@dataclass(frozen=True)
class Results:
    """What came out of a sandbox in the right form.

    Args:
        scores: points by question.
        failed: the tests that failed, by question.
        errors: of cells, the first three: "cell", "type", "text".
        said: otter's summary by question.
    """

    scores: dict[str, float]
    failed: dict[str, list[Failure]]
    errors: list[dict[str, Any]]
    said: dict[str, str]


def grade_one(
    notebook: bytes,
    autograder: bytes,
    inside: bytes,
    expected: dict[str, float],
    labels: Labels,
    handed_out: list[str],
    limits: Limits,
) -> dict[str, Any]:
    """Grade `notebook` with the zip `autograder`; `inside` is the program that runs in the sandbox.

    Args:
        expected: the points that each question is worth; other results are not believed.
        labels: what the tests of each question are called, and their sentences; others are not believed.
        handed_out: the code cells of the notebook that students got.

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
    scores, log = dict.fromkeys(expected, 0.0), done.log
    try:
        if done.why:
            raise ValueError(f"stopped: {done.why}")
        results = believed(done.out.removeprefix(STARTED), expected)
        scores, log = results.scores, f"{_told(results)}{log}"
        reason = "; ".join(reasons(results, expected, labels, notebook, handed_out))
    except ValueError as error:
        reason = f"{error}{_hint(done.log, done.why)}"
        if untouched(notebook, handed_out):
            reason = f"{UNTOUCHED}; {reason}"
    return {"scores": scores, "reason": reason, "seconds": done.seconds, "log": log}


def believed(out: bytes, expected: dict[str, float]) -> Results:
    """What the sandbox wrote, if it can be what this autograder gave.

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
    lost = [name for name in expected if scores[name] < expected[name]]
    failed = {name: failures(texts[name]) for name in lost}
    return Results({name: scores[name] for name in expected}, failed, errors, texts)


def reasons(
    results: Results,
    expected: dict[str, float],
    labels: Labels,
    notebook: bytes,
    handed_out: list[str],
) -> list[str]:
    """Why points are missing, the likely cause first, then the tests that failed; empty where none is."""
    if not results.failed:
        return []
    names = {*re.findall(r"\w+", notebook.decode("utf-8", "replace"))}
    causes = [UNTOUCHED] if untouched(notebook, handed_out) else []
    if results.errors:
        every = [one for tests in labels.values() for known in tests.values() for one in known]
        causes.append(f"first error: {told(results.errors[0], [*every, TIMERS], names)}")
    lost = []
    for name, failed in results.failed.items():
        known = labels.get(name, {})
        by_label = {one.label: one for one in failed if one.label in known}
        said = {
            label: words(one.kind, one.text, known[label], names) if one.kind else ""
            for label, one in by_label.items()
        }
        telling = {text for text in said.values() if text != IN_SHORT}
        if len(said) > 1 and len(telling) == 1:  # one cause of all
            causes += telling - {"AssertionError", ""}
            said = dict.fromkeys(said, "")
        silent = {"AssertionError", IN_SHORT}
        said = {label: "" if text in silent else text for label, text in said.items()}
        tests = [f"{label} ({text})" if text else label for label, text in said.items()]
        lost.append(f"{name}: {', '.join(tests) or 'points lost'}")
    return [*causes, *lost]


def told(error: dict[str, Any], known: list[Any], names: set[str]) -> str:
    """An error's cell, as Jupyter numbers it, and what may be told of it."""
    return f"cell [{error['cell']}]: {words(error['type'], error['text'], known, names)}"


def untouched(notebook: bytes, handed_out: list[str]) -> bool:
    """Whether the code of a prepared notebook is what students got."""
    cells = json.loads(notebook)["cells"] if handed_out else []
    code = [cell["source"].strip() for cell in cells if "submission_cell" in cell["metadata"]]
    wanted = [source.strip() for source in handed_out]
    return bool(wanted) and [*filter(None, code)] == [*filter(None, wanted)]


def _told(results: Results) -> str:
    """All that errors and tests said, for the log."""
    lines = []
    if results.errors:
        lines += ["What the notebook's cells ended with:"]
        lines += [f"cell [{e['cell']}]: {e['type']}: {e['text']}" for e in results.errors]
        lines += [""]
    for name in results.failed:
        lines += [f"What the tests of {name} said:", results.said[name][:SAID_LIMIT], ""]
    return sandbox.CONTROL.sub("?", "\n".join([*lines, ""] if lines else []))


def _hint(log: str, why: str) -> str:
    """What the log tells on a submission without results, in words of ours."""
    if why:
        return ""
    if "DeadKernelError" in log or "Kernel died" in log:
        return ": the notebook ended its own process (os._exit, a crash, or memory)"
    if "No space left on device" in log:
        return ": it filled the room for its files, which is as large as its memory"
    return "; the log says more" if log.strip() else ""
