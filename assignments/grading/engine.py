"""Spread the gradings over workers with dask.distributed: a few on this machine, or a cluster that is there.

A worker that dies loses the grading it was at, and no other: dask gives that one to the next worker. After
four such deaths it is given up, as not graded. Results are taken from the workers as they come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import dask
import psutil
from distributed import Client, LocalCluster, as_completed

import grading

CONNECT_SECONDS = 20


@contextmanager
def client(jobs: int, scheduler: str | None) -> Iterator[Client]:
    """A client of the cluster at `scheduler`, or of `jobs` threads here, each of which waits for its sandbox.

    Raises:
        ValueError: nothing answers at `scheduler`; one sentence.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if scheduler is None:
        quiet = {
            "distributed.worker.memory.terminate": False,
            "distributed.worker.memory.pause": False,
        }
        with (
            dask.config.set(quiet),
            LocalCluster(
                n_workers=1,
                threads_per_worker=jobs,
                processes=False,
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
            ) as cluster,
            Client(cluster) as found,
        ):
            try:
                yield found
            finally:  # those that still run, after a Ctrl-C: else the cluster waits for them
                for child in psutil.Process().children():
                    if child.name() == "bwrap":
                        child.kill()
        return
    try:
        found = Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"No dask scheduler answers at {scheduler!r} ({type(error).__name__}); "
            "start one with `dask scheduler`."
        ) from None
    with found:
        yield found


class ByValue:
    """A function that travels whole: neither the scheduler nor a worker needs to have this package.

    (dask sends a function of a module by its name, and both of them look it up.)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        cloudpickle.register_pickle_by_value(grading)
        try:
            self._whole = cloudpickle.dumps(function)
        finally:
            cloudpickle.unregister_pickle_by_value(grading)

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return cloudpickle.loads, (self._whole,)


def spread(
    client: Client,
    grade: Callable[..., dict[str, Any]],
    notebooks: dict[str, bytes],
    *shared: object,
) -> Iterator[tuple[str, dict[str, Any] | None, str]]:
    """Run `grade(notebook, *shared)` for each notebook, and yield (key, result, problem) as each ends.

    `result` is None where no worker could grade it; `problem` then says why.
    """
    job = ByValue(lambda notebook: grade(notebook, *shared))
    futures = {
        client.submit(job, notebook, key=f"grade-{key}", pure=True): key
        for key, notebook in notebooks.items()
    }
    try:
        for future, result in as_completed(list(futures), with_results=True, raise_errors=False):
            key = futures.pop(future)
            if future.status == "finished":
                yield key, result, ""
            else:
                error = future.exception() if future.status == "error" else None
                yield key, None, _said(error)
            future.release()
    finally:
        if futures:  # interrupted: start no more of them
            client.cancel(list(futures), force=True)


def _said(error: BaseException | None) -> str:
    if error is None:
        return "the cluster dropped it"
    if type(error).__name__ == "KilledWorker":
        return "the workers that graded it died, four times"
    return " ".join(str(error).split())[:300] or type(error).__name__
