"""Grade a class: submissions in, table out, going on where the last run stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from grading import engine, notebook, submissions, table
from grading.autograder import Autograder
from grading.records import Records, code_digest
from grading.sandbox import Limits
from grading.table import Row
from grading.task import grade_one

NOT_YET = "not graded yet"


@dataclass(frozen=True)
class Summary:
    """How a run ended, in counts of submissions."""

    rows: int
    graded_now: int
    known_before: int
    not_graded: int


def grade(
    place: Path,
    autograder: Autograder,
    out: Path,
    limits: Limits,
    jobs: int = 1,
    scheduler: str | None = None,
    say: Callable[[str], None] = print,
) -> Summary:
    """Grade all submissions in `place` and write the table to `out`, whatever happens on the way.

    Raises:
        ValueError: there is nothing to grade, or no cluster, another run holds the records, or `out` is the
            table of another assignment; one sentence.
        KeyboardInterrupt: after the table was written with what there is.
    """
    found = submissions.find(place)
    if (before := table.questions(out)) and before != list(autograder.points):
        raise ValueError(
            f"{str(out)!r} holds the grades of {', '.join(before)}, not of "
            f"{', '.join(autograder.points)}; give another --out."
        )
    records = Records(
        out.with_suffix(".records"), autograder.digest, json.dumps(asdict(limits)), code_digest()
    )
    zero = dict.fromkeys(autograder.points, 0.0)
    with records.locked():
        rows: list[Row] = []
        keys: dict[str, str] = {}
        waiting: dict[str, bytes] = {}
        for one in tqdm(found, desc="reading", unit="", disable=None, leave=False):
            row = Row(one.name, one.student, None, reason=NOT_YET)
            rows.append(row)
            try:
                if one.problem:
                    raise notebook.UnreadableError(one.problem)
                raw = one.read()
                key = keys[one.name] = records.key(raw)
                if records.get(key) is None and key not in waiting:
                    waiting[key] = notebook.prepare(raw, limits.cell_seconds)
            except notebook.UnreadableError as error:
                keys.pop(one.name, None)
                row.scores, row.reason = zero, str(error)
            except OSError as error:
                row.reason = f"not graded: the file cannot be read ({error.strerror or error})"
        _note_doubles(rows, keys)
        known = sum(key not in waiting for key in keys.values())
        problems: dict[str, str] = {}
        try:
            if waiting:
                _run(waiting, autograder, limits, jobs, scheduler, records, problems)
        finally:
            for row in rows:
                if row.submission in keys:
                    key = keys[row.submission]
                    _fill(row, key, records, problems.get(key, ""))
            if aside := records.set_aside(out):
                say(f"{out.name} was changed since it was written; it is kept as {aside.name}.")
            table.write(out, rows, autograder.points)
            records.wrote(out)
    missing = sum(row.scores is None for row in rows)
    return Summary(len(rows), len(waiting) - len(problems), known, missing)


def _run(
    waiting: dict[str, bytes],
    autograder: Autograder,
    limits: Limits,
    jobs: int,
    scheduler: str | None,
    records: Records,
    problems: dict[str, str],
) -> None:
    inside = Path(__file__).with_name("inside.py").read_bytes()
    shared: tuple[Any, ...] = (
        autograder.content,
        inside,
        autograder.points,
        autograder.labels,
        autograder.handed_out,
        limits,
    )
    with engine.client(jobs, scheduler) as client, tqdm(total=len(waiting), unit=" graded") as bar:
        for key, result, problem in engine.spread(client, grade_one, waiting, *shared):
            if result is None:
                problems[key] = problem
            else:
                records.put(key, result)
            bar.update()


def _fill(row: Row, key: str, records: Records, problem: str) -> None:
    record = records.get(key)
    if record is None:
        row.reason = f"not graded: {problem}" if problem else NOT_YET
        return
    row.scores, row.seconds, row.reason = record["scores"], record["seconds"], record["reason"]
    row.log = records.log(key).name


def _note_doubles(rows: list[Row], keys: dict[str, str]) -> None:
    """Say which files are equal, and which students handed in several: a person chooses, not this program."""
    equal: dict[str, list[str]] = {}
    count: dict[str, int] = {}
    for row in rows:
        count[row.student] = count.get(row.student, 0) + 1
        if key := keys.get(row.submission):
            equal.setdefault(key, []).append(row.submission)
    for row in rows:
        here = row.submission
        if same := [name for name in equal.get(keys.get(here, ""), []) if name != here]:
            more = f" and {len(same) - 5} more" if len(same) > 5 else ""
            row.notes.append(f"the same file as {', '.join(map(repr, same[:5]))}{more}")
        if count[row.student] > 1:
            row.notes.append(f"one of {count[row.student]} files of this student")
