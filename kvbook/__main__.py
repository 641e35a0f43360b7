"""python -m kvbook: `size` says what the KV cache of a config.json costs, `measure` whether it does.

Exit status 0 with the answer on stdout; 2 with one line on stderr that names what is wrong.
"""

import argparse
import os
import sys
from typing import Any, NoReturn

from kvbook.accounting import size
from kvbook.accounting.errors import ConfigError
from kvbook.measure import command as measure


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage around it."""

    def error(self, message: str) -> NoReturn:
        """One line on stderr, exit status 2."""
        _complain(message)
        sys.exit(2)

    def print_help(self, file: Any = None) -> None:
        """The help, or ConfigError where it cannot be written."""
        _say(self.format_help().rstrip())


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    parser = Parser(prog="python -m kvbook", description="What a KV cache costs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    size.add_command(commands)
    measure.add_command(commands)
    try:
        given = parser.parse_args(arguments)
        _say(given.run(given))
    except ConfigError as error:
        _complain(str(error))
        return 2
    except BrokenPipeError:  # who reads the answer has seen enough
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _say(text: str) -> None:
    """Write to stdout; ConfigError where that is closed or full."""
    if sys.stdout is None:
        raise ConfigError("Standard output is closed; there is nowhere to write the answer.")
    try:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        print(text)
        sys.stdout.flush()
    except OSError as error:
        # what is left unwritten must not be tried again, with a traceback, when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        reason = error.strerror or error
        raise ConfigError(f"Standard output cannot be written: {reason}.") from None


def _complain(message: str) -> None:
    if sys.stderr is None:
        return
    line = " ".join(message.split())
    try:
        print(line.encode("ascii", "backslashreplace").decode(), file=sys.stderr, flush=True)
    except OSError:  # nobody can be told; the exit status still says it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main())
