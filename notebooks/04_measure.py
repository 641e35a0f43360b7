# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 4 — Does memory match?
#
# **The question.** Lesson 3's formula says what a cache weighs. Does it take exactly that from the
# machine? And if not, where is every other byte?
#
# A formula that is right about tensors can still be wrong about the machine. Between your tensor and
# the memory stand other programs: an **allocator**, which gives out memory piece by piece (on the CPU the
# C library's, on a GPU PyTorch's), and the operating system or the GPU's driver below it. Each rounds
# up, keeps something back, or needs room for a moment. You will predict, then ask each of them. Where no
# GPU is at hand you ask the same questions of main memory.

# %% [markdown]
# ## What you need
#
# [Lesson 2](02_cache.ipynb) for its two caches, [lesson 3](03_cost.ipynb) for the formula, and Linux.
# You need no GPU and no weights. With a GPU the same cells ask the GPU instead. The lesson runs in about
# a minute on two CPU cores.

# %% [markdown]
# ## Predict
#
# All caches here have the shape of SmolLM2-135M: 30 layers, 3 KV heads of 64.
#
# 1. From a cache with room for 1,024 tokens you keep a view of the last 16 (a slice), and drop the
#    cache. What share of its memory is still taken?
# 2. A cache of 94 MB is created but still empty. By how much has the process grown? And when the
#    cache is full?
# 3. The growing cache makes a new tensor before it drops the old one. By how much does it exceed its
#    size at the worst moment of a step: by all of it, by a half, by less?
# 4. You may take 128 MiB more, in float16, with 4 sequences. How many tokens each?

# %% tags=["export"]
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

# %%
import statistics

import ipywidgets
import matplotlib.pyplot as plt

from kvbook import plotting
from kvbook.accounting import cache_spec
from kvbook.accounting.facts import model
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.cost import token_nbytes
from kvbook.lessons.decoder import DecoderConfig
from kvbook.measure import record
from kvbook.measure.points import LEAD, STEPS, fill
from kvbook.measure.runner import results
from kvbook.models import smollm2
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
config = DecoderConfig(**smollm2.CONFIG)
spec = cache_spec(model("smollm2-135m").config)
MB, MiB = 10**6, 2**20

# %% [markdown]
# ## Build
#
# ### What an object holds
#
# A PyTorch tensor is a window on a **storage**, the piece of memory itself. Several tensors can look
# at one storage, and a small tensor can look at a large one. As long as one of them lives, the whole
# storage stays. So to weigh an object, find all tensors that can be reached from it, take their
# storages, and count each once.


# %% tags=["export"]
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


# %% [markdown]
# Now guess 1. First count the elements of the views, for K and for V, and then weigh them.

# %%
capacity = 1024
cache = PreallocatedCache(config, capacity=capacity, device=device)
print(f"the cache: {held_nbytes([cache.k, cache.v]):,} bytes")
recent = [cache.k[:, :, :, -16:], cache.v[:, :, :, -16:]]
del cache
counted = sum(view.numel() * view.element_size() for view in recent)
print(f"counting the elements of the views: {counted:,} bytes")
print(f"what they hold: {held_nbytes(recent):,} bytes")
under_reported = held_nbytes(recent) / counted
assert counted == 16 * 46_080
assert (held_nbytes(recent), under_reported) == (1024 * 46_080, 64)

# %% [markdown]
# All of it stays: 64 times what a count of elements reports. A view is cheap to make and expensive to
# keep. To let the rest go you must copy: `clone()`.
#
# A whole cache weighs a little more than its keys and values. `lengths` is a tensor, too: 8 bytes for
# each sequence. This book calls that **book-keeping**, and counts it apart.

# %%
cache = PreallocatedCache(config, batch=3, capacity=1024, device=device)
predicted = spec.nbytes(1024, batch=3, cache_dtype="float32")
print(f"predicted {predicted:,}, held {held_nbytes(cache):,}: {held_nbytes(cache.lengths)} more")
assert predicted == 3 * 1024 * token_nbytes(30, 3, 64, 4)
length_nbytes = cache.lengths.element_size()
assert held_nbytes(cache) == predicted + 3 * 8 == predicted + 3 * length_nbytes

# %% [markdown]
# ### What the process takes
#
# A storage is what PyTorch asked for. What did the machine give? Linux says how many pages of main
# memory a process occupies: its **resident memory**. One thing stands in between. Freed memory need
# not go back to the system; the C library may keep it for the next request. Its function
# `malloc_trim` hands back what it can.


# %% tags=["export"]
def resident_nbytes(trim: bool = False) -> int:
    """Bytes of main memory that this process occupies (Linux: /proc/self/statm).

    With trim=True the C library first gives back what was freed but kept for later (glibc only).
    """
    if trim and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# %% [markdown]
# Take a cache with room for 2,048 tokens, on the CPU. `fill` feeds it rows of ones, `piece` tokens at a
# time. First a tiny one is filled, because PyTorch loads some of its code on first use, and that is not
# the cache's.

# %%
fill(PreallocatedCache(config, capacity=8), 8, piece=4)

# %% tags=["nbval-ignore-output"]
start = resident_nbytes(trim=True)
cache = PreallocatedCache(config, capacity=2 * capacity)
empty = resident_nbytes() - start
fill(cache, 2 * capacity, piece=512)
full = resident_nbytes(trim=True) - start
print(f"storages: {held_nbytes(cache) / MB:.1f} MB")
print(f"resident: {empty / MB:.1f} MB more when created, {full / MB:.1f} MB more when filled")

# %%
on_cpu = held_nbytes(cache)
assert on_cpu == 94_371_840 + 8
assert abs(empty) < 0.1 * held_nbytes(cache)
assert abs(full / held_nbytes(cache) - 1) < 0.1
del cache

# %% [markdown]
# Guess 2: creating the cache takes next to nothing, filling it takes all of it. `torch.empty` only
# reserves addresses. The system hands out a **page**, a piece of some kB, when it is first written. So a
# server may "fit" on a CPU at the start and die at noon. A measurement must fill what it measures. (A GPU
# hands out memory at once.)
#
# This notebook's process has a past: pages that were freed and are used again. A clean figure needs a
# fresh process, so from here on each cache gets one.

# %% [markdown]
# ### What the GPU takes
#
# On a GPU four counts stand in a row. (What follows was read in the source of PyTorch's allocator,
# `CUDACachingAllocator.cpp`, with its constants as of PyTorch 2.13.0, and not run for this page.)
#
# - **requested**: what your tensors asked for.
# - **allocated**: what they got. The allocator rounds up to a multiple of 512 bytes. A tensor above 1 MiB
#   gets a part of a larger piece, and if 1 MiB or less would be left over, all of it.
# - **reserved**: the pieces that the allocator has from the driver. It keeps them when tensors die.
# - **used**: what the driver has given out, to all processes. Beside those pieces that is each process's
#   CUDA context, the driver's own data.
#
# `nvidia-smi` shows the last, which is why it does not agree with your sum.


# %% tags=["export"]
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


# %% tags=["nbval-ignore-output"]
print(cuda_nbytes() or "PyTorch sees no GPU here, so there is nothing to ask.")

# %%
assert len(cuda_nbytes()) == (5 if device == "cuda" else 0)

# %% [markdown]
# ### What a moment takes
#
# The last thing to know is the **transient**: memory that is taken and given back within a step. It
# decides whether the step succeeds, and no figure taken afterwards shows it. PyTorch lets you stand
# between the program and its operations (a *dispatch mode*). This watcher adds each new storage,
# subtracts each one that dies, and keeps the maximum. It also counts what is written by the operations
# that caches use to store rows.


# %% tags=["export"]
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


# %%
with Watch() as watch:
    a = torch.zeros(1000)  # 4,000 bytes
    a = torch.cat([a, a])  # 8,000 more, before the first are dropped
    del a
print(f"peak {watch.peak:,}, alive at the end {watch.live:,}, written {watch.written:,} bytes")
assert (watch.peak, watch.live, watch.written) == (12_000, 0, 8_000)

# %% [markdown]
# ## Measure
#
# ### Cache by cache
#
# Fill caches of several kinds, precisions, lengths and batches, each in a fresh process (`results` starts
# them), and compare what they take with lesson 3's prediction. A line names the kind of cache, its
# precision, and tokens × sequences.

# %%
base = {"what": "grid", "model": "smollm2-135m", "device": device}
grid = [
    {**base, "kind": kind, "dtype": dtype, "context": context, "batch": batch}
    for kind in ("growing", "preallocated")
    for dtype, context, batch in [
        ("float32", 512, 3),
        ("float32", 2048, 2),
        ("float16", 2048, 3),
        ("bfloat16", 8192, 1),
    ]
]


def label(job: dict) -> str:
    return f"{job['kind']:13}{job['dtype']:9}{job['context']:6,} × {job['batch']}"


# %%
measured = list(results(grid))
for job, found in measured:
    beside = found["held"] - found["predicted"]
    print(f"{label(job)}: predicted {found['predicted']:11,} bytes, held {beside:2} more")
assert all(found["held"] - found["predicted"] == 8 * job["batch"] for job, found in measured)

# %% tags=["nbval-ignore-output"]
names = ("reserved", "requested") if device == "cuda" else ("resident_raw", "resident")
print(f"{'of the prediction':27}{names[0]:>14}{names[1]:>14}")
for job, found in measured:
    before, after = (found[name] / found["predicted"] for name in names)
    print(f"{label(job)}:{before:13.1%}{after:14.1%}")

# %%
gpu_bound, cpu_bound = 0.01, 0.05
bound = gpu_bound if device == "cuda" else cpu_bound
for _, found in measured:
    assert found["predicted"] > 64 * MB
    assert abs(found[names[1]] / found["predicted"] - 1) < bound

# %% tags=["hide-input"] mystnb={"image": {"alt": "Pairs of bars for eight caches, in per cent of the prediction. The bar of what the process really occupies ends at 100 per cent for each. The bar before the C library was asked to give back is longer, most of all for the growing caches."}}
figure, axes = plt.subplots(figsize=(7, 4.2))
places = range(len(measured))
for name, role, shift in ((names[0], "free", 0.2), (names[1], "cache", -0.2)):
    share = [100 * found[name] / found["predicted"] for _, found in measured]
    text = {"resident_raw": "with what was freed and kept", "resident": "after malloc_trim"}
    axes.barh([p + shift for p in places], share, 0.38, color=plotting.colour(role))
    axes.plot([], [], "s", color=plotting.colour(role), label=text.get(name, name))
axes.axvline(100, color=plotting.colour("text"), linewidth=1)
axes.set_yticks(list(places), [label(job) for job, _ in measured], family="monospace", size=8)
axes.set_xlabel("per cent of the prediction")
axes.set_title("The caches match; what was freed on the way is extra")
axes.grid(axis="y", visible=False)
axes.legend(loc="upper left", bbox_to_anchor=(0, -0.15), ncols=2)
plt.show()

# %% [markdown]
# Storages match to the byte, beside the 8 bytes of book-keeping per sequence. And the process occupies
# what the storages say, within 5 %, asserted for every cache. (On a GPU the same cell asserts what was
# requested, within 1 %; it was not run on one for this page.) That is the second column, `resident`,
# after `malloc_trim`. What it has above the prediction is not itemised: Python's objects, and code that
# is loaded on first use.
#
# The first column, `resident_raw`, is before `malloc_trim`, and it is the surprise. All caches dropped the
# rows that were fed to them, and the growing one dropped a tensor with every piece. The C library kept
# some of that memory: read off how much. It is not lost, and it is not the cache's. It is what a process
# looks like from outside. PyTorch's allocator on a GPU does the same on purpose: that is `reserved`
# beyond `allocated`. So do not read a cache's size off `top` or `nvidia-smi`.

# %% [markdown]
# ### Growing against preallocated
#
# Two things can be said against a cache that grows by `torch.cat`: it needs twice its memory, and it
# copies too much. Check both. First count the bytes written while one token after the other comes in.

# %%
base = {"model": "smollm2-135m", "device": device, "dtype": "float16"}
kinds = ("growing", "preallocated")
jobs = [
    {**base, "what": "written", "kind": kind, "context": context, "batch": 1}
    for context in (64, 256)
    for kind in kinds
]
written = {(job["kind"], job["context"]): found["written"] for job, found in results(jobs)}
for context in (64, 256):
    grows, stays = (written[kind, context] for kind in kinds)
    print(f"{context:4} tokens: {grows:12,} bytes against {stays:10,}: {grows / stays:.1f} times")
    assert stays == context * 23_040
    assert grows == context * (context + 1) // 2 * 23_040

# %% [markdown]
# The preallocated cache writes each row once. The growing one writes $1 + 2 + \dots + n$ rows to hold
# $n$: about half of $n^2$, so at 256 tokens 128.5 times as much. Four times the text, about sixteen
# times the copying.
#
# Now the worst moment of one step: first by the tensors that are alive, then by what the process has
# taken while the last 45 tokens came one by one. And the time of a step.

# %%
copied = written["growing", 256] / written["preallocated", 256]
assert copied == 128.5
assert LEAD + STEPS == 45
assert round(written["growing", 256] / written["growing", 64]) == 16
jobs = [
    {**base, "what": "step", "kind": kind, "context": context, "batch": 4}
    for context in (512, 2048)
    for kind in kinds
]
steps = {(job["kind"], job["context"]): found for job, found in results(jobs)}
for (kind, context), found in steps.items():
    share = found["transient"] / found["held"]
    print(f"{kind:13}{context:6,} × 4: {found['transient']:9,} bytes beside it, {share:.2%}")
growing = steps["growing", 2048]
old = 2043 * 4 * 3 * 64 * 2  # one layer's K, before the step's row came
assert 0 <= growing["transient"] - old < 8192
assert f"{growing['transient'] / growing['held']:.2%} {1 / 60:.2%}" == "1.67% 1.67%"

# %% tags=["nbval-ignore-output"]
for (kind, context), found in steps.items():
    process = f"the process took {found['process'] / found['held']:.2f} times what is held"
    print(f"{kind:13}{context:6,} × 4: {process}")

# %%
assert all(found["process"] > 0.9 * found["held"] for found in steps.values())

# %% tags=["nbval-ignore-output"]
for (kind, context), found in steps.items():
    low, middle, high = (1e3 * pick(found["seconds"]) for pick in (min, statistics.median, max))
    print(f"{kind:13}{context:6,} × 4: {middle:6.1f} ms a step ({low:.1f} to {high:.1f})")

# %%
assert all(len(found["seconds"]) == 5 for found in steps.values())

# %% [markdown]
# Guess 3 has two answers. By its **tensors** the growing cache exceeds its size by a sixtieth. `torch.cat`
# runs layer by layer, for K and then for V. While it runs, one old tensor stands beside its successor: one
# of 2 × 30. The cache would double only if it were a single tensor, as in the next cell. (The
# preallocated cache needs a few bytes for slot numbers and a mask.)
#
# By its **process** it can be much more: see the second table. Each new tensor is a row longer than the
# one that was dropped, so it does not fit into the hole, and the C library keeps the holes. How many
# depends on the sizes and on the C library. As above, `malloc_trim` gives them back; nothing calls it for
# you.

# %%
whole = torch.zeros(30, 2, 4, 3, 512, 64, dtype=torch.float16)
row = torch.zeros(30, 2, 4, 3, 1, 64, dtype=torch.float16)
with Watch(whole, row) as watch:
    whole = torch.cat([whole, row], dim=4)
double = (watch.peak - held_nbytes(row)) / held_nbytes(whole)
print(f"peak: {double:.2f} times the cache")
assert f"{double:.2f}" == "2.00"
del whole

# %% [markdown]
# So the first charge is wrong for the tensors. For the process it can be half right, but for another
# reason. The second is right about the bytes. What the copying costs in time you see in the table of
# steps: for the growing cache it rises with the text. These times hold the cache's work and the making of
# the rows that are fed, without a model around it, and they are of one machine.

# %% [markdown]
# ### What a pass adds
#
# A cache is not alone. While a prompt goes through the decoder, each layer makes tensors that it soon
# drops, the **activations**, and at the end come the logits. The watcher finds the peak of them all. Watch
# a prompt of 256 tokens.

# %%
prompt = 256
jobs = [
    {"what": "pass", "dtype": "float32", "prompt": prompt, "last_only": last, "device": device}
    for last in (False, True)
]
passes = [found for _, found in results(jobs)]
for found, which in zip(passes, ("logits of all tokens", "of the last one"), strict=True):
    parts = (f"{name} {found[name] / MB:.1f}" for name in ("weights", "cache", "logits"))
    peak = f"{found['activations'] / MB:.1f} at the peak beside weights and cache"
    print(f"{which}, MB:", *parts, f"({peak}, logits included)", sep="  ")

# %%
logits = prompt * 49_152 * 4
assert [found["logits"] for found in passes] == [logits, 49_152 * 4]
assert f"{logits / MB:.1f}" == "50.3"
for found in passes:
    assert found["weights"] == 538_060_032
    assert found["cache"] == 256 * 46_080 + 8
assert logits < passes[0]["activations"] < 1.1 * logits
assert passes[1]["activations"] < passes[1]["cache"]

# %% [markdown]
# If the decoder computes logits for all 256 tokens, these alone take 50.3 MB, four times the cache. Only
# the last ones are used. With lesson 1's `last_only`, all that the watcher sees a pass add is less than
# the cache. So do not compute logits that nobody asks for.

# %%
assert f"{logits / passes[0]['cache']:.0f}" == "4"

# %% [markdown]
# ### Until nothing is left
#
# Last, the question of the next lesson: how much fits? Let a process have 128 MiB of addresses more than
# it has, and no byte beyond: the system refuses the rest. (The limit, `RLIMIT_AS`, is on addresses, so it
# counts what is reserved, filled or not.) Then find the longest preallocated cache that can really be
# created and filled, for several batches. (A growing cache is not asked: it reserves no room, and its
# process takes more, as the table of steps showed.) On a GPU the same cell takes 128 MiB of the card.

# %%
base = {"what": "frontier", "model": "smollm2-135m", "kind": "preallocated", "device": device}
budget = 128 * MiB
base |= {"dtype": "float16", "budget": budget}
jobs = [{**base, "batch": batch} for batch in (1, 2, 4, 8)]
frontier = [(job["batch"], found) for job, found in results(jobs)]
for batch, _ in frontier:
    print(f"batch {batch}: predicted {budget // (batch * 23_040):5,} tokens each")
four, at_four = frontier[2]
assert (four, at_four["predicted"]) == (4, 1456)

# %% tags=["nbval-ignore-output"]
for batch, found in frontier:
    print(f"batch {batch}: the last that fits {found['last']:5,} tokens")

# %%
for batch, found in frontier:
    assert found["predicted"] == budget // (batch * 23_040)
    assert abs(found["last"] / found["predicted"] - 1) < 0.01

# %% tags=["hide-input"] mystnb={"image": {"alt": "Context against batch, both axes logarithmic. A falling straight line is the prediction for 128 MiB: 5,825 tokens for one sequence, 728 for eight. The four measured points, the last caches that could be allocated, lie on it."}}
batches = [batch for batch, _ in frontier]
line = [budget / (batch * 23_040) for batch in batches]
plt.fill_between(batches, line, 400, color=plotting.colour("cache"), alpha=0.15)
plt.plot(batches, line, color=plotting.colour("cache"), label="predicted")
lasts = [found["last"] for _, found in frontier]
plt.plot(batches, lasts, "o", color=plotting.colour("text"), label="the last that fitted")
plt.xscale("log")
plt.yscale("log")
plt.xticks(batches, [str(batch) for batch in batches])
plt.yticks([500, 1000, 2000, 5000], ["500", "1,000", "2,000", "5,000"])
plt.minorticks_off()
plt.ylim(400, 8000)
plt.xlabel("sequences in the batch")
plt.ylabel("tokens of each")
plt.title("What fits ends where the formula says")
plt.legend()
plt.show()

# %% [markdown]
# Guess 4: 1,456 tokens each. The measured ends lie within 1 % of the line. Twice the users, half the
# text: along the line the product stays the same. It is the number of tokens that the memory holds.

# %% [markdown]
# ### What was recorded
#
# Everything so far ran on the machine that executed this page, and if you run it, on yours. The same
# measurements, on a larger grid, can be made outside of a notebook and kept:
# `python -m kvbook measure --out measurements/mine.json`, or `make measure`. It takes some minutes. The
# book's own records come with kvbook. They say when they were made and on what. This is the
# newest from a CPU, with the caches of later lessons. The storages of each kind must match the prediction
# to 1 %. What the process occupies is less exact.

# %%
folder = record.book_folder()


def by_kind(kept: dict) -> list[tuple[str, float]]:
    """For each kind of cache: by how much its storages differ from the prediction, at most."""
    off: dict[str, float] = {}
    for point in kept["points"]:
        if point["job"]["what"] == "grid":
            kind, found = point["job"]["kind"], point["result"]
            beside = found["held"] - found["bookkeeping"] - found["predicted"]
            off[kind] = max(off.get(kind, 0), abs(beside) / found["predicted"])
    return list(off.items())


# %%
def show(name: str, kept: dict) -> None:
    device, versions = kept["device"], kept["versions"]
    driver = f"driver {kept['driver']}, " if kept["driver"] else ""
    print(f"{name}, {kept['date'][:10]}: {device['name']} ({device['type']}), {driver}", end="")
    print(f"PyTorch {versions['torch']}, Python {versions['python']}")
    grid = [point["result"] for point in kept["points"] if point["job"]["what"] == "grid"]
    name = "requested" if device["type"] == "cuda" else "resident"
    sure = [found[name] / found["predicted"] for found in grid if found["predicted"] > 64 * MB]
    print(f"{len(grid)} caches; {name} is {min(sure):.2%} to {max(sure):.2%} of the prediction")
    print("  storages by kind:", ", ".join(f"{kind} {off:.2%} off" for kind, off in by_kind(kept)))
    for point in kept["points"]:
        job, found = point["job"], point["result"]
        if job["what"] == "frontier":
            tokens = f"{found['predicted']:,} tokens each predicted, {found['last']:,} fitted"
            room = f"{found['budget'] / MiB:,.0f} MiB, {job['kind']}"
            print(f"  {room}, batch {job['batch']}: {tokens}")


if kept := record.newest(folder, "cpu"):
    show(*kept)

# %%
assert kept is None or kept[1]["finished"]
assert kept is None or all(off <= 0.01 for _, off in by_kind(kept[1]))

# %% [markdown]
# And the newest from a GPU. If there is none, the next cell says so, and then no figure on this page
# is a GPU's.

# %%
if kept := record.newest(folder, "cuda"):
    show(*kept)
else:
    print("No GPU record exists yet.")

# %% [markdown]
# What none of this shows: what is wasted between requests of every length, which is
# [lesson 10](10_paged.ipynb)'s subject, and memory that other processes take.

# %% [markdown]
# ## Explore
#
# Choose a shape and have it filled in a fresh process. That takes a kernel, so the published page shows
# nothing here.

# %%
weighed = {}


def weigh(context: int, batch: int, kind: str) -> None:
    job = {**grid[0], "kind": kind, "dtype": "float16", "context": context, "batch": batch}
    [(_, found)] = results([job])
    weighed.update(job=(context, batch, kind), held=found["held"])
    bars = [found["predicted"], found["held"], found[names[1]], found[names[0]]]
    colours = [plotting.colour(role) for role in ("cache", "cache", "cache", "free")]
    plt.barh(["predicted", "held", names[1], names[0]], [bar / MB for bar in bars], color=colours)
    plt.gca().invert_yaxis()
    plt.xlabel("MB (10⁶ bytes)")
    plt.title(f"{kind}, {batch} × {context:,} tokens")
    plt.show()


# %% tags=["remove-output", "nbval-ignore-output"]
sliders = {
    "context": ipywidgets.IntSlider(
        1024, 256, 8192, 256, description="context", continuous_update=False
    ),
    "batch": ipywidgets.IntSlider(2, 1, 4, description="batch", continuous_update=False),
    "kind": ipywidgets.Dropdown(options=kinds, description="kind"),
}
ipywidgets.VBox([*sliders.values(), ipywidgets.interactive_output(weigh, sliders)])

# %%
assert weighed == {"job": (1024, 2, "growing"), "held": 1024 * 2 * 23_040 + 16}

# %% tags=["remove-cell", "nbval-ignore-output"]
sliders["context"].value = 768
moved = dict(weighed)
sliders["context"].value = 1024

# %% tags=["remove-cell"]
assert moved == {"job": (768, 2, "growing"), "held": 768 * 2 * 23_040 + 16}

# %% [markdown]
# Watch the two lower bars. For which kind do they differ most, and does the gap grow with the cache?
#
# <details>
# <summary>Answer</summary>
#
# For the growing cache: between its pieces it drops tensors, and the lower bar counts what the C library
# kept of them. The gap changes from size to size, because a dropped piece of some sizes is reused or
# handed back at once. So no rule of thumb follows, and that is the point: ask the tensors.
#
# </details>

# %% [markdown]
# ## Check yourself
#
# **1. An expanded tensor.** All sequences share a system prompt, and someone stores it as
# `prompt.expand(32, ...)`. What do 32 copies weigh? And after `.contiguous()`?
#
# <details>
# <summary>Answer</summary>
#
# `expand` copies nothing: it is the same storage, seen 32 times. Counting elements over-reports here,
# as it under-reported above. `contiguous()` makes the copies. (`torch.cat` makes them, too,
# without saying so.)
#
# ```python
# import torch
# from kvbook.lessons.measure import held_nbytes
#
# prompt = torch.zeros(1, 3, 100, 64)
# shared = prompt.expand(32, 3, 100, 64)
# assert shared.numel() * shared.element_size() == 32 * held_nbytes(prompt)
# assert held_nbytes([prompt, shared]) == held_nbytes(prompt) == 3 * 100 * 64 * 4
# assert held_nbytes(shared.contiguous()) == 32 * held_nbytes(prompt)
# ```
#
# </details>
#
# **2. Shrinking a cache.** A conversation is cut back from 1,000 tokens to 10 with
# `k = k[:, :, :10]`. How much memory is freed? What must be written instead?
#
# <details>
# <summary>Answer</summary>
#
# None. The view keeps the storage of all 1,000 tokens alive. Copy the part that you keep.
#
# ```python
# import torch
# from kvbook.lessons.measure import held_nbytes
#
# k = torch.zeros(1, 3, 1000, 64)
# cut = k[:, :, :10]
# assert held_nbytes(cut) == held_nbytes(k)
# assert held_nbytes(cut.clone()) == held_nbytes(k) // 100
# ```
#
# </details>
#
# **3. `torch.cuda.empty_cache()`.** A server runs out of memory, and a forum says: call `empty_cache()`.
# Of allocated, reserved and used, which get smaller? Does your own process gain any room?
#
# <details>
# <summary>Answer</summary>
#
# Reserved and used, by the pieces in which no tensor lives. Allocated stays: live tensors are never
# touched. Your own process gains little, because PyTorch would have used those pieces again anyway;
# other processes on the card gain. (It can help when the free pieces are too small for one large
# request.) Without a GPU this code only checks that nothing happens.
#
# ```python
# import torch
# from kvbook.lessons.measure import cuda_nbytes
#
# if torch.cuda.is_available():
#     kept = torch.zeros(2**20, device="cuda")
#     dropped = torch.zeros(2**26, device="cuda")
#     del dropped
# before = cuda_nbytes()
# torch.cuda.empty_cache()
# after = cuda_nbytes()
# assert before.get("allocated") == after.get("allocated")
# assert not before or after["reserved"] < before["reserved"]
# ```
#
# </details>
#
# **4. Doubling.** A cache that grows need not add one row at a time. It can double its capacity when it
# is full. What does it write for $n$ tokens, and how much of what it holds is empty at worst?
#
# <details>
# <summary>Answer</summary>
#
# The copies are $1 + 2 + 4 + \dots$, fewer than $2n$ rows, so fewer than $3n$ are written in all instead
# of $n^2/2$. But right after a doubling nearly half of what is held is empty.
#
# ```python
# def doubling(n: int) -> tuple[int, int]:
#     capacity, written = 1, 0
#     for tokens in range(n):
#         if tokens == capacity:
#             capacity, written = 2 * capacity, written + tokens  # the old rows are copied
#         written += 1
#     return capacity, written
#
# capacity, written = doubling(1025)
# assert capacity == 2048
# assert written < 3 * 1025
# assert written < 1025 * 1026 // 2 // 100
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: all of it; nearly nothing, then all of it; its tensors by a sixtieth, its
# process by more; 1,456 tokens each.
#
# | Lesson | Bytes per token | How we know | Beside it, for a moment |
# |---|---|---|---|
# | 2. Reuse the past | 46,080 (SmolLM2-135M, float32) | counted on its tensors | not asked |
# | 3. What a token costs | the same | a formula | not asked |
# | 4. Does memory match? | the same | storages and the process | a growing step: 1/60 by tensors; a pass: its logits |
#
# ## Next
#
# The formula holds. [Lesson 5](05_users.ipynb) divides a GPU by it: how many users fit, and what does
# each technique buy?

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. This cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
check(
    {
        "30 layers": config.n_layers,
        "3 KV heads": config.n_kv_heads,
        "1,024 tokens": capacity,
        "94 MB": on_cpu / MB,
        "128 MiB": budget / MiB,
        "4 sequences": four,
        "64 times": under_reported,
        "8 bytes": length_nbytes,
        "2,048 tokens": 2 * capacity,
        "512 bytes": From("PyTorch 2.13.0, c10/core/AllocatorConfig.h: kMinBlockSize"),
        "1 MiB": From("PyTorch 2.13.0, c10/core/AllocatorConfig.h: kSmallSize"),
        "5 %": 100 * cpu_bound,
        "1 %": 100 * gpu_bound,
        "256 tokens": prompt,
        "128.5 times": copied,
        "45 tokens": LEAD + STEPS,
        "50.3 MB": logits / MB,
        "1,456 tokens": at_four["predicted"],
        "32 times": From("chosen in exercise 1, whose answer counts them"),
        "1,000 tokens": From("chosen in exercise 2"),
    }
)
