"""Which jobs a run consists of. A job is a dict of plain values: what `points` is called with."""

from typing import Any

from kvbook.measure.kinds import KINDS, shape

Job = dict[str, Any]
MOST = 2 * 10**9  # bytes of a cache that is filled on a CPU, so that 3 GB of memory are enough
BUDGET = 512 * 2**20  # bytes, for the frontier on a CPU
CONTEXTS, BATCHES = (512, 2048, 8192), (1, 2, 4)


def plan(model: str, device: str, quick: bool = False, budget: int | None = None) -> list[Job]:
    """Every job of a run, in the order in which they are done.

    `budget` bounds the frontier, in bytes; on a CPU it is BUDGET where none is given, on a GPU all
    that is free. `quick` takes two points of each row. Raises ConfigError for a model that the plain
    caches do not fit.
    """
    spec, _ = shape(model)
    jobs: list[Job] = []
    lengths = (64, 256) if quick else (64, 256, 1024)
    for kind in KINDS.values():
        contexts = list(CONTEXTS[:2] if quick else CONTEXTS)
        batches = list(BATCHES[:2] if quick else BATCHES)
        if kind.few:  # the longer contexts, the largest batch
            contexts, batches = contexts[1:], batches[-1:]
        base = {"model": model, "kind": kind.name, "device": device}
        rows = [(d, n, b) for d in kind.dtypes for n in contexts for b in batches]
        jobs += [
            {"what": "grid", **base, "dtype": dtype, "context": context, "batch": batch}
            for dtype, context, batch in rows
            if device == "cuda" or kind.predict(spec, context, batch, dtype) <= MOST
        ]
        dtype = "float16" if "float16" in kind.dtypes else kind.dtypes[0]
        for context in lengths[1:2] if kind.few else lengths:
            jobs.append({"what": "written", **base, "dtype": dtype, "context": context, "batch": 1})
        for context in contexts[:1] if kind.few else contexts:
            if kind.predict(spec, context, 4, dtype) <= MOST:
                jobs.append(
                    {"what": "step", **base, "dtype": dtype, "context": context, "batch": 4}
                )
        if kind.reserves:
            room = BUDGET if device == "cpu" and budget is None else budget
            for batch in (1, 4) if quick or kind.few else (1, 2, 4, 8, 16):
                line = {"dtype": dtype, "batch": batch, "budget": room}
                jobs.append({"what": "frontier", **base, **line})
    for last_only in (False, True):
        job = {"what": "pass", "dtype": "float32", "prompt": 512, "last_only": last_only}
        jobs.append({**job, "device": device})
    return sorted(jobs, key=lambda job: WHATS.index(job["what"]))


WHATS = ("grid", "written", "step", "pass", "frontier")
"""In this order: a GPU's own out-of-memory error comes last."""


def label(job: Job) -> str:
    """A job in a few words, for progress and for errors."""
    known = [job.get(name) for name in ("kind", "dtype")]
    size = f"{job['context']:,} x {job['batch']}" if "context" in job else ""
    other = f"prompt {job['prompt']}" if "prompt" in job else ""
    batch = f"batch {job['batch']}" if job["what"] == "frontier" else ""
    return " ".join(str(part) for part in (job["what"], *known, size, other, batch) if part)
