"""Run jobs in fresh processes and hand back each result as it comes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from kvbook.accounting import ConfigError
from kvbook.measure.plan import Job
from kvbook.measure.registry import load

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent.parent


def results(jobs: Iterable[Job], record: str = "memory") -> Iterator[tuple[Job, dict[str, Any]]]:
    """Each job of a kind of record with its result, in their order.

    On a CPU every job has a process of its own (see `child`), because resident memory is a whole
    process's. On a GPU those in a row share one, but for the frontier. Raises ConfigError, one
    sentence, for a job that fails or whose process dies. Whatever ends this early (an interrupt, an
    error in the caller) ends that process, too.
    """
    for _, group in groupby(enumerate(jobs), key=_process_of):
        yield from _in_one_process([job for _, job in group], record)


def _process_of(numbered: tuple[int, Job]) -> int:
    number, job = numbered
    alone = job["device"] == "cuda" and job["what"] == "frontier"
    return number if alone else -1


def _in_one_process(jobs: list[Job], record: str) -> Iterator[tuple[Job, dict[str, Any]]]:
    label = load(record).label
    path = os.pathsep.join(filter(None, [str(PACKAGE_FOLDER), os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-m", "kvbook.measure.child", record],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with suppress(BrokenPipeError):  # a process that died at once: its missing answer says so
            child.stdin.write("".join(json.dumps(job) + "\n" for job in jobs))
        with suppress(BrokenPipeError):
            child.stdin.close()
        for job in jobs:
            line = child.stdout.readline()
            if not line:
                raise ConfigError(f"{label(job)}: the process ended with {child.wait()}.")
            answer = json.loads(line)
            if "error" in answer:
                raise ConfigError(f"{label(job)}: {answer['error']}")
            yield job, answer["result"]
    finally:
        _end(child)
        child.stdout.close()


def _end(child: subprocess.Popen[str]) -> None:
    """End the process and its forks: they are a process group of their own."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
