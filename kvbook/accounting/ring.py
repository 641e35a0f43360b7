"""Which rows a cache with a window and sinks keeps, and in which slots: plain book-keeping.

Source: StreamingLLM, https://arxiv.org/abs/2309.17453, for the sinks.
"""

from kvbook.accounting.spec import check_count


def slot_of(position: int, window: int, sinks: int = 0) -> int:
    """The slot for a token, fed one at a time: the first `sinks` keep theirs, the others go round.

    `window` counts the token itself; the sinks stay beside it. Raises ConfigError, as all here.
    """
    check_count("position", position, low=0)
    check_count("window", window)
    check_count("sinks", sinks, low=0)
    return position if position < sinks else sinks + (position - sinks) % window


def ring(tokens: int, window: int, sinks: int = 0) -> list[int | None]:
    """The position that each of the sinks + window slots holds after `tokens` tokens; None: empty.

    >>> ring(10, window=4, sinks=2)
    [0, 1, 6, 7, 8, 9]
    """
    check_count("tokens", tokens, low=0)
    check_count("window", window)
    check_count("sinks", sinks, low=0)
    slots: list[int | None] = [None] * (sinks + window)
    for position in kept(tokens, window, sinks):
        slots[slot_of(position, window, sinks)] = position
    return slots


def kept(tokens: int, window: int, sinks: int = 0) -> list[int]:
    """The positions that are still there after `tokens` tokens, rising: min(tokens, window + sinks)."""
    check_count("tokens", tokens, low=0)
    check_count("window", window)
    check_count("sinks", sinks, low=0)
    first = min(sinks, tokens)
    return [*range(first), *range(max(first, tokens - window), tokens)]
