"""Run a command inside bubblewrap: no network, a read-only system, nothing of the host to write to.

The command sees the system's programs, this Python with its packages, kvbook, and the files that it is given
in /in. It may write to /tmp, which is memory and goes away with it. What it writes to its standard output
comes back as `out`, its standard error as `log`; neither is trusted.

This module knows nothing of Otter or of notebooks.
"""

from __future__ import annotations

import importlib.util
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MIB = 2**20
PYTHON = os.path.abspath(sys.executable)  # noqa: PTH100 - a venv's link must not be followed
OUT_LIMIT = 4 * MIB  # of `out`; more than that is no result
LOG_LIMIT = 64 * 1024  # of `log`: this much of its start and as much of its end
SHM = 64 * MIB
PACKAGES = "/packages"
MAX_TASKS = 512  # processes and threads
POLL_SECONDS = 0.1
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)  # in a log they could command a teacher's terminal

ETC = {
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "passwd": "student:x:1000:1000::/tmp:/bin/sh\n",
    "group": "student:x:1000:\n",
    "nsswitch.conf": "hosts: files\npasswd: files\ngroup: files\n",
}
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Args:
        seconds: wall-clock time of the whole submission.
        cell_seconds: processor time of one cell; its question loses points, the others do not.
        memory_mib: memory of all its processes together, MiB; the files it writes have as much again.
    """

    seconds: float = 300.0
    cell_seconds: float = 20.0
    memory_mib: int = 4096


@dataclass(frozen=True)
class Finished:
    """How a command ended: `why` is empty when it ended by itself, else the limit that ended it."""

    code: int
    out: bytes
    log: str
    seconds: float
    why: str


def missing() -> str:
    """Why no sandbox can be made here, as one sentence; empty when one can."""
    if not shutil.which("bwrap"):
        return (
            "bubblewrap was not found: submissions are strangers' programs and run only inside it. "
            "It exists for Linux (on Debian and Ubuntu: sudo apt-get install bubblewrap)."
        )
    try:
        tried = subprocess.run(
            [*_walls([]), "--", "/bin/sh", "-c", "exit 0"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap could not be run: {error}."
    if tried.returncode:
        said = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
        return f"bubblewrap cannot make a sandbox here; it says {said!r} (version 0.8 or newer is needed)."
    return ""


def run(command: list[str], files: dict[str, bytes], limits: Limits) -> Finished:
    """Run `command` with `files` (name: content) read-only in /in, within `limits`.

    The command is process 1 in there: nothing that it starts can stop it, and what it starts ends with it.
    Nothing is written to this machine's disk.

    Raises:
        OSError: bubblewrap is not there or cannot start; says nothing on the command.
    """
    contents = {f"/in/{name}": content for name, content in files.items()}
    contents |= {f"/etc/{name}": text.encode() for name, text in ETC.items()}
    given, inherited = [], []
    with ExitStack() as stack:
        for place, content in contents.items():
            file = stack.enter_context(os.fdopen(os.memfd_create("given"), "w+b"))
            file.write(content)
            file.seek(0)
            inherited.append(file.fileno())
            given += ["--ro-bind-data", str(file.fileno()), place]
        size = ["--size", str(limits.memory_mib * MIB)]
        return _watched([*_walls(given, size), "--", *command], limits, inherited)


def _walls(given: list[str], size: list[str] | None = None) -> list[str]:
    """The bubblewrap command line up to the command; `given` binds the files that it gets."""
    walls = ["bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
    walls += ["--as-pid-1"]
    walls += ["--new-session", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "box"]
    walls += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    walls += ["--size", str(SHM), "--tmpfs", "/dev/shm", *(size or []), "--tmpfs", "/tmp"]
    for top in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64")):
        if top.is_symlink():
            walls += ["--symlink", str(top.readlink()), str(top)]
        elif top.is_dir():
            walls += ["--ro-bind", str(top), str(top)]
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        walls += ["--ro-bind-try", file, file]
    for place in _python_places():
        walls += ["--ro-bind", str(place), str(place)]
    spec = importlib.util.find_spec("kvbook")  # by itself: its repository holds the solutions
    if spec and spec.origin:
        walls += ["--ro-bind", str(Path(spec.origin).parent), f"{PACKAGES}/kvbook"]
    walls += given
    walls += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    for key, value in _environment().items():
        walls += ["--setenv", key, value]
    return walls


def _python_places() -> list[Path]:
    """The folders this Python runs from."""
    places = [Path(os.path.abspath(place)) for place in (sys.base_prefix, sys.prefix)]  # noqa: PTH100
    kept: list[Path] = []
    for place in places:
        if not any(place.is_relative_to(top) for top in [Path("/usr"), *kept]):
            kept.append(place)
    return kept


def _environment() -> dict[str, str]:
    return {
        "PATH": f"{Path(PYTHON).parent}:/usr/bin:/bin",
        "HOME": "/tmp",
        "PYTHONPATH": f"/in:{PACKAGES}",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "PIP_NO_INDEX": "1",  # `%pip install` in a notebook ends at once
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **dict.fromkeys(ONE_THREAD, "1"),
    }


def _watched(command: list[str], limits: Limits, inherited: list[int]) -> Finished:
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        pass_fds=inherited,
        start_new_session=True,  # a Ctrl-C is for the grader, not for what it grades
    )
    assert process.stdout
    assert process.stderr
    out, log, why = bytearray(), _Log(), ""
    try:
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            looked = started
            while selector.get_map():
                for key, _ in selector.select(POLL_SECONDS):
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stderr:
                        log.add(data)
                    elif len(out) <= OUT_LIMIT:
                        out += data
                if (now := time.monotonic()) - looked >= POLL_SECONDS and not why:
                    looked = now
                    if why := _over(process.pid, now - started, limits):
                        process.kill()
        process.wait()
    finally:
        if process.poll() is None:  # an exception in this loop, a Ctrl-C say
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
    if not why and len(out) > OUT_LIMIT:
        why = f"it wrote a result of more than {OUT_LIMIT // MIB} MiB"
    seconds = time.monotonic() - started
    return Finished(process.returncode, bytes(out), log.text(), seconds, why)


def _over(pid: int, seconds: float, limits: Limits) -> str:
    """The limit that the process and its children are over, in words; empty when none."""
    if seconds > limits.seconds:
        return f"it ran for more than {limits.seconds:g} s"
    memory = tasks = 0
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                info = process.memory_info()
                memory += max(0, info.rss - info.shared)
                tasks += process.num_threads()
    if memory > limits.memory_mib * MIB:
        return f"it used more than {limits.memory_mib} MiB of memory"
    if tasks > MAX_TASKS:
        return f"it ran more than {MAX_TASKS} processes and threads"
    return ""


class _Log:
    """The first and the last LOG_LIMIT bytes of what is added."""

    def __init__(self) -> None:
        self.head, self.tail, self.cut = bytearray(), bytearray(), False

    def add(self, data: bytes) -> None:
        room = LOG_LIMIT - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail += data[max(room, 0) :]
        if len(self.tail) > LOG_LIMIT:
            self.cut = True
            del self.tail[:-LOG_LIMIT]

    def text(self) -> str:
        middle = b"\n[... the middle of this log was not kept ...]\n" if self.cut else b""
        text = (bytes(self.head) + middle + bytes(self.tail)).decode("utf-8", "replace")
        return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
