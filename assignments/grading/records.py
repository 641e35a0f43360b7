"""What is graded so far, on disk: one small JSON per result and its log, each written whole or not at all.

A result is filed under a digest of all that decides it: the submitted bytes, the autograder, the limits and
this code. So an interrupted run goes on where it stopped, a changed notebook is graded again, a renamed one
is not, and two equal files are graded once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

CODE = ("inside.py", "notebook.py", "said.py", "sandbox.py", "task.py")


def code_digest() -> str:
    """Of the modules that decide a score."""
    here = Path(__file__).parent
    return sha256(b"".join((here / name).read_bytes() for name in CODE)).hexdigest()


def write_whole(path: Path, text: str, encoding: str = "utf-8") -> None:
    """Write a file so that a reader, and a crash, see the old one or the new one."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding=encoding, newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:  # a full disk, a Ctrl-C
        partial.unlink(missing_ok=True)
        raise


class Records:
    """The folder beside the table, `grades.records` for `grades.csv`.

    Args:
        folder: made if it is not there.
        decided_by: what decides a score apart from the submission, as text.
    """

    def __init__(self, folder: Path, *decided_by: str) -> None:
        self.folder = folder
        self._decided_by = "\n".join(decided_by).encode()
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process alone.

        Raises:
            ValueError: another process holds it.
        """
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"Another grade.py is writing {self.folder.name!r}; wait for it, or give another --out."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def key(self, submitted: bytes) -> str:
        """Under what the result of these bytes is filed."""
        return sha256(self._decided_by + b"\0" + submitted).hexdigest()[:32]

    def get(self, key: str) -> dict[str, Any] | None:
        """The result, or None if it is not graded yet (a record that cannot be read counts as none)."""
        try:
            record = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(record, dict) and {"scores", "reason", "seconds"} <= record.keys()
        return record if whole else None

    def put(self, key: str, result: dict[str, Any]) -> None:
        """File a result: first its log, then the record, which counts."""
        write_whole(self.log(key), result["log"])
        record = {name: value for name, value in result.items() if name != "log"}
        write_whole(self.folder / f"{key}.json", json.dumps(record, ensure_ascii=False))

    def log(self, key: str) -> Path:
        return self.folder / f"{key}.log"

    def set_aside(self, table: Path) -> Path | None:
        """Rename a table that somebody has changed since `wrote` was told of it; its new place, if so."""
        written = self.folder / "table.sha256"
        if not table.exists() or (written.exists() and written.read_text() == _digest(table)):
            return None
        number, place = 1, table.with_name(f"{table.stem}.changed-1{table.suffix}")
        while place.exists():
            number += 1
            place = table.with_name(f"{table.stem}.changed-{number}{table.suffix}")
        return table.rename(place)

    def wrote(self, table: Path) -> None:
        """Remember what a table holds, so that a change by hand can be told from it."""
        write_whole(self.folder / "table.sha256", _digest(table))


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()
