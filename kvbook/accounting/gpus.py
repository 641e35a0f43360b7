"""The GPUs of gpus.json, found by name."""

from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.tables import table


def gpu(name: str) -> dict[str, Any]:
    """The entry of a GPU, whatever the case of its name; ConfigError with the names if unknown."""
    entries: list[dict[str, Any]] = _entries()
    for entry in entries:
        if entry["name"].casefold() == name.casefold():
            return entry
    known = ", ".join(entry["name"] for entry in entries)
    raise ConfigError(f"gpu is {shown(name)}; it must be one of {known}.")


def memory_bytes(entry: dict[str, Any]) -> int:
    """What a program sees of the card: what its driver reports, where that is known."""
    return int(entry.get("memory_bytes_reported") or entry["memory_bytes_nominal"])


def _entries() -> list[dict[str, Any]]:
    content = table("gpus")
    return content["gpus"] if isinstance(content, dict) else content
