"""Make kvbook/models/devils_dictionary.txt: python tools/make_excerpt.py devil.dict.dz

The argument is the file of that name in Debian's package dict-devil; the excerpt goes to the
text's place in the package. See kvbook/models/PROVENANCE.md.
"""

import gzip
import re
import sys
from pathlib import Path

FIRST, AFTER_LAST = "CAABA, n.", "GALLOWS, n."  # all entries from C to F
ATTRIBUTION = 25  # columns: a line indented at least so far names who is quoted
PROSE_WIDTH = (
    60  # columns: an indented block with a longer line is prose if its first line is set in
)
SPEAKER = re.compile(r" *[A-Z]{2,}:")  # a dialogue: its paragraphs hang
OUT = Path(__file__).parent.parent / "kvbook" / "models" / "devils_dictionary.txt"


def indent(line: str) -> int:
    """How many spaces a line begins with."""
    return len(line) - len(line.lstrip(" "))


def join(lines: list[str]) -> str:
    """One paragraph from its lines, with single spaces; a line that breaks at a hyphen goes on."""
    text = re.sub(r"(?<=\w-)\s*\n\s*(?=\w)", "", "\n".join(lines))
    return re.sub(r"\s+", " ", text).strip()


def unwrap(block: str) -> str:
    """A block between blank lines: prose becomes one line per paragraph, verse keeps its lines."""
    lines = block.split("\n")
    depths = [indent(line) for line in lines if indent(line) < ATTRIBUTION]
    left = min(depths, default=0)
    wide = any(len(line.rstrip()) > PROSE_WIDTH for line in lines if indent(line) < ATTRIBUTION)
    set_in = len(depths) > 1 and depths[0] > max(depths[1:])
    dialogue = SPEAKER.match(lines[0]) is not None
    prose = left == 0 or dialogue or (wide and set_in)

    paragraphs: list[list[str]] = []
    for line in lines:
        depth = indent(line)
        begins = (depth == left) if dialogue else (depth > left)
        if not paragraphs or not prose or begins or depth >= ATTRIBUTION:
            paragraphs.append([])
        paragraphs[-1].append(line)
    return "\n".join(
        join(paragraph)
        if prose or indent(paragraph[0]) >= ATTRIBUTION
        else paragraph[0][left:].rstrip()
        for paragraph in paragraphs
    )


def excerpt(source: str) -> str:
    """The entries from FIRST to just before AFTER_LAST, without dictd's braces around references."""
    start = source.index("\n" + FIRST) + 1
    text = source[start : source.index("\n" + AFTER_LAST)]
    text = re.sub(r"\{([A-Z' -]+)\}", r"\1", text)
    return "\n\n".join(map(unwrap, re.split(r"\n(?:\s*\n)+", text.strip("\n")))) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/make_excerpt.py devil.dict.dz")
    source = gzip.decompress(Path(sys.argv[1]).read_bytes()).decode("ascii")
    OUT.write_text(excerpt(source), encoding="utf-8", newline="\n")
