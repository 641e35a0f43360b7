"""The command `measure`: its arguments, the run, and a short answer. Imports torch only when run."""

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.size import count
from kvbook.measure.registry import RECORDS


def add_command(commands: Any) -> None:
    """Add `measure` to the subcommands of a parser."""
    parser = commands.add_parser(
        "measure",
        help="caches of many shapes, predicted and measured on this machine",
        description="Fills caches of many shapes and compares what they take with the prediction. "
        "About 5 minutes; an interrupted run goes on where it stopped.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--out", required=True, metavar="NAME.json", help="the record; written after each point")
    add("--what", default="memory", metavar="W", help=f"{' or '.join(RECORDS)} (memory)")
    add("--device", default="auto", metavar="D", help="cpu, cuda or auto (auto: cuda where it is)")
    add("--model", default="smollm2-135m", metavar="ID", help="whose shape (smollm2-135m)")
    add("--budget-bytes", metavar="N", help="memory for the frontier (CPU: 512 MiB; GPU: all free)")
    add("--quick", action="store_true", help="fewer points, about a minute")
    add(
        "--force",
        action="store_true",
        help="replace a record that is finished, broken or another run's",
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> str:
    """Measure, and say in a few lines what came out.

    Raises ConfigError, one sentence, for options that do not fit, a file that is in the way, a point
    that fails, or one that the prediction does not explain.
    """
    budget = None
    if given.budget_bytes is not None:
        budget = count("--budget-bytes", given.budget_bytes, low=2**24, high=2**50)
    path = Path(given.out)
    if path.suffix != ".json":
        raise ConfigError(f"--out is {shown(given.out)}; it must end in .json.")
    if given.what not in RECORDS:
        raise ConfigError(f"--what is {shown(given.what)}; it must be {' or '.join(RECORDS)}.")
    if given.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device is {shown(given.device)}; it must be auto, cpu or cuda.")
    from kvbook.measure.run import measure  # and with it torch

    settings = {"model": given.model, "quick": given.quick, "budget_bytes": budget}
    with ended_by_signals():
        return measure(path, given.device, settings, command(given), given.force, given.what)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as an interrupt does: with its measuring processes.

    The exit status is 128 plus the signal's number. One that is ignored (nohup) stays so.
    """

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # only the main thread may set them
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            if before[number] == signal.SIG_DFL:
                signal.signal(number, end)
        yield
    finally:
        for number in numbers:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)


def command(given: argparse.Namespace) -> str:
    """The command line, without the folders of this machine."""
    out = PurePath(given.out)
    name = out.name if out.is_absolute() or ".." in out.parts else out.as_posix()
    words = ["python -m kvbook measure"] + [f"--what {given.what}"] * (given.what != "memory")
    words += [f"--out {name}", f"--device {given.device}"]
    words.append(f"--model {given.model}")
    if given.budget_bytes is not None:
        words.append(f"--budget-bytes {given.budget_bytes}")
    return " ".join(words + ["--quick"] * given.quick)
