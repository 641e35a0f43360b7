# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 6 — Blocks
#
# **Read first:** lesson 10, *Waste nothing* (`notebooks/10_paged.ipynb`), to the end of
# "Sharing: count the owners".
#
# Many sequences share one pool of blocks. Position $p$ of a sequence lies in the block
# `tables[seq][p // block_size]`, in slot `p % block_size`. `Pool` has room for the books, `owners`, `empty`,
# `tables` and `lengths`; you write the four methods that use them and keep them right. A sequence is known by
# any name, such as `"a"`.
#
# - `append(seq, k, v)`: one token more. `k` and `v` are `[n_kv_heads, head_dim]`. A new name starts a
#   sequence. A block is taken from the end of `self.empty`, by `pop()`, and only when a token needs it. If
#   none is left, raise `MemoryError` and change nothing: a new name does not stay behind either.
# - `gather(seq)`: the rows of its tokens in order, K and V `[n_kv_heads, length, head_dim]`, as copies:
#   whoever changes them does not change the pool.
# - `fork(seq, new)`: a second sequence with the same tokens, in the same blocks. It takes no block. A fork
#   may be forked again; `new` is always a name that is not in use.
# - `free(seq)`: the sequence ends, and its name may be used again. Each of its blocks has one owner fewer,
#   and goes back to `self.empty` when the last owner has gone.
#
# `gather`, `fork` and `free` raise `KeyError` for a sequence that is not there, and change nothing. After
# each call `owners`, `empty`, `tables` and `lengths` are right.
#
# A block with several owners is never written. Before `append` writes to one, it takes a block, copies the
# rows, and lets go of the shared one: *copy on write*. This block, too, may be the one that is not left.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


class Pool:
    """The blocks, who owns them, and which sequence lies where."""

    def __init__(self, num_blocks, block_size, n_kv_heads=2, head_dim=3):
        shape = (num_blocks, n_kv_heads, block_size, head_dim)
        self.block_size = block_size
        self.k, self.v = torch.zeros(shape), torch.zeros(shape)
        self.owners = [0] * num_blocks  # of each block
        self.empty = list(range(num_blocks))  # blocks without an owner
        self.tables = {}  # of each sequence its blocks, in order
        self.lengths = {}  # and how many tokens it has

    @property
    def used(self):
        """Blocks that have an owner."""
        return len(self.owners) - len(self.empty)


def rows(number):
    """The k and v of a token that is known by a number: [2, 3] each."""
    k = torch.arange(6).view(2, 3) + 10.0 * number
    return k, -k


def write(cache, seq, numbers):
    """Append tokens, each known by its number."""
    for number in numbers:
        cache.append(seq, *rows(number))


def read(cache, seq):
    """The numbers of the tokens that a sequence holds."""
    got = cache.gather(seq)
    assert got is not None, "gather returned nothing"
    k, v = got
    assert k.shape == v.shape, f"K is {list(k.shape)} and V {list(v.shape)}"
    assert torch.equal(k, -v), "K and V do not belong together"
    numbers = (k[0, :, 0] / 10).tolist()
    for place, number in enumerate(numbers):
        assert torch.equal(k[:, place], rows(number)[0]), "heads or channels are mixed up"
    return numbers


# %% [raw]
# # BEGIN QUESTION
# name: paged

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write the four methods.
class PagedCache(Pool):
    def append(self, seq, k, v):
        """One token more: k and v are [n_kv_heads, head_dim]."""
        # BEGIN SOLUTION
        place, slot = divmod(self.lengths.get(seq, 0), self.block_size)
        table = self.tables.get(seq, [])
        shared = slot > 0 and self.owners[table[place]] > 1
        if (slot == 0 or shared) and not self.empty:
            raise MemoryError("All blocks are in use.")
        self.tables[seq] = table
        if slot == 0:
            table.append(self.empty.pop())
            self.owners[table[place]] = 1
        elif shared:
            old, new = table[place], self.empty.pop()
            self.k[new], self.v[new] = self.k[old], self.v[old]
            self.owners[old] -= 1
            self.owners[new], table[place] = 1, new
        self.k[table[place], :, slot], self.v[table[place], :, slot] = k, v
        self.lengths[seq] = self.lengths.get(seq, 0) + 1
        # END SOLUTION

    def gather(self, seq):
        """K and V of its tokens, in order: [n_kv_heads, length, head_dim] each."""
        # BEGIN SOLUTION
        table, length = self.tables[seq], self.lengths[seq]
        k, v = (held[table].transpose(0, 1).flatten(1, 2) for held in (self.k, self.v))
        return k[:, :length].clone(), v[:, :length].clone()
        # END SOLUTION

    def fork(self, seq, new):
        """A second sequence with the same tokens, in the same blocks."""
        # BEGIN SOLUTION
        self.tables[new], self.lengths[new] = [*self.tables[seq]], self.lengths[seq]
        for block in self.tables[new]:
            self.owners[block] += 1
        # END SOLUTION

    def free(self, seq):
        """The sequence ends."""
        # BEGIN SOLUTION
        del self.lengths[seq]
        for block in self.tables.pop(seq):
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self.empty.append(block)
        # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
FIRST = SEED % 10_000  # the number of token 0, where the teacher has a secret


def put(cache, seq, numbers):
    write(cache, seq, [FIRST + number for number in numbers])


def keys(cache, seq):
    """The tokens that a sequence holds, by its keys alone."""
    k = cache.gather(seq)[0]
    return [number - FIRST for number in (k[0, :, 0] / 10).tolist()]


def books(cache):
    """All that the pool writes down, as values; it must agree with itself."""
    held = [block for table in cache.tables.values() for block in table]
    owners = [held.count(block) for block in range(len(cache.owners))]
    assert [*cache.owners] == owners, f"owners are {cache.owners}; the tables say {owners}"
    assert len(cache.empty) == len({*cache.empty}), "a block is empty twice"
    free = [block for block, count in enumerate(owners) if count == 0]
    assert sorted(cache.empty) == free, f"without an owner are {free}, not {cache.empty}"
    assert {*cache.tables} == {*cache.lengths}, "tables and lengths name other sequences"
    tables = {seq: [*table] for seq, table in cache.tables.items()}
    return owners, [*cache.empty], tables, {**cache.lengths}, cache.k.tolist(), cache.v.tolist()


def refused(error, call, *given):
    """Whether a call raises this error."""
    try:
        call(*given)
    except error:
        return True
    return False


# %% tags=["check"] points=1 title="Two sequences keep their tokens apart."
cache = PagedCache(num_blocks=6, block_size=2)
for number in range(4):
    write(cache, "a", [number])
    write(cache, "b", [number + 100])
assert read(cache, "a") == [0, 1, 2, 3], f"Sequence a holds {read(cache, 'a')}, not [0, 1, 2, 3]."
assert read(cache, "b") == [100, 101, 102, 103], (
    f"Sequence b holds {read(cache, 'b')}, not [100, 101, 102, 103]."
)

# %% tags=["check"] points=1 title="A fork has the same tokens and takes no block."
cache = PagedCache(num_blocks=6, block_size=4)
write(cache, "a", range(8))
cache.fork("a", "b")
assert read(cache, "b") == [0, 1, 2, 3, 4, 5, 6, 7], (
    f"The fork holds {read(cache, 'b')}, not [0, 1, 2, 3, 4, 5, 6, 7]."
)
assert cache.used == 2, f"8 tokens in blocks of 4: 2 blocks are in use, not {cache.used}."


# %% points=1 title="A block is taken when a token needs it, and not before."
def test_boundary(PagedCache):
    for size in (1, 3, 4):
        cache = PagedCache(10, size)
        for n in range(1, 10):
            following = cache.empty[-1]
            put(cache, "a", [n])
            assert cache.used == -(-n // size), f"{n} tokens in blocks of {size}: {cache.used} used"
            if n % size == 1 or size == 1:
                assert cache.tables["a"][-1] == following, "not the block that pop() gives"


# %% points=1 title="gather gives copies of the sequence's own rows, and of no others."
def test_gather(PagedCache):
    cache = PagedCache(3, 4)
    put(cache, "old", range(50, 58))
    cache.free("old")
    for n, numbers in ((3, [1, 2, 3]), (5, [4, 5])):
        put(cache, "new", numbers)
        k, v = cache.gather("new")
        assert k.shape == v.shape == (2, n, 3), f"{n} tokens: K is {list(k.shape)}"
        k.fill_(-7)
        v.fill_(-7)
        assert keys(cache, "new") == [*range(1, n + 1)], "the tokens differ, or are no copies"
        assert read(cache, "new")[0] == FIRST + 1, "the values differ, or are no copies"


# %% points=1 title="A sequence that ends gives its blocks back, once, and is not there any more."
def test_free(PagedCache):
    cache = PagedCache(5, 4)
    put(cache, "a", range(9))
    put(cache, "b", range(2))
    cache.free("a")
    before = books(cache)
    assert cache.used == 1, f"one block is in use, not {cache.used}"
    for name in ("a", "never"):
        assert refused(KeyError, cache.free, name), f"freeing {name} was not refused"
        assert refused(KeyError, cache.gather, name), f"gathering {name} was not refused"
        assert refused(KeyError, cache.fork, name, "c"), f"forking {name} was not refused"
        assert books(cache) == before, "a refused call changed something"
    put(cache, "a", [30])
    assert cache.lengths["a"] == 1, f"the name is used again, for {cache.lengths['a']} tokens"
    assert keys(cache, "a")[0] == 30, f"the name is used again; a holds {keys(cache, 'a')}"


# %% points=2 title="A shared block stays until its last owner goes."
def test_shared_free(PagedCache):
    cache = PagedCache(4, 2)
    put(cache, "a", range(4))
    cache.fork("a", "b")
    cache.fork("b", "c")
    for name in "ac":
        cache.free(name)
        assert cache.used == 2, f"b still owns 2 blocks; {cache.used} are in use"
        books(cache)
    put(cache, "d", [70, 71])
    assert keys(cache, "b") == [0, 1, 2, 3], "d was written over b"
    cache.free("b")
    assert cache.used == 1, f"only d is left, with 1 block; {cache.used} are in use"
    books(cache)
    cache = PagedCache(1, 4)
    put(cache, "a", range(2))
    cache.fork("a", "b")
    cache.free("a")
    assert not refused(MemoryError, put, cache, "b", [2]), "b alone owns its block: no copy"
    assert keys(cache, "b")[:3] == [0, 1, 2], f"b holds {keys(cache, 'b')}"


# %% points=2 title="A block with several owners is never written."
def test_copy_on_write(PagedCache):
    cache = PagedCache(8, 4)
    put(cache, "a", range(7))
    cache.fork("a", "b")
    put(cache, "b", [60, 61])
    put(cache, "a", [7])
    a, b = keys(cache, "a"), keys(cache, "b")
    assert a == [0, 1, 2, 3, 4, 5, 6, 7], f"a holds {a}"
    assert b == [0, 1, 2, 3, 4, 5, 6, 60, 61], f"b holds {b}"
    assert torch.equal(*(part.abs() for part in cache.gather("b"))), "V was not copied"
    assert cache.used == 4, f"one full block is shared, three are not: 4 used, not {cache.used}"


# %% points=1 title="Without a block left, nothing changes."
def test_full(PagedCache):
    cache = PagedCache(2, 2)
    put(cache, "a", range(4))
    before = books(cache)
    for name in "ab":
        assert refused(MemoryError, put, cache, name, [9]), "no block is left, and no MemoryError"
        assert books(cache) == before, "a refused append changed something"
    cache = PagedCache(2, 2)
    put(cache, "a", range(3))
    cache.fork("a", "b")
    before = books(cache)
    assert refused(MemoryError, put, cache, "b", [9]), "no block for the copy, and no MemoryError"
    assert books(cache) == before, "a refused copy on write changed something"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
