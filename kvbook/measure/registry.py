"""What `--what` chooses between: each kind of record, and the module that makes and checks it.

Importing this imports no torch; `load` may. Another kind of record joins with one line in RECORDS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

RECORDS = {
    "memory": "kvbook.measure.memory",  # what caches hold, against the prediction
    "quality": "kvbook.measure.quality_points",  # perplexity through caches of fewer bits
    "codes": "kvbook.measure.codes_points",  # how fast attention reads int8 codes
}
"""A record's name, and the module whose RECIPE is its recipe."""


@dataclass(frozen=True)
class Recipe:
    """How one kind of record is made, checked and told.

    `plan(device, settings)` lists the jobs, dicts of plain values with `what` and `device` among
    them; settings are model, quick and budget_bytes. It raises ConfigError for what does not fit.
    `measure[what](**rest)` does one of them, in a process of its own, and returns plain numbers.
    `check(point, record)` raises ConfigError unless a point of a record is sound. `label(job)` names
    a job in a few words, `answer(record)` tells a finished record. `unexplained(job, result)` says, a
    sentence each, what contradicts a prediction. `packages` have their versions recorded.
    """

    plan: Callable[[str, dict[str, Any]], list[dict[str, Any]]]
    measure: dict[str, Callable[..., dict[str, Any]]]
    check: Callable[[Any, dict[str, Any]], None]
    label: Callable[[dict[str, Any]], str]
    answer: Callable[[dict[str, Any]], str]
    unexplained: Callable[[dict[str, Any], dict[str, Any]], list[str]] = lambda job, result: []
    packages: tuple[str, ...] = ()


def load(name: str) -> Recipe:
    """The recipe of a kind of record. Raises KeyError for an unknown one."""
    recipe: Recipe = import_module(RECORDS[name]).RECIPE
    return recipe
