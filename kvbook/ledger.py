"""The ledger that grows from lesson to lesson: what each change does to bytes, users and speed.

Bytes and users are arithmetic, for one model on one card. Tokens per second come from one record for
each type of device, each shown with its machine, and never from a bound. `python -m kvbook measure
--what ledger` makes such a record and checks it. This module only reads it: so a lesson's page does not
depend on the modules of later lessons.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import cycle
from pathlib import Path
from statistics import quantiles
from typing import Any

from kvbook import ledger_file
from kvbook.accounting import CacheSpec, cache_spec, fit_users, what_if
from kvbook.accounting.facts import model
from kvbook.accounting.latent import with_latent

LESSONS = 10
MEMORY, CONTEXT = 80 * 10**9, 4096  # bytes of the card, tokens of each user
MIX = (512,) * 6 + (2048,) * 3 + (4096,)  # tokens that ten users of lesson 5 hold
WINDOW, SINKS, BLOCK, TAIL = 128, 4, 16, 32  # tokens
FOLDER = Path(__file__).resolve().parent / "measurements"  # comes with the package
RECORDS = {"cpu": "measurements/ledger_cpu.json", "cuda": "measurements/ledger_cuda.json"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
DASH = "—"
SCOPE = ' scope="col"'


@dataclass(frozen=True)
class Change:
    """What a lesson changes, and what becomes of a model's cache.

    `way` names the change in a record. `of(spec)` is the cache's accounting; None: there is no
    cache. `past` tokens a sequence grows no more. `beside(spec)` are bytes of each sequence that
    the accounting does not know of. A `paged` cache serves a mix of lengths.
    """

    lesson: int
    words: str
    way: str | None = None
    of: Callable[[CacheSpec], CacheSpec] | None = lambda spec: spec
    dtype: str = "float16"
    past: int | None = None
    beside: Callable[[CacheSpec], int] = lambda spec: 0
    paged: bool = False


def _tail(spec: CacheSpec) -> int:
    """Lesson 8's tails of one sequence: keys that fill no block yet, in float16."""
    return 2 * TAIL * sum(layer.n_kv_heads * layer.k_dim for layer in spec.layers)


CHANGES = (
    Change(1, "no cache, the whole text again", "none", of=None),
    Change(2, "a cache that grows", "growing"),
    Change(2, "a cache reserved at once", "preallocated"),
    Change(7, "8 KV heads (GQA)", of=lambda spec: what_if(spec, n_kv_heads=8)),
    Change(7, "1 KV head (MQA)", "one head", of=lambda spec: what_if(spec, n_kv_heads=1)),
    Change(7, "a latent of 512 + 64 (MLA)", of=lambda spec: with_latent(spec, 512, 64)),
    Change(8, "int8", "int8", dtype="int8"),
    Change(8, "int4, keys per channel", "int4", dtype="int4", beside=_tail),
    Change(
        9,
        f"window {WINDOW}, {SINKS} sinks",
        "window",
        of=lambda spec: what_if(spec, window=WINDOW, sinks=SINKS),
        past=WINDOW + SINKS,
    ),
    Change(10, f"blocks of {BLOCK}", "paged", paged=True),
)


@dataclass(frozen=True)
class Row:
    """A line of the ledger; None where a column does not apply.

    `bytes_per_token` are those of one more token of a sequence, past its window if it has one. `users`
    hold CONTEXT tokens each, or MIX if the change is paged. `rates` has an entry for each device with
    a record: tokens per second, as low, median and high, or None if this change was not measured.
    """

    lesson: int
    change: str
    bytes_per_token: int | None
    users: int | None
    rates: dict[str, dict[str, float] | None]
    past: int | None = None
    paged: bool = False

    def cells(self) -> list[str]:
        """The line as text."""
        per_token, users = (
            DASH if number is None else f"{number:,}"
            for number in (self.bytes_per_token, self.users)
        )
        per_token += " when full" if self.past else ""
        users += " on the mix" if self.paged else ""
        speeds = [_speed(rate) if rate else DASH for rate in self.rates.values()]
        return [str(self.lesson), self.change, per_token, users, *speeds]


@dataclass(frozen=True)
class Ledger:
    """The ledger up to a lesson: prints as an aligned table, and shows as one in a notebook."""

    lesson: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]  # a sentence or a few each: what is arithmetic, what was measured where

    @property
    def caption(self) -> str:
        return f"The ledger up to lesson {self.lesson}: each change alone"

    @property
    def header(self) -> list[str]:
        devices = self.rows[0].rates
        speeds = [f"Tokens per second, {DEVICES[device]}" for device in devices]
        return ["Lesson", "Change", "Bytes per token", "Users", *speeds]

    def __repr__(self) -> str:
        lines = [self.header, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                cell.ljust(width) if at == 1 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        notes = [line for note in self.notes for line in textwrap.wrap(note, 98)]
        return "\n".join([self.caption, "", *table, "", *notes])

    def _repr_html_(self) -> str:
        """The table as HTML; `dataframe` is the class that notebooks and the theme know."""

        def line(cells: list[str], tag: str, scope: str = "") -> str:
            sides = ["left" if at == 1 else "right" for at in range(len(cells))]
            made = [
                f'<{tag}{scope} style="text-align: {side}">{escape(cell)}</{tag}>'
                for side, cell in zip(sides, cells, strict=True)
            ]
            return f"<tr>{''.join(made)}</tr>"

        return "\n".join(
            [
                '<table class="table dataframe">',
                f"<caption>{escape(self.caption)}</caption>",
                f"<thead>{line(self.header, 'th', SCOPE)}</thead>",
                "<tbody>",
                *(line(row.cells(), "td") for row in self.rows),
                "</tbody>",
                "</table>",
                *(f"<p><small>{escape(note)}</small></p>" for note in self.notes),
            ]
        )


def _speed(rate: dict[str, float]) -> str:
    """Median and quartiles with one decimal, or two where the median is below 10."""
    places = 1 if rate["median"] >= 10 else 2
    low, median, high = (f"{rate[name]:.{places}f}" for name in ("low", "median", "high"))
    return f"{median} ({low}–{high})"


def show(lesson: int, folder: Path = FOLDER) -> Ledger:
    """The ledger with all changes made up to a lesson, 1 to LESSONS.

    Speeds are those of the files in `folder` that RECORDS names, where they exist and hold a finished,
    whole run on that type of device. Raises ValueError for another lesson, and for a file that is no
    sound record.
    """
    if type(lesson) is not int or not 1 <= lesson <= LESSONS:
        raise ValueError(f"lesson is {lesson!r}; it must be an int from 1 to {LESSONS}.")
    found = _records(folder)
    made = [change for change in CHANGES if change.lesson <= lesson]
    measured = {device: rates for device, (_, _, rates) in found.items()}
    return Ledger(lesson, tuple(_row(change, measured) for change in made), _notes(made, found))


def admitted(spec: CacheSpec, room: int, lengths: tuple[int, ...] = MIX) -> int:
    """Users whose blocks fit into `room` bytes, with these lengths in turn, over and over.

    Raises ValueError where no length takes any room.
    """
    takes = [
        spec.nbytes(n, cache_dtype="float16", policy="paged", block_size=BLOCK) for n in lengths
    ]
    if not any(takes):
        raise ValueError(f"lengths is {lengths}; one of them must take room.")
    for users, nbytes in enumerate(cycle(takes)):
        room -= nbytes
        if room < 0:
            return users
    raise AssertionError  # a cycle has no end


def _row(change: Change, measured: dict[str, dict[str, dict[str, float]]]) -> Row:
    rates = {device: known.get(change.way or "") for device, known in measured.items()}
    if change.of is None:
        return Row(change.lesson, change.words, 0, None, rates)
    llama = model("llama-2-7b")
    spec, weights = change.of(cache_spec(llama.config)), 2 * llama.parameters
    per_token = spec.bytes_per_token(change.dtype, beyond=change.past is not None)
    if change.paged:
        users: int | None = admitted(spec, MEMORY - weights)
    else:
        one = spec.nbytes(CONTEXT, cache_dtype=change.dtype) + change.beside(spec)
        users = fit_users(one, MEMORY, weights)
    return Row(change.lesson, change.words, per_token, users, rates, change.past, change.paged)


Found = dict[str, tuple[str, dict[str, Any], dict[str, dict[str, float]]]]


def _records(folder: Path) -> Found:
    """By type of device: the record's name, the record, and its rates by way."""
    ways = [change.way for change in CHANGES if change.way]
    found: Found = {}
    for device, path in RECORDS.items():
        file = folder / Path(path).name
        if record := ledger_file.read(file, device, ways):
            found[device] = file.name, record, _rates(record)
    return found


def _rates(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Steps per second of each way: median and quartiles over the rounds of all parts."""
    found = {}
    for way in record["points"][0]["result"]["seconds"]:
        times = [s for point in record["points"] for s in point["result"]["seconds"][way]]
        quartiles = quantiles([1 / s for s in times], method="inclusive")
        found[way] = dict(zip(("low", "median", "high"), quartiles, strict=True))
    return found


def _notes(made: list[Change], found: Found) -> tuple[str, ...]:
    notes = [
        "Bytes per token and users: arithmetic, for Llama 2 7B in fp16 on 80 GB (1 GB = 10^9 bytes), "
        f"weights as published, {CONTEXT:,} tokens each."
    ]
    if any(change.past for change in made):
        notes[0] += f" The window is full at {WINDOW + SINKS} tokens."
    if any(change.dtype == "int4" for change in made):
        notes[0] += f" int4 counts its tail, {TAIL} keys of each head in fp16."
    if any(change.paged for change in made):
        notes[0] += (
            " The mix: of ten users six hold 512 tokens, three 2,048 and one 4,096. "
            f"Where all hold {CONTEXT:,}, blocks change nothing."
        )
    for device, (name, record, _) in found.items():
        facts, job = record["device"], record["points"][0]["job"]
        rounds = job["rounds"] * len(record["points"])
        threads = f" with {facts['threads']} threads" if "threads" in facts else ""
        notes.append(
            f"Tokens per second, {DEVICES[device]}: measured, one sequence of SmolLM2-135M in float32 "
            f"from {job['context']:,} tokens on, median (quartiles) of {rounds} rounds, on "
            f"{facts['name']}{threads}, PyTorch {record['versions']['torch']}, {record['date'][:10]} "
            f"({name}). Where quartiles overlap, a difference may be noise."
        )
    missing = [words for device, words in DEVICES.items() if device not in found]
    if missing:
        notes.append(f"No {' and no '.join(missing)} record of tokens per second exists here.")
    if found and any(change.way == "one head" for change in made):
        notes.append(
            "SmolLM2 has 3 KV heads. With 1, its keys and values come from averaged weights that "
            "nobody has trained further: its text is worse, its speed is not."
        )
    return tuple(notes)
