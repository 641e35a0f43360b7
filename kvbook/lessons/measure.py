"""Lesson 4 — Does memory match?. Generated from notebooks/04_measure.py by `make lessons`: edit that."""

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def tensors(obj: Any, seen: dict[int, Any] | None = None) -> Iterator[Tensor]:
    """Every tensor that an object reaches: attributes, gradients, lists, tuples, dicts, sets, deques.

    Not what a closure, a functools.partial or another library's container hides.
    """
    seen = {} if seen is None else seen
    if id(obj) in seen or isinstance(obj, type | ModuleType):
        return
    seen[id(obj)] = obj  # keeps it alive, so that no other object gets its id
    if isinstance(obj, Tensor):
        yield obj
        yield from tensors(obj.grad if obj.is_leaf else None, seen)
    slots = [name for cls in type(obj).__mro__ for name in getattr(cls, "__slots__", ())]
    parts = [*getattr(obj, "__dict__", {}).values(), *(getattr(obj, s, None) for s in slots)]
    if isinstance(obj, dict):
        parts += [*obj.keys(), *obj.values()]
    elif isinstance(obj, list | tuple | set | frozenset | deque):
        parts += obj
    for part in parts:
        yield from tensors(part, seen)


def storages(obj: Any) -> list[torch.UntypedStorage]:
    """The memory behind every tensor that can be reached from an object, each piece once."""
    found = (tensor.untyped_storage() for tensor in tensors(obj))
    return list({storage._cdata: storage for storage in found}.values())


def held_nbytes(obj: Any) -> int:
    """Bytes that an object keeps alive: whole storages, however little its tensors show."""
    return sum(storage.nbytes() for storage in storages(obj))


def resident_nbytes(trim: bool = False) -> int:
    """Bytes of main memory that this process occupies (Linux: /proc/self/statm).

    With trim=True the C library first gives back what was freed but kept for later (glibc only).
    """
    if trim and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cuda_nbytes() -> dict[str, int]:
    """What the book-keepers say of the GPU's memory, in bytes; empty without a GPU.

    PyTorch's allocator: `requested` by live tensors, `allocated` to them, `peak` of that since the
    last reset, `reserved` from the driver. The driver: `used` on the whole card, by every process.
    """
    if not torch.cuda.is_available():
        return {}
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {
        "requested": torch.cuda.memory_stats().get("requested_bytes.all.current", 0),
        "allocated": torch.cuda.memory_allocated(),
        "peak": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "used": total - free,
    }


class Watch(TorchDispatchMode):
    """Sees every operation inside a `with` block: bytes alive, their peak, bytes of rows written.

    `live` and `peak` count the storages of `held` (any objects) and of what is made in the block.
    `written` counts the results of torch.cat, and what copies and indexed writes of tensors write.
    What an operation uses inside and gives back before it ends is not seen.
    """

    def __init__(self, *held: Any) -> None:
        super().__init__()
        self.live = self.peak = self.written = 0
        self.known: set[int] = set()
        self.add(storages(held))

    def add(self, found: list[torch.UntypedStorage]) -> None:
        for storage in found:
            key, nbytes = storage._cdata, storage.nbytes()
            if key not in self.known:
                self.known.add(key)
                self.live += nbytes
                weakref.finalize(storage, self.freed, key, nbytes)
        self.peak = max(self.peak, self.live)

    def freed(self, key: int, nbytes: int) -> None:
        self.known.discard(key)
        self.live -= nbytes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in storages([args, kwargs])}
        self.add([storage for storage in storages(result) if storage._cdata not in given])
        source = {"cat": result, "index_put_": args[2:3], "copy_": args[:1]}
        rows = tensors(source.get(func.overloadpacket.__name__))
        self.written += sum(row.numel() * row.element_size() for row in rows)
        return result
