"""The record of lesson 10's book-keeping: time per operation in pools of many sizes.

Sequences grow, fork and end at random, in one steady mix; the pool is filled in the same proportion
whatever its size, so that only the size differs. No tensors, and no device but this process.

In a larger pool more sequences live, and what a random one needs is less often in the processor's
cache. To tell that from work that grows, each pool is also timed on appends to a few of its sequences.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from kvbook.accounting import ConfigError
from kvbook.accounting.errors import shown
from kvbook.lessons.paged import BlockManager
from kvbook.measure.registry import Recipe, parts, refuse_options

SIZES = (10**3, 10**4, 10**5, 10**6)  # blocks
OPERATIONS = 10**6
ROUND = {"append": 900, "fork": 25, "free": 50, "start": 25}  # 1,000 operations, timed kind by kind
PROMPT = 64  # tokens that a new sequence starts with
NEAR = {"sequences": 32, "batches": 20, "appends": 200}  # to a few sequences, after all else
COUNTS = ("live", "in_use", "copies", "append", "fork", "free", "start")
MEDIANS = tuple(f"{name}_us" for name in (*ROUND, "operation", "near"))
QUARTILES = ("append_low_us", "append_high_us", "near_low_us", "near_high_us")


def operations(num_blocks: int, block_size: int, operations: int, device: str) -> dict[str, Any]:
    """Run a steady mix of operations: how many of each kind, and microseconds for one (medians).

    `live` and `in_use` are sequences and blocks at its end, `copies` those of copy on write; `near`
    is an append to one of a few sequences, in the same pool; low and high are the quartiles.
    """
    rng = random.Random(num_blocks)
    tables = BlockManager(num_blocks, block_size)
    live: list[int] = []
    copies = 0
    while len(live) < num_blocks // 16:
        if len(live) % 2:
            live.append(tables.fork(rng.choice(live)))
        else:
            live.append(_started(tables))
    counts = dict.fromkeys(ROUND, 0)
    times: dict[str, list[float]] = {name: [] for name in (*ROUND, "operation", "near")}

    def timed(name: str, action: Callable[[Any], Any], given: Iterable[Any]) -> list[Any]:
        given = list(given)
        begin = time.perf_counter()
        found = [action(one) for one in given]
        times[name].append(time.perf_counter() - begin)
        return found

    for _ in range(operations // sum(ROUND.values())):
        chosen = rng.choices(live, k=ROUND["append"])
        copies += sum(map(len, timed("append", tables.append, chosen)))
        live += timed("fork", tables.fork, rng.choices(live, k=ROUND["fork"]))
        live += timed("start", lambda _: _started(tables), range(ROUND["start"]))
        gone = [_taken(live, rng) for _ in range(ROUND["free"])]
        timed("free", tables.free, gone)
        times["operation"].append(sum(times[name][-1] for name in ROUND))
        for name, number in ROUND.items():
            counts[name] += number
    in_use = num_blocks - tables.pool.num_free_blocks
    few = rng.sample(live, NEAR["sequences"])
    for _ in range(NEAR["batches"]):
        timed("near", tables.append, rng.choices(few, k=NEAR["appends"]))
    size = {**ROUND, "operation": sum(ROUND.values()), "near": NEAR["appends"]}
    result: dict[str, Any] = {**counts, "live": len(live), "in_use": in_use, "copies": copies}
    for name, taken in times.items():
        low, middle, high = (1e6 * t / size[name] for t in statistics.quantiles(taken, n=4))
        result[f"{name}_us"] = middle
        if f"{name}_low_us" in QUARTILES:
            result |= {f"{name}_low_us": low, f"{name}_high_us": high}
    return result


def _started(tables: BlockManager) -> int:
    """A new sequence with a prompt."""
    seq = tables.start()
    tables.append(seq, PROMPT)
    return seq


def _taken(live: list[int], rng: random.Random) -> int:
    """One of the live sequences, removed from the list."""
    place = rng.randrange(len(live))
    live[place], live[-1] = live[-1], live[place]
    return live.pop()


def plan(device: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One job for each size of pool; the device is recorded, but nothing runs on a GPU.

    Raises ConfigError for a model other than the default, or a budget: there is no use for them.
    """
    refuse_options("blocks", settings)
    number = 20_000 if settings["quick"] else OPERATIONS
    sizes = SIZES[:2] if settings["quick"] else SIZES
    base = {"what": "operations", "device": device, "block_size": 16, "operations": number}
    return [{**base, "num_blocks": size} for size in sizes]


def check(point: Any, record: dict[str, Any]) -> None:
    """Raise ConfigError, one sentence, unless the numbers add up."""
    job, result = parts(point, (*COUNTS, *MEDIANS, *QUARTILES))
    for name, value in result.items():
        if type(value) is not (int if name in COUNTS else float) or not 0 <= value < 1e9:
            raise ConfigError(f"{label(job)}: {name} is {shown(value)}, not a number that can be.")
    if sum(result[name] for name in ROUND) != job["operations"]:
        raise ConfigError(f"{label(job)}: its operations do not add up to {job['operations']:,}.")


def label(job: dict[str, Any]) -> str:
    """A job in a few words."""
    return f"{job['operations']:,} operations on {job['num_blocks']:,} blocks"


def answer(record: dict[str, Any]) -> str:
    """The table of a finished record: microseconds per operation, and how they change with the size."""
    lines = [f"{record['device']['name']}: microseconds for one operation (medians)"]
    lines.append("   blocks" + "".join(f"{name:>8}" for name in (*ROUND, "all", "near")))
    found = [(point["job"]["num_blocks"], point["result"]) for point in record["points"]]
    for size, result in found:
        lines.append(f"{size:9,}" + "".join(f"{result[name]:8.2f}" for name in MEDIANS))
    for name, what in (("append_us", "any sequence"), ("near_us", "one of a few (near)")):
        steps = ", ".join(f"{b[1][name] / a[1][name]:.2f}" for a, b in pairwise(found))
        lines.append(f"ten times the blocks, an append to {what}: {steps} of the time")
    return "\n".join(lines)


RECIPE = Recipe(
    plan=plan, measure={"operations": operations}, check=check, label=label, answer=answer
)
