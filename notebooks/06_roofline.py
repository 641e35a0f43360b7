# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 6 — Two phases
#
# **The question.** A server reads a prompt of 1,000 tokens in one pass. To write 1,000 tokens it needs
# 1,000 passes. The multiplications are nearly the same. What makes writing so slow, and how much of that
# can a batch of users win back?
#
# You count what a pass computes and what it moves, on the real model. Then you measure how fast your
# machine computes and how fast it moves. Two divisions give a bound on every pass, and they tell you
# where more users come almost free, and where they do not.

# %% [markdown]
# ## What you need
#
# [Lesson 1](01_decoder.ipynb): the decoder, and its **unembedding**, the last product, which turns a
# token's vector into logits with the embedding's table. [Lesson 2](02_cache.ipynb): prefill, decode step, cache.
# [Lesson 3](03_cost.ipynb): KV heads. [Lesson 4](04_measure.ipynb): the watcher. [Lesson 5](05_users.ipynb):
# users on a card. You need no GPU. The lesson runs in about a minute on two CPU cores.
#
# Three kinds of figures stand on this page, and they must not be mixed up.
#
# | Kind | What it is | Here |
# |---|---|---|
# | measured | times of the machine that ran this page; yours will differ | SmolLM2, tables headed "measured" |
# | roof | arithmetic with the best rates that a probe saw on this machine: an estimate of what is possible, not a guarantee | columns headed "roof" |
# | bound | arithmetic with published peak rates; no pass can be faster, and real ones are slower | every figure on a GPU |

# %% [markdown]
# ## Predict
#
# Write down four guesses.
#
# 1. SmolLM2 in float32 writes one token for one user. How many operations does it do for each byte
#    of weights that it reads, if a multiplication and the addition after it count as two? And when it
#    reads a prompt of 512 tokens?
# 2. An A100 with 80 GB reads 2,039 GB/s and does 312 × 10¹² operations per second in fp16. With weights
#    in fp16, how many users must write at the same time until arithmetic, not reading weights, takes the
#    longer time?
# 3. And how many until that is so for attention over their caches, in Llama 2 7B?
# 4. In Llama 3.1 8B four query heads share a KV head. What does that change in guess 3?

# %% tags=["export"]
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kvbook.accounting.roofline import Device, Work
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.decoder import Decoder

# %%
import math
import statistics

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, StrMethodFormatter
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from kvbook import ledger, plotting
from kvbook.accounting import cache_spec, fit_users
from kvbook.accounting.facts import gpu, gpus, model
from kvbook.accounting.roofline import Shape, decode_step, device_of, phase, prefill, ridge
from kvbook.accounting.roofline import decode_ceiling, decode_knee, weight_knee
from kvbook.accounting.roofline import time_per_token, time_to_first_token
from kvbook.explorer.roofline import RooflineExplorer
from kvbook.lessons.measure import Watch
from kvbook.measure import record
from kvbook.models import smollm2
from kvbook.prose import From, check

plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
smol, _ = smollm2.load(device)
config = smol.config
GB = 10**9

# %% [markdown]
# ## Build
#
# ### Count the operations
#
# Nearly all arithmetic of a pass is in two places: products with weights, and attention. A multiplication
# and the addition that follows count as **2 operations** (flops), as everywhere in this field.
#
# - A linear layer of $n_\text{in} \times n_\text{out}$ weights takes
#   $2 \, n_\text{in} \, n_\text{out}$ operations for each token. So each weight costs 2 operations per token.
# - Attention takes, for each head, each query and each key that the query sees, $2 \, d_\text{head}$ for the
#   score and $2 \, d_\text{head}$ for the value.
#
# A hook, a function that PyTorch calls when a module has run, sees what really happens. Hooks on all
# linear layers count the tokens and the weights. The unembedding is no layer of its own here, because
# it shares the embedding's table; a hook on the last norm sees the tokens that reach it.


# %% tags=["export"]
class CountingCache(PreallocatedCache):
    """Counts attention as it happens: pairs from the mask used, bytes from the rows returned.

    In a decode step all rows but the newest are old and are read. In a prefill all are new and
    are written. Either way each row is counted once.
    """

    attention_flops = cache_bytes = 0

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().update(layer, k, v)
        self.cache_bytes += keys.nbytes + values.nbytes
        return keys, values

    def mask(self, layer: int, q_len: int) -> Tensor | None:
        mask = super().mask(layer, q_len)
        every = self.batch * q_len * (self.end + q_len)
        seen = every if mask is None else int(mask.sum())
        self.attention_flops += 4 * self.config.n_heads * self.config.head_dim * seen
        return mask


# %% tags=["export"]
@torch.no_grad()
def count_pass(model: Decoder, ids: Tensor, cache: CountingCache) -> Work:
    """What a pass over ids [batch, q_len] computes and moves, by hooks; logits of the last.

    Raises ValueError for a cache that does not count.
    """
    if not hasattr(cache, "attention_flops"):
        raise ValueError(f"cache is a {type(cache).__name__}; it must be a CountingCache.")
    cache.attention_flops = cache.cache_bytes = flops = nbytes = 0
    weights: dict[nn.Module, Tensor] = {
        layer: layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)
    }

    def linear(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal flops, nbytes
        flops += 2 * inputs[0][..., 0].numel() * weights[module].numel()
        nbytes += weights[module].nbytes

    def unembedding(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal flops, nbytes
        flops += 2 * output[..., 0].numel() * model.embed.weight.numel()
        nbytes += model.embed.weight.nbytes

    hooks = [layer.register_forward_hook(linear) for layer in weights]
    hooks.append(model.norm.register_forward_hook(unembedding))
    try:
        model(ids, cache, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    return Work(ids.numel(), flops, cache.attention_flops, nbytes, cache.cache_bytes)


# %%
def show(label: str, work: Work) -> None:
    print(
        f"{label:22}{work.weight_flops / 1e9:8.3f}{work.attention_flops / 1e9:8.3f} |"
        f"{work.weight_bytes / 1e6:8.1f}{work.cache_bytes / 1e6:7.1f} |{work.intensity:7.2f}"
    )


ids = torch.full((1, 513), 1, device=device)
cache = CountingCache(config, capacity=513, device=device)
reading = count_pass(smol, ids[:, :512], cache)
writing = count_pass(smol, ids[:, 512:], cache)
print(f"{'':22}{'10⁹ operations':>16} |{'MB':>15} | per byte")
print(f"{'':22}{'weights':>8}{'attn':>8} |{'weights':>8}{'cache':>7} |")
show("prefill of 512 tokens", reading)
show("one decode step", writing)

# %%
assert writing.weight_bytes == reading.weight_bytes
assert f"{reading.weight_flops / writing.weight_flops:.0f}" == "404"
assert (writing.weight_intensity, f"{reading.weight_intensity:.0f}") == (0.5, "202")
assert f"{writing.weight_bytes / 1e6:.0f}" == "538"
per_weight = writing.weight_flops / (writing.weight_bytes / torch.float32.itemsize)
assert per_weight == 2

# %% [markdown]
# Both passes read the same 538 MB of weights. The prefill does 404 times the arithmetic with them. (It is
# not 512 times, because only the last token goes through the unembedding.) So decode does half an
# operation for each byte of weights, and prefill 202: guess 1. This ratio is called **arithmetic
# intensity**, and it is what tells the two phases apart.

# %% [markdown]
# ### A formula from the shapes
#
# The counts need no run. They follow from the shape of the model, `q_len` tokens fed, `kv_len` tokens
# held afterwards, and the batch. `phase` in `kvbook.accounting.roofline` does that. Hooks and formula
# must agree to the last operation and the last byte, on prompts, on later pieces, and on batches:

# %%
shape = Shape.of(config)
fp32 = {"weight_bytes_per_value": 4, "cache_bytes_per_value": 4}
agreed = 0
for batch, pieces in ((1, [1, 1]), (1, [40, 1]), (2, [7, 5, 1]), (3, [16, 1, 1])):
    cache = CountingCache(config, batch, capacity=sum(pieces), device=device)
    for q_len in pieces:
        counted = count_pass(smol, ids[:, :q_len].expand(batch, -1), cache)
        assert counted == phase(shape, q_len, cache.end, batch, **fp32)
        agreed += 1
assert reading == prefill(shape, 512, **fp32)
assert writing == decode_step(shape, 513, **fp32)
print(f"{agreed + 2} passes: hooks and formula agree in every operation and every byte")

# %% [markdown]
# Hooks and formula were written by the same hand, so they may share an error. For the operations there is
# a witness. PyTorch has a counter of its own, which looks at the matrix products that are run, whoever
# calls them. It does not know the mask: it counts all pairs of query and key, also those that the mask
# hides. For the bytes there is no witness. Both sides assume that each weight and each row is moved once.


# %%
def witness(ids: Tensor, cache: PreallocatedCache) -> int:
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        smol(ids, cache, last_only=True)
    return counter.get_total_flops()


cache = PreallocatedCache(config, capacity=65, device=device)
seen_prefill, seen_step = witness(ids[:, :64], cache), witness(ids[:, 64:65], cache)
step, prompt = decode_step(shape, 65, **fp32), prefill(shape, 64, **fp32)
hidden = (64 * 64 - 64 * 65 // 2) * shape.attention_flops_per_pair
print(f"decode step: {step.flops:,} by formula, {seen_step:,} by PyTorch's counter")
print(f"prefill:     {prompt.flops:,} by formula, {seen_prefill:,} by PyTorch's counter")
print(f"             {hidden:,} of these are for pairs that the mask hides")
assert seen_step == step.flops
assert seen_prefill == prompt.flops + hidden

# %% [markdown]
# What is not counted: norms, RoPE, softmax, and the vectors that pass from layer to layer. Are those
# few? Lesson 4's watcher sees every tensor that a pass makes. Add up their bytes.


# %%
class Made(Watch):
    """Adds up the bytes of every tensor that is made inside the block."""

    made = 0

    def add(self, found: list[torch.UntypedStorage]) -> None:
        self.made += sum(part.nbytes() for part in found if part._cdata not in self.known)
        super().add(found)


cache = PreallocatedCache(config, capacity=513, device=device)
made = []
for fed in (ids[:, :512], ids[:, 512:]):
    with torch.no_grad(), Made(smol, cache, ids) as watch:
        start = watch.made
        smol(fed, cache, last_only=True)
    made.append(watch.made - start)
print(f"weights {writing.weight_bytes / 1e6:.0f} MB; other tensors that were made, each once:")
print(f"  prefill of 512 tokens {made[0] / 1e6:,.0f} MB, one decode step {made[1] / 1e6:.1f} MB")
assert made[0] > reading.weight_bytes
assert made[1] < 0.01 * writing.weight_bytes

# %% [markdown]
# In a decode step they are few. In the prefill this program writes more bytes of them than it has
# weights, and reads them again. A program that *fuses* operations, doing several while their values are
# at hand, need not write most of them. So the count here is the **least** that must be moved: times that
# follow from it are lower bounds, and intensities are the highest possible.

# %% [markdown]
# ### Intensity, as a formula
#
# In a decode step each of $B$ sequences feeds one token, and a weight takes $b$ bytes. The weights are
# read once for the whole batch; the operations are done for each sequence:
#
# $$I_\text{weights} = \frac{2 \, B \, N}{b \, N} = \frac{2B}{b}$$
#
# The size of the model, $N$, cancels. With fp16 the intensity is the batch. So more users make better use
# of the weights.
#
# Attention over the cache is different. Each sequence brings its **own** keys and values of $s$ tokens,
# and so operations and bytes grow together. With $n_h$ query heads and $n_{kv}$ KV heads:
#
# $$I_\text{attention} = \frac{4 \, B \, s \, n_\text{layers} \, n_h \, d_\text{head}}{2 \, B \, s \, n_\text{layers} \, n_{kv} \, d_\text{head} \, b} = \frac{2}{b} \cdot \frac{n_h}{n_{kv}}$$
#
# Batch and context cancel, and what is left is the **group size**: a key that is read once serves all
# query heads that share it. See it for a model of SmolLM2's kind with 9, 3, and 1 KV heads, at 2 bytes a value:

# %%
kv_heads = (9, 3, 1)
print(f"{'KV heads':>9}{'batch':>7}{'weights':>9}{'attention':>11}   operations per byte")
for n_kv_heads in kv_heads:
    # layers, query heads, KV heads, head width, width, MLP width, vocabulary
    variant = Shape(30, 9, n_kv_heads, 64, 576, 1536, 49_152)
    for batch in (1, 8, 64):
        step = decode_step(variant, 1024, batch)
        weights, attention = step.weight_intensity, step.attention_intensity
        print(f"{n_kv_heads:9}{batch:7}{weights:9.0f}{attention:11.0f}")
        assert (weights, attention) == (batch, variant.group_size)

# %% [markdown]
# Within each block of the table the batch grows, and with it the intensity of the weights. That of attention
# stays. Only fewer KV heads change it. With a KV head for each query head, which is called **multi-head
# attention** (MHA), it does one operation for each byte, at any batch. Sharing them, as SmolLM2 does, is
# **grouped-query attention** (GQA).

# %% [markdown]
# ### The roofline
#
# A device can do so many operations per second, and move so many bytes per second. A pass takes at
# least the longer of the two times:
#
# $$t \ge \max\left(\frac{F}{P}, \frac{M}{W}\right)$$
#
# with $F$ operations, $P$ operations per second, $M$ bytes moved, and $W$ bytes per second.
#
# The two are equal at the **ridge point**, operations per second divided by bytes per second. A pass of
# lower intensity is **memory-bound**: it waits for bytes. One of higher intensity is **compute-bound**.
# Drawn over the intensity, the best rate of operations is a slope and then a flat line, hence
# the name **roofline** ([Williams, Waterman and Patterson
# 2009](https://doi.org/10.1145/1498765.1498785)).
#
# For a GPU the maker publishes both rates. For the machine under your notebook you measure them. To
# measure reading, multiply a large matrix by one vector: every byte is read and used once. To
# measure arithmetic, multiply two square matrices: every value is used many times.


# %% tags=["export"]
def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call; waits until a GPU, if there is one, has done what it was given."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else bool
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


class Probe:
    """Measures the two rates of a device, in float32: matrix × vector and matrix × matrix.

    The tall matrix takes read_nbytes: more than the processor's own cache holds, or the rate is
    that of this cache. `width` is the side of the square ones. Raises ValueError for sizes below
    32,768 bytes and 1.
    """

    def __init__(self, device: str, read_nbytes: int = 2**29, width: int = 1024) -> None:
        is_int = type(read_nbytes) is type(width) is int
        if not is_int or read_nbytes < 2**15 or width < 1:
            raise ValueError(
                f"read_nbytes is {read_nbytes} and width {width}; int, at least 32768 and 1."
            )
        self.tall = torch.ones(read_nbytes // 2**15, 2**13, device=device)
        self.vector = torch.ones(2**13, device=device)
        self.square = torch.ones(width, width, device=device)
        self.bytes_per_s: list[float] = []
        self.flops_per_s: list[float] = []

    def run(self) -> None:
        """Measure each rate once more."""
        self.bytes_per_s.append(self.tall.nbytes / seconds(lambda: self.tall @ self.vector))
        flops = 2 * len(self.square) ** 3
        self.flops_per_s.append(flops / seconds(lambda: self.square @ self.square))

    def best(self) -> Device:
        """The roof: the fastest that was seen, since other work can only slow a run down."""
        if not self.bytes_per_s:
            raise ValueError("Nothing was measured yet; call run() first.")
        return Device(max(self.flops_per_s), max(self.bytes_per_s), "this machine")


# %% [markdown]
# ## Measure
#
# ### This machine
#
# Three things are timed: decode steps at batch 1 to 32, where each sequence holds 64 tokens; prefills of
# prompts of 16 to 256 tokens; and the step that follows such a prompt. All take turns with the probe, so that
# a busy moment of the machine hits all of them. The keys in the cache are random numbers: the time
# of a step depends on how many there are, not on their values.

# %%
batches, prompts, context = (1, 2, 4, 8, 16, 32), (16, 64, 128, 256), 64
one_token = torch.full((max(batches), 1), 1, device=device)


def filled(batch: int, capacity: int) -> PreallocatedCache:
    cache = PreallocatedCache(config, batch, capacity, device=device)
    cache.k.normal_()
    cache.v.normal_()
    return cache


def step_seconds(cache: PreallocatedCache, kv_len: int) -> float:
    cache.reset()
    cache.advance(kv_len - 1)
    return seconds(lambda: smol(one_token[: cache.batch], cache))


def prefill_seconds(cache: PreallocatedCache, prompt_len: int) -> float:
    cache.reset()
    return seconds(lambda: smol(ids[:, :prompt_len], cache, last_only=True))


# %%
probe = Probe(device, width=1024 if device == "cpu" else 8192)
caches = {batch: filled(batch, context) for batch in batches}
long = filled(1, max(prompts) + 1)
timers = {("batch", batch): (step_seconds, caches[batch], context) for batch in batches}
timers |= {("prefill", n): (prefill_seconds, long, n) for n in prompts}
timers |= {("after", n): (step_seconds, long, n + 1) for n in prompts}
times = {name: [] for name in timers}
with torch.no_grad():
    step_seconds(caches[1], context)  # warm up
    for turn in range(5):
        for name, (timer, cache, length) in timers.items():
            if name[0] != "prefill" or turn < 3:  # they are long: 3 runs of each are enough
                probe.run()
                times[name].append(timer(cache, length))
machine = probe.best()
medians = {name: statistics.median(runs) for name, runs in times.items()}

# %% tags=["nbval-ignore-output"]
threads = f"{torch.get_num_threads()} threads, float32" if device == "cpu" else "float32"
print(f"measured on {device}, {threads}: best (median) of {len(probe.bytes_per_s)} runs")
for label, rates, unit in (
    ("read", probe.bytes_per_s, "GB per second"),
    ("matrix product", probe.flops_per_s, "10⁹ operations per second"),
):
    print(f"{label:15}{max(rates) / 1e9:8.1f} ({statistics.median(rates) / 1e9:.1f}) {unit}")
print(f"ridge point    {machine.ridge:8.1f} operations per byte")
print(f"so by this roof the weights' knee is at batch {weight_knee(machine, 4):.0f}")

# %%
assert weight_knee(machine, 4) == 2 * machine.ridge
assert [len(times["batch", batch]) for batch in batches] == [5] * len(batches)
assert [len(times["prefill", n]) for n in prompts] == [3] * len(prompts)

# %% [markdown]
# The best rate makes the roof, because other programs can only slow a run down. If best and median lie
# far apart, your machine was busy, and every time below is noisy, too. In float32 a weight has 4 bytes, so the
# **knee**, the batch where decode turns compute-bound for the weights, is twice the ridge point.

# %% tags=["nbval-ignore-output"]
print(f"measured: decode at {context} tokens, medians of 5 (slowest to fastest)")
print(f"{'batch':>6}{'ms a step':>11}{'tokens per second':>27}{'roof':>8}{'of roof':>9}  roof is")
for batch in batches:
    work, runs = decode_step(shape, context, batch, **fp32), times["batch", batch]
    rate, bound = batch / medians["batch", batch], work.tokens_per_s(machine)
    spread = f"({batch / max(runs):.0f} to {batch / min(runs):.0f})"
    print(
        f"{batch:6}{1e3 * medians['batch', batch]:11.0f}{rate:12.1f} {spread:14}"
        f"{bound:8.0f}{rate / bound:9.0%}  {work.bound_by(machine)}"
    )

# %%
points = {batch: decode_step(shape, context, batch, **fp32) for batch in batches}
assert all(points[batch].weight_intensity == batch / 2 for batch in batches)
assert len({work.weight_bytes for work in points.values()}) == 1

# %% tags=["hide-input"] mystnb={"image": {"alt": "Tokens per second against batch from 1 to 32 on logarithmic axes. A dashed line is the roof by this machine's probe: it rises with the batch and bends where decode turns compute-bound. The measured points, with bars from slowest to fastest, lie below it."}}
rates = [batch / medians["batch", batch] for batch in batches]
low = [
    rate - batch / max(times["batch", batch]) for rate, batch in zip(rates, batches, strict=True)
]
high = [
    batch / min(times["batch", batch]) - rate for rate, batch in zip(rates, batches, strict=True)
]
every = range(1, max(batches) + 1)
plt.plot(
    every,
    [decode_step(shape, context, batch, **fp32).tokens_per_s(machine) for batch in every],
    "--",
    color=plotting.colour("muted"),
    label="roof, by the probe",
)
plt.errorbar(
    batches, rates, [low, high], fmt="o-", color=plotting.colour("weights"), label="measured"
)
knee = decode_knee(points[1], machine)
if knee is not None and knee < max(batches):
    plt.axvline(knee, color=plotting.colour("free"), linewidth=1)
    place = {"xytext": (-5, 0), "textcoords": "offset points", "ha": "right", "va": "bottom"}
    plt.annotate("predicted knee", (knee, min(rates)), **place)
plt.loglog()
plt.xticks(batches, [str(batch) for batch in batches])
plt.gca().yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
plt.gca().yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
plt.minorticks_off()
plt.xlabel("sequences in the batch")
plt.ylabel("tokens per second, all sequences")
plt.title("A larger batch writes more tokens per second, below the roof")
plt.legend()
plt.show()

# %% [markdown]
# Read your own table. On the left the roof nearly doubles with each doubling of the batch: the weights
# are read once, whether one sequence waits for them or eight. Right of the knee it flattens. (With the
# cache counted, too, the knee comes a little later than for the weights alone.)
#
# Now look at the ms. If reading the weights were all that a step does, its time would stay the same up to
# the knee. Where it grows before that, other things take the time: the cost of every call (lesson 2), the
# copies on the way, and thin matrices, which are not multiplied as fast as square ones. Then this run shows
# that batching pays, and it confirms neither that decode waits for memory nor where the knee is. The roof
# says what would be left if all else were free.

# %% [markdown]
# ### The two phases under one roof
#
# Now put all passes on the roofline. Where they stand on the horizontal axis is counted, with the least bytes
# possible; how high they reach is measured.

# %% tags=["hide-input"] mystnb={"image": {"alt": "The roofline of this machine on logarithmic axes: operations per second against operations per byte, a slope that turns into a flat line at the ridge point. Decode at batch 1 lies leftmost, at half an operation per byte. Larger batches lie further right. So do longer prefills, up to 103 operations per byte at 256 tokens."}}
grid = [2**n for n in range(-2, 9)]
grid = sorted([*grid, machine.ridge])
roof = [machine.attainable(intensity) / 1e9 for intensity in grid]
plt.plot(grid, roof, color=plotting.colour("muted"), label="roof, by the probe")
for name, role, marker, of in (
    ("batch", "cache", "o", lambda n: decode_step(shape, context, n, **fp32)),
    ("prefill", "key", "s", lambda n: prefill(shape, n, **fp32)),
):
    sizes = [size for kind, size in times if kind == name]
    label = "decode, batch 1 to 32" if name == "batch" else "prefill of 16 to 256 tokens"
    x = [of(size).intensity for size in sizes]
    y = [of(size).flops / medians[name, size] / 1e9 for size in sizes]
    plt.plot(x, y, marker, color=plotting.colour(role), label=label)
    for size, *point in zip(sizes, x, y, strict=True):
        offset = (0, -13 if name == "batch" else 7)
        plt.annotate(str(size), point, offset, textcoords="offset points", ha="center", size=8)
plt.loglog()
plt.margins(y=0.15)
plt.gca().xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
plt.gca().yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
plt.xlabel("operations per byte moved")
plt.ylabel("10⁹ operations per second")
plt.title("Batching moves decode to the right, to where prefill stands")
plt.legend(loc="lower right")
plt.show()

# %%
for label, work in (
    ("decode at batch 32:  ", points[32]),
    ("prefill of 32 tokens:", prefill(shape, 32, **fp32)),
):
    parts = f"{work.weight_intensity:.1f} for the weights, {work.intensity:.1f} with the cache"
    print(f"{label} {work.flops / 1e9:.2f} x 10⁹ operations, per byte {parts}")
same_tokens = prefill(shape, 32, **fp32)
more = points[32].flops / same_tokens.flops - 1
assert (points[1].weight_intensity, points[32].weight_intensity) == (0.5, 16)
assert f"{same_tokens.weight_intensity:.1f} {more:.0%}" == "12.7 27%"

# %% [markdown]
# Decode at batch 32 and a prefill of 32 tokens do similar work: 32 tokens through the same layers. For
# the weights of a layer it makes no difference whose tokens they are. Decode does 27 % more, because it turns all 32
# tokens into logits and the prefill only the last. And it reads 32 caches, which the prefill does not have.

# %% [markdown]
# ### Two waiting times
#
# A user feels the phases as two numbers: the **time to first token**, which is the prefill, and the
# **time per token**, which is a decode step.

# %% tags=["nbval-ignore-output"]
print("measured: one sequence, ms, medians (fastest to slowest)")
print(f"{'prompt':>7}{'to first token':>26}{'roof':>9}{'per token':>26}{'roof':>9}")
for n in prompts:
    row = f"{n:7}"
    for name, bound in (
        ("prefill", time_to_first_token(shape, n, machine, **fp32)),
        ("after", time_per_token(shape, n + 1, machine, **fp32)),
    ):
        spread = f"({1e3 * min(times[name, n]):.0f} to {1e3 * max(times[name, n]):.0f})"
        row += f"{1e3 * medians[name, n]:10.0f} {spread:15}{1e3 * bound:9.1f}"
    print(row)

# %%
assert prefill(shape, 256, **fp32).flops > 15 * prefill(shape, 16, **fp32).flops
ratio = decode_step(shape, 257, **fp32).nbytes / decode_step(shape, 17, **fp32).nbytes
print(f"a step after 256 tokens moves {ratio:.3f} times the bytes of one after 16")
assert f"{ratio:.2f}" == "1.02"

# %% [markdown]
# The work of the prefill grows with the prompt. The work of a step hardly does: after 256 tokens it
# moves 2 % more bytes than after 16. These are times of one machine with a small model, and the last
# digit means nothing. They do not show what a GPU does: its ridge point lies elsewhere.
#
# ### Beside a library, and beside the read rate
#
# This decoder is written to be read. Does that make it slow? `make bench` times its steps beside those of
# transformers with two of its caches, on the same weights, in turns; then attention alone, over 8,192 tokens in
# each of 8 sequences. This is the book's record, not this run.

# %%
bench = record.read(record.book_folder() / "decode_cpu.json")
machine_then, versions = bench["device"], bench["versions"]
print(f"{machine_then['name']}, {bench['date'][:10]}, transformers {versions['transformers']}")
steps, alone = {}, {}
for point in bench["points"]:
    job, found = point["job"], point["result"].get("figures")
    if job["what"] == "rate":
        steps[job["dtype"], job["prompt"]] = found
        fast = found["times_as_fast"]["preallocated"]
        print(
            f"{job['dtype']:9}{job['prompt']:4} tokens: {found['of_read']['preallocated']:.0%} of the"
            f" read rate, {fast['DynamicCache']:.2f} times DynamicCache,"
            f" {fast['StaticCache']:.2f} times StaticCache"
        )
    elif job["what"] == "attention":
        alone[job["dtype"]], long_job = found["of_read"], job
        forms = ", ".join(f"{form} {share:.0%}" for form, share in found["of_read"].items())
        print(f"{job['dtype']:9}attention alone: {forms}")

# %%
ratios = [r for found in steps.values() for r in found["times_as_fast"]["preallocated"].values()]
turned = [
    t["by columns"] / t["preallocated"] for t in (steps["float32", n]["of_read"] for n in (64, 512))
]
assert 0.95 < min(ratios) < max(ratios) < 1.05
assert max(turned) < 1.1
assert max(alone["float32"], key=alone["float32"].get) == "K by columns"
assert 1.9 < 1 / max(alone["float32"].values()) < 2.1
assert 3 < 1 / max(alone["bfloat16"].values()) < 4

# %% [markdown]
# The preallocated cache runs at 0.96 to 1.02 times the speed of transformers' caches. On a machine as
# noisy as this one that is a tie: both leave the products with the weights to the same routines. Neither
# comes near the limit. In float32 a step reaches 32 % of the read rate, in bfloat16 14 %. Storing each
# weight by columns, so that the product reads it in another order, changed float32 by at most 7 %.
#
# Attention over the long cache, as lesson 2's `attend` does it, reaches 44 % of the read rate in float32 and
# 26 % in bfloat16. The other forms compute the same in another order. With keys stored by columns it was
# 50 %, the best of the forms tried, and 28 %. So a bound is a bound: even the best form took twice the time
# that reading alone would need, and in bfloat16 more than three times. What would close the gap is one
# program that multiplies while it reads. This book has none for CPUs.

# %% [markdown]
# ## On GPUs: bounds
#
# No GPU was measured for the page as published. What follows is arithmetic with published peak rates: products in fp16
# summed in fp32, without sparsity (a mode that skips weights set to zero in a fixed pattern). Most come from
# the makers' data sheets, some from others; `gpus.json` names the source of each. A real pass is slower.

# %%
print(f"{'bounds, fp16':16}{'10¹² ops/s':>11}{'GB/s':>7}{'ridge':>7}   knee for the weights")
for card in gpus():
    if card.fp16_flops_dense is None:
        print(f"{card.name:16}{'not known':>11}")
        continue
    peaks = device_of(card)
    print(
        f"{card.name:16}{peaks.flops_per_s / 1e12:11.0f}{peaks.bytes_per_s / GB:7,.0f}"
        f"{peaks.ridge:7.0f}   from {math.ceil(weight_knee(peaks)):4} sequences"
    )

# %%
a100 = device_of(gpu("A100 80GB"))
known = [card for card in gpus() if card.fp16_flops_dense is not None]
ridges = [ridge(card) for card in known]
assert (f"{a100.ridge:.0f}", math.ceil(weight_knee(a100))) == ("153", 154)
assert a100.flops_per_s == 312e12
assert (f"{min(ridges):.0f}", f"{max(ridges):.0f}") == ("76", "419")

# %% [markdown]
# An A100 could do 153 operations in the time in which one byte arrives. In fp16 the knee is there, too: just above
# it, from 154 sequences on (guess 2), arithmetic takes longer than reading the weights. The ridges of the other cards
# lie between 76 and 419. When one user decodes alone, the products with weights leave 98.7 % of the arithmetic
# idle on the card with the lowest ridge, and more on all others.

# %%
idle = 1 - 1 / min(ridges)
assert f"{idle:.1%}" == "98.7%"

# %% [markdown]
# ### What the cache does to batching
#
# Take Llama 2 7B, and let every user hold 4,096 tokens. Beside it stands Llama 3.1 8B, with a group size of 4.

# %%
llama2 = Shape(32, 32, 32, 128, 4096, 11_008, 32_000)
llama3 = Shape(32, 32, 8, 128, 4096, 14_336, 128_256)
served = {"llama-2-7b": llama2, "llama-3.1-8b": llama3}
kv_len, fitting = 4096, {}
for name, of in served.items():
    entry = model(name)
    norms = (2 * of.n_layers + 1) * of.dim
    assert entry.parameters == of.weights + of.unembed_weights + norms  # and the embedding
    one = decode_step(of, kv_len)
    assert one.cache_bytes == cache_spec(entry.config).nbytes(kv_len)
    users = fitting[name] = fit_users(one.cache_bytes, 80 * GB, 2 * entry.parameters)
    print(f"{entry.name}: operations per byte of cache: {one.attention_intensity:g}")
    knee = decode_knee(one, a100) or "at no batch"
    print(f"  the card is full at {users} users; the whole step turns compute-bound {knee}")
    for batch in sorted({1, 30, users, 1000}):
        rate = decode_step(of, kv_len, batch).tokens_per_s(a100)
        note = ", if they fitted" if batch > users else f", {rate / batch:.1f} for each"
        print(f"  users: {batch:4}, at most {rate:6,.0f} tokens per second{note}")
    print(f"  users:  any, at most {decode_ceiling(one, a100):6,.0f}")

# %%
one2, one3 = decode_step(llama2, kv_len), decode_step(llama3, kv_len)
assert list(fitting.values()) == [30, 119]
ends = {name: decode_ceiling(one, a100) for name, one in (("2", one2), ("3", one3))}
full = decode_step(llama2, kv_len, 30).tokens_per_s(a100)
assert (one2.attention_intensity, one3.attention_intensity) == (1, 4)
assert decode_knee(one2, a100) is decode_knee(one3, a100) is None
assert (f"{ends['2']:,.0f}", f"{ends['3']:,.0f}") == ("949", "3,798")
assert (f"{full:.0f}", f"{full / ends['2']:.0%}") == ("788", "83%")
assert f"{llama2.layer_weights + llama2.unembed_weights:,}" == "6,607,077,376"
with_table = 2 * model("llama-2-7b").parameters + 30 * one2.cache_bytes
assert f"{30 * a100.bytes_per_s / with_table:.0f}" == "785"
each = [decode_step(llama3, kv_len, n).tokens_per_s(a100) / n for n in (30, 119)]
assert [f"{rate:.0f}" for rate in (full / 30, *each)] == ["26", "66", "26"]
few_tokens = 800
short = decode_step(llama2, few_tokens)
assert fit_users(short.cache_bytes, 80 * GB, 2 * model("llama-2-7b").parameters) > 154
assert decode_knee(short, a100) is None

# %% tags=["hide-input"] mystnb={"image": {"alt": "Bounds on tokens per second against users on an A100, logarithmic axes. The dashed line for the weights alone rises straight to its knee at 154 users. Llama 3.1 8B with GQA bends away from it and levels off at 3,798. Llama 2 7B with MHA levels off at 949. Dots mark where memory ends: 30 users for Llama 2 7B and 119 for Llama 3.1 8B."}}
every = sorted({round(2 ** (n / 4)) for n in range(41)})
weights_alone = [
    n / max(n * one2.weight_flops / a100.flops_per_s, one2.weight_bytes / a100.bytes_per_s)
    for n in every
]
plt.plot(
    every,
    weights_alone,
    "--",
    color=plotting.colour("weights"),
    label="Llama 2 7B, its weights alone",
)
for name, role, label in (
    ("llama-3.1-8b", "shared", "Llama 3.1 8B (GQA), with its cache"),
    ("llama-2-7b", "cache", "Llama 2 7B (MHA), with its cache"),
):
    of, users = served[name], fitting[name]
    rates = [decode_step(of, kv_len, n).tokens_per_s(a100) for n in every]
    plt.plot(every, rates, color=plotting.colour(role), label=label)
    end = (users, decode_step(of, kv_len, users).tokens_per_s(a100))
    plt.plot(*end, "o", color=plotting.colour(role))
    note = f"memory is full: {users}"
    plt.annotate(note, end, (8, -14), textcoords="offset points")
plt.loglog()
for axis in (plt.gca().xaxis, plt.gca().yaxis):
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
plt.xlabel("users with 4,096 tokens each")
plt.ylabel("tokens per second, bound")
plt.title("The cache, not the weights, ends what batching brings")
plt.legend(loc="upper left")
plt.show()

# %% [markdown]
# With 4,096 tokens each, the knee of the weights at 154 users is never reached, and the whole step has no knee at all.
# Three things stand in the way.
#
# - **Memory.** The card is full at 30 users. With 800 tokens each, 154 users would fit. Then memory would not
#   stand in the way, but the other two still would.
# - **Traffic.** Each user's cache must be read for each token. Even if a thousand fitted, all of them
#   together would get at most 949 tokens per second. At 30 users 83 % of that are reached already: 788.
#   (Lesson 5's explorer says 785. It counts all of the embedding's table; a step reads one row per token.)
# - **Intensity.** MHA does 1 operation for each byte of cache, at any batch, where the card could do 153.
#   No number of users makes it compute-bound: guess 3.
#
# A group of four makes it 4 operations per byte. That is still memory-bound, but the end of the line
# moves from 949 to 3,798 tokens per second: guess 4. With 30 users each could get 66 tokens per second instead of 26.
# On a full card each gets 26 in both models, but then there are 119 users instead of 30.

# %% [markdown]
# ### Waiting for a long prompt
#
# The prefill's products with weights grow with the prompt, and attention grows with its square. Here are the
# bounds for Llama 3.1 8B on the A100, one user.

# %%
print(f"{'prompt':>8}{'first token':>13}{'attention':>11}{'per token':>12}  bounds")
for n in (512, 4096, 32_768, 131_072):
    work = prefill(llama3, n)
    first, later = time_to_first_token(llama3, n, a100), time_per_token(llama3, n + 1, a100)
    part = work.attention_flops / work.flops
    print(f"{n:8,}{first:11.3f} s{part:11.1%}{1e3 * later:9.2f} ms")
    assert work.bound_by(a100) == "compute"

# %%
passes = {n: prefill(llama3, n) for n in range(50_000, 60_000)}
equal = min(n for n, w in passes.items() if w.attention_flops >= w.weight_flops)
work = prefill(llama3, 131_072)
print(f"from {equal:,} tokens attention is more than half of the prefill's work")
assert equal == 53_248
assert f"{work.attention_flops / work.flops:.0%}" == "71%"
assert decode_step(llama3, 131_072).cache_bytes > decode_step(llama3, 131_072).weight_bytes

# %% [markdown]
# From 53,248 tokens on, attention is more than half of the work, and at 131,072 it is 71 %. A step after
# such a prompt reads more cache than weights.

# %% [markdown]
# ## Explore
#
# Move prefill and decode on the roofline of a card. The lines are bounds. *Your machine* shows SmolLM2 in
# float32 instead, as above, and the passes that were timed as dots beside them.

# %%
timed = [
    RooflineExplorer.point(
        f"decode, batch {batch}", "decode", points[batch], medians["batch", batch]
    )
    for batch in batches
]
timed += [
    RooflineExplorer.point(
        f"prefill of {n}", "prefill", prefill(shape, n, **fp32), medians["prefill", n]
    )
    for n in prompts
]
own = {"own_gb_per_s": machine.bytes_per_s / GB, "own_tflops": machine.flops_per_s / 1e12}
own = {name: float(f"{rate:.3g}") for name, rate in own.items()}
as_timed = {"model": "smollm2-135m", "weights": "32", "cache_dtype": "float32"}
as_timed["context"] = context
RooflineExplorer(measured=timed, measured_with=as_timed, **own)

# %% [markdown]
# With Llama 2 7B on an A100, set the context to 64 and raise the batch: which of the two points moves, and when
# does decode reach the ridge? Then lengthen the context until it never does. Try a cache in int4: what does it
# do for a short context, and for a long one?
#
# <details>
# <summary>Answer</summary>
#
# Both move to the right: a prefill of more sequences uses each weight more often, too. Decode reaches the
# ridge at batch 250. From 166 tokens on it never does, however large the batch: each new user brings more cache than
# arithmetic. A cache in int4 hardly changes a step of a short context, where weights are nearly all that is
# read; with a long one it moves the bound by up to the ratio of the two sizes.
#
# ```python
# from math import ceil
# from kvbook.accounting.facts import gpu
# from kvbook.accounting.roofline import Shape, decode_knee, decode_step, device_of
#
# llama, a100 = Shape(32, 32, 32, 128, 4096, 11_008, 32_000), device_of(gpu("A100 80GB"))
# assert ceil(decode_knee(decode_step(llama, 64), a100)) == 250
# assert decode_knee(decode_step(llama, 165), a100) is not None
# assert decode_knee(decode_step(llama, 166), a100) is None
# ```
#
# </details>

# %% [markdown]
# ## Check yourself
#
# **1. A long prompt in pieces.** A server feeds Llama 2 7B a prompt of 4,096 tokens in 8 pieces of 512, so that
# other users need not wait for all of it (*chunked prefill*, [Agrawal et al.
# 2023](https://arxiv.org/abs/2308.16369)). What does it compute more, and what does it move more?
#
# <details>
# <summary>Answer</summary>
#
# It computes nothing more but the logits of 7 tokens, which nobody needs. It reads the weights 8 times, and every
# piece reads the rows of the earlier ones. On an A100 each piece is still compute-bound, so the bound hardly moves.
#
# ```python
# from kvbook.accounting.facts import gpu
# from kvbook.accounting.roofline import Shape, device_of, phase, prefill
#
# llama, a100 = Shape(32, 32, 32, 128, 4096, 11_008, 32_000), device_of(gpu("A100 80GB"))
# pieces = [phase(llama, 512, end) for end in range(512, 4097, 512)]
# together, whole = sum(pieces[1:], pieces[0]), prefill(llama, 4096)
# assert together.flops - whole.flops == 7 * 2 * llama.unembed_weights
# assert together.weight_bytes == 8 * whole.weight_bytes
# assert together.cache_bytes == 4.5 * whole.cache_bytes
# assert all(piece.bound_by(a100) == "compute" for piece in pieces)
# ```
#
# </details>
#
# **2. Several tokens at once.** A small model guesses 4 tokens, and the large one checks them: one pass
# over 5 tokens instead of one (*speculative decoding*, [Leviathan et al.
# 2022](https://arxiv.org/abs/2211.17192)). What does that cost Llama 2 7B at 1,024 tokens, alone on an A100?
#
# <details>
# <summary>Answer</summary>
#
# By the bound 0.02 % more than one token. The weights and the cache are read either way. Even 256 users
# (who would not fit) would pay 0.4 %, because they all wait for their caches. With 16 tokens each, 256 users are
# compute-bound, and there the extra tokens are paid in full.
#
# ```python
# from kvbook.accounting.facts import gpu
# from kvbook.accounting.roofline import Shape, device_of, phase
#
# llama, a100 = Shape(32, 32, 32, 128, 4096, 11_008, 32_000), device_of(gpu("A100 80GB"))
# one, five = (phase(llama, n, 1024 + n, logits="all") for n in (1, 5))
# assert f"{five.seconds(a100) / one.seconds(a100) - 1:.2%}" == "0.02%"
# assert five.weight_flops == 5 * one.weight_flops
# for context, times in ((1024, "1.004"), (16, "5.000")):
#     crowd = [phase(llama, n, context + n, batch=256, logits="all") for n in (1, 5)]
#     assert f"{crowd[1].seconds(a100) / crowd[0].seconds(a100):.3f}" == times
# ```
#
# </details>
#
# **3. Can attention ever be compute-bound?** In DeepSeek-V3 128 query heads share one row of 576 values: 512
# for the content, called the latent (lesson 7), and 64 for the position. If queries are compared with the row
# directly, a score takes 576 products, a value 512. What is the intensity of attention over the cache, at 2
# bytes a value?
#
# <details>
# <summary>Answer</summary>
#
# About 242 operations per byte. That is above the ridge point of an A100 and below that of an
# H100 SXM. One row that serves 128 heads is like a group size of 128, and the values are not even
# stored: they are part of the same row.
#
# ```python
# from kvbook.accounting.facts import gpu
# from kvbook.accounting.roofline import ridge
#
# intensity = 2 * 128 * (576 + 512) / (576 * 2)
# assert f"{intensity:.0f}" == "242"
# assert ridge(gpu("A100 80GB")) < intensity < ridge(gpu("H100 SXM"))
# ```
#
# </details>
#
# **4. Weights in 4 bits.** They are unpacked and multiplied in fp16. Where is the knee on an A100, and what
# does the bound for one user gain at 16 tokens, in Llama 2 7B?
#
# <details>
# <summary>Answer</summary>
#
# From 39 users on instead of 154: a quarter of the bytes arrives in a quarter of the time. One user's
# bound gains nearly a factor of 4, a batch of 200 at 16 tokens nothing: it is compute-bound either way.
# Thirty users with 4,096 tokens gain 15 %, since most of what they read is cache. Unpacking is not counted.
#
# ```python
# from kvbook.accounting.facts import gpu
# from kvbook.accounting.roofline import Shape, decode_step, device_of, weight_knee
#
# llama, a100 = Shape(32, 32, 32, 128, 4096, 11_008, 32_000), device_of(gpu("A100 80GB"))
# assert 38 < weight_knee(a100, 0.5) < 39
# gain = [
#     decode_step(llama, context, batch).seconds(a100)
#     / decode_step(llama, context, batch, weight_bytes_per_value=0.5).seconds(a100)
#     for context, batch in ((16, 1), (16, 200), (4096, 30))
# ]
# assert 3.9 < gain[0] < 4 and gain[1] == 1 and f"{gain[2]:.2f}" == "1.15"
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your four guesses, once more: 0.5 and 202 operations per byte; 154 users; never; four times as many
# operations per byte, and still memory-bound.
#
# | Lesson | Bytes per token | Tokens per second | Users on 80 GB |
# |---|---|---|---|
# | 5. How many users fit? | 524,288 (Llama 2 7B, fp16) | | 30, with 4,096 tokens each |
# | 6. Two phases | 524,288 | at most 788 on an A100, all 30 together (bound) | 30 |
#
# What your machine reached with SmolLM2 stands in the tables above; it is no fact about a GPU. The
# book's ledger has no new line. Its speeds were measured, one sequence at a time; they are no bound.

# %%
ledger.show(6)

# %% [markdown]
# ## Next
#
# The cache takes memory, and it takes bandwidth at every step. The coming lessons cut it, and each cut
# counts twice. [Lesson 7](07_gqa.ipynb) begins with the heads.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. A cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
latent = model("deepseek-v3").config
row = latent["kv_lora_rank"] + latent["qk_rope_head_dim"]
operations = 2 * latent["num_attention_heads"] * (row + latent["kv_lora_rank"])
pieces = [phase(llama2, 512, end) for end in range(512, kv_len + 1, 512)]
checked = {  # exercise 2: one pass over 5 tokens against one over 1, by users and tokens held
    users: phase(llama2, 5, 1029, users, logits="all").seconds(a100)
    / phase(llama2, 1, 1025, users, logits="all").seconds(a100)
    for users in (1, 256)
}
packed = decode_step(llama2, kv_len, 30, weight_bytes_per_value=0.5)
gain = decode_step(llama2, kv_len, 30).seconds(a100) / packed.seconds(a100)
knees = {n: decode_knee(decode_step(llama2, n), a100) for n in range(1, kv_len)}
check(
    {
        "1,000 tokens": From("an example; any length would do"),
        "512 tokens": reading.tokens,
        "80 GB": gpu("A100 80GB").memory_bytes_nominal / GB,
        "2 operations": per_weight,
        "538 MB": writing.weight_bytes / 1e6,
        "404 times": reading.weight_flops / writing.weight_flops,
        "512 times": reading.tokens / writing.tokens,
        "9 KV heads": kv_heads[0],
        "3 KV heads": kv_heads[1],
        "1 KV heads": kv_heads[2],
        "2 bytes": torch.float16.itemsize,
        "64 tokens": context,
        "16 tokens": min(prompts),
        "256 tokens": max(prompts),
        "4 bytes": torch.float32.itemsize,
        "32 tokens": same_tokens.tokens,
        "27 %": 100 * more,
        "2 %": 100 * (ratio - 1),
        "2,039 GB/s": a100.bytes_per_s / GB,
        "153 operations": a100.ridge,
        "154 sequences": math.ceil(weight_knee(a100)),
        "98.7 %": 100 * idle,
        "4,096 tokens": kv_len,
        "154 users": math.ceil(weight_knee(a100)),
        "30 users": fitting["llama-2-7b"],
        "800 tokens": few_tokens,
        "949 tokens per second": ends["2"],
        "83 %": 100 * full / ends["2"],
        "1 operation": one2.attention_intensity,
    }
)

# %% tags=["hide-input"]
check(
    {
        "4 operations": one3.attention_intensity,
        "3,798 tokens per second": ends["3"],
        "66 tokens per second": each[0],
        "119 users": fitting["llama-3.1-8b"],
        "53,248 tokens": equal,
        "71 %": 100 * work.attention_flops / work.flops,
        "166 tokens": min(n for n, knee in knees.items() if knee is None),
        "7 tokens": len(pieces) - 1,
        "8 times": sum(p.weight_bytes for p in pieces) / prefill(llama2, kv_len).weight_bytes,
        "4 tokens": From("exercise 2"),
        "5 tokens": phase(llama2, 5, 1029).tokens,
        "1,024 tokens": From("exercise 2"),
        "0.02 %": 100 * (checked[1] - 1),
        "256 users": max(checked),
        "0.4 %": 100 * (checked[256] - 1),
        "128 query heads": latent["num_attention_heads"],
        "576 values": row,
        "242 operations": operations / (row * torch.float16.itemsize),
        "128 heads": latent["num_attention_heads"],
        "4 bits": 8 * packed.weight_bytes / llama2.weights,
        "39 users": math.ceil(weight_knee(a100, 0.5)),
        "15 %": 100 * (gain - 1),
        "0.5 operations": writing.weight_intensity,
        "8,192 tokens": long_job["context"],
        "8 sequences": long_job["batch"],
        "0.96 times": min(ratios),
        "1.02 times": max(ratios),
        "32 %": 100 * steps["float32", 64]["of_read"]["preallocated"],
        "14 %": 100 * steps["bfloat16", 64]["of_read"]["preallocated"],
        "7 %": 100 * (max(turned) - 1),
        "44 %": 100 * alone["float32"]["attend"],
        "26 %": 100 * alone["bfloat16"]["attend"],
        "50 %": 100 * alone["float32"]["K by columns"],
        "28 %": 100 * alone["bfloat16"]["K by columns"],
        "202 operations": reading.weight_intensity,
    }
)
