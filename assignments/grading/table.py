"""The table of grades, as CSV that spreadsheets open with the right letters and without running anything."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

from grading.records import write_whole

ENCODING = "utf-8-sig"  # with the mark by which Excel knows UTF-8; pandas reads past it

FIRST = ["submission", "student", "score", "out_of"]  # columns


@dataclass
class Row:
    """One submission.

    Args:
        scores: points by question; None where it is not graded.
        seconds: that grading took; None where nothing ran.
        reason: where points were lost, or why nothing ran; names no other student.
        log: the name of the log in the records' folder.
        notes: what the teacher should know beside it, such as equal files.
    """

    submission: str
    student: str
    scores: dict[str, float] | None
    seconds: float | None = None
    reason: str = ""
    log: str = ""
    notes: list[str] = field(default_factory=list)


def write(path: Path, rows: list[Row], points: dict[str, float]) -> None:
    """Write the table whole: one row per submission, one column per question."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIRST, *map(_safe, points), "seconds", "reason", "notes", "log"])
    for row in rows:
        scores = row.scores
        writer.writerow(
            [
                _safe(row.submission),
                _safe(row.student),
                "" if scores is None else _number(sum(scores.values())),
                _number(sum(points.values())),
                *("" if scores is None else _number(scores[name]) for name in points),
                "" if row.seconds is None else f"{row.seconds:.1f}",
                _safe(row.reason),
                _safe("; ".join(row.notes)),
                row.log,
            ]
        )
    write_whole(path, text.getvalue(), ENCODING)


def questions(path: Path) -> list[str]:
    """The questions whose columns a table has; none where the file is no table of this module."""
    try:
        with path.open(encoding=ENCODING, newline="") as file:
            head = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []
    ours = head[:4] == FIRST and "seconds" in head
    return head[4 : head.index("seconds")] if ours else []


def _number(value: float) -> str:
    return f"{round(value, 5):g}"


def _safe(text: str) -> str:
    """Text from strangers: no line breaks or control characters, and no formula for a spreadsheet to run."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
