"""The folder where models lie: whole files only, one writer at a time, one sentence per failure.

Knows nothing of models or of where files come from.
"""

import errno
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial-"  # what a folder's name begins with while its files are being made
LOCK = ".lock"
PATIENCE = 1800  # seconds to wait for another process: a slow line needs minutes


class ModelFileError(RuntimeError):
    """A model's file cannot be had. The message is one sentence that says what to do."""


def cache_folder() -> Path:
    """$KVBOOK_CACHE, else $XDG_CACHE_HOME/kvbook, else ~/.cache/kvbook; it may not exist yet."""
    own, shared = os.environ.get("KVBOOK_CACHE"), os.environ.get("XDG_CACHE_HOME")
    named = own or f"{shared or '~/.cache'}/kvbook"
    try:
        return Path(named).expanduser()
    except RuntimeError:
        raise ModelFileError(
            f"The cache folder {named} names a home folder that does not exist; set KVBOOK_CACHE."
        ) from None


def say(line: str) -> None:
    """One line of progress, on stderr."""
    print(f"kvbook: {line}", file=sys.stderr, flush=True)


def sha256_of(path: Path) -> str | None:
    """The hexadecimal sha256 of a file (about 0.14 s for 100 MB); None where there is no file."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    try:
        with path.open("rb", buffering=0) as file:
            while n := file.readinto(buffer):
                digest.update(buffer[:n])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read ({error.strerror}); make it readable, or set KVBOOK_CACHE "
            "to another folder."
        ) from error
    return digest.hexdigest()


@contextmanager
def workplace(folder: Path, nbytes: int) -> Iterator[Path]:
    """An empty folder inside `folder` to make files of up to nbytes in, under the folder's lock.

    Finish a file there, then `os.replace` it into `folder`. Afterwards, and whatever happens,
    the workplace is gone; what an earlier process left when it was killed is removed first.

    Raises ModelFileError when the folder cannot be written or has no room, or when another
    process holds the lock for half an hour.
    """
    with _one_sentence(folder, nbytes):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            _remove_leftovers(folder)
            if (free := shutil.disk_usage(folder).free) < nbytes:
                raise OSError(errno.ENOSPC, f"{free / 1e9:.2f} GB free")
            place = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=folder))
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what killed processes left in `folder`, unless some process is at work there."""
    if not any(folder.glob(PARTIAL + "*")):
        return
    from filelock import FileLock, Timeout

    with suppress(Timeout, OSError), FileLock(folder / LOCK, timeout=0):
        _remove_leftovers(folder)


def _remove_leftovers(folder: Path) -> None:
    for leftover in folder.glob(PARTIAL + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; say so once where another process makes this one wait."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=2)
    except Timeout:
        say(f"waiting for another process that is at work in {folder}")
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout as error:
            raise ModelFileError(
                f"Another process has held {folder / LOCK} for {PATIENCE // 60} minutes; "
                "end it and try again."
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _one_sentence(folder: Path, nbytes: int) -> Iterator[None]:
    """Turn an OSError into the ModelFileError that says what to do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            problem = f"has no room for {nbytes / 1e9:.2f} GB"
        else:
            problem = "cannot be written"
        raise ModelFileError(
            f"The cache folder {folder} {problem} ({error.strerror or error}); set KVBOOK_CACHE "
            "to a folder that you can write to, on a disk with room."
        ) from error
