"""The one error of the accounting, and how a wrong value is shown in it."""

import json


class ConfigError(ValueError):
    """Something that was given cannot be answered. The message is one sentence that names it."""


def shown(value: object) -> str:
    """A value as it stands in the file, on one line and cut to 60 characters."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        text = ascii(type(value).__name__)
    return _cut(text)


def named(text: str) -> str:
    """A key or a name from a file, as `shown` but without quotes."""
    return _cut(json.dumps(text)[1:-1])


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
