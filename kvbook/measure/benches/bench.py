"""What a bench consists of, whether a result is one of its own, and the arithmetic of times."""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles
from typing import Any

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.measure.plan import Job

Point = tuple[Job, dict[str, Any]]
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Bench:
    """One bench: which jobs, how one is run, what a job and its result look like, how it is told.

    `jobs(device, quick)` lists them. `run(**fields)` measures one and returns what `raw` shows: int or
    float for a number that is 0 or more, [x] for a list, a dict for a dict. `fields` says what each
    field of a job may be (int: 1 or more). `figures(job, result)` is what follows from that alone,
    recorded beside it. `table(points)` are the lines to print.
    """

    jobs: Callable[[str, bool], list[Job]]
    run: Callable[..., dict[str, Any]]
    fields: Mapping[str, Any]
    raw: Mapping[str, Any]
    figures: Callable[[Job, dict[str, Any]], dict[str, Any]]
    table: Callable[[list[Point]], list[str]]

    def measure(self, **job: Any) -> dict[str, Any]:
        """What one job gives: the numbers measured, and `figures`, what follows from them."""
        result = self.run(**job)
        return {**result, "figures": self.figures(job, result)}

    def check(self, what: str, job: Job, result: Any) -> None:
        """Raise ConfigError, one sentence, unless job and result are of this bench, whole."""
        rest = {name: value for name, value in job.items() if name not in ("what", "device")}
        if rest.keys() != self.fields.keys():
            raise ConfigError(f"the job {shown(job)} has fields missing, unknown or foreign.")
        for name, value in rest.items():
            if not _allowed(value, self.fields[name]):
                raise ConfigError(f"the job {shown(job)}: {name} is not one of {what}'s.")
        if not isinstance(result, dict) or result.keys() != {*self.raw, "figures"}:
            raise ConfigError(f"the result {shown(result)} has fields missing, unknown or foreign.")
        for name, like in self.raw.items():
            if not _is_like(result[name], like):
                raise ConfigError(f"{what}: {name} is {shown(result[name])}, not what it must be.")
        try:
            figures = self.figures(job, result)
        except (ArithmeticError, ValueError) as error:
            raise ConfigError(f"{what}: no figures follow from the numbers: {error}.") from None
        if not same(result["figures"], figures):
            raise ConfigError(f"{what}: figures is not what follows from the numbers beside it.")


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are alike, numbers to a billionth."""
    if isinstance(other, dict):
        alike = isinstance(one, dict) and one.keys() == other.keys()
        return alike and all(same(one[name], other[name]) for name in other)
    if isinstance(other, list):
        alike = isinstance(one, list) and len(one) == len(other)
        return alike and all(same(*pair) for pair in zip(one, other, strict=True))
    if type(other) in (int, float):
        return type(one) in (int, float) and math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and one == other


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles (of a single value: itself)."""
    low, middle, high = quantiles(values, method="inclusive") if len(values) > 1 else [*values] * 3
    return {"low": low, "median": middle, "high": high}


def ratio(slower: Sequence[float], faster: Sequence[float]) -> float:
    """How many times as fast: the median over rounds of one's time by the other's in that round."""
    return median(a / b for a, b in zip(slower, faster, strict=True))


def exponents(sizes: Sequence[float], times: Sequence[float]) -> list[float]:
    """The slopes of log time over log size between neighbours: 0 constant, 1 linear, 2 quadratic."""
    points = [(math.log(n), math.log(t)) for n, t in zip(sizes, times, strict=True)]
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]


def _allowed(value: Any, allowed: Any) -> bool:
    if allowed is int:
        return type(value) is int and value >= 1
    if isinstance(allowed, list):  # of as many sizes as there are
        return isinstance(value, list) and bool(value) and all(_allowed(v, int) for v in value)
    return isinstance(value, str) and isinstance(allowed, Container) and value in allowed


def _is_like(value: Any, like: Any) -> bool:
    if isinstance(like, dict):
        same_names = isinstance(value, dict) and value.keys() == like.keys()
        return same_names and all(_is_like(value[name], like[name]) for name in like)
    if isinstance(like, list):
        return isinstance(value, list) and bool(value) and all(_is_like(v, like[0]) for v in value)
    kinds = (int,) if like is int else (int, float)
    return type(value) in kinds and math.isfinite(value) and value >= 0
