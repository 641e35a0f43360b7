"""A progress bar on stderr: one line that is redrawn, or ten lines where it cannot be.

Where stderr is closed or full there is none.
"""

import os
import sys
import time
from contextlib import suppress

WIDTH = 24


class Progress:
    """`step` says what is being done; `done` counts it. Redraws on a terminal, else a line a tenth."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.count, self.start = total, done, time.monotonic()
        self.can = sys.stderr is not None and not sys.stderr.closed
        self.redraws = self.can and sys.stderr.isatty()

    def step(self, text: str) -> None:
        """Show what is being done now."""
        full = WIDTH * self.count // max(1, self.total)
        minutes, seconds = divmod(int(time.monotonic() - self.start), 60)
        bar = f"[{'#' * full:{WIDTH}}] {self.count}/{self.total} {minutes}:{seconds:02} {text}"
        if self.redraws:
            self._print(f"\r{bar[:99]:99}", end="")
        elif self.count * 10 // max(1, self.total) > (self.count - 1) * 10 // max(1, self.total):
            self._print(bar)

    def done(self) -> None:
        """One more is done."""
        self.count += 1

    def close(self) -> None:
        """Leave the line."""
        if self.redraws:
            self._print("")

    def _print(self, text: str, end: str = "\n") -> None:
        if not self.can:
            return
        try:
            print(text, end=end, file=sys.stderr, flush=True)
        except OSError:  # full or cut off: no reason to stop measuring
            self.can = False
            with suppress(OSError, ValueError):  # what is left unwritten must not fail at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
