"""What `--what` chooses between: each kind of record, and the module that makes and checks it.

Importing this imports no torch; `load` may. Another kind of record joins with one line in RECORDS.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kvbook.accounting.errors import ConfigError, shown

RECORDS = {
    "memory": "kvbook.measure.memory",  # what caches hold, against the prediction
    "decode": "kvbook.measure.decode",  # how fast decode steps are
    "quality": "kvbook.measure.quality_points",  # perplexity through caches of fewer bits
    "codes": "kvbook.measure.codes_points",  # how fast attention reads int8 codes
    "blocks": "kvbook.measure.blocks",  # lesson 10's book-keeping: time per operation
    "ledger": "kvbook.measure.ledger_points",  # decode steps after each lesson's change, in turns
}
"""A record's name, and the module whose RECIPE is its recipe."""
MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Recipe:
    """How one kind of record is made, checked and told.

    `plan(device, settings)` lists the jobs, dicts of plain values with `what` and `device` among
    them; settings are model, quick and budget_bytes. It raises ConfigError for what does not fit.
    `measure[what](**rest)` does one of them, in a process of its own, and returns plain numbers.
    `check(point, record)` raises ConfigError unless the result of a point, whose job is one of the
    plan, is sound. `label(job)` names a job in a few words, `answer(record)` tells a finished record.
    `unexplained(job, result)` says, a sentence each, what contradicts a prediction. `packages` have
    their versions recorded. `bfloat16` says that it calculates in that dtype, which not every GPU can.
    """

    plan: Callable[[str, dict[str, Any]], list[dict[str, Any]]]
    measure: dict[str, Callable[..., dict[str, Any]]]
    check: Callable[[Any, dict[str, Any]], None]
    label: Callable[[dict[str, Any]], str]
    answer: Callable[[dict[str, Any]], str]
    unexplained: Callable[[dict[str, Any], dict[str, Any]], list[str]] = lambda job, result: []
    packages: tuple[str, ...] = ()
    bfloat16: bool = False


def parts(point: dict[str, Any], fields: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A point's job and its result. Raises ConfigError unless the result has these fields and no others."""
    job, result = point["job"], point["result"]
    if not isinstance(result, dict) or set(result) != set(fields):
        raise ConfigError(f"the point {shown(point)} has fields missing, unknown or foreign.")
    return job, result


def refuse_options(what: str, settings: dict[str, Any]) -> None:
    """Raise ConfigError for a --model or --budget-bytes given to a record that does not use it."""
    if settings["model"] != MODEL:
        raise ConfigError(f"--model is {shown(settings['model'])}; {what} takes {MODEL} alone.")
    if settings["budget_bytes"] is not None:
        budget = shown(settings["budget_bytes"])
        raise ConfigError(f"--budget-bytes is {budget}; it is for memory, {what} has no frontier.")


def load(name: str) -> Recipe:
    """The recipe of a kind of record. Raises KeyError for an unknown one."""
    recipe: Recipe = import_module(RECORDS[name]).RECIPE
    return recipe
