"""The decode record: how fast steps are, what they take for a moment, how they grow (`make bench`).

Another bench joins with one line in BENCHES.
"""

from typing import Any

from kvbook.measure.benches.attention import ATTENTION
from kvbook.measure.benches.bench import Bench
from kvbook.measure.benches.growth import GROWTH
from kvbook.measure.benches.rate import RATE
from kvbook.measure.benches.transient import TRANSIENT
from kvbook.measure.plan import Job
from kvbook.measure.registry import Recipe, refuse_options

BENCHES: dict[str, Bench] = {
    "rate": RATE,
    "attention": ATTENTION,
    "transient": TRANSIENT,
    "growth": GROWTH,
}


def plan(device: str, settings: dict[str, Any]) -> list[Job]:
    """Every job. Raises ConfigError for other models and for a budget."""
    refuse_options("decode", settings)
    return [
        {"what": what, **job}
        for what, bench in BENCHES.items()
        for job in bench.jobs(device, settings["quick"])
    ]


def check(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless the bench's result is whole."""
    job = point["job"]
    BENCHES[job["what"]].check(job["what"], job, point["result"])


def label(job: Job) -> str:
    """A job in a few words."""
    sizes = (f"{name} {job[name]:,}" for name in ("prompt", "context", "batch") if name in job)
    words = (job["what"], job.get("kind"), job.get("dtype"), *sizes)
    return " ".join(word for word in words if word)


def answer(record: dict[str, Any]) -> str:
    """The tables of every bench."""
    device = record["device"]
    threads = f", {device['threads']} threads" if "threads" in device else ""
    blocks = [f"{device['name']}{threads}"]
    if record["settings"]["quick"]:
        blocks[0] += "; a quick run on a small decoder, which says nothing about speed"
    for what, bench in BENCHES.items():
        points = [(p["job"], p["result"]) for p in record["points"] if p["job"]["what"] == what]
        blocks.append("\n".join(bench.table(points)))
    return "\n\n".join(blocks)


RECIPE = Recipe(
    plan=plan,
    measure={what: bench.measure for what, bench in BENCHES.items()},
    check=check,
    label=label,
    answer=answer,
    packages=("transformers",),
    bfloat16=True,
)
