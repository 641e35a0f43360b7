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
# **Read first:** lesson 10, *Waste nothing* (`notebooks/10_paged.ipynb`), up to "Sharing: count the
# owners".
#
# Many sequences share one pool of blocks. Position $p$ of a sequence lies in the block
# `tables[seq][p // block_size]`, in slot `p % block_size`. `Pool` keeps the books; you write the four
# methods that use them. A sequence is known by any name, such as `"a"`.
#
# - `append(seq, k, v)`: one token more. `k` and `v` are `[n_kv_heads, head_dim]`. A new name starts a
#   sequence. A block is taken from `self.empty`, by `pop()`, only when a token needs it. If none is left,
#   raise `MemoryError` and change nothing.
# - `gather(seq)`: the rows of its tokens in order, K and V `[n_kv_heads, length, head_dim]`, as copies.
# - `fork(seq, new)`: a second sequence with the same tokens, in the same blocks. It takes no block.
# - `free(seq)`: the sequence ends. Each of its blocks has one owner fewer, and goes back to `self.empty`
#   when the last owner has gone. A sequence that is not there raises `KeyError`.
#
# A block with two owners is never written. Before `append` writes to one, it takes a block, copies the
# rows, and lets go of the shared one: *copy on write*.
#
# Change the marked cell only. The cells after it check your work; more checks, which you do not see,
# give the points. 10 points in all. You need torch and no GPU.

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
    k, v = cache.gather(seq)
    assert k.shape == v.shape, f"K is {list(k.shape)} and V {list(v.shape)}"
    assert torch.equal(k, -v), "K and V do not belong together"
    return (k[0, :, 0] / 10).tolist()


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

# %% tags=["check"] points=1 title="Two sequences keep their tokens apart."
cache = PagedCache(num_blocks=6, block_size=2)
for number in range(4):
    write(cache, "a", [number])
    write(cache, "b", [number + 100])
assert read(cache, "a") == [0, 1, 2, 3], f"Sequence a holds {read(cache, 'a')}, not [0, 1, 2, 3]."
assert read(cache, "b") == [100, 101, 102, 103], f"Sequence b holds {read(cache, 'b')}."

# %% tags=["check"] points=1 title="A fork has the same tokens and takes no block."
cache = PagedCache(num_blocks=6, block_size=4)
write(cache, "a", range(8))
cache.fork("a", "b")
assert read(cache, "b") == [0, 1, 2, 3, 4, 5, 6, 7], f"The fork holds {read(cache, 'b')}."
assert cache.used == 2, f"8 tokens in blocks of 4: 2 blocks are in use, not {cache.used}."


# %% points=1 title="A block is taken when a token needs it, and not before."
def test_boundary(PagedCache):
    for size in (1, 3, 4):
        cache = PagedCache(10, size)
        for n in range(1, 10):
            write(cache, "a", [n])
            assert cache.used == -(-n // size), f"{n} tokens in blocks of {size}: {cache.used} used"


# %% points=1 title="Rows that an earlier sequence left do not come back."
def test_stale(PagedCache):
    cache = PagedCache(3, 4)
    write(cache, "old", range(50, 58))
    cache.free("old")
    write(cache, "new", [1, 2, 3, 4, 5])
    k, v = cache.gather("new")
    assert k.shape == v.shape == (2, 5, 3), f"5 tokens: K is {list(k.shape)}"
    assert read(cache, "new") == [1, 2, 3, 4, 5], "the tokens differ"


# %% points=1 title="A sequence that ends gives its blocks back, once."
def test_free(PagedCache):
    cache = PagedCache(5, 4)
    write(cache, "a", range(9))
    write(cache, "b", range(2))
    cache.free("a")
    assert cache.used == 1, f"one block is in use, not {cache.used}"
    for name in ("a", "never"):
        try:
            cache.free(name)
        except KeyError:
            continue
        raise AssertionError(f"freeing {name} was not refused")
    assert sorted(cache.empty) == sorted({*cache.empty}), "a block is empty twice"


# %% points=2 title="A shared block stays until its last owner goes."
def test_shared_free(PagedCache):
    cache = PagedCache(3, 2)
    write(cache, "a", range(4))
    cache.fork("a", "b")
    cache.free("a")
    assert cache.used == 2, f"b still owns 2 blocks; {cache.used} are in use"
    write(cache, "c", [70, 71])
    assert cache.gather("b")[0][0, :, 0].tolist() == [0, 10, 20, 30], "c was written over b"
    cache.free("b")
    assert cache.used == 1, f"only c is left, with 1 block; {cache.used} are in use"


# %% points=2 title="A block with two owners is never written."
def test_copy_on_write(PagedCache):
    cache = PagedCache(8, 4)
    write(cache, "a", range(6))
    cache.fork("a", "b")
    write(cache, "b", [60, 61])
    write(cache, "a", [6])
    held = [cache.gather(seq)[0][0, :, 0].tolist() for seq in "ab"]
    assert held[0] == [0, 10, 20, 30, 40, 50, 60], f"a holds {held[0]}"
    assert held[1] == [0, 10, 20, 30, 40, 50, 600, 610], f"b holds {held[1]}"
    assert torch.equal(*(part.abs() for part in cache.gather("b"))), "V was not copied"
    assert cache.used == 3, f"the full block is shared, two are not: 3 in use, not {cache.used}"


# %% points=1 title="Without a block left, nothing changes."
def test_full(PagedCache):
    cache = PagedCache(2, 2)
    write(cache, "a", range(4))
    for name in ("a", "b"):
        try:
            write(cache, name, [9])
        except MemoryError:
            continue
        raise AssertionError("there is no block left, and no MemoryError")
    assert cache.lengths == {"a": 4}, f"the lengths are {cache.lengths}"
    assert read(cache, "a") == [0, 1, 2, 3], "the rows changed"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
