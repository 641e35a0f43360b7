"""Read a config.json that someone else wrote: any file gives a config or one clear sentence."""

import json
import sys
from pathlib import Path
from typing import Any

from kvbook.accounting.errors import ConfigError, shown

LARGEST = 10_000_000  # bytes; real ones have some thousand


def load_config(path: str) -> dict[str, Any]:
    """The JSON object in a file, or on standard input for `-`.

    Raises ConfigError where the file cannot be read, is larger than 10 MB, is no JSON object in
    UTF-8, or gives a key twice. NaN and Infinity, which config files do hold, are let through.
    """
    name = "standard input" if path == "-" else shown(path)
    try:
        if path == "-":
            if sys.stdin is None:
                raise ValueError("it is closed")
            raw = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name} cannot be read: {reason}.") from None
    if len(raw) > LARGEST:
        raise ConfigError(f"{name} is larger than 10 MB, which no config.json is.")
    try:
        config = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not text in UTF-8.") from None
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply.") from None
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from None
    except ValueError as error:
        raise ConfigError(f"{name} is not JSON: {error}.") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{name} is JSON, but not an object with keys and values.")
    return config


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ConfigError(f"gives {shown(key)} twice.")
        found[key] = value
    return found
