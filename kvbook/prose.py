"""The numbers that a text states, beside the values they stand for.

A lesson's last code cell maps each number with a unit in its text to a value that a cell above
computed, or to where the number comes from, and `check` compares them:

    check({"46,080 bytes": per_token, "13.5 GB": weights / 1e9, "7 %": From("references: xiao2023")})

A test reads the text with `numbers` and fails for a number that the map leaves out. So a figure in the
text cannot outlive the computation behind it. This module knows nothing of notebooks or of tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

UNITS = (
    "bytes|byte|kB|MB|GB|TB|KiB|MiB|GiB|bits|bit|GB/s|TB/s|TFLOPS|TFLOP/s|FLOPs|percent|%|times|"
    "ms|milliseconds|seconds|s|minutes|tokens per second|tokens a second|tokens|token|users|user|"
    "sequences|conversations|requests|positions|rows|slots|slot|blocks|block|steps|step|values|value|"
    "parameters|weights|KV heads|KV head|query heads|query head|heads|head|layers|layer|operations|"
    "operation|nats|nat|"
    "multiplications|lines|pages"
)
_NUMBER = r"[-−+]?\d(?:[\d,]*\d)?(?:\.\d+)?"
_JOIN = r"\s*(?:,|–|to|and|or|against|instead of|not|, and|, not)\s+|–"
_UNIT = "|".join(sorted(map(re.escape, UNITS.split("|")), key=len, reverse=True))
_STATED = re.compile(
    rf"(?<![\w.,^/])({_NUMBER}(?:(?:{_JOIN}){_NUMBER})*)[\s\u202f-]?({_UNIT})(?![\w/])"
)
_MARKUP = re.compile(
    r"```.*?```|<!--.*?-->|\]\([^)]*\)|https?://\S+|`[^`]*`|\$\$.*?\$\$|<[^>]+>|[*_]", re.S
)


@dataclass(frozen=True)
class From:
    """Where a number comes from that no cell computes: a paper, a data sheet, a recorded file."""

    source: str

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not self.source.strip():
            raise ValueError(f"source is {self.source!r}; it must say where the number comes from.")


def numbers(markdown: str) -> list[str]:
    """The numbers with a unit in a text, as "46,080 bytes", each once, in the order of the text.

    Code, formulas and addresses are left out. "0.96 to 1.02 times" states both, each with the unit.
    """
    text = " ".join(_MARKUP.sub(" ", markdown).replace("|", " ; ").split())  # a cell ends a phrase
    found: dict[str, None] = {}
    for stated, unit in _STATED.findall(text):
        for number in re.findall(_NUMBER, stated):
            found[f"{number} {unit}"] = None
    return list(found)


def value(stated: str) -> tuple[float, int]:
    """The number at the beginning of "−5.0 %", and its decimals: (−5.0, 1)."""
    found = re.match(_NUMBER, stated)
    if not found:
        raise ValueError(f"{stated!r} does not begin with a number, as in '46,080 bytes'.")
    digits = found[0].replace(",", "").replace("−", "-")
    return float(digits), len(digits.partition(".")[2])


def check(said: Mapping[str, float | From]) -> None:
    """Compare each stated number with its value, both in the unit that the text names.

    A whole number must equal an integer value; any other value is rounded to the decimals that the
    text gives. Raises AssertionError naming the first that differs.
    """
    computed = 0
    for stated, true in said.items():
        if isinstance(true, From):
            continue
        number, decimals = value(stated)
        true = float(true)
        room = 0.0 if true.is_integer() and not decimals else 0.5 * 10**-decimals
        if not math.isfinite(true) or abs(true - number) > room * (1 + 1e-9):
            raise AssertionError(f"The text says {stated}; the value is {true:,.6g}.")
        computed += 1
    print(
        f"{computed} numbers of the text equal what a cell computed; {len(said) - computed} have a source."
    )
