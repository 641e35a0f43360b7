"""What the codecs of the lesson on fewer bits read back, for the explorer's JavaScript to be held to.

    python tools/make_bits_vectors.py            writes tests/data/bits_vectors.json
    python tools/make_bits_vectors.py --check    writes nothing; exit 1 if that file is stale

Rows are float32 in base64, lowest byte first.
"""

import argparse
import base64
import sys
from pathlib import Path
from typing import Any

import torch
from make_paging_vectors import render
from odd_configs import Pick
from torch import Tensor

from kvbook.lessons.quantized import FORMATS, Cast, Codec

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/bits_vectors.json"
WIDTH = 64
Row = list[Any]


def main() -> int:
    """Write the file, or say whether it is what the codecs give."""
    parser = argparse.ArgumentParser(description="Write the vectors that JavaScript is held to.")
    parser.add_argument("--check", action="store_true", help="change nothing, say if it is stale")
    text = render({"samples": [written(rows) for rows in samples()], "read_back": read_back()})
    if not parser.parse_args().check:
        OUT.write_text(text, encoding="utf-8")
    elif not OUT.exists() or OUT.read_text(encoding="utf-8") != text:
        name, tool = OUT.relative_to(ROOT), Path(__file__).name
        print(f"stale: {name} (run `python tools/{tool}`)", file=sys.stderr)
        return 1
    return 0


def written(rows: Tensor) -> Row:
    """[tokens, the rows in base64]"""
    return [len(rows), base64.b64encode(rows.numpy().astype("<f4").tobytes()).decode("ascii")]


def samples() -> list[Tensor]:
    """Rows of a head, each [tokens, WIDTH]: common ones with outliers, and what is hard to code."""
    pick = Pick(40)
    common = [[pick.random() * 4 - 2 for _ in range(WIDTH)] for _ in range(32)]
    outliers = [[x * (40 if c % 17 == 3 else 1) for c, x in enumerate(row)] for row in common]
    tiny = [[x * 2.0**-24 for x in row] for row in common]  # scales below the least float16
    huge = [[x * 30_000 for x in row] for row in common]
    ties = [[(c - 32) / 2 + t for c in range(WIDTH)] for t in range(32)]  # many halves
    same = [[1 / 3] * WIDTH] * 16 + [[0.0] * WIDTH] * 16
    edges = [[pick.one(EDGES) * pick.one([1, -1]) for _ in range(WIDTH)] for _ in range(32)]
    long = [[pick.random() * 2 - 1 for _ in range(WIDTH)] for _ in range(40)]  # with a tail
    faint = [[x * 5e-6 for x in row] for row in common]  # scales of one or two least float16
    far = [[1000 + 0.1 * (x + 2) for x in row] for row in common]  # a coarse minimum
    further = [[1000.3 + 0.02 * (x + 2) for x in row] for row in common]  # below their minimum
    found = [edges, ties, common, outliers, tiny, huge, same, long, faint, far, further]
    return [torch.tensor(rows, dtype=torch.float32) for rows in found]


EDGES = [0.0, 2.0**-25, 2.0**-24, 3 * 2.0**-25, 2.0**-17, 3 * 2.0**-17, 2.0**-16, 2.0**-10]
EDGES += [3 * 2.0**-11, 2.0**-9, 2.0**-7, 0.9375, 0.96875, 1.0, 1.0625, 1.125, 1.1875, 15.5, 17.0]
EDGES += [127.0, 128.0, 240.0, 247.9, 248.0, 416.0, 432.0, 447.9, 448.0, 464.0, 500.0, 2047.5]
EDGES += [49_152.0, 53_248.0, 57_344.0, 61_440.0, 65_504.0]


def read_back() -> list[Row]:
    """[format, half, sample, tokens, rows as read back], once for each codec; casts of fewer samples."""
    rows = []
    seen: set[str] = set()
    for name, halves in FORMATS.items():
        for half, codec in zip(("keys", "values"), halves, strict=True):
            key = str(vars(codec))
            if key not in seen:
                few = samples()[:3] if isinstance(codec, Cast) else samples()
                rows += [[name, half, i, *written(coded(codec, one))] for i, one in enumerate(few)]
            seen.add(key)
    return rows


def coded(codec: Codec, sample: Tensor) -> Tensor:
    """Rows [tokens, WIDTH] as a cache reads them back: what fills no block of tokens is left as it is."""
    full = len(sample) // codec.tokens * codec.tokens
    blocks = codec.decode(codec.encode(sample[None, :full]), torch.float32)[0]
    return torch.cat([blocks, sample[full:]])


if __name__ == "__main__":
    sys.exit(main())
