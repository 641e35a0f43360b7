"""How many users fit: free memory divided by the cache of one sequence, in exact arithmetic."""

import re
from fractions import Fraction
from math import isfinite

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.spec import check_count

MOST_BYTES = 2**60


def fit_users(
    sequence_bytes: int,
    memory_bytes: int,
    weights_bytes: int,
    utilization: str | float | Fraction = 1,
    tensor_parallel: int = 1,
    overhead_bytes: int = 0,
) -> int | None:
    """Sequences that fit on one GPU: floor((memory · utilization - weights / T - overhead) / one).

    `sequence_bytes`, `memory_bytes` and `overhead_bytes` are those of one GPU, `weights_bytes` is
    the whole model's. 0 where the weights alone do not fit; None where a sequence takes no cache.
    Raises ConfigError, which names the argument, for a number out of range.

    >>> fit_users(2_147_483_648, 80_000_000_000, 13_476_831_232)
    30
    """
    check_count("sequence_bytes", sequence_bytes, low=0, high=MOST_BYTES)
    check_count("memory_bytes", memory_bytes, high=MOST_BYTES)
    check_count("weights_bytes", weights_bytes, low=0, high=MOST_BYTES)
    check_count("overhead_bytes", overhead_bytes, low=0, high=MOST_BYTES)
    check_count("tensor_parallel", tensor_parallel, high=2**16)
    share = Fraction(weights_bytes, tensor_parallel)
    free = memory_bytes * as_utilization(utilization) - share - overhead_bytes
    if not sequence_bytes:
        return None
    return max(0, free // sequence_bytes)


def as_utilization(value: str | float | Fraction) -> Fraction:
    """The decimal as it is written, so that 0.9 is nine tenths; above 0 and at most 1."""
    text = float.__repr__(value) if isinstance(value, float) else str(value)
    exact: Fraction | None
    if isinstance(value, Fraction):
        exact = value
    elif isinstance(value, float):  # the shortest decimal that means it, 1e-05 too
        exact = Fraction(text) if isfinite(value) else None
    else:
        exact = Fraction(text) if re.fullmatch(r"[0-9]*\.?[0-9]{1,30}", text) else None
    if exact is None or not 0 < exact <= 1:
        raise ConfigError(f"utilization is {shown(text)}; it must be above 0 and at most 1.")
    return exact
