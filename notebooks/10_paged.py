# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lesson 10 — Waste nothing
#
# **The question.** A server does not know how long a conversation will become. If it sets memory aside
# for the longest one, most of it stays empty. How can it give out only what is needed, and hold what
# many conversations have in common only once?
#
# The answer is **paging** ([Kwon et al. 2023](https://arxiv.org/abs/2309.06180)): small blocks, given out
# as tokens come, and a table for each conversation that says where its blocks lie. You build the
# book-keeping in plain Python, then the tensors below it. Then you measure what it saves, and what it
# costs.

# %% [markdown]
# ## What you need
#
# [Lesson 2](02_cache.ipynb): slots, `capacity`, and why stale rows must not reach attention.
# [Lesson 5](05_users.ipynb): its mix of conversations. You need no GPU. The lesson runs in under a
# minute on two CPU cores.

# %% [markdown]
# ## Predict
#
# Write down five guesses.
#
# 1. Of ten conversations six become 512 tokens long, three 2,048 and one 4,096: lesson 5's mix. Each
#    starts with a quarter of its tokens and grows to the whole. A server reserves 4,096 slots for each.
#    What share of the reserved slots holds tokens?
# 2. Blocks of 16 tokens. How many slots of a conversation are empty, on average?
# 3. Twenty users have the same first 512 tokens, and 64 of their own. What share of the bytes does
#    sharing save?
# 4. A prompt of 64 tokens comes a second time. All four of its blocks are still there. How many tokens
#    must pass through the model?
# 5. A decode step finds its rows through a block table instead of in one piece. Is it faster or slower?

# %% tags=["export"]
import hashlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from kvbook.lessons.cache import KVCache, check_rows
from kvbook.lessons.decoder import DecoderConfig

# %%
import random
import statistics
import time
from dataclasses import replace

import ipywidgets
import matplotlib.pyplot as plt
import torch.nn.functional as F

from kvbook import ledger, plotting
from kvbook.accounting import cache_spec
from kvbook.accounting.facts import gpu
from kvbook.accounting.facts import model as fact
from kvbook.explorer.paging import PagingExplorer
from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.measure import record
from kvbook.measure.blocks import NEAR
from kvbook.measure.runner import results
from kvbook.models import smollm2
from kvbook.models.text import devils_dictionary
from kvbook.prose import From, check

# %%
plotting.use_style()
device = "cuda" if torch.cuda.is_available() else "cpu"
model, tokenizer = smollm2.load(device)
config = model.config

# %% [markdown]
# ## Build
#
# ### What reserving wastes
#
# Take 1,200 conversations in a queue. How long each one becomes is drawn from lesson 5's mix with a fixed
# seed. Each arrives with a prompt of a quarter of that, and then grows by one token at every step until
# it is complete. The server has 40,960 slots: ten times 4,096.
#
# Look at it while it is busy. The queue never gets empty, so the memory is as full as the rules allow. And
# the first 3,072 steps do not count: so long takes the longest conversation, and until then many are
# of one age. The next 6,144 do.
#
# A server that keeps each conversation in one piece must decide beforehand how much to set aside. It does
# not know the length, so it sets aside 4,096. Compare it with a server that *does* know the length of each
# conversation beforehand. There is no such server, but it shows how much even a perfect guess would waste.

# %%
mix = [512] * 6 + [2048] * 3 + [4096]  # lesson 5: tokens of ten users
rng = random.Random(10)
requests = [mix[int(10 * rng.random())] for _ in range(1200)]
slots = 10 * 4096
busy = range(3072, 3072 + 6144)  # the steps that count


# %%
def in_one_piece(reserve) -> list[tuple[int, int, int]]:
    """Per step: users, slots reserved, tokens held. reserve(length) slots for each conversation."""
    waiting, running, steps = requests[::-1], [], []
    for _ in range(busy.stop):
        taken = sum(reserve(length) for length, _ in running)
        while taken + reserve(waiting[-1]) <= slots:
            length = waiting.pop()
            running.append((length, length // 4))
            taken += reserve(length)
        steps.append((len(running), taken, sum(held for _, held in running)))
        running = [(length, held + 1) for length, held in running if held + 1 < length]
    assert waiting  # the queue was never empty
    return steps[busy.start :]


# %%
def in_words(name: str, steps: list[tuple[int, int, int]]) -> list[float]:
    """Users on average, and the share of the reserved slots that holds tokens."""
    users, taken, held = (sum(column) for column in zip(*steps, strict=True))
    found = [users / len(steps), held / taken]
    print(f"{name:28}{found[0]:5.1f} users, {found[1]:6.1%} in use")
    return found


# %%
at_most = in_one_piece(lambda length: 4096)
known = in_one_piece(lambda length: length)
found = {
    "maximum": in_words("4,096 for each", at_most),
    "known": in_words("the final length for each", known),
}
assert f"{found['maximum'][1]:.0%}" == "30%"
assert f"{found['known'][1]:.0%}" == "62%"
assert len(at_most) == len(busy) == 6144
assert busy.start == 4096 - 4096 // 4 == 3072  # all steps of the longest
long_run = 5 / 8 * sum(n * n for n in mix) / sum(mix)  # a long conversation is there for longer
assert f"{long_run / 4096:.0%}" == "35%"

# %% [markdown]
# On average, 30 % of what is reserved holds tokens: guess 1. A server that knows each final length uses
# 62 %. The rest is set aside for tokens that have not been written yet. So guessing better is not the
# answer. The memory must come with the tokens.
#
# The second figure is near plain arithmetic: here every conversation grows from a quarter of its length
# to the whole, so on average it holds 5/8 of it, 62.5 %. With shorter prompts it would be less. The
# first figure depends on the lengths that were drawn, and this is one draw: in the long run it would be
# 35 %. You repeat it below. (Was your guess 20 %, 5/8 of the mean length? A long conversation stays for
# longer. So of those that are there at a time, more than one in ten is a long one.)
#
# (In one piece there is one more loss, which this count leaves out: when pieces of different lengths come
# and go, holes are left between them that no other piece fits in.)

# %% [markdown]
# ### A pool of blocks
#
# Cut the memory into **blocks** of equal size. Any block will do for any conversation, so there are no
# holes to fit in. Two things must be known of a block: is it free, and if not, how many own it. (For
# now that is one. Sharing comes later.)
#
# If a block is given back twice, it is given out twice, and two users write over each other's text. So
# giving back what is free is an error.


# %% tags=["export"]
class OutOfBlocksError(ValueError):
    """More blocks are needed than are free. Raised before anything is taken."""


class BlockPool:
    """The blocks 0 to num_blocks - 1: how many owners each has, and which are free.

    No method's time depends on the number of blocks. ValueError for a block that is not in use.
    """

    def __init__(self, num_blocks: int) -> None:
        if type(num_blocks) is not int or num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks!r}; it must be an int, 1 or more.")
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks  # owners
        self.empty = list(range(num_blocks))[::-1]  # free; the last in the list is taken next

    @property
    def num_free_blocks(self) -> int:
        return len(self.empty)

    def check_in_use(self, block: int) -> None:
        if not (0 <= block < self.num_blocks and self.ref_counts[block]):
            raise ValueError(f"block is {block}; it must be one that is in use.")

    def take(self) -> int:
        """A free block, for one owner. Raises OutOfBlocksError if there is none."""
        if not self.empty:
            raise OutOfBlocksError(f"All {self.num_blocks} blocks are in use.")
        block = self.empty.pop()
        self.ref_counts[block] = 1
        return block

    def share(self, block: int) -> None:
        """One owner more for a block in use."""
        self.check_in_use(block)
        self.ref_counts[block] += 1

    def give_back(self, block: int) -> None:
        """One owner fewer. When the last one goes, the block is free."""
        self.check_in_use(block)
        self.ref_counts[block] -= 1
        if not self.ref_counts[block]:
            self.empty.append(block)


# %%
pool = BlockPool(3)
print("taken:", pool.take(), pool.take())
pool.give_back(0)
print("free:", pool.num_free_blocks, "owners:", pool.ref_counts)
try:
    pool.give_back(0)
except ValueError as error:
    print(error)
assert pool.num_free_blocks == 2

# %% [markdown]
# ### Block tables
#
# A conversation's **block table** lists its blocks in order. The token at position $p$ lies in block
# number $\lfloor p / \text{block size} \rfloor$ of the table, in slot $p \bmod \text{block size}$. When
# the last block is full, the next token takes a new one.
#
# `reserve` makes room and `append` counts. They are apart because a forward pass needs the room before
# it begins, and the tokens count only when it is done. A pass may also be padded; `trim` gives back what
# it did not fill. And `reserve` first counts what is missing, for all sequences of the pass. If that is
# more than there is, it takes nothing. Otherwise a request that got half of its blocks would hold them
# and wait, and so might the next. (Both return a list of copies. It stays empty until blocks are shared.)


# %% tags=["export"]
class BlockTables:
    """Where sequences lie: position p in block table[p // block_size], slot p % block_size."""

    def __init__(self, num_blocks: int, block_size: int, pool: type[BlockPool] = BlockPool) -> None:
        if type(block_size) is not int or block_size < 1:
            raise ValueError(f"block_size is {block_size!r}; it must be an int, 1 or more.")
        self.pool, self.block_size = pool(num_blocks), block_size
        self.tables: dict[int, list[int]] = {}  # of each live sequence its blocks, in order
        self.lengths: dict[int, int] = {}  # and its tokens
        self.started = 0

    def start(self) -> int:
        """A new, empty sequence: its number, which no other one gets."""
        seq, self.started = self.started, self.started + 1
        self.tables[seq], self.lengths[seq] = [], 0
        return seq

    def missing(self, wanted: Mapping[int, int]) -> int:
        """Blocks to be taken for so many more tokens of each sequence; ValueError for bad ones."""
        total = 0
        for seq, n in wanted.items():
            if seq not in self.tables:
                raise ValueError(f"{n!r} tokens for sequence {seq!r}: it must be live.")
            if type(n) is not int or n < 0:
                raise ValueError(f"n is {n!r} for sequence {seq}; it must be an int, 0 or more.")
            blocks = -(-(self.lengths[seq] + n) // self.block_size)
            total += max(0, blocks - len(self.tables[seq]))
        return total

    def reserve(self, wanted: Mapping[int, int]) -> list[tuple[int, int]]:
        """Make room in each sequence, or raise OutOfBlocksError. Returns copies to make: (from, to)."""
        missing, free = self.missing(wanted), self.pool.num_free_blocks
        if missing > free:
            raise OutOfBlocksError(f"{missing} blocks are needed; {free} are free.")
        for seq, n in wanted.items():
            table, tokens = self.tables[seq], self.lengths[seq] + n
            while len(table) * self.block_size < tokens:
                table.append(self.pool.take())
        return []


# %% tags=["export"]
class GrowingTables(BlockTables):
    """Sequences that grow and end."""

    def append(self, seq: int, n: int = 1) -> list[tuple[int, int]]:
        """Count n more tokens, making room for them. Raises OutOfBlocksError and ValueError, whole."""
        place, slot = divmod(self.lengths.get(seq, 0), self.block_size)
        is_easy = type(n) is int and 0 <= n <= self.block_size - slot and slot > 0
        if is_easy and self.pool.ref_counts[self.tables[seq][place]] == 1:
            copies = []  # the usual case: it fits in the last block, which has no other owner
        else:
            copies = self.reserve({seq: n})
        self.lengths[seq] += n
        return copies

    def trim(self, seq: int) -> None:
        """Give back the blocks in which no token lies: room that was made but not used."""
        table, tokens = self.tables[seq], self.lengths[seq]
        while (len(table) - 1) * self.block_size >= tokens:
            self.pool.give_back(table.pop())

    def free(self, seq: int) -> None:
        """End a sequence, its last block first. Raises ValueError the second time."""
        if seq not in self.tables:
            raise ValueError(f"sequence is {seq!r}; it was freed before, or never started.")
        del self.lengths[seq]
        for block in reversed(self.tables.pop(seq)):
            self.pool.give_back(block)

    def slots_used(self) -> int:
        """Slots in which tokens lie; one that several sequences share counts once."""
        used: dict[int, int] = {}
        for seq, table in self.tables.items():
            for place, block in enumerate(table):
                tokens = max(0, self.lengths[seq] - place * self.block_size)
                used[block] = max(used.get(block, 0), min(tokens, self.block_size))
        return sum(used.values())


# %%
tables = GrowingTables(num_blocks=6, block_size=4)
anna, ben = tables.start(), tables.start()
for who, n in ((anna, 5), (ben, 3), (ben, 2), (anna, 4)):
    tables.append(who, n)
print("Anna:", tables.tables[anna], "Ben:", tables.tables[ben])
try:
    tables.append(ben, 8)
except OutOfBlocksError as error:
    print(error)
assert tables.tables == {anna: [0, 1, 4], ben: [2, 3]}
assert tables.pool.num_free_blocks == 1

# %% [markdown]
# Anna's blocks do not lie side by side, and that does not matter. Ben's request failed whole: the one
# free block is still free.
#
# ### The same conversations, in blocks
#
# Now the same server with blocks. It lets a conversation in when its prompt fits, with room for 128
# tokens to spare for each that is running. There is a price for not setting memory aside: when all
# grow, blocks can run out. Then the one that came last is **preempted**. Its blocks are given back, and
# it waits at the head of the queue. When it comes in again, its tokens must be computed again. They are
# counted.


# %%
def let_in(tables, waiting, running, spare: int) -> None:
    """Start whoever waits, in order, while the prompt fits with room to spare for all that run."""
    while waiting:
        seq, (length, held) = tables.start(), waiting[-1]
        blocks = tables.missing({seq: held}) + len(running) * max(1, spare // tables.block_size)
        if blocks > tables.pool.num_free_blocks:
            tables.free(seq)
            break
        tables.append(seq, held)
        running.append((seq, length))
        waiting.pop()


def preempt(tables, waiting, running) -> int:
    """End those that came last until all others can grow by a token; the tokens that are lost."""
    lost = 0
    while tables.missing({seq: 1 for seq, _ in running}) > tables.pool.num_free_blocks:
        seq, length = running.pop()
        waiting.append((length, tables.lengths[seq]))
        lost += tables.lengths[seq]
        tables.free(seq)
    return lost


# %%
def in_blocks(block_size: int, spare: int = 128, slots: int = slots):
    """Per step: users, slots of their blocks, tokens held. And the tokens to be computed again."""
    tables = GrowingTables(slots // block_size, block_size)
    waiting, running, steps, again = [(n, n // 4) for n in requests[::-1]], [], [], 0
    for step in range(busy.stop):
        let_in(tables, waiting, running, spare)
        taken = slots - block_size * tables.pool.num_free_blocks
        steps.append((len(running), taken, sum(tables.lengths.values())))
        again += preempt(tables, waiting, running) * (step in busy)
        for seq, length in running:
            tables.append(seq)
            if tables.lengths[seq] == length:
                tables.free(seq)
        running = [(seq, length) for seq, length in running if seq in tables.tables]
    assert waiting  # the queue was never empty
    return steps[busy.start :], again


# %%
paged, again = in_blocks(16)
found["paged"] = in_words("blocks of 16", paged)
generated = sum(users for users, *_ in paged)  # a token for each user and step
print(f"{generated:,} tokens were generated, {again:,} had to be computed again")
assert f"{found['paged'][1]:.1%} {again / generated:.0%}" == "99.5% 40%"
assert [f"{found[name][0]:.1f}" for name in found] == ["10.0", "17.8", "25.9"]
assert f"{found['paged'][0] / found['maximum'][0]:.1f}" == "2.6"

# %% tags=["hide-input"] mystnb={"image": {"alt": "Horizontal bars of the slots taken on average with 40,960 in all, split into slots with tokens and empty ones. Reserving 4,096 for each: all are taken and a third of them holds tokens. Reserving the known length: nearly all are taken and three fifths of those hold tokens. Blocks of 16: nearly all are taken and hold tokens."}}
figure, axes = plt.subplots(figsize=(7, 2.6))
for row, steps in enumerate((paged, known, at_most)):
    taken, held = (sum(s[column] for s in steps) / len(steps) for column in (1, 2))
    axes.barh(row, held, 0.6, color=plotting.colour("cache"), label="hold tokens")
    axes.barh(row, taken - held, 0.6, left=held, color=plotting.colour("free"), label="empty")
axes.set_yticks(range(3), ["blocks of 16", "known length", "4,096 for each"])
axes.set_xlabel("slots taken, on average over the steps that count, of 40,960")
axes.set_title("Blocks come with the tokens, so nearly all of them are full")
axes.grid(axis="y", visible=False)
handles, labels = axes.get_legend_handles_labels()
axes.legend(handles[:2], labels[:2], loc="upper left", bbox_to_anchor=(0, -0.3), ncols=2)
plt.show()

# %% [markdown]
# With blocks 99.5 % of what is taken holds tokens, and 25.9 conversations run at the same time on average
# instead of 10. Each gets a token in a step, so a step brings 2.6 times as many tokens. But a step with
# more users takes longer: this is not yet a speed-up, and lesson 6 says how much longer it takes. And 40
# tokens were computed once more for each 100 that were generated, because a conversation had to go.
#
# All this is of a server under load. If the queue ends, the memory runs empty, and an average over that
# time says more about the end than about paging.
#
# How much of this is chance? Draw the lengths twelve times more, with other seeds.

# %%
drawn, others = requests, []
for seed in range(12):
    rng = random.Random(seed + 100)
    requests = [mix[int(10 * rng.random())] for _ in range(1200)]
    runs = in_one_piece(lambda length: 4096), in_one_piece(lambda length: length)
    steps, again_then = in_blocks(16)
    sums = [[sum(column) for column in zip(*run, strict=True)] for run in (*runs, steps)]
    users = [total / len(steps) for total, *_ in sums]
    shares = [tokens / taken for _, taken, tokens in sums]
    others.append([*users, *shares, again_then / sums[2][0]])
requests = drawn
ends = [(min(column), max(column)) for column in zip(*others, strict=True)]
ways = ("4,096 for each", "known length", "blocks of 16")
for what, users, share in zip(ways, ends[:3], ends[3:6], strict=True):
    print(
        f"{what:14}: {users[0]:4.1f} to {users[1]:4.1f} users, {share[0]:.1%} to {share[1]:.1%} in use"
    )
print(f"computed again for each token generated: {ends[6][0]:.2f} to {ends[6][1]:.2f}")

# %%
assert [f"{low:.1f} {high:.1f}" for low, high in ends[:3]] == [
    "10.0 10.0",
    "15.1 19.1",
    "23.3 28.7",
]
assert [f"{low:.0%} {high:.0%}" for low, high in ends[3:5]] == ["27% 43%", "61% 63%"]
assert [f"{end:.1%}" for end in ends[5]] == ["99.5%", "99.6%"]
assert [f"{100 * end:.0f}" for end in ends[6]] == ["23", "39"]

# %% [markdown]
# With blocks 23.3 to 28.7 users run at the same time instead of 10. A server that knew each length would have
# 15.1 to 19.1. For each 100 tokens that are generated, 23 to 39 are computed once more. Of 4,096 for each,
# 27 % to 43 % hold tokens. What hardly changes is what blocks waste: from 99.5 % to 99.6 % are in use. All
# this is for this mix; another one has other figures.
#
# How much to spare is a choice:

# %%
for spare in (16, 128, 512):
    steps, again_then = in_blocks(16, spare)
    users = sum(users for users, *_ in steps)
    print(
        f"{spare:3} tokens to spare: {users / len(steps):4.1f} users, "
        f"{again_then / users:.2f} computed again for each token generated"
    )
    assert f"{users / len(steps):.1f} {again_then / users:.2f}" in (
        "26.6 0.87",
        "25.9 0.40",
        "23.7 0.06",
    )

# %% [markdown]
# With little to spare nearly as many tokens are computed once more as are generated. With much, fewer
# conversations run. Kwon et al. (2023) describe another way: to move a conversation's rows to main memory
# instead of computing them again.

# %% [markdown]
# ### The tensors below
#
# Keys and values of all sequences lie in the blocks of one pool, reserved once. A sequence's
# rows do not lie in order there, so attention needs a copy in which they do: `gather`.


# %% tags=["export"]
class BlockRows(KVCache):
    """Keys and values of all sequences in the blocks of one pool, reserved at once.

    Blocks for `capacity` tokens of each sequence (max_seq_len, if None), or num_blocks in all. Then
    `capacity` is how long the longest can become if all grow alike, in the blocks that are free.
    """

    def __init__(
        self,
        config: DecoderConfig,
        batch: int = 1,
        capacity: int | None = None,
        *,
        num_blocks: int | None = None,
        block_size: int = 16,
        tables: type[GrowingTables] = GrowingTables,
        **options,
    ) -> None:
        super().__init__(config, batch, capacity, **options)
        if num_blocks is None:
            tables(1, block_size)  # ValueError for a block size that cannot be
            num_blocks = batch * -(-self.capacity // block_size)
        elif capacity is not None:
            both = f"capacity is {capacity} and num_blocks {num_blocks}"
            raise ValueError(f"{both}; one of them says how many blocks there are.")
        self.tables = tables(num_blocks, block_size)
        shape = (config.n_layers, config.n_kv_heads, num_blocks, block_size)
        self.k = torch.empty(*shape, self.k_dim, dtype=self.dtype, device=self.device)
        self.v = torch.empty(*shape, self.v_dim, dtype=self.dtype, device=self.device)
        self.reset()

    @property
    def nbytes_used(self) -> int:
        """Bytes of the slots in which live tokens lie, a shared slot once."""
        slots = self.k.shape[2] * self.k.shape[3]
        return (self.k.nbytes + self.v.nbytes) // slots * self.tables.slots_used()


# %% tags=["export"]
class BlockPass(BlockRows):
    """Which sequence each row has, where a pass stores its tokens, and how much room there is."""

    def reset(self) -> None:
        """End every sequence and start new ones."""
        super().reset()
        for seq in list(self.tables.tables):
            self.tables.free(seq)
        self.sequences = [self.tables.start() for _ in range(self.batch)]  # of each row
        self.block_table = torch.empty(self.batch, 0, dtype=torch.long, device=self.device)
        self.begin_pass()

    def begin_pass(self) -> None:
        """Nothing is stored yet: give back room that was not filled, and see how much there is."""
        for seq in self.sequences:
            self.tables.trim(seq)
        self.place: tuple[Tensor, Tensor] | None = None  # block and slot of each new token
        self.stored: dict[int, int] = {}  # of each layer so far the tokens of the pass under way
        most = range(1, self.k.shape[2] * self.tables.block_size + 1)
        free = self.tables.pool.num_free_blocks
        self.capacity = self.end + bisect_right(most, free, key=self.missing)

    def missing(self, q_len: int) -> int:
        """Blocks to be taken for q_len more tokens of each sequence."""
        return self.tables.missing(dict.fromkeys(self.sequences, q_len))

    @property
    def nbytes(self) -> int:
        """Bytes of the pool, used or not, and of the block table. (Lists of ints come on top.)"""
        held = [self.k, self.v, self.block_table, *(self.place or ())]
        return sum(tensor.untyped_storage().nbytes() for tensor in held)


# %% tags=["export"]
def as_tensor(tables: Sequence[list[int]]) -> Tensor:
    """Block tables as one [batch, most blocks], on the CPU; shorter ones are filled up with 0."""
    width = max(map(len, tables))
    rows = [table + [0] * (width - len(table)) for table in tables]
    return torch.tensor(rows, dtype=torch.long, device="cpu")


def gather(rows: Tensor, block_table: Tensor) -> Tensor:
    """Copy each sequence's blocks together, in order.

    rows [heads, num_blocks, block_size, d], block_table [batch, n] -> [batch, heads, n·block_size, d]
    """
    found = rows.index_select(1, block_table.flatten())
    return found.unflatten(1, block_table.shape).flatten(2, 3).transpose(0, 1)


# %% [markdown]
# Four traps lie in `update`.
#
# - Blocks are taken in the first layer of a pass. The other layers must find the same ones, and so must
#   a pass that broke off and is tried again.
# - A pass that broke off has stored some layers. If the next one breaks off earlier, the later layers hold
#   rows of the first: nothing may be counted. A layer that comes again says that a new pass has begun.
# - A block that was given back keeps its rows. The next owner's gathered copy shows them behind its last
#   token. As in lesson 2 a mask is not enough, so they are cleared in the copy.
# - The rows of a batch have tables of different lengths. What fills up a shorter table is block 0, which
#   may be anyone's. It must be cleared too.


# %% tags=["export"]
class BlockRoom(BlockPass):
    """Takes the blocks that a pass needs, all or none."""

    def has_room(self, q_len: int) -> bool:
        """Whether a pass of so many tokens has been given its slots."""
        return self.place is not None and self.place[0].shape[1] == q_len

    def check_room(self, q_len: int) -> None:
        """Raise OutOfBlocksError if q_len more tokens do not fit. Takes nothing."""
        missing, free = self.missing(q_len), self.tables.pool.num_free_blocks
        if missing > free:
            raise OutOfBlocksError(f"{missing} blocks are needed; {free} are free.")

    def make_room(self, q_len: int) -> tuple[Tensor, Tensor]:
        """Block and slot of q_len more tokens of each sequence, [batch, q_len]."""
        if self.place is None or not self.has_room(q_len):
            if self.place is not None:
                self.begin_pass()  # another length: the pass before broke off
            for old, new in self.tables.reserve(dict.fromkeys(self.sequences, q_len)):
                self.k[:, :, new], self.v[:, :, new] = self.k[:, :, old], self.v[:, :, old]
            block_table = as_tensor([self.tables.tables[seq] for seq in self.sequences])
            positions = self.lengths[:, None] + torch.arange(q_len, device="cpu")
            blocks = block_table.gather(1, positions // self.tables.block_size)
            slots = positions % self.tables.block_size
            self.block_table = block_table.to(self.device)
            self.place = blocks.to(self.device), slots.to(self.device)
        return self.place


# %% tags=["export"]
class PagedCache(BlockRoom):
    """Takes a block when a sequence needs one, and gathers the blocks for attention."""

    def update(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if k.ndim == 4 and not self.has_room(k.shape[2]):
            self.check_room(k.shape[2])
        check_rows(self, layer, k, v)
        q_len, found = k.shape[2], []
        blocks, slots = self.make_room(q_len)
        if layer in self.stored:  # it comes again: the pass before broke off
            self.stored.clear()
        kv_len = self.end + q_len
        behind = torch.arange(kv_len, device="cpu") >= self.lengths[:, None] + q_len
        for rows, new in ((self.k[layer], k), (self.v[layer], v)):
            rows[:, blocks, slots] = new.detach().transpose(0, 1)
            copy = gather(rows, self.block_table)[:, :, :kv_len]
            if behind.any():  # what others left there must not reach attention, NaN included
                copy.masked_fill_(behind[:, None, :, None].to(copy.device), 0)
            found.append(copy)
        self.stored[layer] = q_len
        return found[0], found[1]

    def advance(self, counts: int | Tensor) -> None:
        before = self.lengths
        stored = min(self.stored.get(layer, 0) for layer in range(len(self.k)))
        super().advance(counts)
        grown = (self.lengths - before).tolist()
        if max(grown) > stored:
            self.lengths = before
            raise ValueError(f"counts is {grown}; the pass stored {stored}.")
        for seq, n in zip(self.sequences, grown, strict=True):
            self.tables.append(seq, n)
        self.begin_pass()


# %%
reference = smollm2.reference()["greedy"]
story = torch.tensor([reference["ids"]], device=device)  # 69 tokens
plain = PreallocatedCache(config, capacity=80, device=device)
blocks = PagedCache(config, num_blocks=5, device=device)
for rows in (blocks.k, blocks.v):
    rows.fill_(float("nan"))  # whatever was there before
with torch.no_grad():
    pieces = story[:, :62].split([47, 1, 1, 12, 1], dim=1)
    apart = [(model(piece, plain) - model(piece, blocks)).abs().max() for piece in pieces]
print("blocks of the sequence:", blocks.tables.tables)
assert max(apart) < 1e-3
assert blocks.tables.tables[blocks.sequences[0]] == [0, 1, 2, 3]

# %% [markdown]
# The logits are the same at every step, on borders of blocks (47 and 48 tokens) and across them, though
# the pool was full of NaN. The tests go through random splits, block sizes and lengths.

# %% [markdown]
# ### Sharing: count the owners
#
# Two conversations can own one block: a chat that goes on in two ways, or many that begin with the same
# instructions. What it takes is a count of owners. `fork` starts a second sequence with all tokens of the
# first: it copies the table and no row.
#
# But then one of them writes the next token into a block that is half full, and both own it. **Copy on
# write**: whoever writes first gets a block of its own, with the rows so far. The last owner that is left
# needs no copy. The book-keeping says which block to copy where, and it counts this block beforehand,
# with those that are missing.


# %% tags=["export"]
class SharedTables(GrowingTables):
    """Sequences that may share blocks. A block with two owners is never written: copy on write."""

    def fork(self, seq: int) -> int:
        """A second sequence with the same tokens, in the same blocks. Takes no block."""
        self.missing({seq: 0})  # ValueError unless it is live
        blocks = -(-self.lengths[seq] // self.block_size)
        new = self.start()
        self.tables[new], self.lengths[new] = self.tables[seq][:blocks], self.lengths[seq]
        for block in self.tables[new]:
            self.pool.share(block)
        return new

    def written(self, wanted: Mapping[int, int]) -> Iterator[tuple[list[int], int]]:
        """Of each sequence that grows into a block it has: its table, and that block's place."""
        for seq, n in wanted.items():
            table, place = self.tables[seq], self.lengths[seq] // self.block_size
            if n and place < len(table):
                yield table, place

    def missing(self, wanted: Mapping[int, int]) -> int:
        total = super().missing(wanted)
        writers: dict[int, int] = {}
        for table, place in self.written(wanted):
            writers[table[place]] = writers.get(table[place], 0) + 1
        owners = self.pool.ref_counts  # the last owner that is left needs no copy
        return total + sum(min(n, owners[block] - 1) for block, n in writers.items())

    def reserve(self, wanted: Mapping[int, int]) -> list[tuple[int, int]]:
        super().reserve(wanted)  # which has counted the copies, too
        copies = []
        for table, place in self.written(wanted):
            block = table[place]
            if self.pool.ref_counts[block] > 1:
                table[place] = self.pool.take()
                self.pool.give_back(block)
                copies.append((block, table[place]))
        return copies


# %%
tables = SharedTables(num_blocks=6, block_size=4)
anna = tables.start()
tables.append(anna, 6)
twin = tables.fork(anna)
print("forked: ", tables.tables, "owners:", tables.pool.ref_counts)
print("copy:   ", tables.append(twin))
print("written:", tables.tables, "owners:", tables.pool.ref_counts)
assert tables.append(anna) == []  # it is the only owner now
assert tables.tables == {anna: [0, 1], twin: [0, 2]}
assert tables.slots_used() == 4 + 3 + 3

# %% [markdown]
# The full block 0 stays shared for good, because nobody writes into a full block. Block 1 was shared until
# the twin wrote.

# %% [markdown]
# ### Sharing: find the same beginning again
#
# A new conversation begins with the same instructions as one that runs, or ran. How does the server
# notice? It gives every full block a **name** that depends on its tokens, and looks the names of the
# new prompt up. (Servers call this prefix sharing or prefix caching.)
#
# The name must depend on *all* tokens up to the end of the block, not only on its own. Keys and values of
# a token depend on everything before it (lesson 2), so equal tokens after another beginning have
# other rows. So a name is made of the name before it and the block's own tokens.
#
# And equal names must mean equal texts. Python's `hash` does not promise that: many texts have one
# hash, and someone can look for them. SHA-256 is made so that nobody can find two texts with one name.


# %% tags=["export"]
def block_names(tokens: Sequence[int], block_size: int) -> Iterator[bytes]:
    """A name for each full block: SHA-256 of the name before it and its own tokens.

    So two blocks have one name only if all tokens from the first on are the same. Raises ValueError,
    before the first name, unless all are ints of 64 bits, in one row.
    """
    name, row = b"", array("q")
    for token in tokens:
        try:
            row.append(token)
        except (TypeError, OverflowError):
            raise ValueError(f"token is {token!r:.40}; it must be an int of 64 bits.") from None
    for end in range(block_size, len(row) + 1, block_size):
        name = hashlib.sha256(name + row[end - block_size : end].tobytes()).digest()
        yield name


# %%
first, second = (list(block_names(tokens, 2)) for tokens in ([1, 2, 7, 8], [3, 4, 7, 8]))
assert first[1] != second[1]  # the same two tokens after another beginning
assert hash((0, 5)) == hash((2**61 - 1, 5))  # different, with one hash
[name.hex()[:12] for name in first]

# %% [markdown]
# Before version 0.10.2 vLLM named blocks with `hash`, unless it was told otherwise
# ([vllm#29261](https://github.com/vllm-project/vllm/pull/29261)). An advisory describes how a request could
# then be answered from another text's rows
# ([GHSA-rm76-4mrf-v9r8](https://github.com/vllm-project/vllm/security/advisories/GHSA-rm76-4mrf-v9r8)).
# The choices of [vLLM 0.16.0](https://docs.vllm.ai/en/v0.16.0/api/vllm/config/cache/) are SHA-256 and
# xxHash, no longer `hash`.
#
# When a named block loses its last owner, it is free, but its rows are still right. So keep them until the
# block is needed. Take empty blocks first. When there are none, take the one that has been unused for
# longest (**least recently used**, LRU), and forget its name. That is an **eviction**. A sequence gives
# back its last block first, so beginnings, which others may want, live longest.


# %% tags=["export"]
class NamedPool(BlockPool):
    """A pool in which a named block keeps its rows when its last owner goes.

    Empty blocks are taken first. Then comes the named one that is unused for longest (LRU), and its
    name is forgotten.
    """

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.block_of: dict[bytes, int] = {}
        self.name_of: dict[int, bytes] = {}
        self.unused: OrderedDict[int, None] = OrderedDict()  # named and free; longest first

    @property
    def num_free_blocks(self) -> int:
        return len(self.empty) + len(self.unused)

    def name(self, block: int, name: bytes) -> None:
        """Let a block in use be found by name, unless it has one or another block has this one."""
        self.check_in_use(block)
        if name not in self.block_of and block not in self.name_of:
            self.block_of[name], self.name_of[block] = block, name

    def take(self) -> int:
        if not self.empty and self.unused:
            block, _ = self.unused.popitem(last=False)
            del self.block_of[self.name_of.pop(block)]
            self.empty.append(block)
        return super().take()

    def share(self, block: int) -> None:
        """One owner more; the first one, for a named block that nobody uses."""
        if block in self.unused:
            del self.unused[block]
            self.ref_counts[block] = 1
        else:
            super().share(block)

    def give_back(self, block: int) -> None:
        super().give_back(block)
        if not self.ref_counts[block] and block in self.name_of:
            self.unused[self.empty.pop()] = None


# %% tags=["export"]
class BlockManager(SharedTables):
    """Block tables whose sequences find the blocks of an equal beginning again."""

    pool: NamedPool

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size, NamedPool)

    def start(self, prompt: Sequence[int] = ()) -> int:
        """A new sequence, with the blocks of the longest known beginning of its prompt.

        `lengths` says how many tokens those hold: never all, because the last token must pass
        through the model to say what comes next. Raises ValueError for what is no token.
        """
        names = list(block_names(prompt, self.block_size))  # before anything is shared
        seq = super().start()
        for name in names[: max(0, len(prompt) - 1) // self.block_size]:
            block = self.pool.block_of.get(name)
            if block is None:
                break
            self.pool.share(block)
            self.tables[seq].append(block)
        self.lengths[seq] = len(self.tables[seq]) * self.block_size
        return seq

    def remember(self, seq: int, tokens: Sequence[int]) -> None:
        """Name a sequence's full blocks by its tokens. Call it when their rows are computed.

        Raises ValueError for more tokens than the sequence holds.
        """
        self.missing({seq: 0})  # ValueError unless it is live
        if len(tokens) > self.lengths[seq]:
            raise ValueError(f"{len(tokens)} tokens; sequence {seq} holds {self.lengths[seq]}.")
        names = list(block_names(tokens, self.block_size))
        for block, name in zip(self.tables[seq], names):  # noqa: B905
            self.pool.name(block, name)


# %% [markdown]
# Two rules in there are easy to get wrong. `start` never finds the *whole* prompt, though all its
# blocks may be there: the logits of its last token are needed, and no cache holds logits. And
# `remember` is called after the pass. A block that is named when it is taken could be found before its
# rows are computed.
#
# Watch it with ten blocks of four. The prompts of A, B and E begin with the same eight tokens, D and G
# have the same thirteen, and C is a fork. One request, F, has to wait.


# %% tags=["export"]
SYSTEM = list(range(8))  # tokens that several prompts begin with
OTHER = list(range(50, 63))
TIMELINE = [
    ("arrive", "A", [*SYSTEM, 20, 21]),
    ("grow", "A", [22, 23, 24]),
    ("arrive", "B", [*SYSTEM, 30, 31, 32]),
    ("fork", "A", "C"),
    ("grow", "C", [40, 41]),
    ("grow", "A", [25]),
    ("finish", "B"),
    ("arrive", "D", OTHER),
    ("grow", "D", [63, 64, 65, 66]),
    ("finish", "A"),
    ("arrive", "E", [*SYSTEM, 70, 71, 72, 73]),
    ("finish", "C"),
    ("arrive", "F", list(range(80, 90))),
    ("finish", "D"),
    ("arrive", "F", list(range(80, 90))),
    ("arrive", "G", OTHER),
    ("finish", "E"),
    ("finish", "F"),
    ("finish", "G"),
]


# %% tags=["export"]
def happen(
    manager: BlockManager, live: dict[str, tuple[int, list[int]]], event: Sequence
) -> list[tuple[int, int]]:
    """Let one event happen; returns the copies to make. live: name -> (sequence, its tokens).

    ("arrive", name, prompt), ("grow", name, tokens), ("fork", name, new name), ("finish", name).
    Raises OutOfBlocksError, or ValueError for an event that cannot be: then nothing has changed hands.
    """
    what, name, *more = event
    is_known = what == "finish" or (what in ("arrive", "grow", "fork") and len(more) == 1)
    if not is_known or (name in live) == (what == "arrive") or (what == "fork" and more[0] in live):
        raise ValueError(f"{what!r} of {name!r} cannot be: live are {', '.join(live) or 'none'}.")
    if what == "arrive":
        seq, tokens = manager.start(more[0]), list(more[0])
        try:
            manager.append(seq, len(tokens) - manager.lengths[seq])
        except OutOfBlocksError:
            manager.free(seq)
            raise
        manager.remember(seq, tokens)
        live[name] = seq, tokens
        return []
    seq, tokens = live[name]
    if what == "fork":
        live[more[0]] = manager.fork(seq), list(tokens)
    elif what == "finish":
        manager.free(live.pop(name)[0])
    else:
        list(block_names(more[0], 1))  # ValueError for what is no token, before anything is counted
        copies = manager.append(seq, len(more[0]))
        tokens += more[0]
        manager.remember(seq, tokens)
        return copies
    return []


# %%
manager, live = BlockManager(num_blocks=10, block_size=4), {}
log = []
for event in TIMELINE:
    known_before = set(manager.pool.block_of.values())
    try:
        copies = happen(manager, live, event)
        note = f"copied {copies}" if copies else ""
    except OutOfBlocksError as error:
        note = f"waits: {error}"
    evicted = known_before - set(manager.pool.block_of.values())
    note += f"evicted {evicted}" if evicted else ""
    shown = {name: [*manager.tables[seq]] for name, (seq, _) in live.items()}
    log.append((event[:2], shown, note))
    print(f"{event[0]:7}{event[1]}  {' '.join(f'{n}{t}' for n, t in shown.items())}  {note}")

# %%
assert log[2][1]["B"][:2] == log[0][1]["A"][:2] == [0, 1]  # B finds A's beginning
assert log[4][2] == "copied [(3, 5)]"  # C is a fork of A and writes first
assert log[12][2].startswith("waits: 3 blocks are needed; 2 are free")
assert log[14][2] == "evicted {2}"  # F: a block of C's
assert log[15][1]["G"] == log[7][1]["D"] == [4, 6, 7, 8]  # D is gone, G finds its first three
assert log[15][2] == "evicted {8}"
assert manager.pool.num_free_blocks == 10

# %% [markdown]
# Read it from the top. B takes two of A's blocks. C is a fork of A; when it grows, block 3 is copied to
# block 5. F asks for three blocks while two are free, gets none, and waits. When it comes in, block 2 loses
# its rows: it was unused for longest. G has D's prompt. D is gone, but three of its blocks are found.
# For the thirteenth token G needs one more, and block 8, where D went on, is now the one unused for
# longest. In the end all ten are free. None was lost.
#
# Now the cache: a row of its batch can begin with blocks that another sequence filled.


# %% tags=["export"]
class SharingCache(PagedCache):
    """A paged cache in which a sequence can begin with blocks that another one filled."""

    tables: BlockManager

    def __init__(self, config: DecoderConfig, batch: int = 1, **options) -> None:
        super().__init__(config, batch, tables=BlockManager, **options)

    def sequence(self, row: int) -> int:
        if not 0 <= row < self.batch:
            raise ValueError(f"row is {row}; the cache has 0 to {self.batch - 1}.")
        return self.sequences[row]

    def replace(self, row: int, seq: int) -> None:
        """End a row's sequence; the row goes on with another one."""
        self.tables.free(self.sequences[row])
        self.sequences[row] = seq
        self.lengths = torch.tensor([self.tables.lengths[s] for s in self.sequences], device="cpu")
        self.begin_pass()

    def begin(self, row: int, prompt: Sequence[int]) -> int:
        """A new sequence in a row. Returns how many tokens of its prompt it holds: feed the others."""
        self.sequence(row)
        self.replace(row, self.tables.start(prompt))
        return int(self.lengths[row])

    def remember(self, row: int, tokens: Sequence[int]) -> None:
        """These are the row's first tokens: let later sequences find its full blocks."""
        self.tables.remember(self.sequence(row), tokens)

    def fork(self, row: int, into: int) -> None:
        """A second sequence with the tokens of a row, in the row `into`. Copies nothing yet."""
        self.sequence(into)
        self.replace(into, self.tables.fork(self.sequence(row)))

    def free(self, row: int) -> None:
        """End a row's sequence; the row is empty."""
        self.sequence(row)
        self.replace(row, self.tables.start())


# %% [markdown]
# ## Measure
#
# ### Does the memory match?
#
# The method is that of [lesson 4](04_measure.ipynb): fill caches in a process of their own, and compare
# what they take with lesson 3's accounting. Its policy `paged` rounds every sequence up to whole blocks.

# %%
base = {"what": "grid", "model": "smollm2-135m", "kind": "paged", "device": device}
jobs = [{**base, "dtype": "float16", "context": n, "batch": 4} for n in (1023, 1024, 1025)]
for job, held in results(jobs):
    beside = held["held"] - held["predicted"]
    print(f"4 × {job['context']:,}: predicted {held['predicted']:11,} bytes, held {beside:,} more")
    assert record.unexplained(job, held) == []  # lesson 4: within 1 %
    blocks_each = -(-job["context"] // 16)
    assert held["predicted"] == 4 * 16 * blocks_each * 23_040
    assert beside == 4 * 8 * (blocks_each + 1)  # block table and lengths

# %% [markdown]
# To the byte, beside 8 bytes for each block in the table and each length. One token more than 1,024
# costs a whole block for each sequence.

# %% [markdown]
# ### How large a block?
#
# Only the last block of a conversation has empty slots. If lengths are spread evenly, between 0 and
# $B - 1$ slots are empty, which is $(B - 1)/2$ on average. Count it on the same conversations.

# %%
waste = {}
for size in (1, 4, 16, 64, 256):
    steps, _ = in_blocks(size)
    users, taken, held = (sum(column) for column in zip(*steps, strict=True))
    waste[size] = (taken - held) / users
    entries = taken / size / len(steps)
    print(
        f"blocks of {size:3}: {waste[size]:6.1f} empty slots for each user, "
        f"formula {(size - 1) / 2:5.1f}; {entries:7,.0f} entries in all tables"
    )
piece = sum(taken - held for _, taken, held in at_most) / sum(users for users, *_ in at_most)
print(f"in one piece: {piece:6,.0f} empty slots for each user")
assert waste[1] == 0
assert all(abs(waste[size] / ((size - 1) / 2) - 1) < 0.1 for size in (4, 16, 64, 256))
assert f"{waste[16]:.1f} {waste[256]:.0f}" == "7.5 124"
assert f"{piece:,.0f}" == "2,885"

# %% tags=["hide-input"] mystnb={"image": {"alt": "Empty slots for each user against the block size from 1 to 256, both axes logarithmic. The measured dots lie on the line (B minus 1) / 2. A line far above shows what reserving 4,096 in one piece leaves empty."}}
figure, axes = plt.subplots(figsize=(7, 3.4))
sizes = [size for size in waste if size > 1]
axes.axhline(piece, color=plotting.colour("free"), label="4,096 in one piece")
line = range(2, 300)
axes.plot(
    line, [(b - 1) / 2 for b in line], "--", color=plotting.colour("text"), label="(B − 1) / 2"
)
axes.plot(sizes, [waste[b] for b in sizes], "o", color=plotting.colour("cache"), label="counted")
axes.set(xscale="log", yscale="log", xlabel="block size B, in tokens, logarithmic")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.set_ylabel("empty slots for each user")
axes.set_title("Half a block is wasted, whatever the length")
axes.legend()
plt.show()

# %% [markdown]
# Blocks of 16 leave 7.5 slots empty for each conversation (guess 2), blocks of 256 leave 124. In one
# piece it is 2,885. Blocks of 1 waste nothing, but the tables get long, nothing can be copied in one
# go, and a name for each token must be computed. What a server takes depends on its GPU kernels, too,
# the programs that run on the GPU:
# [vLLM 0.16.0](https://docs.vllm.ai/en/v0.16.0/api/vllm/config/cache/) offers 1 to 256 and says that
# with CUDA only sizes up to 32 work, while the blocks of FlashAttention 2 must be multiples of 256
# ([its README](https://github.com/Dao-AILab/flash-attention/blob/014c349eb1c523f9a97d51ea1880486aeeee4a2e/README.md)).

# %% [markdown]
# ### What does sharing save?
#
# Twenty users, each with 64 tokens of their own after a beginning that all have in common. Count the
# slots of all blocks and the tokens that pass through the model in prefill, with sharing and without.


# %%
def shared_by(users: int, common: int, own: int = 64) -> tuple[int, int]:
    """Blocks in use, and tokens computed, for prompts with the same `common` first tokens."""
    manager, computed = BlockManager(users * 128, 16), 0
    for user in range(users):
        prompt = [*range(common), *range(10_000 * (user + 1), 10_000 * (user + 1) + own)]
        seq = manager.start(prompt)
        computed += len(prompt) - manager.lengths[seq]
        manager.append(seq, len(prompt) - manager.lengths[seq])
        manager.remember(seq, prompt)
    return manager.pool.num_blocks - manager.pool.num_free_blocks, computed


token = cache_spec(fact("smollm2-135m").config).bytes_per_token("float32")
savings = {}
for common in (0, 15, 16, 64, 250, 256, 512, 1024):
    held, computed = shared_by(20, common)
    alone = 20 * -(-(common + 64) // 16)
    savings[common] = 1 - held / alone, 1 - computed / (20 * (common + 64))
    print(
        f"{common:5,} in common: {16 * held * token / 1e6:7.1f} MB instead of "
        f"{16 * alone * token / 1e6:7.1f}, {computed:6,} tokens computed of {20 * (common + 64):6,}"
    )
assert token == 46_080

# %%
assert savings[0] == savings[15] == (0, 0)  # less than a full block in common
assert f"{savings[512][0]:.0%} {savings[512][1]:.0%}" == "84% 84%"
assert f"{savings[1024][0]:.0%}" == "89%"
assert shared_by(20, 250)[1] == 20 * 314 - 19 * 240  # 15 of 15.6 blocks are full

# %% tags=["hide-input"] mystnb={"image": {"alt": "Megabytes of cache for twenty users against the length of their common beginning, from 0 to 1,024 tokens. Without sharing the line rises to 1,003 MB. With sharing it rises twenty times more slowly, to 106 MB."}}
figure, axes = plt.subplots(figsize=(7, 3.2))
lengths = range(0, 1025, 16)
alone = [20 * (n + 64) * token / 1e6 for n in lengths]
together = [16 * shared_by(20, n)[0] * token / 1e6 for n in lengths]
axes.plot(lengths, alone, color=plotting.colour("cache"), label="a copy for each user")
axes.plot(lengths, together, color=plotting.colour("shared"), label="shared")
axes.set_xlabel("tokens that all 20 begin with; 64 of their own follow")
axes.set_ylabel("MB (10⁶ bytes), SmolLM2, fp32")
axes.set_title("A common beginning is held once, not twenty times")
axes.legend()
plt.show()
assert f"{alone[-1]:,.0f} {together[-1]:.0f}" == "1,003 106"

# %% [markdown]
# With 512 tokens in common sharing saves 84 % of the bytes, and as much of the prefill: guess 3. With
# 15 in common it saves nothing, because no full block is the same. With 250 it saves 15 blocks, 240
# tokens. These are counts for users who are there at the same time and share everything they can. What
# a real server saves depends on how alike its prompts are.
#
# Now on the real model: a document of 256 tokens, and two questions about it, one after the other.

# %%
document = tokenizer.encode(devils_dictionary()).ids[:256]
questions = [" Who wrote this?", " What is a dictionary?"]
prompts = [document + tokenizer.encode(question).ids for question in questions]
cache = SharingCache(config, num_blocks=40, device=device)


@torch.no_grad()
def ask(prompt: list[int]) -> tuple[torch.Tensor, int, float]:
    """Logits of the last token, tokens fed, seconds."""
    start = time.perf_counter()
    fed = prompt[cache.begin(0, prompt) :]
    logits = model(torch.tensor([fed], device=device), cache, last_only=True)[0, -1].cpu()
    cache.remember(0, prompt)
    return logits, len(fed), time.perf_counter() - start


repeat = document[:64]
answers = [ask(prompt) for prompt in (*prompts, repeat)]

# %%
with torch.no_grad():
    alone = [
        model(torch.tensor([prompt], device=device), last_only=True)[0, -1].cpu()
        for prompt in (*prompts, repeat)
    ]
for (logits, fed, _), expected, name in zip(
    answers, alone, ("first question", "second question", "64 tokens again"), strict=True
):
    print(f"{name:16}: {fed:3} tokens fed")
    assert (logits - expected).abs().max() < 1e-3
    assert logits.argmax() == expected.argmax()
assert [fed for _, fed, _ in answers] == [len(prompts[0]), len(prompts[1]) - 256, 16]

# %% tags=["nbval-ignore-output"]
for (_, _, seconds), name in zip(answers, ("first", "second"), strict=False):
    print(f"{name:6} question: {1e3 * seconds:6.0f} ms until its first token, on {device}")

# %%
assert answers[1][1] < answers[0][1] / 20

# %% [markdown]
# The second question finds all 16 blocks of the document, though the first conversation has ended, and
# feeds only itself. Its logits are those of a run without any cache, up to rounding. The third prompt
# is exactly four full blocks, and all four are there. Still 16 tokens are fed, a whole block: guess 4.
# One would do, at the price of a copy of the block that others own; `start` keeps to whole blocks.

# %% [markdown]
# ### What it costs: time
#
# Does paging cost time? The book-keeping is a few operations on lists and dicts. The record below, of
# `python -m kvbook measure --what blocks`, is from a run of a million operations in each pool, with
# sequences that start, grow, fork and end. Then it appends to a few sequences only, 32 of the same pool.

# %%
name, kept = record.newest(record.book_folder(), "cpu", "blocks")
print(f"{name}: {kept['device']['name']}, {kept['date'][:10]}; µs, median (and quartiles)")
for point in kept["points"]:
    job, took = point["job"], point["result"]
    spread = [
        f"{took[f'{what}_{end}_us']:.2f}" for what in ("append", "near") for end in ("low", "high")
    ]
    print(
        f"{job['num_blocks']:9,} blocks, {took['live']:6,} sequences: append to any "
        f"{took['append_us']:.2f} ({spread[0]} to {spread[1]}), to one of 32 "
        f"{took['near_us']:.2f} ({spread[2]} to {spread[3]})"
    )
assert [point["job"]["num_blocks"] for point in kept["points"]] == [10**3, 10**4, 10**5, 10**6]

# %%
appends, near = (
    [point["result"][f"{what}_us"] for point in kept["points"]] for what in ("append", "near")
)
assert 1.5 < appends[-1] / appends[0] < 10  # a thousand times the blocks and the sequences
assert max(near) < 2 * min(near)

# %% [markdown]
# Two columns, two answers. An append to one of 32 sequences takes about as long in a pool of a million
# blocks as in one of a thousand: the work does not grow. (A test counts the lines of Python that are executed,
# and they are as many in both.) An append to *any* sequence takes longer in the largest pool. What it
# reads is a length, a table, a block's count of owners: a few small Python objects, scattered over a
# memory that is too large for the processor's own caches, where a thousand blocks fit in. So what grows
# is the wait for memory. A server that appends a token to every running sequence at each step would feel
# it with tens of thousands of them, not with a hundred.
#
# The quartiles say how much one machine's times vary within a run. Another run, or a busy machine, varies more.
#
# The tensors cost more. Time decode steps of the model at 512 tokens, and attention alone, in one layer
# for 8 users with 1,024 tokens each. Contiguous and paged take turns. The steps include the
# book-keeping. The attention does not: its token is never counted, so its slot is found once, in the
# first round, and what you see is the copy. (In a step, too, one layer of all finds the slots.)

# %%
caches = {
    "contiguous": PreallocatedCache(config, capacity=528, device=device),
    "paged": PagedCache(config, num_blocks=33, device=device),
}
text = torch.tensor([tokenizer.encode(devils_dictionary()).ids[:512]], device=device)
step_ms = {name: [] for name in caches}
with torch.no_grad():
    for cache in caches.values():
        model(text, cache, last_only=True)
    for _ in range(9):
        for name, cache in caches.items():
            start = time.perf_counter()
            model(text[:, :1], cache).cpu()
            step_ms[name].append(1e3 * (time.perf_counter() - start))

# %%
one_layer = replace(config, n_layers=1)
layers = {
    "contiguous": PreallocatedCache(one_layer, 8, capacity=1040, device=device),
    "paged": PagedCache(one_layer, 8, num_blocks=8 * 65, device=device),
}
rows = torch.randn(8, 3, 1024, 64, generator=torch.Generator().manual_seed(0)).to(device)
new, query = rows[:, :, :1], rows[:, :, :1].repeat(1, 3, 1, 1)
layer_ms = {name: [] for name in layers}
for cache in layers.values():
    cache.update(0, rows, rows)
    cache.advance(1024)
for _ in range(15):
    for name, cache in layers.items():
        start = time.perf_counter()
        cache.attend(0, query, new, new).cpu()
        layer_ms[name].append(1e3 * (time.perf_counter() - start))

# %% tags=["nbval-ignore-output"]
for what, times in (("step of the model", step_ms), ("attention, 8 users", layer_ms)):
    for name, found_ms in times.items():
        low, middle, high = statistics.quantiles(found_ms, n=4)
        print(f"{what:19}{name:11}: {middle:7.2f} ms ({low:.2f} to {high:.2f}), on {device}")

# %%
extra = {}
for name, cache in layers.items():
    with Watch(cache) as watch:
        cache.update(0, new, new)
    extra[name] = watch.peak - held_nbytes(cache)
layer = 8 * 1025 * 2 * 3 * 64 * 4  # bytes of the rows that attention reads: K and V
for name, nbytes in extra.items():
    print(f"{name:11}: {nbytes / layer:.2f} times the layer's rows are held beside the cache")
assert extra["contiguous"] < 0.02 * layer
assert layer <= extra["paged"] < 1.1 * layer

# %% [markdown]
# The contiguous cache hands attention a view. The paged one copies the layer's rows together first:
# they are read, written, and read again by attention, so the cache is moved three times instead of
# once. In a step of this small model with one user that is little beside 538 MB of weights. Attention
# alone reads no weights. So guess 5 is: slower, by the copy. How much, the table above says for one
# machine and two shapes, and it says no more than that. The bytes of the copy are what is certain.
#
# ### Why servers need a kernel for it
#
# The copy is not needed. Attention can walk through the blocks where they lie, and carry three things
# from block to block: the largest score so far, the sum of the weights, and the weighted sum of values.
# When a larger score comes, what was summed is scaled down. This is exact, up to rounding.


# %%
def attend_in_blocks(q, k, v, block_table: list[int], length: int):
    """One query over blocks where they lie: q [heads, d], k, v [heads, num_blocks, block_size, d]."""
    size, largest = k.shape[2], torch.full((len(q), 1), -torch.inf, device=q.device)
    weights, total = torch.zeros_like(largest), torch.zeros_like(q)
    for place, block in enumerate(block_table):
        n = min(size, length - place * size)  # the slots behind it are never read
        scores = torch.einsum("hd,hnd->hn", q, k[:, block, :n]) / q.shape[1] ** 0.5
        higher = torch.maximum(largest, scores.amax(1, keepdim=True))
        shrink, p = (largest - higher).exp(), (scores - higher).exp()
        weights = weights * shrink + p.sum(1, keepdim=True)
        total = total * shrink + torch.einsum("hn,hnd->hd", p, v[:, block, :n])
        largest = higher
    return total / weights


blocks = caches["paged"]
query = rows[0, :, 5]  # any query will do
length, table = int(blocks.lengths[0]), blocks.tables.tables[blocks.sequences[0]]
found_rows = attend_in_blocks(query, blocks.k[7], blocks.v[7], table, length)
keys, values = (gather(rows[7], blocks.block_table)[:, :, :length] for rows in (blocks.k, blocks.v))
expected = F.scaled_dot_product_attention(query[None, :, None], keys, values)[0, :, 0]
assert (found_rows - expected).abs().max() < 1e-4
print(f"{len(table)} blocks, one after the other: the same attention")

# %% [markdown]
# In Python the loop is no gain, because it makes several calls for every block. In a GPU kernel
# the loop runs inside, and the blocks are read once, straight from where they lie.
# Kwon et al. (2023) describe such a kernel, PagedAttention. FlashAttention takes a block table since version
# 2.5 ([changelog](https://github.com/Dao-AILab/flash-attention/blob/014c349eb1c523f9a97d51ea1880486aeeee4a2e/README.md)).
# This book has no record of such a kernel on a GPU yet, so it states no figure for one.

# %% [markdown]
# ## Explore
#
# Step through the conversations A to G, and see which block is taken, shared, copied, freed. Then go to
# event 3, turn sharing off, or make the blocks larger, and compare the three bars. For that use the controls:
# each of the buttons goes back to the start first, the event too, and then changes one thing. (Later on, a
# request that is not let in makes the bars shorter: less is held because someone waits.)

# %%
PagingExplorer(timeline=TIMELINE, num_blocks=10, block_size=4, max_len=20)

# %% [markdown]
# Try these. Turn sharing off: which request is not let in any more? Set the block size to 1: what is
# left of the waste? And with blocks of 8, how much of the common beginning does B still find?
#
# <details>
# <summary>Answer</summary>
#
# C: a fork without sharing is a copy of A's 13 tokens, four blocks, and three are free. Nothing is left
# of the waste. And B finds all eight tokens, because they are exactly one block; with nine in a block
# it would find none.
#
# ```python
# from kvbook.lessons.paged import TIMELINE, BlockManager, OutOfBlocksError, happen
#
# apart = BlockManager(num_blocks=10, block_size=4)  # no prompts given, nothing remembered
# a, b, c = (apart.start() for _ in range(3))
# apart.append(a, 13)
# apart.append(b, 11)
# try:
#     apart.append(c, 13)
#     raise AssertionError("let in")
# except OutOfBlocksError as error:
#     assert str(error) == "4 blocks are needed; 3 are free."
#
# for block_size, found in ((4, [0, 1]), (8, [0]), (9, [])):
#     manager, live = BlockManager(10, block_size), {}
#     for event in TIMELINE[:3]:
#         happen(manager, live, event)
#     table_a, table_b = (manager.tables[live[name][0]] for name in "AB")
#     assert [block for block in table_b if block in table_a] == found
# ```
#
# </details>
#
# If you run this notebook yourself, serve the conversations with another block size or a smaller
# memory. That takes a *kernel*, here the Python process behind a notebook, so the published page shows
# nothing.

# %%
served = {}


def serve(block_size: int, conversations: int) -> None:
    steps, again = in_blocks(block_size, slots=4096 * conversations)
    served.update(job=(block_size, conversations), again=again, steps=len(steps))
    plt.plot(busy, [users for users, *_ in steps], color=plotting.colour("cache"))
    plt.axhline(conversations, color=plotting.colour("free"))
    plt.xlabel("step")
    plt.ylabel("conversations at a time")
    users = sum(users for users, *_ in steps) / len(steps)
    plt.title(f"{users:.1f} at a time on average; {again:,} tokens computed again")
    plt.show()


# %% tags=["remove-output", "nbval-ignore-output"]
sliders = {
    "block_size": ipywidgets.SelectionSlider(
        options=[1, 4, 16, 64, 256], value=16, description="block size", continuous_update=False
    ),
    "conversations": ipywidgets.IntSlider(
        value=10, min=2, max=20, description="4,096 ×", continuous_update=False
    ),
}
ipywidgets.VBox([*sliders.values(), ipywidgets.interactive_output(serve, sliders)])

# %%
assert served == {"job": (16, 10), "again": again, "steps": len(paged)}

# %% tags=["remove-cell", "nbval-ignore-output"]
sliders["block_size"].value = 256
moved = dict(served)
sliders["block_size"].value = 16

# %% tags=["remove-cell"]
assert moved["job"] == (256, 10)

# %% [markdown]
# ## Check yourself
#
# **1. Names without parents.** Someone names a block by its own tokens alone. Two prompts: `[1, 2, 3,
# 4, 9]` and `[5, 6, 3, 4, 9]`, blocks of 2. What does the second one get, and what is wrong with it?
#
# <details>
# <summary>Answer</summary>
#
# Nothing, as long as lookup stops at the first unknown block: `(5, 6)` is not known. But once `(5, 6)`
# has been seen anywhere, both are found, and `(3, 4)` is the one that followed `(1, 2)`. Its keys and
# values were computed with another past. The text goes on as if part of the prompt had been a different
# one.
#
# ```python
# import hashlib
# import kvbook.lessons.paged as paged
#
# def by_own_tokens(tokens, block_size):
#     for end in range(block_size, len(tokens) + 1, block_size):
#         yield repr(list(tokens[end - block_size : end])).encode()
#
# def blocks_of_the_last(names):
#     kept, paged.block_names = paged.block_names, names
#     manager = paged.BlockManager(num_blocks=9, block_size=2)
#     for prompt in ([1, 2, 3, 4, 9], [5, 6, 7]):
#         seq = manager.start(prompt)
#         manager.append(seq, len(prompt))
#         manager.remember(seq, prompt)
#     found = manager.tables[manager.start([5, 6, 3, 4, 9])]
#     paged.block_names = kept
#     return found
#
# assert blocks_of_the_last(paged.block_names) == [3]
# assert blocks_of_the_last(by_own_tokens) == [3, 1]  # block 1 belongs to another past
# ```
#
# </details>
#
# **2. Freed twice.** A pool that does not check appends a block to its free list whenever it is given
# back. A block is given back twice by mistake. What happens to the next two users?
#
# <details>
# <summary>Answer</summary>
#
# Both get it, each believing to be the only owner, and each writes over the other's rows. No error is
# raised. A report of 7 September 2026 describes this in LMCache's paged allocator, at commit 16df1bb
# ([LMCache#5005](https://github.com/LMCache/LMCache/issues/5005)).
#
# ```python
# from kvbook.lessons.paged import BlockPool
#
# class Trusting(BlockPool):
#     def give_back(self, block):
#         self.empty.append(block)
#
# pool = Trusting(4)
# block = pool.take()
# pool.give_back(block)
# pool.give_back(block)
# assert pool.take() == pool.take() == block
#
# pool = BlockPool(4)
# block = pool.take()
# pool.give_back(block)
# try:
#     pool.give_back(block)
#     raise AssertionError("accepted")
# except ValueError:
#     assert pool.num_free_blocks == 4
# ```
#
# </details>
#
# **3. Which block goes?** A pool has three blocks, all named, all unused: the beginning of a text, its
# middle, and its end, given back when the text was finished. A new request takes one. Which of the
# three is lost, and what if the blocks had been given back in the order of the table?
#
# <details>
# <summary>Answer</summary>
#
# The end is lost: it was given back first, so it has been unused for longest. In the other order the
# beginning would go, and with it all three, since a lookup stops at the first block that it does not
# find.
#
# ```python
# from kvbook.lessons.paged import BlockManager
#
# class FirstFirst(BlockManager):
#     def free(self, seq):
#         del self.lengths[seq]
#         for block in self.tables.pop(seq):
#             self.pool.give_back(block)
#
# def tokens_found(kind):
#     manager = kind(num_blocks=3, block_size=2)
#     seq = manager.start()
#     manager.append(seq, 6)
#     manager.remember(seq, range(6))
#     manager.free(seq)
#     manager.append(manager.start(), 1)
#     return manager.lengths[manager.start(range(7))]
#
# assert (tokens_found(BlockManager), tokens_found(FirstFirst)) == (4, 0)
# ```
#
# </details>
#
# **4. Users.** Llama 2 7B in fp16 on 80 GB, lesson 5's mix, and every user begins with the same 256
# tokens. How many fit with blocks of 16, and how many with blocks of 256?
#
# <details>
# <summary>Answer</summary>
#
# Lesson 5 found 97 without sharing. With it 119 fit, whichever block size: the lengths of this mix are
# multiples of 256. With real lengths blocks of 256 would lose half a block each.
#
# ```python
# from itertools import cycle
# from kvbook.accounting import cache_spec
# from kvbook.accounting.facts import model
# from kvbook.lessons.paged import BlockManager, OutOfBlocksError
#
# llama = model("llama-2-7b")
# token = cache_spec(llama.config).bytes_per_token("float16")
# room = (80 * 10**9 - 2 * llama.parameters) // token  # tokens
#
# def fitting(block_size, common):
#     manager, users = BlockManager(room // block_size, block_size), 0
#     for length in cycle([512] * 6 + [2048] * 3 + [4096]):
#         prompt = [*range(common), *range(10**6 + 10**4 * users, 10**6 + 10**4 * users + length - common)]
#         seq = manager.start(prompt)
#         try:
#             manager.append(seq, length - manager.lengths[seq])
#         except OutOfBlocksError:
#             return users
#         manager.remember(seq, prompt)
#         users += 1
#
# assert (fitting(16, 0), fitting(16, 256), fitting(256, 256)) == (97, 119, 119)
# ```
#
# </details>

# %% [markdown]
# ## What changed
#
# Your five guesses, once more: 30 % in this draw, 35 % in the long run; 7.5 slots, about half a
# block; 84 %; 16 tokens; slower, by a copy, unless a kernel reads the blocks where they lie.
#
# For Llama 2 7B in fp16 on 80 GB, with lesson 5's mix:
#
# | Cache | Bytes per token | Users |
# |---|---|---|
# | 4,096 reserved for each | 524,288 | 30 |
# | blocks of 16 | 524,288, and half a block for each user | 97 |
# | the same, 256 tokens in common | 524,288, the common ones once | 119 |
#
# And the ledger, whole:

# %%
ledger.show(10)

# %% [markdown]
# A token costs as much as before. What changed is that only tokens are paid for. What this lesson
# does not show: a kernel on a GPU, prompts of real users, and the time that a preempted
# conversation waits.
#
# ## Next
#
# Fewer heads, fewer bits, a window, no waste: lessons 7 to 10 each cut one term, and a server combines
# them. Go back to [lesson 5](05_users.ipynb), choose a model and a card that you know, and count again.

# %% [markdown]
# ## The numbers on this page
#
# Each number with a unit in the text above, beside the value that it stands for. This cell fails if the
# two differ; a test fails if one is missing.

# %% tags=["hide-input"]
found_again = (20 * (250 + 64) - shared_by(20, 250)[1]) / 19  # tokens of each later user
check(
    {
        "512 tokens": mix[0],
        "4,096 slots": slots / len(mix),
        "16 tokens": answers[2][1],
        "64 tokens": len(repeat),
        "1,200 conversations": len(requests),
        "3,072 steps": busy.start,
        "40,960 slots": slots,
        "30 %": 100 * found["maximum"][1],
        "62 %": 100 * found["known"][1],
        "62.5 %": 100 * (1 / 4 + 1) / 2,
        "35 %": 100 * long_run / max(mix),
        "20 %": 100 * 5 / 8 * statistics.mean(mix) / max(mix),
        "128 tokens": in_blocks.__defaults__[0],
        "99.5 %": 100 * found["paged"][1],
        "25.9 conversations": found["paged"][0],
        "2.6 times": found["paged"][0] / found["maximum"][0],
        "40 tokens": 100 * again / generated,
        "100 tokens": From("a round number to count by"),
        "23.3 users": ends[2][0],
        "28.7 users": ends[2][1],
        "27 %": 100 * ends[3][0],
        "43 %": 100 * ends[3][1],
        "99.6 %": 100 * ends[5][1],
        "47 tokens": pieces[0].shape[1],
        "48 tokens": pieces[0].shape[1] + pieces[1].shape[1],
        "8 bytes": torch.long.itemsize,
        "7.5 slots": waste[16],
        "84 %": 100 * savings[512][0],
        "15 blocks": found_again / 16,
        "240 tokens": found_again,
        "256 tokens": len(document),
        "16 blocks": len(document) / 16,
        "32 sequences": NEAR["sequences"],
        "8 users": layers["paged"].batch,
        "1,024 tokens": rows.shape[2],
        "538 MB": sum(weight.nbytes for weight in model.parameters()) / 1e6,
        "13 tokens": len(TIMELINE[0][2]) + len(TIMELINE[1][2]),
        "80 GB": gpu("A100 80GB").memory_bytes_nominal / 1e9,
    }
)
