"""A run's record: one JSON file, written whole after each point, and checked before it is believed."""

import json
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.measure.explained import unexplained as unexplained
from kvbook.measure.registry import RECORDS, Recipe, load

FORMAT = 1
FIELDS: dict[str, Any] = {
    "record": str,
    "format": int,
    "device": dict,
    "driver": (str, type(None)),
    "versions": dict,
    "date": str,
    "command": str,
    "settings": dict,
    "finished": bool,
    "points": list,
}
SETTINGS: dict[str, Any] = {"model": str, "quick": bool, "budget_bytes": (int, type(None))}
DATE = "%Y-%m-%dT%H:%M:%SZ"
HOST = re.compile(r"(^|[\s='\"])(/|~|[A-Za-z]:\\)|://|\S@\S")  # a path or an address


def write(path: Path, record: dict[str, Any]) -> None:
    """Replace the file at once, so that an interrupt leaves the old one or the new one, whole."""
    points = ",\n".join("  " + json.dumps(point) for point in record["points"])
    head = json.dumps({**record, "points": []}, indent=1, ensure_ascii=False)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = head.replace('"points": []', f'"points": [\n{points}\n ]') if points else head
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or "its name is no file's"
        raise ConfigError(f"{path} cannot be written: {reason}.") from None


def read(path: Path, mend: bool = False) -> dict[str, Any]:
    """The record in a file, checked. Raises ConfigError, one sentence, for anything else.

    With `mend`, points that contradict the prediction are left out and are to be measured again: the
    record is then not finished.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{path.name} is not JSON, or too deep.") from None
    try:
        check(_mended(record) if mend else record)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from None
    return record


def book_folder() -> Path:
    """Where the book's own records lie: in the package, wherever that is installed."""
    return Path(__file__).resolve().parent.parent / "measurements"


def newest(folder: Path, device: str, what: str = "memory") -> tuple[str, dict[str, Any]] | None:
    """The name and content of the latest finished record of a device type; None if there is none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if not is_readers(path) and kind_of(path) == what:
            record = read(path)
            if record["finished"] and record["device"]["type"] == device:
                found.append((record["date"], path.name, record))
    return max(found, key=lambda entry: entry[:2])[1:] if found else None


def is_readers(path: Path) -> bool:
    """Whether a file's name, mine.json or *_mine.json, says that it is the reader's own record."""
    return path.name == "mine.json" or path.name.endswith("_mine.json")


def check(record: Any) -> None:
    """Raise ConfigError, one sentence, unless this is a record, whole, with sound points only.

    Its points are jobs of the plan that its settings make, none twice; if it is finished, all.
    """
    try:
        _check(record)
    except ConfigError:
        raise
    except Exception:  # what can be odd about a file has no end: wrong types, huge numbers, depth
        raise ConfigError("it has parts of the wrong type, too large or too deep.") from None


def _check(record: Any) -> None:
    if not isinstance(record, dict) or record.get("record") not in [*RECORDS]:
        raise ConfigError("it is no record of `python -m kvbook measure`.")
    if record.keys() != FIELDS.keys():
        odd = sorted(record.keys() ^ FIELDS.keys())
        raise ConfigError(f"these fields are missing or unknown: {', '.join(odd)}.")
    for name, kind in FIELDS.items():
        if not isinstance(record[name], kind):
            raise ConfigError(f"{name} is {shown(record[name])}, which is of the wrong type.")
    if type(record["format"]) is not int or record["format"] != FORMAT:
        raise ConfigError(f"format is {shown(record['format'])}; it must be {FORMAT}.")
    if not _is_date(record["date"]):
        raise ConfigError(f"date is {shown(record['date'])}; it must be like 2026-01-31T12:00:00Z.")
    if record["device"].get("type") not in ("cpu", "cuda"):
        raise ConfigError(f"device is {shown(record['device'])}; its type must be cpu or cuda.")
    if record["device"]["type"] == "cuda" and not record["driver"]:
        raise ConfigError("driver is missing; a GPU's record must say which it was.")
    for text in strings(record):
        if HOST.search(text):
            raise ConfigError(f"{shown(text)} names a place on a machine.")
    _check_settings(record["settings"])
    recipe = load(record["record"])
    _check_jobs(recipe, record)
    for point in record["points"]:
        recipe.check(point, record)


def _check_settings(settings: dict[str, Any]) -> None:
    if settings.keys() != SETTINGS.keys():
        raise ConfigError(f"settings is {shown(settings)}; it must have {', '.join(SETTINGS)}.")
    for name, kind in SETTINGS.items():
        value = settings[name]
        if not isinstance(value, kind) or (name == "budget_bytes" and isinstance(value, bool)):
            raise ConfigError(f"settings: {name} is {shown(value)}, which is of the wrong type.")


def _check_jobs(recipe: Recipe, record: dict[str, Any]) -> None:
    """Compare the jobs with the plan, as text: 1, 1.0 and true are three things."""
    planned = {_text(job) for job in recipe.plan(record["device"]["type"], record["settings"])}
    seen: set[str] = set()
    for point in record["points"]:
        if not isinstance(point, dict) or point.keys() != {"job", "result"}:
            raise ConfigError(f"the point {shown(point)} is not a job with its result.")
        job = _text(point["job"])
        if job not in planned:
            raise ConfigError(f"the job {shown(point['job'])} is not in the plan.")
        if job in seen:
            raise ConfigError(f"{recipe.label(point['job'])}: there are two points of this job.")
        seen.add(job)
    if record["finished"] and seen != planned:
        missing = len(planned) - len(seen)
        raise ConfigError(f"it says that it is finished, but {missing} of its points are missing.")


def _text(job: Any) -> str:
    return json.dumps(job, sort_keys=True)


def _is_date(text: str) -> bool:
    try:
        return datetime.strptime(text, DATE).strftime(DATE) == text
    except ValueError:
        return False


def _mended(record: Any) -> Any:
    """The record, changed: without the points that are whole but not explained."""
    try:
        recipe, points = load(record["record"]), record["points"]
        kept = [point for point in points if not _contradicts(recipe, point)]
    except (LookupError, TypeError):
        return record  # `check` says what is wrong
    if len(kept) < len(points):
        record |= {"points": kept, "finished": False}
    return record


def _contradicts(recipe: Recipe, point: Any) -> bool:
    try:
        return bool(recipe.unexplained(point["job"], point["result"]))
    except Exception:  # not whole, which `check` says
        return False


def strings(value: Any) -> list[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    return [text for part in value for text in strings(part)] if isinstance(value, list) else []


def kind_of(path: Path) -> Any:
    """Which kind of record the file says that it is, sound or not; None if it does not say."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("record")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
