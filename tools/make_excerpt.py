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
PROSE_WIDTH = 60  # columns: an indented block with a longer line is prose if its first line is set in
OUT = Path(__file__).parent.parent / "kvbook" / "models" / "devils_dictionary.txt"


def indent(line: str) -> int:
    """How many spaces a line begins with."""
    return len(line) - len(line.lstrip(" "))


def join(lines: list[str]) -> str:
    """One paragraph from its lines, with single spaces; a word that ends in one hyphen goes on."""
    text = re.sub(r"\s+", " ", "\n".join(lines)).strip()
    return re.sub(r"(?<=\w-) (?=\w)", "", text) if any(ends_in_hyphen(x) for x in lines) else text


def ends_in_hyphen(line: str) -> bool:
    """Whether the line breaks inside a hyphenated word."""
    return re.search(r"\w-$", line.rstrip()) is not None


def unwrap(block: str) -> str:
    """A block between blank lines: prose becomes one line per paragraph, verse keeps its lines."""
    lines = block.split("\n")
    body = [line for line in lines if indent(line) < ATTRIBUTION]
    names = [line.strip() for line in lines if indent(line) >= ATTRIBUTION]
    depths = [indent(line) for line in body]
    wide = any(len(line.rstrip()) > PROSE_WIDTH for line in body)
    set_in = len(body) > 1 and depths[0] > max(depths[1:])
    if body and (min(depths) == 0 or (wide and set_in)):
        paragraphs: list[list[str]] = []
        for line, depth in zip(body, depths, strict=True):
            if depth > min(depths) or not paragraphs:
                paragraphs.append([])
            paragraphs[-1].append(line)
        body = [join(paragraph) for paragraph in paragraphs]
    else:
        body = [line[min(depths) :].rstrip() for line in body]
    return "\n".join(body + names)


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
