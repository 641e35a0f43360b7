# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 2 — Attend over the cache
#
# **Read first:** lesson 2, *Reuse the past* (`notebooks/02_cache.ipynb`), to the end of
# "What a cache must do".
#
# The cache holds the keys and values of `kv_len` tokens. The newest `q_len` of them bring queries. They
# may be one token (a decode step), all of them (a prefill), or a chunk in between.
#
# `cached_attention(q, K, V)` gets `q` `[batch, n_heads, q_len, head_dim]` and `K` and `V`
# `[batch, n_heads, kv_len, head_dim]`. The rows of the new tokens are in `K` and `V` already, at the end.
# It returns `[batch, n_heads, q_len, head_dim]`.
#
# - A query at position $p$ sees the keys at positions $j \le p$. The last query sees all keys.
# - A score is the product of query and key, divided by the square root of `head_dim`.
# - The weights of one query sum to 1.
# - Scores may be large: -300 or +300 must still give finite and right numbers, and no future.
#
# `torch.nn.functional.scaled_dot_product_attention` may be used. Find out first where its `is_causal`
# puts the mask when `q_len` and `kv_len` differ.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


def draw(seed, *shape):
    """Random numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# %% [raw]
# # BEGIN QUESTION
# name: cached_attention

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write this function.
def cached_attention(q, K, V):
    """The newest q_len queries over all kv_len rows: [batch, n_heads, q_len, head_dim]."""
    # BEGIN SOLUTION
    q_len, kv_len = q.shape[2], K.shape[2]
    scores = q @ K.transpose(2, 3) / q.shape[3] ** 0.5
    p = torch.arange(kv_len - q_len, kv_len)[:, None]
    seen = torch.arange(kv_len)[None] <= p
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ V
    # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
def draw(seed, *shape, plain=draw):
    """Other numbers where the teacher has a secret."""
    return plain(seed + SEED, *shape)


def expected(q, K, V):
    out = torch.empty_like(q)
    for index in range(q.shape[2]):
        end = K.shape[2] - q.shape[2] + index + 1
        for b in range(q.shape[0]):
            for h in range(q.shape[1]):
                scores = K[b, h, :end].double() @ q[b, h, index].double() / q.shape[3] ** 0.5
                out[b, h, index] = (scores.softmax(0) @ V[b, h, :end].double()).float()
    return out


def compare(got, q, K, V, atol=1e-5):
    assert got.shape == q.shape, f"the shape is {list(got.shape)}, not {list(q.shape)}"
    assert torch.allclose(got, expected(q, K, V), atol=atol), "the numbers differ"


# %% tags=["check"] points=1 title="Where all keys are equal, the result is the mean of the values."
q, K, V = draw(1, 1, 2, 1, 4), torch.ones(1, 2, 3, 4), draw(2, 1, 2, 3, 4)
y = cached_attention(q, K, V)
assert y is not None, "cached_attention returned nothing."
assert y.shape == (1, 2, 1, 4), f"The shape is {list(y.shape)}, not that of q, [1, 2, 1, 4]."
assert torch.allclose(y, V.mean(2, keepdim=True), atol=1e-5), (
    "All keys are equal, so the one query must get the mean of the three values."
)

# %% tags=["check"] points=2 title="A chunk gives what its tokens give one at a time."
q, K, V = draw(3, 2, 3, 3, 8), draw(4, 2, 3, 7, 8), draw(5, 2, 3, 7, 8)
y = cached_attention(q, K, V)
assert y is not None, "cached_attention returned nothing."
for i in range(3):
    alone = cached_attention(q[:, :, i : i + 1], K[:, :, : 5 + i], V[:, :, : 5 + i])
    assert torch.allclose(y[:, :, i : i + 1], alone, atol=1e-5), (
        f"Query {i} of the chunk stands at position {4 + i}. It must see {5 + i} of the 7 keys."
    )


# %% points=1 title="One query over all keys gives the right numbers."
def test_one_query(cached_attention):
    q, K, V = draw(6, 2, 3, 1, 16), draw(7, 2, 3, 9, 16), draw(8, 2, 3, 9, 16)
    compare(cached_attention(q, K, V), q, K, V)


# %% points=1 title="A whole prefill gives the right numbers."
def test_prefill(cached_attention):
    q, K, V = draw(9, 2, 3, 6, 4), draw(10, 2, 3, 6, 4), draw(11, 2, 3, 6, 4)
    compare(cached_attention(q, K, V), q, K, V)


# %% points=2 title="A chunk in the middle of a text gives the right numbers."
def test_chunk(cached_attention):
    for q_len, kv_len, d in ((2, 5, 8), (4, 9, 8), (5, 6, 32)):
        q, K, V = (draw(q_len + i, 1, 2, n, d) for i, n in enumerate((q_len, kv_len, kv_len)))
        compare(cached_attention(q, K, V), q, K, V)


# %% points=1 title="No query sees the future."
def test_future(cached_attention):
    q, K, V = draw(12, 1, 2, 4, 8), draw(13, 1, 2, 6, 8), draw(14, 1, 2, 6, 8)
    before = cached_attention(q, K, V)
    K[:, :, 4:], V[:, :, 4:] = 3.0, 100.0
    after = cached_attention(q, K, V)
    assert torch.equal(before[:, :, :2], after[:, :, :2]), "the future was seen"


# %% points=1 title="The weights of a query sum to 1."
def test_weights(cached_attention):
    for q_len in (1, 3, 5):
        q, K, V = draw(15, 2, 2, q_len, 4), draw(16, 2, 2, 5, 4), torch.ones(2, 2, 5, 4)
        ones = torch.ones(2, 2, q_len, 4)
        assert torch.allclose(cached_attention(q, K, V), ones, atol=1e-5), "all values are 1"


# %% points=1 title="Large scores of either sign give the right numbers."
def test_large_scores(cached_attention):
    for sign in (1, -1):
        q, K, V = 8 + draw(17, 1, 2, 3, 16) / 10, draw(18, 1, 2, 5, 16) / 10, draw(19, 1, 2, 5, 16)
        K = K + 8 * sign  # all scores are near 256, or all near -256
        compare(cached_attention(q, K, V), q, K, V, atol=1e-3)


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
