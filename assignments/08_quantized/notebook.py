# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment 8 — Codes and a tail
#
# **Read first:** lesson 8, *Fewer bits* (`notebooks/08_quantized.ipynb`), up to, but not including,
# "Coded in blocks".
#
# `QuantizedTail` keeps the keys of one layer in 8 bits. Each channel of a head has a scale of its own for
# every block of `block` tokens. Tokens that fill no block yet wait in the tail, as they are. `Parts` holds
# the three parts; you write the two methods.
#
# - `append(k)`: the keys of `q_len` new tokens, `[n_kv_heads, q_len, head_dim]`, float32. They go to the
#   tail. Each full block in it is then coded, once and for all, and leaves the tail. There may be several.
#   If the caller changes `k` afterwards, nothing here changes. Nothing but the three parts is kept.
# - `self.codes` and `self.scales` are lists with an entry for each block: int8 `[n_kv_heads, block,
#   head_dim]`, and float32 `[n_kv_heads, 1, head_dim]`. `self.tail` is `[n_kv_heads, rest, head_dim]`,
#   where `rest` is less than `block`.
# - A group is one channel of one head in one block. Its scale is its largest absolute value, divided by 127.
#   A code is the value divided by the scale, rounded to the nearest integer. A group of zeros has scale 0 and
#   codes 0, and comes back as zeros.
# - `read()` returns all keys in order, float32 `[n_kv_heads, length, head_dim]`: codes times scales, then the
#   tail.
#
# Change the marked cell only. The two cells after it check your work. A check that prints nothing has
# passed. These two count; more checks, which you do not see, give the rest of the 10 points.
# You need torch and no GPU.

# %% tags=["given"]
import torch


class Parts:
    """Codes and scales of full blocks, and the tail."""

    def __init__(self, block, n_kv_heads, head_dim):
        self.block = block
        self.codes, self.scales = [], []
        self.tail = torch.empty(n_kv_heads, 0, head_dim)


def draw(seed, *shape):
    """Random numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# %% [raw]
# # BEGIN QUESTION
# name: quantized_tail

# %% [raw]
# # BEGIN SOLUTION


# %%
# Write the two methods.
class QuantizedTail(Parts):
    def append(self, k):
        """The keys of q_len new tokens: float32 [n_kv_heads, q_len, head_dim]."""
        # BEGIN SOLUTION
        self.tail = torch.cat([self.tail, k], dim=1)
        while self.tail.shape[1] >= self.block:
            x, self.tail = self.tail[:, : self.block], self.tail[:, self.block :].clone()
            scale = x.abs().amax(1, keepdim=True) / 127
            codes = (x / torch.where(scale > 0, scale, 1)).round()
            self.codes.append(codes.clamp(-127, 127).to(torch.int8))
            self.scales.append(scale)
        # END SOLUTION

    def read(self):
        """All keys, in order: float32 [n_kv_heads, length, head_dim]."""
        # BEGIN SOLUTION
        pairs = zip(self.codes, self.scales, strict=True)
        return torch.cat([*(codes * scale for codes, scale in pairs), self.tail], dim=1)
        # END SOLUTION


# %% [raw]
# # END SOLUTION

# %% [raw]
# # BEGIN TESTS


# %% tags=["secret"]
def draw(seed, *shape, plain=draw):
    """Other numbers where the teacher has a secret."""
    return plain(seed + SEED, *shape)


def scales_of(k, block):
    """What the scales should be: one [n_kv_heads, 1, head_dim] for each full block."""
    full = k.shape[1] // block * block
    return [part.abs().amax(1, keepdim=True) / 127 for part in k[:, :full].split(block, dim=1)]


def compare(cache, k):
    """Codes and scales of the full blocks, each to the nearest integer, and what read makes of them."""
    block, scales = cache.block, scales_of(k, cache.block)
    assert len(cache.codes) == len(cache.scales) == len(scales), f"not {len(scales)} blocks"
    for i, scale in enumerate(scales):
        x, codes = k[:, i * block : (i + 1) * block], cache.codes[i]
        assert codes.dtype == torch.int8, f"the codes of block {i} are {codes.dtype}"
        assert codes.shape == x.shape, f"the codes are {list(codes.shape)}, not {list(x.shape)}"
        kept = cache.scales[i]
        assert kept.shape == scale.shape, f"scales are {list(kept.shape)}, not {list(scale.shape)}"
        assert torch.allclose(kept, scale, rtol=1e-4, atol=0), f"a scale of block {i} is wrong"
        error = (codes - x / scale).abs()
        assert (error <= 0.501).all(), f"a code of block {i} is not the nearest integer"
    wanted = [codes * scale for codes, scale in zip(cache.codes, scales, strict=True)]
    wanted = torch.cat([*wanted, k[:, len(scales) * block :]], dim=1)
    got = cache.read()
    assert got.shape == k.shape, f"the shape is {list(got.shape)}, not {list(k.shape)}"
    assert torch.allclose(got, wanted, rtol=1e-4, atol=0), "read differs from codes times scales"


# %% tags=["check"] points=1 title="What fills no block comes back as it was."
cache, k = QuantizedTail(block=4, n_kv_heads=2, head_dim=3), draw(1, 2, 3, 3)
cache.append(k[:, :2])
cache.append(k[:, 2:])
assert len(cache.codes) == 0, "3 tokens fill no block of 4."
assert cache.read() is not None, "read returned nothing."
assert torch.equal(cache.read(), k), "The tail must come back exactly."

# %% tags=["check"] points=1 title="A full block is coded, and the rest waits in the tail."
cache, k = QuantizedTail(block=4, n_kv_heads=2, head_dim=3), draw(2, 2, 6, 3)
for i in range(6):
    cache.append(k[:, i : i + 1])
assert len(cache.codes) == 1, f"6 tokens fill one block of 4, not {len(cache.codes)}."
assert cache.codes[0].dtype == torch.int8, f"Codes are int8, not {cache.codes[0].dtype}."
assert cache.tail.shape == (2, 2, 3), f"2 tokens wait: the tail is {list(cache.tail.shape)}."
assert cache.read().shape == k.shape, f"read gives {list(cache.read().shape)}, not [2, 6, 3]."


# %% points=1 title="Each channel of each head has its own scale."
def test_axis(QuantizedTail):
    k = draw(3, 2, 4, 5)
    k[:, :, 2] *= 1000
    k[1] *= 50
    cache = QuantizedTail(4, 2, 5)
    cache.append(k)
    got = cache.read()
    assert got.shape == k.shape, f"the shape is {list(got.shape)}, not {list(k.shape)}"
    error = ((got - k) / scales_of(k, 4)[0]).abs().max()
    assert error < 2, f"one large group spoils the others: an error of {error:.1f} scales"
    assert not torch.equal(got, k), "nothing was coded"


# %% points=2 title="Codes are rounded, with the scale of their own block."
def test_codes(QuantizedTail):
    for block, sizes in ((4, (1, 30, 0.1)), (5, (0.1, 1, 30))):
        k = draw(8, 3, 3 * block + 2, 2)
        for i, size in enumerate(sizes):
            k[:, i * block : (i + 1) * block] *= size
        at_once, in_pieces = QuantizedTail(block, 3, 2), QuantizedTail(block, 3, 2)
        at_once.append(k)
        compare(at_once, k)
        for start in range(0, k.shape[1], 3):
            in_pieces.append(k[:, start : start + 3])
        compare(in_pieces, k)


# %% points=1 title="Zeros come back as zeros, and nothing is divided by 0."
def test_zeros(QuantizedTail):
    class NaNToInteger(torch.overrides.TorchFunctionMode):
        """Refuses NaN as a code: what int8 makes of it differs between machines."""

        def __torch_function__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            made = [x for x in (out, *args) if isinstance(x, torch.Tensor)]
            if any(x.dtype == torch.int8 for x in made[:2]):
                floats = [x for x in made if x.is_floating_point()]
                assert not any(x.isnan().any() for x in floats), "0 / 0 became a code"
            return out

    k = draw(4, 2, 4, 3)
    k[0], k[:, :, 1] = 0, 0
    cache = QuantizedTail(4, 2, 3)
    with NaNToInteger():
        cache.append(k)
    got = cache.read()
    assert not got.isnan().any(), "a group of zeros became NaN"
    assert (got[k == 0] == 0).all(), "zeros did not stay zeros"
    scales = scales_of(k, 4)[0]
    assert cache.scales[0].min() == 0, "the scale of a group of zeros is not 0"
    assert got[(k != 0) & (k.abs() >= scales)].all(), "other values became zeros"


# %% points=1 title="The largest value keeps its sign and size."
def test_extremes(QuantizedTail):
    large = 3.0 + SEED % 1000
    k = torch.tensor([1.0, -1.0, large, -large]).view(1, 4, 1).repeat(1, 1, 2)
    k[:, :, 1] *= -1
    cache = QuantizedTail(4, 1, 2)
    cache.append(k)
    error = (cache.read() - k).abs().max()
    assert error < large / 60, f"±{large:.0f} is off by {error:.3f}"


# %% points=1 title="Scales are float32, and large or small values fit."
def test_scales(QuantizedTail):
    for size in (1e7, 1.0, 1e-7):
        k = draw(5, 2, 4, 3) * size
        cache = QuantizedTail(4, 2, 3)
        cache.append(k)
        kinds = {scale.dtype for scale in cache.scales}
        assert kinds == {torch.float32}, f"the scales are {kinds or 'not there'}"
        found, largest = cache.read().abs().max(), k.abs().max()
        assert torch.allclose(found, largest, rtol=1e-5, atol=0), (
            f"values near {size} come back wrong"
        )


# %% points=1 title="Nothing is kept but codes, scales and a short tail."
def test_flush(QuantizedTail):
    k = draw(6, 2, 14, 3)
    cache, given = QuantizedTail(4, 2, 3), k.clone()
    before = {*vars(cache)}
    cache.append(given)
    assert len(cache.codes) == len(cache.scales) == 3, (
        f"{len(cache.codes)} blocks were coded, not 3"
    )
    assert cache.tail.shape[1] == 2, f"{cache.tail.shape[1]} tokens are in the tail, not 2"
    nbytes = cache.tail.untyped_storage().nbytes()
    assert nbytes <= 2 * 2 * 3 * 4, f"the tail of 2 tokens keeps {nbytes} bytes alive"
    assert {*vars(cache)} == before, f"it also keeps {sorted({*vars(cache)} - before)}"
    given.fill_(-1)
    assert torch.equal(cache.read()[:, 12:], k[:, 12:]), (
        "the caller changed k, and the tail with it"
    )
    cache, given = QuantizedTail(4, 2, 3), k[:, :3].clone()
    cache.append(given)
    given.fill_(-1)
    assert torch.equal(cache.read(), k[:, :3]), "the caller changed k, and the first tail with it"


# %% points=1 title="What is coded is not coded again."
def test_once(QuantizedTail):
    k = draw(7, 2, 12, 3)
    k[:, 8:] *= 50
    cache = QuantizedTail(4, 2, 3)
    cache.append(k[:, :4])
    before = cache.read()
    for i in range(4, 12):
        cache.append(k[:, i : i + 1])
    assert before.shape[1] == 4, f"4 tokens: read gives {before.shape[1]}"
    assert torch.equal(cache.read()[:, :4], before), "later tokens changed the first block"


# %% [raw]
# # END TESTS

# %% [raw]
# # END QUESTION
