"""The walls themselves, with programs that need no Otter."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from grading import sandbox, task
from grading.sandbox import Limits

pytestmark = pytest.mark.grading
ROOT = Path(__file__).resolve().parent.parent


def run(code: str, **limits: float) -> sandbox.Finished:
    given = {"seconds": 30, "memory_mib": 256, **limits}
    return sandbox.run([sys.executable, "/in/it.py"], {"it.py": code.encode()}, Limits(**given))


def below() -> dict[int, str]:
    """What runs below this process, but for a browser, which starts and ends processes as it likes."""
    found = {child.pid: child.name() for child in psutil.Process().children(recursive=True)}
    return {pid: name for pid, name in found.items() if "chrom" not in name}


@pytest.fixture
def left() -> Callable[[], list[str]]:
    """left() -> what the test has started and still runs."""
    before = below()
    return lambda: [name for pid, name in below().items() if pid not in before]


def test_what_comes_out():
    done = run("import sys; print('out'); print('log', file=sys.stderr); sys.exit(3)")
    assert (done.code, done.out, done.log, done.why) == (3, b"out\n", "log\n", "")


def test_a_sleeper_is_stopped(left):
    started = time.monotonic()
    done = run("import time; time.sleep(60)", seconds=1)
    assert done.why == "it ran for more than 1 s"
    assert time.monotonic() - started < 20
    assert not left()


def test_children_count_and_die_with_it(left):
    code = (
        "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(b'x') * 10**8\ntime.sleep(60)"
    )
    assert run(code).why == "it used more than 256 MiB of memory"
    assert not left()
    processes = "import os, time\nfor _ in range(5): os.fork()\ntime.sleep(60)"
    threads = "import threading as t, time\nfor _ in [0] * 30: t.Thread(target=time.sleep, args=(9,)).start()"
    sandbox.MAX_TASKS, before = 20, sandbox.MAX_TASKS
    try:
        for code in (processes, threads):
            assert "more than 20 processes" in run(code, memory_mib=4096).why
    finally:
        sandbox.MAX_TASKS = before
    assert not left()


def test_one_that_outlives_its_parent_is_stopped_with_it(left):
    assert run("import os, time\nif os.fork(): os._exit(0)\nos.setsid(); time.sleep(60)").why == ""
    assert not left()


def test_files_are_memory_and_bounded():
    code = """
for place in ('/tmp/x', '/dev/shm/x'):
    try:
        with open(place, 'wb') as file:
            for _ in range(1000): file.write(b'x' * 10**6)
    except OSError as error:
        print(error.strerror)
"""
    assert run(code).out == b"No space left on device\n" * 2
    code = "import os; print([p for p in ('/', '/dev', '/in', '/etc', '/usr') if os.access(p, os.W_OK)])"
    assert run(code).out == b"[]\n"


def test_nothing_in_there_stops_or_reads_the_first_process():
    """What inside.py is, after its first call; the child is what a notebook is."""
    inside = (ROOT / "assignments/grading/inside.py").read_text()
    child = (
        "import os, signal\n"
        "found = [name for name in ('fd', 'mem', 'environ', 'cwd') if reachable(name)]\n"
        "for sign in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGTERM): os.kill(1, sign)\n"
        "print(found, flush=True)"
    )
    reachable = (
        "def reachable(name):\n"
        "    place = f'/proc/1/{name}'\n"
        "    try:\n"
        "        import os\n"
        "        if name in ('fd', 'cwd'): os.listdir(place); os.readlink(place + '/1')\n"
        "        else: open(place, 'rb+' if name == 'mem' else 'rb').read(1)\n"
        "    except PermissionError:\n"
        "        return False\n"
        "    return True\n"
    )
    code = (
        f"__name__ = 'inside'\n{inside}\nclose_to_others()\nimport subprocess\n"
        f"subprocess.run([sys.executable, '-c', {reachable + child!r}], check=True)\nprint('alive')"
    )
    done = run(code)
    assert (done.out, done.log) == (b"[]\nalive\n", "")


def test_a_log_commands_no_terminal():
    done = run("import sys; sys.stderr.write('\\x1b[2Ja\\r\\x9b\\tb\\n')")
    assert done.log == "\ufffd[2Ja\ufffd\ufffd\tb\n"


def test_nothing_of_it_is_on_the_disk(tmp_path, monkeypatch):
    """So a kill of the grader leaves nothing behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert run("print(open('/in/it.py').read(5))").out == b"print\n"


def test_the_outside_is_not_there():
    outside = [
        str(ROOT / "README.md"),
        str(ROOT / "assignments"),
        "/home",
        str(Path.home() / ".ssh"),
    ]
    code = (
        "import os, socket\n"
        f"print([p for p in {outside} if os.path.exists(p)])\n"
        "print(sorted(n for _, n in socket.if_nameindex()))\n"
        "print('HOME' in os.environ and os.environ['HOME'], 'KVBOOK_SECRET' in os.environ)\n"
        "print([p for p in os.listdir('/proc') if p.isdigit()])\n"
        "import ctypes\n"  # no user namespace of its own, in which it would be root
        "print(ctypes.CDLL(None).unshare(0x10000000))"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVBOOK_SECRET", "x")
        lines = run(code).out.decode().splitlines()
    assert lines[0] == "[]"
    assert lines[1:] == ["['lo']", "/tmp False", "['1']", "-1"]


def test_floods_are_cut():
    done = run(
        "import sys\nfor _ in range(500): sys.stderr.write('y' * 10**5); sys.stdout.write('x' * 10**5)"
    )
    assert "more than 4 MiB" in done.why
    assert len(done.out) <= sandbox.OUT_LIMIT + 65536
    assert len(done.log) < 3 * sandbox.LOG_LIMIT
    assert "was not kept" in done.log


@pytest.mark.parametrize(
    "inside", ["", "raise SystemExit(1)", "import os, signal; os.kill(1, signal.SIGKILL)"]
)
def test_what_is_not_the_students_doing_is_not_graded(inside):
    """Nothing of a submission ran: that is no 0, it is no grade."""
    with pytest.raises(RuntimeError, match="the sandbox did not do its work"):
        task.grade_one(b"", b"", inside.encode(), {"q1": 3.0}, {}, [], Limits(seconds=30))


def test_no_results_are_zero_with_the_log():
    inside = b"import sys; print('started', flush=True); sys.exit('the last line')"
    graded = task.grade_one(b"", b"", inside, {"q1": 3.0}, {}, [], Limits(seconds=30))
    assert graded["scores"] == {"q1": 0.0}
    assert graded["reason"] == "no results; the log says more"  # which may be the tests' own text
    assert graded["log"] == "the last line\n"
    inside = inside.replace(b"the last line", b"OSError: No space left on device")
    graded = task.grade_one(b"", b"", inside, {"q1": 3.0}, {}, [], Limits(seconds=30))
    assert graded["reason"].startswith("no results: it filled the room")
    inside = b"import time; print('started', flush=True); time.sleep(60)"
    graded = task.grade_one(b"", b"", inside, {"q1": 3.0}, {}, [], Limits(seconds=1))
    assert graded["reason"] == "stopped: it ran for more than 1 s"
