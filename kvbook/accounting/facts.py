"""Models that people serve and the GPUs they serve them on, each fact with its source.

The facts are two JSON files beside this module, `models.json` and `gpus.json`; the explorers read
the same files. They hold what is published. What follows from it (bytes per token, users) is
computed elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.tables import table

_MAKERS = {"nvidia", "amd", "geforce", "tesla", "instinct"}  # say nothing that the number does not


@dataclass(frozen=True)
class Model:
    """A model, as its makers published it."""

    id: str  # short and stable, "llama-3.1-8b"
    name: str  # for people, "Llama 3.1 8B"
    config: dict[str, Any]  # the fields of its config.json that matter, named as there
    parameters: int  # how many; tied weights once
    parameters_note: str  # how they were counted, and what is left out
    max_context: int  # tokens
    source: str  # the model card, and where the config was seen
    released: str  # "2024-07", year and month
    weights_note: str | None = None  # the precision of the release, where it is not 16 bits
    weights_bytes: int | None = None  # the released checkpoint, where it is not 16 bits and known
    max_context_note: str | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU (one card or module), as its maker sells it and as its driver sees it."""

    name: str  # "A100 80GB"
    memory_bytes_nominal: int  # what is marketed, in bytes: GB × 10^9
    memory_bytes_reported: int | None  # the total that the driver reports, in bytes; None: not seen
    reported_source: str | None  # who saw the driver report it
    bandwidth_bytes_per_s: int  # peak of the memory, bytes per second
    fp16_flops_dense: int | None  # peak per second: fp16 products summed in fp32, no sparsity
    source: str  # the maker's page, and where it was seen
    aliases: tuple[str, ...] = ()  # other names in use, those that drivers print among them
    note: str | None = None


def models() -> list[Model]:
    """All models, in the order of the file: by family."""
    return [Model(**entry) for entry in deepcopy(table("models"))]


def gpus() -> list[Gpu]:
    """All GPUs, in the order of the file: NVIDIA's from small to large, then AMD's."""
    return [
        Gpu(**{**entry, "aliases": tuple(entry.get("aliases", ()))})
        for entry in deepcopy(table("gpus"))
    ]


def model(name: str) -> Model:
    """The model of that id or name; capitals, spaces and signs do not matter ("Llama 3.1-8B").

    Raises ConfigError, with all ids, where the name fits no model or several.
    """
    everything = models()
    found = _matches(name, [(m.name, m.id) for m in everything])
    return everything[_the_one(name, found, "model", [m.id for m in everything])]


def gpu(name: str) -> Gpu:
    """The GPU of that name; capitals, spaces, signs and the maker do not matter ("a100-80gb").

    Part of a name is enough where only one GPU has it ("4090"). Raises ConfigError, with all names,
    where it fits none or several.
    """
    everything = gpus()
    found = _matches(name, [(g.name, *g.aliases) for g in everything])
    return everything[_the_one(name, found, "gpu", [g.name for g in everything])]


def _words(name: str) -> list[str]:
    """Runs of letters and digits in small letters; a version's dot is part of a word."""
    found = re.findall(r"[a-z0-9]+(?:\.[0-9]+)*", name.lower())
    return [word for word in found if word not in _MAKERS]


def _matches(name: str, known: Sequence[tuple[str, ...]]) -> list[int]:
    """Which entries have that name, or, if none has, whose first name holds all of its words."""
    if not isinstance(name, str):
        return []
    words = _words(name)
    run = "".join(words)
    exact = [i for i, names in enumerate(known) if run in {"".join(_words(n)) for n in names}]
    if exact or not words:
        return exact
    return [i for i, names in enumerate(known) if set(words) <= set(_words(names[0]))]


def _the_one(name: str, found: list[int], what: str, allowed: list[str]) -> int:
    if len(found) == 1:
        return found[0]
    if found:
        several = " or ".join(allowed[i] for i in found)
        raise ConfigError(f"{what} is {shown(name)}; that could be {several}: say which.")
    raise ConfigError(f"{what} is {shown(name)}; it must be one of {', '.join(allowed)}.")
