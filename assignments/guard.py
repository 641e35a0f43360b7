"""What `tools/assignments.py` copies into every hidden test: a forger's tricks refused, a time limit."""

import builtins
import collections
import contextlib
import functools
import inspect
import signal
import threading
import types

import torch

NATIVE = """
abs all any bool bytes complex dict divmod enumerate filter float frozenset getattr hasattr hash
id int isinstance issubclass iter len list map max min next object pow range repr reversed round
set slice sorted str sum super tuple type vars zip ArithmeticError AssertionError AttributeError
BaseException Exception IndexError KeyError KeyboardInterrupt LookupError MemoryError RuntimeError
StopIteration SystemExit TimeoutError TypeError ValueError ZeroDivisionError
"""


def refuse_forgery():
    """Fail where the functions that tests rely on are not Python's and torch's own any more."""
    if ().__class__.__class__ is not type:
        raise AssertionError("canary: Python's own functions were replaced")
    for (
        name
    ) in NATIVE.split():  # none of them is a Python function, or a class that Python code made
        native = builtins.__dict__.get(name)
        fine = type(native) is type and not native.__flags__ & 1 << 9
        fine = fine or (type(native) is types.BuiltinFunctionType and native.__self__ is builtins)
        if not fine or native.__name__ != name:
            raise AssertionError("canary: Python's own functions were replaced")
    own = torch.__file__.removesuffix("__init__.py")
    plain, functions = type(torch._C._VariableFunctions.zeros(1)), torch._C._VariableFunctions
    pairs = [
        (plain.__dict__.get(name, native), native) for name, native in vars(plain.__base__).items()
    ]
    pairs += [
        (getattr(torch, name, None), getattr(functions, name))
        for name in dir(functions)
        if name[0] != "_"
    ]
    changed = [
        now
        for now, native in pairs
        if not (now is None or now is native or now == native)
        and not (type(now) is types.FunctionType and now.__code__.co_filename.startswith(own))
        and type(now) is not staticmethod
    ]
    changed += [name for name in ("__getattribute__", "__getattr__") if name in vars(plain)]
    modes = getattr(torch.overrides, "_get_current_function_mode_stack", list)()
    changed += [mode for mode in modes if type(mode).__module__ != "torch.utils._device"]
    if changed or plain is not torch.Tensor:
        raise AssertionError("canary: torch's own functions were replaced")
    zeros, ones = torch.zeros(2), torch.ones(2)
    equal = (torch.allclose(zeros, ones), torch.equal(zeros, ones), zeros.equal(ones))
    alike = (bool((zeros == ones).any()), bool(torch.isclose(zeros, ones).any()))
    far = float((zeros - ones).abs().max()) == 1.0
    if any((*equal, *alike)) or not far:
        raise AssertionError("canary: torch's comparisons were changed")


def refuse_liars(waiting, answer, strict):
    """Fail where a value would answer a test's comparison by itself; `strict` counts every object.

    Values may be tensors, numbers, text, and lists, tuples, sets and dictionaries of these.
    """
    waiting, seen = [*waiting], set()
    compare = [
        "__eq__",
        "__ne__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__len__",
        "__iter__",
        "__contains__",
    ]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if id(value) in seen:
            continue
        seen.add(id(value))
        python_made = kind.__flags__ & 1 << 9
        own = python_made and any(
            isinstance(getattr(kind, name, None), types.FunctionType) for name in compare
        )
        if issubclass(kind, torch.Tensor):
            lies = kind not in (torch.Tensor, torch.nn.Parameter)
        elif issubclass(kind, (int, float, complex, str, bytes)):
            lies = python_made
        elif issubclass(kind, (list, tuple, set, frozenset, collections.deque)):
            lies = own
            (base,) = [
                b for b in (list, tuple, set, frozenset, collections.deque) if issubclass(kind, b)
            ]
            waiting += base.__iter__(value)
        elif issubclass(kind, dict):
            lies = own and kind is not collections.Counter
            waiting += [*dict.keys(value), *dict.values(value)]
        else:
            lies = strict and own
            if isinstance(answer, type) and issubclass(kind, answer):
                lies = False
                waiting += getattr(value, "__dict__", {}).values()
        if lies:
            raise AssertionError(
                f"canary: {kind.__name__} is a kind of its own; give plain tensors, numbers, lists"
            )


@contextlib.contextmanager
def honest(answer):
    """The student's function or class, but what it returns, and what it is given and keeps, must not lie."""
    depth = [
        0
    ]  # only what crosses to the test counts, not what the answer's parts hand to each other

    def checked(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            depth[0] += 1
            try:
                result = function(*args, **kwargs)
                if depth[0] == 1:
                    refuse_liars([result], answer, strict=True)
                    refuse_liars([*args, *kwargs.values()], answer, strict=False)
                return result
            finally:
                depth[0] -= 1

        return call

    if not isinstance(answer, type):
        yield checked(answer) if callable(answer) else answer
        return
    before = {name: inspect.getattr_static(answer, name) for name in dir(answer)}
    inherited = {name for name in before if name not in vars(answer)}
    for name, found in list(before.items()):
        if isinstance(found, types.FunctionType):
            setattr(answer, name, checked(found))
        elif isinstance(found, property) and found.fget:
            setattr(answer, name, property(checked(found.fget), found.fset, found.fdel))
        else:
            del before[name]
    try:
        yield answer
    finally:
        for name, found in before.items():
            if name in inherited:
                delattr(answer, name)
            else:
                setattr(answer, name, found)


@contextlib.contextmanager
def in_short():
    """Say only that a check fails: Gradescope shows this to students, and their code can raise any text."""
    try:
        yield
    except Exception:
        raise AssertionError("the same check in the notebook says why") from None


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
