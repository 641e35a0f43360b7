"""What the grading tests share: notebooks, an autograder without torch, and how tables are read."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL_TEST = """
from otter.test_files import test_case

OK_FORMAT = False
name = "{name}"
points = None


@test_case(points={points}, hidden=True, failure_message="{name}: {what}")
def test_it({function}):
    assert {check}
"""


def notebook(*cells: str, **more: object) -> bytes:
    """A notebook of code cells, as Colab saves one: no ids, minor format 0, fields of its own."""
    made = [
        {
            "cell_type": "code",
            "metadata": {"id": "x"},
            "source": cell.splitlines(True),
            "outputs": [],
        }
        for cell in cells
    ]
    metadata = {"colab": {"provenance": []}, "kernelspec": {"name": "python3"}}
    return json.dumps(
        {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 0, **more}
    ).encode()


def small_autograder() -> bytes:
    """A zip of two questions, 3 and 4 points, that need no torch."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        q1 = {
            "name": "q1",
            "points": 3,
            "what": "adds",
            "function": "add",
            "check": "add(2, 3) == 5",
        }
        q2 = {"name": "q2", "points": 4, "what": "doubles", "function": "double"}
        archive.writestr("tests/q1.py", SMALL_TEST.format(**q1))
        archive.writestr("tests/q2.py", SMALL_TEST.format(**q2, check="double(21) == 42"))
        archive.writestr("otter_config.json", json.dumps({"lang": "python"}))
    return made.getvalue()


def rows(table: Path) -> dict[str, dict[str, str]]:
    """The rows of a table of grades, by submission."""
    with table.open(encoding="utf-8-sig", newline="") as file:
        return {row["submission"]: row for row in csv.DictReader(file)}


def start(*arguments: object) -> subprocess.Popen[str]:
    """`grade.py` with these arguments, in a process of its own that listens to Ctrl-C."""
    command = [sys.executable, ROOT / "assignments/grade.py", *arguments]
    return subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
