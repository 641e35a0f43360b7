"""Text to measure a model on, carried by the package: no network, and the same everywhere."""

from pathlib import Path


def devils_dictionary() -> str:
    """The entries from C to F of Ambrose Bierce's *The Devil's Dictionary* (1911): 68 KB of ASCII.

    Public domain. One line per paragraph of prose, one per line of verse, a blank line between
    blocks. PROVENANCE.md, beside this file, says where it comes from.
    """
    return Path(__file__).with_name("devils_dictionary.txt").read_text(encoding="utf-8")
