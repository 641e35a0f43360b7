"""What the book-keeping of blocks does in Python, for the explorer's JavaScript to be held to.

    python tools/make_paging_vectors.py            writes tests/data/paging_vectors.json
    python tools/make_paging_vectors.py --check    writes nothing; exit 1 if that file is stale

Events and operations come from one seeded generator. After each of them the whole state is written
down: owners, free blocks in their order, unused ones in theirs, tables, lengths.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from odd_configs import Pick

from kvbook.explorer.paging import Event, replay
from kvbook.lessons.paged import BlockManager, OutOfBlocksError

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/paging_vectors.json"
SHAPES = [(1, 1), (3, 1), (5, 2), (7, 3), (10, 4), (12, 5), (17, 4), (40, 2)]  # blocks, block size
Row = list[Any]


def main() -> int:
    """Write the file, or say whether it is what the book-keeping gives."""
    parser = argparse.ArgumentParser(description="Write the vectors that JavaScript is held to.")
    parser.add_argument("--check", action="store_true", help="change nothing, say if it is stale")
    text = render({"managers": managers(), "timelines": timelines()})
    if not parser.parse_args().check:
        OUT.write_text(text, encoding="utf-8")
    elif not OUT.exists() or OUT.read_text(encoding="utf-8") != text:
        name, tool = OUT.relative_to(ROOT), Path(__file__).name
        print(f"stale: {name} (run `python tools/{tool}`)", file=sys.stderr)
        return 1
    return 0


def render(content: dict[str, list[Any]]) -> str:
    """JSON with one row a line, so that a change shows which rows it touches."""
    parts = []
    for name, rows in content.items():
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        parts.append(f'"{name}": [\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def managers() -> list[Row]:
    """[num_blocks, block_size, steps]: each step an operation, what it gave, and the state after it."""
    pick = Pick(30)
    return [[*shape, random_steps(pick, *shape)] for shape in SHAPES * 3]


def random_steps(pick: Pick, num_blocks: int, block_size: int) -> list[Row]:
    manager = BlockManager(num_blocks, block_size)
    live: dict[int, list[int]] = {}
    steps = []
    for _ in range(60):
        operation = random_operation(pick, live, block_size)
        steps.append([operation, operate(manager, live, operation), state(manager)])
    return steps


def random_operation(pick: Pick, live: dict[int, list[int]], block_size: int) -> Row:
    """start with a prompt, append so many, fork, free or remember; now and then of one that is gone."""
    if not live or pick.random() < 0.3:
        start = [pick.below(2)] * pick.below(
            3 * block_size + 1
        )  # few texts, so that many are alike
        return ["start", start + [pick.below(4) for _ in range(pick.below(2 * block_size))]]
    seq = pick.one(sorted(live))
    if pick.random() < 0.03:
        return [pick.one(["free", "fork"]), 10_000]
    what = pick.one(["append", "append", "append", "fork", "free", "remember"])
    return [what, seq, pick.below(2 * block_size + 1)] if what == "append" else [what, seq]


def operate(manager: BlockManager, live: dict[int, list[int]], operation: Row) -> Any:
    """What the operation gives: a sequence, copies, or the kind of error. live: the texts, to their ends."""
    what, given, *more = operation
    try:
        if what == "start":
            seq = manager.start(given)
            live[seq] = [*given, *[7] * 200]
            return seq
        if what == "append":
            return [list(copy) for copy in manager.append(given, *more)]
        if what == "fork":
            seq = manager.fork(given)
            live[seq] = list(live[given])
            return seq
        if what == "free":
            manager.free(given)
            del live[given]
        else:
            manager.remember(given, live[given][: manager.lengths[given]])
    except OutOfBlocksError:
        return "out of blocks"
    except ValueError:
        return "error"
    return None


def state(manager: BlockManager) -> Row:
    """[owners, free blocks, unused ones, named ones, tables, lengths]"""
    pool = manager.pool
    tables = [[seq, table] for seq, table in manager.tables.items()]
    lengths = list(manager.lengths.values())
    rows = [pool.ref_counts, pool.empty, list(pool.unused), sorted(pool.name_of), tables, lengths]
    return json.loads(json.dumps(rows))  # as they are now


def timelines() -> list[Row]:
    """[events, num_blocks, block_size, max_len, sharing, moments]: each moment's values in order."""
    pick = Pick(31)
    rows = []
    for turn in range(24):
        num_blocks, block_size = SHAPES[turn % len(SHAPES)]
        events = random_events(pick, block_size)
        options = {"num_blocks": num_blocks, "block_size": block_size, "max_len": 9 * block_size}
        moments = replay(events, **options, sharing=turn % 3 > 0)
        found = [list(vars(moment).values()) for moment in moments]
        rows.append([events, *options.values(), turn % 3 > 0, found])
    return rows


def random_events(pick: Pick, block_size: int) -> list[Event]:
    """Requests that begin alike; some come again, some were never let in."""
    names = list("ABCDEF")
    known: set[str] = set()
    events: list[Event] = []
    while len(events) < 30:
        name = pick.one(names)
        tokens = [100 + pick.below(3) for _ in range(1 + pick.below(2 * block_size))]
        if name not in known or pick.random() < 0.3:
            prompt = list(range(pick.below(3 * block_size))) + tokens
            events.append(("arrive", name, prompt))
            known.add(name)
        else:
            what = pick.one(["grow", "grow", "fork", "finish"])
            more = {"grow": tokens, "fork": pick.one(names), "finish": None}[what]
            if what == "fork":
                known.add(more)
            events.append((what, name, more))
    return events


if __name__ == "__main__":
    sys.exit(main())
