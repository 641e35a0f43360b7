"""A run's record: one JSON file, written whole after each point, and checked before it is believed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.measure.kinds import KINDS, shape
from kvbook.measure.plan import WHATS, Job, label
from kvbook.measure.registry import RECORDS, load

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
RESULTS = {
    "grid cpu": ("predicted", "held", "bookkeeping", "resident_raw", "resident"),
    "grid cuda": (
        *("predicted", "held", "bookkeeping", "rounded", "allocated", "reserved", "used", "peak"),
        *("reserved_after_empty_cache", "driver_used"),
    ),
    "written": ("written",),
    "step": ("tokens", "held", "transient", "seconds"),
    "frontier": ("budget", "per_token", "predicted", "last"),
    "pass": ("weights", "cache", "logits", "activations", "cuda_peak"),
}
STORAGE, RESIDENT = 0.01, 0.05  # what may be left unexplained
SURE = 64 * 10**6  # bytes; below, resident memory says too little
TRANSIENTS: dict[str, Callable[[int, Job], int]] = {
    "growing": lambda half_a_layer, job: half_a_layer,  # the K or V that torch.cat replaces
    "preallocated": lambda half_a_layer, job: (8 + job["batch"]) * job["context"],  # slots, a mask
}
"""Bytes that a step may take beside the cache and its new rows."""
HOST = re.compile(r"(^|[\s='\"])(/|~|[A-Za-z]:\\)|://|@")  # a path or an address


def write(path: Path, record: dict[str, Any]) -> None:
    """Replace the file at once, so that an interrupt leaves the old one or the new one, whole."""
    points = ",\n".join("  " + json.dumps(point) for point in record["points"])
    head = json.dumps({**record, "points": []}, indent=1, ensure_ascii=False)
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(head.replace('"points": []', f'"points": [\n{points}\n ]') + "\n")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None


def read(path: Path) -> dict[str, Any]:
    """The record in a file, checked. Raises ConfigError, one sentence, for anything else."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigError(f"{path.name} is not JSON.") from None
    try:
        check(record)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error}") from None
    return record


def newest(folder: Path, device: str, what: str = "memory") -> tuple[str, dict[str, Any]] | None:
    """The name and content of the latest finished record of a device type; None if there is none."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if not path.stem.endswith("mine") and kind_of(path) == what:
            record = read(path)
            if record["finished"] and record["device"]["type"] == device:
                found.append((record["date"], path.name, record))
    return max(found, key=lambda entry: entry[:2])[1:] if found else None


def check(record: Any) -> None:
    """Raise ConfigError, one sentence, unless this is a record, whole, with sound points only."""
    if not isinstance(record, dict) or record.get("record") not in [*RECORDS]:
        raise ConfigError("it is no record of `python -m kvbook measure`.")
    if record.keys() != FIELDS.keys():
        odd = sorted(record.keys() ^ FIELDS.keys())
        raise ConfigError(f"these fields are missing or unknown: {', '.join(odd)}.")
    for name, kind in FIELDS.items():
        if not isinstance(record[name], kind):
            raise ConfigError(f"{name} is {shown(record[name])}, which is of the wrong type.")
    if record["format"] != FORMAT:
        raise ConfigError(f"format is {record['format']}; it must be {FORMAT}.")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["date"]):
        raise ConfigError(f"date is {shown(record['date'])}; it must be like 2026-01-31T12:00:00Z.")
    if record["device"].get("type") not in ("cpu", "cuda"):
        raise ConfigError(f"device is {shown(record['device'])}; its type must be cpu or cuda.")
    if record["device"]["type"] == "cuda" and not record["driver"]:
        raise ConfigError("driver is missing; a GPU's record must say which it was.")
    for text in strings({**record, "points": []}):
        if HOST.search(text):
            raise ConfigError(f"{shown(text)} names a place on a machine.")
    recipe = load(record["record"])
    for point in record["points"]:
        recipe.check(point, record)
    if record["finished"] and not record["points"]:
        raise ConfigError("it is finished but has no points.")


def strings(value: Any) -> list[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    return [text for part in value for text in strings(part)] if isinstance(value, list) else []


def unexplained(job: Job, result: dict[str, Any]) -> list[str]:
    """What of a point's result the prediction does not explain, a sentence each."""
    found: list[str] = []

    def near(name: str, value: float, expected: float, within: float) -> None:
        if abs(value - expected) > within * expected:
            much = f" to within {within:.0%}" if within else ""
            found.append(f"{label(job)}: {name} is {value:,}, not {expected:,}{much}.")

    what = job["what"]
    if what == "pass":
        return found
    spec, config = shape(job["model"])
    kind = KINDS[job["kind"]]
    per_token = kind.predict(spec, 1, job["batch"], job["dtype"])
    if what == "grid":
        exact = kind.predict(spec, job["context"], job["batch"], job["dtype"])
        near("predicted", result["predicted"], exact, 0)
        near("held", result["held"] - result["bookkeeping"], exact, min(kind.within, STORAGE))
        near("held with its book-keeping", result["held"], exact, STORAGE)
        if "allocated" in result:
            near("allocated", result["allocated"], exact, STORAGE)
        elif exact > SURE:
            near("resident", result["resident"], exact, RESIDENT)
    elif what == "frontier":
        near("per_token", result["per_token"], per_token, 0)
        near("predicted", result["predicted"], result["budget"] // per_token, 0)
        near("last", result["last"], result["predicted"], STORAGE)
    elif what == "step" and kind.name in TRANSIENTS:
        most = TRANSIENTS[kind.name](result["held"] // (2 * config.n_layers), job)
        most += 2 * per_token // config.n_layers + 4096  # the rows on their way in, the counts
        if result["transient"] > most:
            found.append(f"{label(job)}: the transient is {result['transient']:,}, above {most:,}.")
    return found


def check_memory_point(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless this is a job with its result, explained."""
    if not isinstance(point, dict) or point.keys() != {"job", "result"}:
        raise ConfigError(f"the point {shown(point)} is not a job with its result.")
    job, result = point["job"], point["result"]
    device = record["device"]["type"]
    try:
        known = job["what"] in WHATS and job["device"] == device
        key = f"grid {device}" if job["what"] == "grid" else job["what"]
        if not known or set(result) != set(RESULTS[key]):
            raise ConfigError(f"the point {shown(point)} has fields missing, unknown or foreign.")
        for name, value in result.items():
            numbers = value if isinstance(value, list) else [value]
            optional = name in ("cuda_peak", "driver_used")
            allowed = (int, float) if name == "seconds" else (int,)
            for number in numbers:
                if not (type(number) in allowed or (optional and number is None)):
                    raise ConfigError(f"{label(job)}: {name} is {shown(value)}, not a number.")
        odd = unexplained(job, result)
    except (KeyError, TypeError, AttributeError):
        raise ConfigError(
            f"the point {shown(point)} has fields missing or of the wrong type."
        ) from None
    if odd:
        raise ConfigError(odd[0])


def kind_of(path: Path) -> Any:
    """Which kind of record the file says that it is, sound or not; None if it does not say."""
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("record")
    except (OSError, ValueError, AttributeError):
        return None
