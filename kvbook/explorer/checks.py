"""What a reader gives an explorer, checked: the value, or a sentence that says what is allowed."""

import math
from collections.abc import Iterable
from operator import index
from typing import Any


def choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """The value if it is one of those allowed. Raises ValueError, as all here, in one sentence."""
    choices = list(allowed)
    if isinstance(value, bool) or value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"{name} is {value!r}; it must be one of {listed}.")
    return value


def whole(name: str, value: Any, low: int, high: int, optional: bool = False) -> int | None:
    """A whole number (NumPy's too) within low..high, or None where that is allowed."""
    if value is None and optional:
        return None
    try:
        given = None if isinstance(value, bool) else index(value)
    except TypeError:
        given = None
    if given is None or not low <= given <= high:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {low} to {high}.")
    return given


def number(name: str, value: Any, low: float, high: float) -> float:
    """A number (NumPy's too) within low..high."""
    try:
        given = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        given = math.nan
    if not low <= given <= high:
        raise ValueError(f"{name} is {value!r}; it must be a number from {low} to {high}.")
    return given
