"""The tables, read once: families.json (how models lay out their caches) and dtypes.json."""

import json
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@cache
def table(name: str) -> Any:
    """The content of the table `name`.json beside this module; do not change what it returns."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def family(name: str) -> dict[str, Any] | None:
    """The entry of a model_type, with what it takes over by `same` filled in; None if unknown."""
    entry = table("families")["families"].get(name)
    if entry is None or "same" not in entry:
        return entry
    base = family(entry["same"]) or {}
    merged = {**base, **entry}
    for key in ("defaults", "switches", "fields"):
        merged[key] = {**base.get(key, {}), **entry.get(key, {})}
    return merged
