"""The memory record: how the parts in `plan`, `points` and `explained` make it."""

from typing import Any

from kvbook.measure import explained
from kvbook.measure.plan import label, plan
from kvbook.measure.points import MEASURE
from kvbook.measure.registry import Recipe


def answer(record: dict[str, Any]) -> str:
    """What a finished record says, in a few lines."""
    points = [point["result"] for point in record["points"] if point["job"]["what"] == "grid"]
    held = max(abs(p["held"] - p["bookkeeping"] - p["predicted"]) for p in points)
    lines = [
        f"{record['device']['name']}: {len(record['points'])} points, all explained.",
        f"storages: at most {held:,} bytes from the prediction, in {len(points)} caches",
    ]
    name = "requested" if record["device"]["type"] == "cuda" else "resident"
    large = [p[name] / p["predicted"] - 1 for p in points if p["predicted"] > explained.SURE]
    if large:
        lines.append(f"{name}: {min(large):+.2%} to {max(large):+.2%} above 64 MB")
    return "\n".join(lines)


RECIPE = Recipe(
    plan=lambda device, s: plan(s["model"], device, s["quick"], s["budget_bytes"]),
    measure=MEASURE,
    check=explained.check,
    label=label,
    answer=answer,
    unexplained=explained.unexplained,
)
