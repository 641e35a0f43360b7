"""The address of the published book: BOOK_URL, else `html: baseurl` in _config.yml.

    python tools/sphinx/book_address.py      exit 1 with one sentence if it cannot be an address

`make book` asks first, since jupyter-book buries the same sentence in a traceback.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import yaml

# It stands in attributes and in XML as it is.
ADDRESS = re.compile(r"https?://[\w.-]+(:\d+)?(/[\w.~%+-]+)*/*", re.ASCII)
CONFIG = Path(__file__).resolve().parent.parent.parent / "_config.yml"


def checked(address: str) -> str:
    """The address with one slash at its end, or empty; ValueError, one sentence, where it is none."""
    bare = address.strip()
    if bare and not ADDRESS.fullmatch(bare):
        raise ValueError(
            f"the book's address is {address!r}; it must be like https://example.org/book, without "
            "spaces, quotes, a ? or a #, or empty"
        )
    return f"{bare.rstrip('/')}/" if bare else ""


def main() -> int:
    configured = yaml.safe_load(CONFIG.read_text())["html"].get("baseurl") or ""
    try:
        checked(os.environ.get("BOOK_URL") or configured)
    except ValueError as error:
        print(f"kvbook: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
