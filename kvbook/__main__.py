"""python -m kvbook: `size` says what the KV cache of a config.json costs, `measure` whether it does.

Exit status 0 with the answer on stdout; 2 with one line on stderr that names what is wrong.
"""

import argparse
import os
import sys
from typing import NoReturn

from kvbook.accounting import size
from kvbook.accounting.errors import ConfigError
from kvbook.measure import command as measure


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage around it."""

    def error(self, message: str) -> NoReturn:
        """One line on stderr, exit status 2."""
        _complain(message)
        sys.exit(2)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status."""
    parser = Parser(prog="python -m kvbook", description="What a KV cache costs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    size.add_command(commands)
    measure.add_command(commands)
    given = parser.parse_args(arguments)
    try:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        print(given.run(given))
        sys.stdout.flush()
    except ConfigError as error:
        _complain(str(error))
        return 2
    except BrokenPipeError:  # who reads the answer has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _complain(message: str) -> None:
    line = " ".join(message.split())
    print(line.encode("ascii", "backslashreplace").decode(), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
