# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 1 — Append to the cache
#
# **Read first:** lesson 2, *Reuse the past* (`notebooks/02_cache.ipynb`), up to, but not
# including, "The growing cache".
#
# In each step a layer makes a key and a value for every new token and every KV head. The cache keeps
# them, in the order of the text. You write the one function that puts them there.
#
# A cache is a dictionary here, `{"k": K, "v": V}`. K and V have the shape
# `[batch, n_kv_heads, kv_len, head_dim]`. `new_cache` makes an empty one, with `kv_len` 0.
#
# `append_kv(cache, k, v)` gets the rows of `q_len` new tokens, `[batch, n_kv_heads, q_len, head_dim]`.
#
# - It stores them behind the rows that are there, keys in K and values in V.
# - The cache keeps its own dtype, whatever dtype the new rows have.
# - The cache owns its rows. If the caller changes `k` or `v` afterwards, the cache does not change.
# - It returns all rows, old and new: `cache["k"], cache["v"]`.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


def new_cache(batch, n_kv_heads, head_dim, dtype=torch.float32):
    """An empty cache: K and V are [batch, n_kv_heads, 0, head_dim]."""
    shape = (batch, n_kv_heads, 0, head_dim)
    return {"k": torch.empty(shape, dtype=dtype), "v": torch.empty(shape, dtype=dtype)}


def numbered(first, batch, n_kv_heads, q_len, head_dim):
    """Rows in which each value is another number, from `first` on."""
    n = batch * n_kv_heads * q_len * head_dim
    return torch.arange(first, first + n).float().view(batch, n_kv_heads, q_len, head_dim)


# %% [raw]
# # BEGIN QUESTION
# name: append_kv

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write this function.
def append_kv(cache, k, v):
    """Store k and v [batch, n_kv_heads, q_len, head_dim]; return all rows held, K and V."""
    # BEGIN SOLUTION
    for name, new in (("k", k), ("v", v)):
        rows = cache[name]
        cache[name] = torch.cat([rows, new.to(rows.dtype)], dim=2)
    return cache["k"], cache["v"]
    # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
def numbered(first, *shape, plain=numbered):
    """Other numbers where the teacher has a secret."""
    return plain(first + SEED % 10_000, *shape)


# %% tags=["check"] points=1 title="The first rows are stored as they come."
cache = new_cache(2, 3, 4)
k, v = numbered(0, 2, 3, 5, 4), numbered(1000, 2, 3, 5, 4)
append_kv(cache, k, v)
assert cache["k"].shape == (2, 3, 5, 4), f"K is {list(cache['k'].shape)}, not [2, 3, 5, 4]."
assert sorted(cache["k"].flatten().tolist()) == sorted(k.flatten().tolist()), (
    "K does not hold the rows of k: it has the right shape and other numbers."
)

# %% tags=["check"] points=2 title="New rows come after the old ones, along the tokens."
cache = new_cache(2, 3, 4)
first, second = numbered(0, 2, 3, 5, 4), numbered(500, 2, 3, 2, 4)
append_kv(cache, first, first + 1000)
append_kv(cache, second, second + 1000)
assert cache["k"].shape == (2, 3, 7, 4), (
    f"5 tokens and 2 more: K is {list(cache['k'].shape)}, not [2, 3, 7, 4]. "
    "The third axis counts the tokens."
)
assert torch.equal(cache["k"][:, :, :5], first), "The old rows no longer come first."
assert torch.equal(cache["k"][:, :, 5:], second), "The new rows do not come last."
assert torch.equal(cache["v"], torch.cat([first, second], 2) + 1000), (
    "V does not hold the old values and then the new ones."
)


# %% points=1 title="All rows are returned, K first."
def test_returns(append_kv):
    cache, held = new_cache(1, 2, 6), 0
    for q_len in (3, 4, 1):
        k = numbered(100 * held, 1, 2, q_len, 6)
        got, held = append_kv(cache, k, -k), held + q_len
        assert got is not None, "append_kv returned nothing"
        K, V = got
        assert K.shape == V.shape == (1, 2, held, 6), "not all rows were returned"
        assert torch.equal(K, cache["k"]), "K, as held, does not come first"
        assert torch.equal(V, cache["v"]), "V, as held, does not come second"


# %% points=2 title="Keys go to K and values to V."
def test_apart(append_kv):
    cache = new_cache(2, 1, 3)
    k, v = numbered(0, 2, 1, 4, 3), numbered(-500, 2, 1, 4, 3)
    append_kv(cache, k, v)
    assert torch.equal(cache["k"], k), "K does not hold the keys"
    assert torch.equal(cache["v"], v), "V does not hold the values"


# %% points=2 title="The cache keeps its dtype."
def test_dtype(append_kv):
    for kept in (torch.bfloat16, torch.float16, torch.float64):
        cache, new = new_cache(2, 3, 4, kept), numbered(0, 2, 3, 1, 4) / 7
        for _ in range(2):
            append_kv(cache, new, -new)
        for name, rows in cache.items():
            assert rows.numel() >= 24, "the rows were not stored"
            assert rows.dtype == kept, f"a {kept} cache became {rows.dtype}"
            found, wanted = {*rows.abs().flatten().tolist()}, {*new.to(kept).flatten().tolist()}
            assert found == wanted, f"{name} does not hold the rows as {kept} has them"


# %% points=2 title="The cache owns its rows."
def test_owns(append_kv):
    cache = new_cache(1, 2, 3)
    k, v = numbered(0, 1, 2, 1, 3), numbered(50, 1, 2, 1, 3)
    append_kv(cache, k, v)
    assert cache["k"].shape == cache["v"].shape == (1, 2, 1, 3), "the rows were not stored"
    held = cache["k"].clone(), cache["v"].clone()
    k.fill_(-1)
    v.fill_(-1)
    assert torch.equal(cache["k"], held[0]), "the caller changed k, and K changed with it"
    assert torch.equal(cache["v"], held[1]), "the caller changed v, and V changed with it"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
