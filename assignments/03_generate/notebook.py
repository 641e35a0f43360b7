# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 3 — Generate with a cache
#
# **Read first:** lesson 2, *Reuse the past* (`notebooks/02_cache.ipynb`), up to, but not
# including, "The tokens processed".
#
# The model below hides nothing. You say which tokens it gets, where they stand, and what is past:
#
# `logits, new = model(ids, positions, past)`
#
# - `ids` `[batch, q_len]`: the tokens that are fed. `positions` `[q_len]`: where they stand in the text.
# - `past`: for each layer `(K, V)`, each `[batch, n_heads, kv_len, head_dim]`, of all tokens fed before;
#   `None` if there are none.
# - `logits` `[batch, q_len, vocab_size]`. `new`: for each layer the rows `(k, v)` of the tokens just fed.
#   To append them to `past` is your job.
# - Keys come and go **before** RoPE. The model itself turns all keys, old and new, to their positions.
#
# `generate_cached(model, ids, n)` extends `ids` `[batch, length]` by `n` tokens, each the likeliest one,
# and returns `[batch, length + n]`, in the dtype of `ids`. It feeds the prompt once and then the newest
# token only. The last token that it writes is never fed. No token ends the text early, whatever its number,
# and `n` may be large. `generate_slow` does the same without a past.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


def rotate(x, positions):
    """Turn keys or queries [batch, n_heads, n, head_dim] to their positions [n]: RoPE."""
    half = x.shape[-1] // 2
    angles = positions[:, None].double() / 100 ** (torch.arange(half).double() / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class TinyModel:
    """A decoder with random weights. `fed`, `places` and `pasts` keep a copy of what it was given."""

    def __init__(self, seed=0, n_layers=2, n_heads=2, head_dim=8, vocab_size=60):
        g, dim = torch.Generator().manual_seed(seed), n_heads * head_dim
        self.n_heads, self.fed, self.places, self.pasts = n_heads, [], [], []
        self.embed = torch.randn(vocab_size, dim, generator=g, dtype=torch.double)
        shape = (n_layers, 4, dim, dim)
        self.head = torch.randn(dim, vocab_size, generator=g, dtype=torch.double)
        self.weights = torch.randn(shape, generator=g, dtype=torch.double) / dim**0.5

    def __call__(self, ids, positions, past):
        """ids [batch, q_len], positions [q_len], past per layer (K, V) -> logits, new rows."""
        self.fed.append(ids.shape[1])
        self.places.append(positions.tolist())
        self.pasts.append(past and [(k.clone(), v.clone()) for k, v in past])
        x, new = self.embed[ids], []
        for layer, (wq, wk, wv, wo) in enumerate(self.weights):
            q, k, v = (
                (x @ w).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for w in (wq, wk, wv)
            )
            new.append((k, v))
            keys, values, places = k, v, positions
            if past is not None:
                keys = torch.cat([past[layer][0], k], dim=2)
                values = torch.cat([past[layer][1], v], dim=2)
                places = torch.cat([torch.arange(past[layer][0].shape[2]), positions])
            scores = 2 * rotate(q, positions) @ rotate(keys, places).transpose(2, 3)
            hidden = places[None] > positions[:, None]
            weights = (scores / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
            x = x / 2 + (weights @ values).transpose(1, 2).flatten(2) @ wo
            x = x / x.square().mean(-1, keepdim=True).sqrt()
        return x @ self.head, new


def generate_slow(model, ids, n):
    """Without a past: everything is fed again for every token."""
    for _ in range(n):
        logits, _ = model(ids, torch.arange(ids.shape[1]), None)
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=1)
    return ids


# %% [raw]
# # BEGIN QUESTION
# name: generate_cached

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write this function.
def generate_cached(model, ids, n):
    """Extend ids [batch, length] by n tokens: [batch, length + n]."""
    # BEGIN SOLUTION
    fed, past, start = ids, None, 0
    for _ in range(n):
        positions = torch.arange(start, start + fed.shape[1])
        logits, new = model(fed, positions, past)
        if past is not None:
            pairs = [zip(old, rows, strict=True) for old, rows in zip(past, new, strict=True)]
            new = [tuple(torch.cat(both, dim=2) for both in pair) for pair in pairs]
        past, start = new, start + fed.shape[1]
        fed = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, fed], dim=1)
    return ids
    # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
class TinyModel(TinyModel):
    """Other weights where the teacher has a secret."""

    def __init__(self, seed=0, **shape):
        super().__init__(seed + SEED, **shape)


# %% tags=["check"] points=1 title="The prompt is kept, and n tokens come after it."
prompt = torch.tensor([[7, 3, 20, 41, 5]])
story = generate_cached(TinyModel(), prompt, 4)
assert story is not None, "generate_cached returned nothing."
assert story.shape == (1, 9), f"5 tokens and 4 more: the shape is {list(story.shape)}, not [1, 9]."
assert torch.equal(story[:, :5], prompt), "The text no longer begins with the prompt."

# %% tags=["check"] points=2 title="The text is the one that the slow way writes."
prompt = torch.tensor([[7, 3, 20, 41, 5]])
slow, fast = generate_slow(TinyModel(), prompt, 12), generate_cached(TinyModel(), prompt, 12)
assert fast is not None, "generate_cached returned nothing."
same = (slow[:, : fast.shape[1]] == fast[:, : slow.shape[1]]).all(0).int().cumprod(0).sum()
assert torch.equal(slow, fast), (
    f"The texts agree in the first {same} of {slow.shape[1]} tokens; 5 are the prompt."
)


# %% points=2 title="The prompt is fed once, then one token at a time, and never the last one."
def test_fed(generate_cached):
    model = TinyModel(1)
    story = generate_cached(model, torch.tensor([[1, 2, 3, 4], [9, 8, 7, 6]]), 5)
    assert story.shape[1] >= 9, "too few tokens were written"
    assert model.fed == [4, 1, 1, 1, 1], f"the passes got {model.fed} tokens"


# %% points=2 title="Longer texts, batches and deeper models agree, too."
def test_same_text(generate_cached):
    for seed, shape, n in ((2, (3, 4), 9), (3, (2, 11), 20), (4, (1, 1), 15)):
        prompt = torch.randint(60, shape, generator=torch.Generator().manual_seed(seed))
        model = TinyModel(seed, n_layers=seed, n_heads=3, head_dim=6)
        got = generate_cached(model, prompt, n)
        assert torch.equal(got, generate_slow(model, prompt, n)), f"the texts differ with n = {n}"


# %% points=1 title="Positions go on where the last pass ended."
def test_positions(generate_cached):
    model = TinyModel(5)
    generate_cached(model, torch.tensor([[1, 2, 3]]), 4)
    assert len(model.places) >= 4, "too few passes"
    assert model.places[:4] == [[0, 1, 2], [3], [4], [5]], f"they were {model.places}"


# %% points=1 title="There are n new tokens, whatever n and whatever they are."
def test_count(generate_cached):
    model, prompt = TinyModel(6), torch.tensor([[1, 2, 3]])
    assert torch.equal(generate_cached(model, prompt, 0), prompt), "n = 0 changed the text"
    assert not model.fed, "n = 0 ran the model"
    one = generate_cached(model, prompt, 1)
    assert one.dtype == prompt.dtype, f"the text is {one.dtype}, not {prompt.dtype}"
    assert torch.equal(one[:, :4], generate_slow(TinyModel(6), prompt, 1)), "the first one differs"
    for vocab_size in (1, 2, 3):  # the tokens are 0, or 0 and 1, and so on
        zeros = torch.zeros(1, 2, dtype=torch.long)
        got = generate_cached(TinyModel(8, vocab_size=vocab_size), zeros, 6)
        assert got.shape[1] >= 8, f"a text ended after {got.shape[1] - 2} of 6 tokens"


# %% points=1 title="The past holds each token's keys once, as they were before RoPE."
def test_past(generate_cached):
    model = TinyModel(7)
    story = generate_cached(model, torch.tensor([[1, 2, 3]]), 4)
    _, rows = TinyModel(7)(story[:, :5], torch.arange(5), None)
    past = model.pasts[3]
    assert past is not None, "there was no past in the last pass"
    for (held_k, held_v), (k, v) in zip(past, rows, strict=True):
        assert held_k.shape == k.shape, f"5 tokens had passed, and K is {list(held_k.shape)}"
        assert torch.allclose(held_k, k), "K differs from the keys before RoPE"
        assert torch.allclose(held_v, v), "V differs from the values"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
