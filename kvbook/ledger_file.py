"""The file that the ledger's speeds come from: whole and sound, or refused in one sentence.

`kvbook.measure.ledger_points` checks such a record more strictly when it is made. This is what a page can
check that must not depend on the modules of later lessons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from math import isfinite
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m"  # which the notes name
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def read(path: Path, device: str, ways: Collection[str]) -> dict[str, Any] | None:
    """The record of a whole run on this type of device; None where the file holds another one, or none is.

    Raises ValueError, one sentence, for what is no record, and for one with a part that is missing or
    cannot be: only the `ways` are timed, with one model, no part twice, and a time is above 0.
    """
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path.name} is not JSON, or too deep.") from None
    try:
        if record["record"] != "ledger" or record["device"]["type"] != device:
            return None
        if record["finished"] is not True or record["settings"]["quick"] is not False:
            return None
        fault = _fault(record, device, ways)
    except (LookupError, TypeError, AttributeError):
        fault = "parts are missing or of the wrong type"
    if fault:
        raise ValueError(f"{path.name} is no record of the ledger: {fault}.")
    return record


def _fault(record: dict[str, Any], device: str, ways: Collection[str]) -> str | None:
    """What cannot be right about a record, in words."""
    named = record["device"]["name"], record["versions"]["torch"], record["date"]
    if not all(isinstance(text, str) and text for text in named):
        return "it does not name its machine, its PyTorch and its date"
    if not DATE.fullmatch(record["date"]):
        return f"date is {record['date']!r}, which is not like 2026-01-31T12:00:00Z"
    threads = record["device"].get("threads", 1)
    if type(threads) is not int or threads < 1:
        return f"threads is {threads!r}, which is not 1 or more"
    jobs = [point["job"] for point in record["points"]]
    if not jobs:
        return "it has no points"
    for job in jobs:
        if job["model"] != MODEL or job["device"] != device:
            return (
                f"a point is of {job['model']!r} on {job['device']!r}, not of {MODEL} on {device}"
            )
        for name in ("context", "rounds"):
            if type(job[name]) is not int or job[name] < 1 or job[name] != jobs[0][name]:
                return f"{name} is {job[name]!r}, which is not one whole number for all points"
    parts = [job["part"] for job in jobs]
    if sorted(parts) != [*range(len(parts))]:
        return f"its parts are {parts}, which are not 0, 1, … once each"
    for point in record["points"]:
        seconds = point["result"]["seconds"]
        if seconds.keys() != {*ways}:
            return f"it times {', '.join(seconds)}, not {', '.join(ways)}"
        for way, times in seconds.items():
            if not isinstance(times, list) or len(times) != jobs[0]["rounds"]:
                return f"{way} has not a time for each round"
            for time in times:
                if type(time) not in (int, float) or not isfinite(time) or time <= 0:
                    return f"{way} took {time!r} seconds"
    return None
