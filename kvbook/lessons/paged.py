"""Lesson 10 — Waste nothing. Generated from notebooks/10_paged.py by `make lessons`: edit that."""

import hashlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from kvbook.lessons.cache import KVCache, check_rows
from kvbook.lessons.decoder import DecoderConfig


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
