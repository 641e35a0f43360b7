"""A whole run: the plan, what of it is done already, the rest, and the record after each point."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from kvbook.accounting import ConfigError
from kvbook.device import half
from kvbook.measure import record as records
from kvbook.measure.machine import device_facts, driver, versions
from kvbook.measure.plan import Job
from kvbook.measure.progress import Progress
from kvbook.measure.registry import load
from kvbook.measure.runner import results as measured

SAME = ("record", "format", "device", "driver", "versions", "settings")  # or a run is another one
AGAIN = " The same command measures those again."


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
    if recipe.bfloat16 and half(device) is not torch.bfloat16:
        raise ConfigError(f"--what is {what}, which calculates in bfloat16; this GPU has none.")
    for package in recipe.packages:
        if find_spec(package) is None:
            raise ConfigError(f"{package} is missing, which {what} compares with: pip install it.")
    head = _head(what, recipe.packages, device, settings, command)
    records.check(head)  # before any work: what could not be read again is never begun
    record = _begun(path, head, force)
    records.write(path, record)
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
    record["points"].sort(key=lambda point: jobs.index(point["job"]))
    record["finished"] = True
    records.write(path, record)
    if odd:
        raise ConfigError(
            f"{len(odd)} of {len(jobs)} points differ from the prediction: {odd[0]}{AGAIN}"
        )
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
        "date": datetime.now(timezone.utc).strftime(records.DATE),
        "command": command,
        "settings": settings,
        "finished": False,
        "points": [],
    }


def _begun(path: Path, head: dict[str, Any], force: bool) -> dict[str, Any]:
    """The unfinished record of this very run, or a new one. Raises ConfigError if another lies there.

    Points that the prediction does not explain are left out, and so measured again. `force` gives a
    new one for any record of this kind but the unfinished one of this very run.
    """
    try:
        if not path.exists():
            return head
        record = records.read(path, mend=True)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "its name is no file's"
        raise ConfigError(f"{path} cannot be reached: {reason}.") from None
    except ConfigError:
        if force and records.kind_of(path) == head["record"]:
            return head
        raise
    if all(record[name] == head[name] for name in SAME) and not record["finished"]:
        return record
    if force and record["record"] == head["record"]:
        return head
    state = "a finished run" if record["finished"] else "another run or machine"
    raise ConfigError(f"{path.name} holds {state}; give another --out, or --force to replace it.")
