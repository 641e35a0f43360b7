"""The numbers that a text states, beside the values they stand for.

A lesson's last code cell maps each number with a unit in its text to a value that a cell above
computed, or to where the number comes from, and `check` compares them:

    check({"46,080 bytes": per_token, "13.5 GB": weights / 1e9, "7 %": From("references: xiao2023")})

A test reads the text with `numbers` and fails for a number that the map leaves out. It reads with `bare`
what has no unit, as most numbers of a table, and fails for one that no cell writes or prints. So a figure
in the text cannot outlive the computation behind it. This module knows nothing of notebooks or of tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

UNITS = (
    "bytes|byte|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB|bits|bit|GB/s|TB/s|TFLOPS|TFLOP/s|FLOPs|percent|%|times|"
    "ms|milliseconds|seconds|s|µs|ns|minutes|hours|days|tokens per second|tokens a second|tokens/s|tok/s|"
    "tokens|token|users|user|GPUs|GPU|cards|card|queries|query|neighbours|channels|channel|"
    "sequences|conversations|requests|positions|rows|slots|slot|blocks|block|steps|step|values|value|"
    "parameters|weights|KV heads|KV head|query heads|query head|heads|head|layers|layer|operations|"
    "operation|nats|nat|"
    "multiplications|lines|pages"
)
_MANY = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_BETWEEN = (
    "new|more|other|further|extra|whole|full|empty|free|real|real-world|concurrent|cached|windowed"
)
_NUMBER = r"[-−+]?\d(?:[\d,]*\d)?(?:\.\d+)?"
_JOIN = r"\s*(?:,|–|to|and|or|against|instead of|not|, and|, not)\s+|–"
_UNIT = "|".join(sorted(map(re.escape, UNITS.split("|")), key=len, reverse=True))
_STATED = re.compile(
    rf"(?<![\w.,^/])({_NUMBER}(?:(?:{_JOIN}){_NUMBER})*)(?:\s({'|'.join(_MANY)}))?"
    rf"(?:\s(?:{_BETWEEN}))?[\s-]?({_UNIT}|(?<=\d)[x×](?!\s*\d))(?![\w/])"
)
_BARE = re.compile(r"(?<![\w.,^/#{-])(\d(?:[\d,]*\d)?(?:\.\d+)?)(?:st|nd|rd|th)?(?![\w{]|\.\d)")
_YEAR = re.compile(r"(?:\b\d\d? [A-Z][a-z]+ )?\b(?:19|20)\d\d\b(?![,.]\d)")  # the book writes 2,048
_MARKUP = re.compile(
    r"```.*?```|<!--.*?-->|\]\([^)]*\)|https?://\S+|`[^`]*`|\$\$.*?\$\$|</?[A-Za-z][^<>]*>|[*_]",
    re.S,
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

    Code, displayed formulas and addresses are left out. "0.96 to 1.02 times" states both, each with the
    unit; "2 new tokens" states "2 tokens", and "135 million weights" itself.
    """
    found: dict[str, None] = {}
    for stated, many, unit in _STATED.findall(_plain(markdown)):
        for number in re.findall(_NUMBER, stated):
            found[" ".join(filter(None, (number, many, unit)))] = None
    return list(found)


def bare(markdown: str) -> list[str]:
    """The numbers of two digits or more that `numbers` leaves out, as "46,080", each once.

    Years and versions, and numbers that are a part of a name, are not among them.
    """
    text = _STATED.sub(" ; ", _YEAR.sub(" ; ", _plain(markdown)))
    return [*dict.fromkeys(n for n in _BARE.findall(text) if sum(map(str.isdigit, n)) > 1)]


def _plain(markdown: str) -> str:
    """The text as one line, without code, formulas of their own, addresses and marks."""
    text = _MARKUP.sub(" ", markdown).replace("{,}", ",")
    text = re.sub(rf"\$({_NUMBER})\$", r" \1 ", text)  # a formula that is but a number
    return " ".join(text.replace("|", " ; ").split())  # a cell ends a phrase


def value(stated: str) -> tuple[float, int]:
    """The number at the beginning of "−5.0 %", and its decimals: (−5.0, 1). Of "2 million": (2e6, −6)."""
    found = re.match(rf"({_NUMBER})(?:\s({'|'.join(_MANY)})\b)?", stated)
    if not found:
        raise ValueError(f"{stated!r} does not begin with a number, as in '46,080 bytes'.")
    digits, zeros = found[1].replace(",", "").replace("−", "-"), _MANY.get(found[2], 0)
    return float(digits) * 10**zeros, len(digits.partition(".")[2]) - zeros


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
