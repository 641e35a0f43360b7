"""What each hidden test begins with: changed functions and values that lie are refused, honest ones pass."""

from __future__ import annotations

import builtins
import collections
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "assignments"))
try:
    import guard
finally:
    sys.path.pop(0)


class Loud(list):
    def __eq__(self, other):
        return True

    __hash__ = None


class Seven(int):
    def __sub__(self, other):
        return 0


class Alike(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        if function in (torch.equal, torch.allclose):
            return True
        return super().__torch_function__(function, kinds, args, kwargs or {})


@dataclass
class Anything:
    number: int = 0

    def __eq__(self, other):
        return True


def alike() -> torch.Tensor:
    return torch.zeros(2).as_subclass(Alike)


PATCHES = [
    (torch, "allclose", lambda *a, **k: True),
    (torch, "arange", lambda *a, **k: []),
    (torch.Tensor, "equal", lambda *a: True),
    (torch.Tensor, "tolist", lambda self: Loud()),
    (torch.Tensor, "__eq__", lambda *a: True),
    (torch.Tensor, "__len__", lambda self: 0),
    (torch.Tensor, "shape", property(lambda self: Loud())),
    (torch.Tensor, "__getattribute__", object.__getattribute__),
    (builtins, "all", lambda x: True),
    (builtins, "range", lambda *a: []),
    (builtins, "enumerate", type("enumerate", (), {})),
    (builtins, "sorted", len),
    (builtins, "ValueError", BaseException),
]


@pytest.mark.parametrize(
    ("owner", "name", "fake"), PATCHES, ids=[f"{o.__name__}.{name}" for o, name, _ in PATCHES]
)
def test_a_changed_function_is_noticed(owner, name, fake):
    guard.refuse_forgery()
    said = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, fake)
        try:
            guard.refuse_forgery()
        except AssertionError as error:
            said = str(error)
    assert said.startswith("canary: ")
    guard.refuse_forgery()


def test_a_mode_that_answers_for_torch_is_noticed():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Mode(), pytest.raises(AssertionError, match="canary"):
        guard.refuse_forgery()
    with torch.device("cpu"):
        guard.refuse_forgery()


LIARS = [
    alike,
    lambda: (torch.zeros(1), alike()),
    lambda: Seven(7),
    lambda: [Loud()],
    lambda: Anything(),
]


@pytest.mark.parametrize("liar", LIARS)
def test_a_value_that_lies_is_refused(liar):
    with guard.honest(liar) as answer, pytest.raises(AssertionError, match="canary"):
        answer()


def test_so_is_one_that_stays_in_what_the_test_holds():
    def append(cache):
        cache["k"] = alike()

    class Cache:
        def append(self):
            self.free = Loud()

        @property
        def used(self):
            return Seven(7)

    class Below(Cache):
        pass

    with guard.honest(append) as answer, pytest.raises(AssertionError, match="canary"):
        answer({})
    for kind in (Cache, Below):
        before = {name: vars(kind).get(name) for name in ("append", "used")}
        with guard.honest(kind) as answer:
            with pytest.raises(AssertionError, match="canary"):
                answer().append()
            with pytest.raises(AssertionError, match="canary"):
                _ = answer().used
        assert {name: vars(kind).get(name) for name in before} == before


Pair = collections.namedtuple("Pair", "k v")


def test_honest_answers_are_left_alone():
    @dataclass
    class Block:
        rows: list[int] = field(default_factory=list)

    class Cache:
        def __init__(self):
            self.tables = collections.defaultdict(list)
            self.counts = collections.Counter("aab")
            self.blocks = [Block(), Block()]
            self.itself = self
            self.k = torch.nn.Parameter(torch.zeros(2))

        def read(self):
            return self.part(), torch.zeros(2, 3).shape, Pair(torch.ones(1), None), {"a": {1, 2}}

        def part(self):  # what its parts hand to each other is its own affair
            return self.blocks[0].rows

        def wrong(self):
            raise ValueError("as it must")

    with guard.honest(Cache) as answer:
        assert answer is Cache
        assert len(answer().read()) == 4
        with pytest.raises(ValueError, match="as it must"):
            answer().wrong()
    assert not hasattr(Cache.read, "__wrapped__")
    with guard.honest(None) as answer:
        assert answer is None
