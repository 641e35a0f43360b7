"""A guard for GPUs like Colab's T4, which store and cast bfloat16 and fp8 but calculate with neither.

It needs torch alone: tests/test_colab_alone.py puts this text into a notebook.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NARROW = {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
MOVES = {
    "_to_copy",
    "alias",
    "as_strided",
    "cat",
    "clone",
    "copy_",
    "detach",
    "expand",
    "fill_",
    "index_select",
    "lift_fresh",
    "select",
    "slice",
    "transpose",
    "unsqueeze",
    "view",
}


class StoresOnly(TorchDispatchMode):
    """Refuses every operation on the narrow floats but those that move or cast them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = {x.dtype for x in tree_leaves([args, kwargs]) if isinstance(x, torch.Tensor)}
        name = func.overloadpacket.__name__
        if found & NARROW and name not in MOVES:
            raise ArithmeticError(f"{name} calculates in {found & NARROW}")
        return func(*args, **(kwargs or {}))
