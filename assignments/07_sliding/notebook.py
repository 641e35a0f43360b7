# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 7 — A window with sinks
#
# **Read first:** lesson 9, *Windows and sinks* (`notebooks/09_window.ipynb`), up to, but not including,
# "Where each row lies, and what a pass sees".
#
# A `SlidingCache` holds the first `sinks` tokens of a text and the last `window` tokens, however long the
# text becomes. `Slots` gives it room for just so many, `window + sinks`. You write the two methods that
# use it.
#
# - `append(k, v)`: the rows of `q_len` new tokens, 1 or more, `[n_kv_heads, q_len, head_dim]`. A chunk may
#   be longer than the room. Rows are written into `self.k` and `self.v`, which stay the same two tensors, and
#   nowhere else. Nothing but these and `self.length` may change.
# - `read()`: K, V and positions, from what `self.k` and `self.v` hold. K and V are `[n_kv_heads, held,
#   head_dim]`, in the order of the text. `positions` is an int64 tensor `[held]`: where each of those tokens
#   stands in the text. Before the first token `held` is 0.
#
# `window` counts the newest token itself. After `n` tokens, position `p` is held if `p < sinks` or
# `p >= n - window`. In `Slots`, `length` counts the tokens that have passed, and starts at 0.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


class Slots:
    """Room for window + sinks tokens."""

    def __init__(self, window, sinks, n_kv_heads=2, head_dim=3):
        self.window, self.sinks, self.length = window, sinks, 0
        self.k = torch.full((n_kv_heads, window + sinks, head_dim), -1.0)
        self.v = torch.full((n_kv_heads, window + sinks, head_dim), -1.0)


def rows(first, n):
    """k and v of the tokens at positions first to first + n - 1: [2, n, 3] each, all values different."""
    heads, channels = torch.tensor([0.0, 1e4])[:, None, None], torch.tensor([0.0, 0.25, 0.5])
    k = torch.arange(first, first + n).float()[None, :, None] + heads + channels
    return k, -2 - k


def feed(cache, *chunks):
    """Append chunks of so many tokens."""
    for n in chunks:
        cache.append(*rows(cache.length, n))


# %% [raw]
# # BEGIN QUESTION
# name: sliding

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write the two methods.
class SlidingCache(Slots):
    def append(self, k, v):
        """The rows of q_len new tokens: [n_kv_heads, q_len, head_dim] each."""
        # BEGIN SOLUTION
        for i in range(k.shape[1]):
            slot = self.slot(self.length)
            self.k[:, slot], self.v[:, slot] = k[:, i], v[:, i]
            self.length += 1
        # END SOLUTION

    def read(self):
        """K, V [n_kv_heads, held, head_dim] and positions [held], in the order of the text."""
        # BEGIN SOLUTION
        oldest = max(self.sinks, self.length - self.window)
        held = [*range(min(self.sinks, self.length)), *range(oldest, self.length)]
        slots = [self.slot(p) for p in held]
        return self.k[:, slots], self.v[:, slots], torch.tensor(held, dtype=torch.long)

    def slot(self, p):
        """Sinks keep their slots; the others go round behind them."""
        return p if p < self.sinks else self.sinks + (p - self.sinks) % self.window
        # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
FIRST = SEED % 5000  # the number of the token at position 0, where the teacher has a secret


def pour(cache, *chunks):
    """Append chunks of so many tokens, each known by its position and the secret."""
    for n in chunks:
        cache.append(*rows(FIRST + cache.length, n))


def should_hold(cache, n):
    """The positions that are held after n tokens."""
    return [p for p in range(n) if p < cache.sinks or p >= n - cache.window]


def compare(cache, n):
    """Check all that is held after n tokens, each head and each channel."""
    held, (all_k, all_v) = should_hold(cache, n), rows(FIRST, n)
    k, v, _ = cache.read()
    first = (k[0, :, 0] - FIRST).tolist()
    assert first == held, f"after {n} tokens K holds {first}, not {held}"
    assert torch.equal(k, all_k[:, held]), "heads or channels of K are mixed up"
    assert torch.equal(v, all_v[:, held]), "V differs from what K stands for"


# %% tags=["check"] points=1 title="A short text is held whole, in order."
cache = SlidingCache(window=4, sinks=0)
feed(cache, 3)
got = cache.read()
assert got is not None, "read returned nothing."
k, v, positions = got
assert k.shape == v.shape == (2, 3, 3), f"3 tokens: K is {list(k.shape)}, not [2, 3, 3]."
assert k[0, :, 0].tolist() == [0, 1, 2], f"K holds {k[0, :, 0].tolist()}, not [0, 1, 2]."
assert positions.tolist() == [0, 1, 2], f"The positions are {positions.tolist()}, not [0, 1, 2]."

# %% tags=["check"] points=1 title="A long text: the sinks and the last tokens are held."
cache = SlidingCache(window=4, sinks=2)
feed(cache, *[1] * 11)
got = cache.read()
assert got is not None, "read returned nothing."
held = got[0][0, :, 0].tolist()
assert held == [0, 1, 7, 8, 9, 10], (
    f"Window 4, 2 sinks, 11 tokens: K holds {held}, not [0, 1, 7, 8, 9, 10]."
)


# %% points=1 title="The sinks are never lost."
def test_sinks(SlidingCache):
    for sinks in (1, 3):
        cache = SlidingCache(3, sinks)
        pour(cache, *[1] * 20)
        k, v, _ = cache.read()
        wanted = [FIRST + 1e4 + 0.5 + p for p in range(sinks)]
        assert k[1, :sinks, 2].tolist() == wanted, f"the first {sinks} keys are not there"
        assert torch.equal(v[:, :sinks], -2 - k[:, :sinks]), "their values are not there"


# %% points=1 title="The window holds as many tokens as it says, and none before the first."
def test_window(SlidingCache):
    for window in (1, 5):
        cache = SlidingCache(window, 0)
        k, v, positions = cache.read()
        assert k.shape == v.shape == (2, 0, 3), f"before the first token K is {list(k.shape)}"
        assert not positions.is_floating_point(), f"without a token they are {positions.dtype}"
        pour(cache, *[1] * 12)
        k, v, _ = cache.read()
        assert k.shape[1] == v.shape[1] == window, f"window {window}: {k.shape[1]} tokens are held"
        assert k[0, -1, 0] == FIRST + 11, "the newest token is not the last one"


# %% points=2 title="After a short prefill each step is right."
def test_short_prefill(SlidingCache):
    for prefill, sinks in ((3, 2), (5, 2), (1, 3)):
        cache = SlidingCache(4, sinks)
        pour(cache, prefill)
        compare(cache, prefill)
        for n in range(prefill + 1, 20):
            pour(cache, 1)
            compare(cache, n)


# %% points=1 title="A chunk of any length is right."
def test_chunks(SlidingCache):
    for window, sinks in ((4, 2), (3, 0), (1, 1)):
        for first in (0, 5):
            for chunk in (1, 2, 3, 4, 6, 9):
                cache = SlidingCache(window, sinks)
                for n in (first, chunk, 2):
                    if n:
                        pour(cache, n)
                        compare(cache, cache.length)
                assert cache.length == first + chunk + 2, f"length is {cache.length}"


# %% points=2 title="Positions are those of the text, not those of the slots."
def test_positions(SlidingCache):
    cache = SlidingCache(4, 1)
    for n in (2, *[1] * 7, 7):
        pour(cache, n)
        positions = cache.read()[2]
        assert positions.dtype == torch.long, f"they are {positions.dtype}"
        wanted = should_hold(cache, cache.length)
        assert positions.tolist() == wanted, f"they are {positions.tolist()}, not {wanted}"


# %% points=1 title="The memory does not grow."
def test_memory(SlidingCache):
    cache = SlidingCache(4, 2)
    before = {*vars(cache)}
    places = cache.k.data_ptr(), cache.v.data_ptr()
    pour(cache, 3, *[1] * 6, 13, 4)
    assert cache.length == 26, f"26 tokens have passed; length is {cache.length}"
    assert {*vars(cache)} == before, f"it also keeps {sorted({*vars(cache)} - before)}"
    assert (cache.k.data_ptr(), cache.v.data_ptr()) == places, "k and v are other tensors now"
    assert cache.k.untyped_storage().nbytes() == 6 * 2 * 3 * 4, "k has grown"
    cache.k.zero_()
    cache.v.zero_()
    k, v, _ = cache.read()
    assert not k.any(), "read gives keys that are not in self.k"
    assert not v.any(), "read gives values that are not in self.v"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
