"""A whole run: the plan, what of it is done already, the rest, and the record after each point."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kvbook.accounting import ConfigError
from kvbook.measure import record as records
from kvbook.measure.machine import device_facts, driver, versions
from kvbook.measure.plan import Job
from kvbook.measure.progress import Progress
from kvbook.measure.registry import load
from kvbook.measure.runner import results as measured

SAME = ("record", "format", "device", "driver", "versions", "settings")  # or a run is another one


def measure(
    path: Path,
    device: str,
    settings: dict[str, Any],
    command: str,
    force: bool = False,
    what: str = "memory",
    results: Callable[[Iterable[Job]], Iterator[tuple[Job, dict[str, Any]]]] | None = None,
) -> str:
    """Do what of the run is not done yet; the answer in a few lines.

    `device` is auto, cpu or cuda; `settings` are model, quick and budget_bytes; `what` is one
    of registry.RECORDS. The record is written after each point. Raises ConfigError, one sentence,
    as `command.run` says.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but PyTorch sees no GPU here.")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = load(what)
    jobs = recipe.plan(device, settings)
    head = _head(what, recipe.packages, device, settings, command)
    record = _begun(path, head, force)
    done = [point["job"] for point in record["points"]]
    todo = [job for job in jobs if job not in done]
    progress = Progress(len(jobs), len(jobs) - len(todo))
    odd: list[str] = []
    source = (results or partial(measured, record=what))(todo)
    try:
        for job in todo:
            progress.step(recipe.label(job))
            job, result = next(source)
            odd += recipe.unexplained(job, result)[:1]
            record["points"].append({"job": job, "result": result})
            records.write(path, record)
            progress.done()
        progress.step("done")
    finally:
        progress.close()
        if hasattr(source, "close"):
            source.close()
    record["finished"] = True
    records.write(path, record)
    if odd:
        raise ConfigError(f"{len(odd)} of {len(jobs)} points differ from the prediction: {odd[0]}")
    return f"{recipe.answer(record)}\nThe record is in {path}."


def _head(
    what: str, packages: tuple[str, ...], device: str, settings: dict[str, Any], command: str
) -> dict[str, Any]:
    return {
        "record": what,
        "format": records.FORMAT,
        "device": device_facts(device),
        "driver": driver(device) or ("unknown" if device == "cuda" else None),
        "versions": versions(*packages),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": command,
        "settings": settings,
        "finished": False,
        "points": [],
    }


def _begun(path: Path, head: dict[str, Any], force: bool) -> dict[str, Any]:
    """The unfinished record of this very run, or a new one. Raises ConfigError if another lies there."""
    if not path.exists():
        return head
    if force and records.kind_of(path) == head["record"]:
        return head
    record = records.read(path)
    if all(record[name] == head[name] for name in SAME) and not record["finished"]:
        return record
    state = "a finished run" if record["finished"] else "another run or machine"
    raise ConfigError(f"{path.name} holds {state}; give another --out, or --force to replace it.")
