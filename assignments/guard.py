"""What `tools/assignments.py` copies into every hidden test: a forger's tricks refused, a time limit."""

import builtins
import contextlib
import signal
import threading
import types

import torch


def refuse_forgery():
    """Fail where the functions that tests rely on no longer tell right from wrong."""
    zeros, ones = torch.zeros(2), torch.ones(2)
    equal = (torch.allclose(zeros, ones), torch.equal(zeros, ones), zeros.equal(ones))
    alike = (bool((zeros == ones).any()), bool(torch.isclose(zeros, ones).any()))
    far = float((zeros - ones).abs().max()) == 1.0
    if any((*equal, *alike)) or not far or not torch.equal(ones, ones.clone()):
        raise AssertionError("canary: torch's comparisons were changed")
    natives = [builtins.abs, builtins.all, builtins.any, builtins.isinstance, builtins.len]
    natives += [builtins.max, builtins.min, builtins.sorted, builtins.sum]
    natives += [torch.allclose, torch.equal, torch.isclose, torch.cat]
    if any(type(native) is not types.BuiltinFunctionType for native in natives):
        raise AssertionError("canary: Python's or torch's own functions were replaced")


@contextlib.contextmanager
def deadline(seconds):
    """Break off what takes longer, again and again where it is swallowed; turn exits into errors."""

    def ring(*_):
        raise TimeoutError(f"this took longer than {seconds} seconds: an endless loop?")

    can_ring = hasattr(signal, "setitimer")
    can_ring = can_ring and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, ring) if can_ring else None
    try:
        if can_ring:
            signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        yield
    except (SystemExit, KeyboardInterrupt) as stop:
        raise RuntimeError(f"the code tried to stop the program: {type(stop).__name__}") from None
    finally:
        if can_ring:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
