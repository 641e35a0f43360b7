# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 5 — A step with grouped heads
#
# **Read first:** lesson 7, *Fewer KV heads* (`notebooks/07_gqa.ipynb`), up to, but not including,
# "The bug: repeating before caching".
#
# `step(cache, q, k, v)` is one decode step of one layer. The cache is a dictionary `{"k": K, "v": V}`, with
# K and V `[batch, n_kv_heads, kv_len, head_dim]`.
#
# - `q` `[batch, n_heads, 1, head_dim]` is the query of the newest token. `k` and `v`
#   `[batch, n_kv_heads, 1, head_dim]` are its rows. Store them first, behind the old ones: the token sees
#   itself and all tokens before it.
# - `n_heads` is a multiple of `n_kv_heads`. Query heads 0 to g - 1 read KV head 0, the next g read KV
#   head 1, and so on, where g is `n_heads // n_kv_heads`.
# - The cache stays as narrow as it is. No tensor in it ever holds more than `n_kv_heads` heads. (K and V may
#   be views of tensors with room for more tokens.)
# - Scores are divided by the square root of `head_dim`, whatever that is. A score may be large: with scores
#   in the thousands nothing overflows. The result is `[batch, n_heads, 1, head_dim]`.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


def new_cache(batch, n_kv_heads, head_dim):
    """An empty cache: K and V are [batch, n_kv_heads, 0, head_dim]."""
    shape = (batch, n_kv_heads, 0, head_dim)
    return {"k": torch.empty(shape), "v": torch.empty(shape)}


def draw(seed, *shape):
    """Random numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# %% [raw]
# # BEGIN QUESTION
# name: step

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write this function.
def step(cache, q, k, v):
    """Store k and v, then attend: q [batch, n_heads, 1, head_dim] -> the same shape."""
    # BEGIN SOLUTION
    cache["k"] = torch.cat([cache["k"], k], dim=2)
    cache["v"] = torch.cat([cache["v"], v], dim=2)
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
    weights = (grouped @ cache["k"].transpose(2, 3) / q.shape[3] ** 0.5).softmax(-1)
    return (weights @ cache["v"]).reshape(q.shape)
    # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
def draw(seed, *shape, plain=draw):
    """Other numbers where the teacher has a secret."""
    return plain(seed + SEED, *shape)


def run(step, n_heads, n_kv_heads, n_steps, head_dim=8, batch=2):
    """Steps with random rows: the results, what they should be, and the cache."""
    cache, got, wanted = new_cache(batch, n_kv_heads, head_dim), [], []
    K, V = (draw(seed, batch, n_kv_heads, n_steps, head_dim) for seed in (1, 2))
    for i in range(n_steps):
        q = draw(3 + i, batch, n_heads, 1, head_dim)
        got.append(step(cache, q, K[:, :, i : i + 1].clone(), V[:, :, i : i + 1].clone()))
        out = torch.empty(q.shape)
        for b in range(batch):
            for h in range(n_heads):
                j = h // (n_heads // n_kv_heads)
                scores = K[b, j, : i + 1] @ q[b, h, 0] / head_dim**0.5
                out[b, h, 0] = scores.softmax(0) @ V[b, j, : i + 1]
        wanted.append(out)
    return got, wanted, cache


# %% tags=["check"] points=1 title="A step has the shape of q."
cache = new_cache(2, 2, 8)
y = step(cache, draw(1, 2, 6, 1, 8), draw(2, 2, 2, 1, 8), draw(3, 2, 2, 1, 8))
assert y is not None, "step returned nothing."
assert y.shape == (2, 6, 1, 8), f"The shape is {list(y.shape)}, not that of q, [2, 6, 1, 8]."
assert cache["k"].shape[2] == cache["v"].shape[2] == 1, "One token has passed: one row each."

# %% tags=["check"] points=2 title="Neighbouring query heads share a KV head."
cache, v = new_cache(1, 3, 4), torch.zeros(1, 3, 1, 4)
v[:, 0], v[:, 1], v[:, 2] = 10.0, 20.0, 30.0
y = step(cache, torch.zeros(1, 6, 1, 4), torch.zeros(1, 3, 1, 4), v)
assert y is not None, "step returned nothing."
read = y[0, :, 0, 0].tolist()
assert read == [10, 10, 20, 20, 30, 30], (
    f"KV heads 0, 1, 2 hold 10, 20, 30. Query heads 0 to 5 read {read}, "
    "not [10, 10, 20, 20, 30, 30]."
)


# %% points=2 title="The cache holds n_kv_heads heads and no more."
def test_narrow(step):
    cache = new_cache(2, 2, 4)
    for i in range(5):
        step(cache, draw(i, 2, 8, 1, 4), draw(i + 9, 2, 2, 1, 4), draw(i + 20, 2, 2, 1, 4))
    for name in "kv":
        shape = [*cache[name].shape]
        assert shape == [2, 2, 5, 4], f"{name} is {shape}, not [2, 2, 5, 4]"
    for name, rows in cache.items():
        wide = isinstance(rows, torch.Tensor) and rows.numel() and rows.shape[1] != 2
        assert not wide, f"{name} in the cache is {list(rows.shape)}: not 2 heads"


# %% points=2 title="Several steps give the right numbers."
def test_numbers(step):
    for n_heads, n_kv_heads, n_steps, head_dim in ((6, 3, 5, 8), (8, 2, 20, 16)):
        got, wanted, _ = run(step, n_heads, n_kv_heads, n_steps, head_dim)
        for y, right in zip(got, wanted, strict=True):
            assert torch.allclose(y, right, atol=1e-5), f"{n_heads} heads on {n_kv_heads}"


# %% points=1 title="One KV head for all works, and so does one for each."
def test_extremes(step):
    for n_heads, n_kv_heads, head_dim in ((4, 1, 32), (3, 3, 4)):
        got, wanted, _ = run(step, n_heads, n_kv_heads, 4, head_dim)
        for y, right in zip(got, wanted, strict=True):
            assert torch.allclose(y, right, atol=1e-5), f"{n_heads} heads on {n_kv_heads}"


# %% points=1 title="The first token sees itself, however large its score."
def test_itself(step):
    v = draw(1, 2, 1, 1, 4)
    for size in (0, 40, -40):  # scores near 3200 and -3200
        q, k = draw(2, 2, 3, 1, 4) + abs(size), draw(3, 2, 1, 1, 4) + size
        y = step(new_cache(2, 1, 4), q, k, v.clone())
        assert torch.allclose(y, v.expand(2, 3, 1, 4)), "alone, a token gets its own value"


# %% points=1 title="Old rows stay in front, and count as much as new ones."
def test_old_rows(step):
    cache, n, first = new_cache(1, 1, 4), 40, SEED % 100
    for i in range(n):
        zero = torch.zeros(1, 1, 1, 4)
        y = step(cache, torch.ones(1, 2, 1, 4), zero, zero + first + i)
    mean = torch.full((1, 2, 1, 4), first + (n - 1) / 2)
    assert torch.allclose(y, mean, atol=1e-4), "equal keys: the mean of all values"
    _, _, cache = run(step, 4, 2, 6)
    for name, seed in (("k", 1), ("v", 2)):
        rows = draw(seed, 2, 2, 6, 8)
        assert torch.equal(cache[name], rows), f"{name} does not hold the rows in order"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
