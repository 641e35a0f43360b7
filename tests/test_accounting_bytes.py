"""From layers to bytes to users: dtypes, policies, tensor parallelism, and exact division."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbook.accounting import CacheSpec, ConfigError, LayerCache, cache_spec, fit_users
from kvbook.accounting.spec import POLICIES
from kvbook.accounting.tables import table

LLAMA_2_7B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_size": 4096,
}
DTYPES = list(table("dtypes")["dtypes"])
GB, GIB = 10**9, 2**30


def one(n_kv_heads: int, k_dim: int, v_dim: int, **more) -> CacheSpec:
    return CacheSpec(
        "test", (LayerCache(more.pop("kind", "full"), n_kv_heads, k_dim, v_dim, **more),)
    )


@pytest.mark.parametrize(
    ("cache_dtype", "expected"),
    [
        ("float32", 5 * 3 * (64 + 96) * 4),
        ("float16", 5 * 3 * (64 + 96) * 2),
        ("bfloat16", 5 * 3 * (64 + 96) * 2),
        ("fp8", 5 * 3 * (64 + 96)),
        ("q8_0", 5 * 3 * (2 + 3) * 34),
        ("q4_0", 5 * 3 * (2 + 3) * 18),
        ("int8", 5 * 3 * (64 + 2 + 96 + 2)),
        ("int4", 5 * 3 * (2 + 3) * 20),
    ],
)
def test_a_value_takes_what_its_precision_says(cache_dtype, expected):
    assert one(3, 64, 96).nbytes(5, cache_dtype=cache_dtype) == expected


def test_a_part_of_a_block_takes_its_share_or_a_whole_block():
    # 3 heads × (40 + 40) values = 240 = 7.5 blocks a token; K and V of one head have 2 rows of 40
    spec = one(3, 40, 40)
    assert spec.nbytes(1, cache_dtype="q8_0") == 255  # 240 × 34 / 32
    assert spec.nbytes(1, cache_dtype="q4_0") == 135  # 240 × 18 / 32
    assert spec.nbytes(1, cache_dtype="int8") == 240 + 6 * 2
    assert spec.nbytes(1, cache_dtype="int4") == 6 * 2 * 20  # each row fills two blocks
    assert one(1, 5, 4).nbytes(1, cache_dtype="q8_0") == 10  # 9.5625, up
    assert one(1, 5, 4).nbytes(2, cache_dtype="q8_0") == 20  # 19.125, up once for the sequence
    assert one(1, 5, 4).nbytes(2, batch=2, cache_dtype="q8_0") == 40


def test_a_latent_is_one_row_without_a_value():
    spec = one(1, 576, 0, kind="latent")
    assert spec.nbytes(7) == 7 * 576 * 2
    assert spec.nbytes(7, cache_dtype="int8") == 7 * (576 + 2)
    assert spec.nbytes(7, tensor_parallel=8) == 7 * 576 * 2


MIXED = CacheSpec(
    "mixed",
    (
        LayerCache("full", 6, 20, 12),
        LayerCache("sliding", 4, 28, 28, window=100),
        LayerCache("chunked", 2, 16, 16, window=30),
        LayerCache("cross", 6, 20, 20, tokens=50),
        LayerCache("shared"),
        LayerCache("state"),
    ),
)


def test_each_kind_of_layer_holds_its_tokens():
    tokens = [64, 64, 30, 50, 0, 0]
    assert [layer.tokens_held(64, "exact", 16) for layer in MIXED.layers] == tokens
    tokens = [300, 100, 30, 50, 0, 0]
    assert [layer.tokens_held(300, "exact", 16) for layer in MIXED.layers] == tokens
    tokens = [300, 300, 300, 50, 0, 0]
    assert [layer.tokens_held(300, "all_layers_full", 16) for layer in MIXED.layers] == tokens
    tokens = [304, 112, 32, 64, 0, 0]
    assert [layer.tokens_held(300, "paged", 16) for layer in MIXED.layers] == tokens


def test_a_token_costs_less_beyond_the_windows():
    assert MIXED.windows == (30, 100)
    assert MIXED.bytes_per_token() == 2 * (6 * 32 + 4 * 56 + 2 * 32)
    assert MIXED.bytes_per_token(beyond=True) == 2 * 6 * 32
    for start, beyond in ((10, False), (500, True)):
        step = MIXED.nbytes(start + 1) - MIXED.nbytes(start)
        assert step == MIXED.bytes_per_token(beyond=beyond)


def test_heads_divide_then_replicate():
    spec = one(4, 10, 10)
    sizes = {parallel: spec.nbytes(1, tensor_parallel=parallel) for parallel in (1, 2, 4, 8, 64)}
    assert sizes == {1: 160, 2: 80, 4: 40, 8: 40, 64: 40}
    with pytest.raises(ConfigError, match="tensor_parallel is 3, which does not divide 4 KV heads"):
        spec.nbytes(1, tensor_parallel=3)


layers = st.builds(
    LayerCache,
    kind=st.just("full"),
    n_kv_heads=st.sampled_from([1, 2, 4, 8]),
    k_dim=st.integers(1, 300),
    v_dim=st.integers(0, 300),
    window=st.none() | st.integers(1, 200),
)
specs = st.lists(layers, min_size=1, max_size=4).map(lambda some: CacheSpec("any", tuple(some)))
dtypes = st.sampled_from(DTYPES)
contexts = st.integers(0, 1000)


@given(specs, contexts, contexts, dtypes, st.sampled_from(POLICIES))
def test_more_context_never_takes_less(spec, some, more, cache_dtype, policy):
    few, many = sorted((some, more))
    small = spec.nbytes(few, 1, cache_dtype, policy)
    assert 0 <= small <= spec.nbytes(many, 1, cache_dtype, policy)


@given(specs, contexts, st.integers(1, 9), st.integers(1, 9), dtypes, st.sampled_from(POLICIES))
def test_batches_add_up(spec, context, some, more, cache_dtype, policy):
    def size(batch: int) -> int:
        return spec.nbytes(context, batch, cache_dtype, policy)

    assert size(some) + size(more) == size(some + more)


@given(specs, contexts, dtypes, st.integers(1, 64))
def test_policies_only_add(spec, context, cache_dtype, block_size):
    exact = spec.nbytes(context, 1, cache_dtype)
    assert exact <= spec.nbytes(context, 1, cache_dtype, "all_layers_full")
    paged = spec.nbytes(context, 1, cache_dtype, "paged", block_size=block_size)
    assert exact <= paged <= exact + block_size * spec.nbytes(1, 1, cache_dtype)
    assert spec.nbytes(context, 1, cache_dtype, "paged", block_size=1) == exact


@given(specs, contexts, st.sampled_from(["float16", "int8", "int4"]))
def test_tensor_parallelism_saves_at_most_its_factor(spec, context, cache_dtype):
    sizes = [spec.nbytes(context, 1, cache_dtype, "exact", t) for t in (1, 2, 4, 8, 16)]
    for small, large in itertools.pairwise(reversed(sizes)):
        assert small <= large <= 2 * small
    assert sizes[-1] == sizes[-2], "no layer has more than 8 heads"


@given(specs, st.integers(1, 1000), dtypes)
def test_the_explanation_ends_on_the_number(spec, context, cache_dtype):
    total = spec.nbytes(context, 3, cache_dtype)
    assert f"= {total:,} B (" in spec.explain(context, 3, cache_dtype).splitlines()[-1]


def test_the_explanation_is_the_sum():
    assert cache_spec(LLAMA_2_7B).explain(4096, 32, "float16") == (
        "32 × full layer: 2 × 32 KV heads × 128 values × 4,096 tokens × 2 B = 67,108,864 B, "
        "in all 2,147,483,648 B\n"
        "2,147,483,648 B a sequence × 32 = 68,719,476,736 B (68.719 GB, 64.000 GiB)"
    )
    words = MIXED.explain(300, cache_dtype="int8", policy="paged", tensor_parallel=2)
    assert "3 KV heads × (20 + 12) values × 304 tokens × 1 B (and 2 B a row)" in words
    assert "sliding layer (window 100): 2 × 2 KV heads × 28 values × 112 tokens" in words
    assert "on each GPU" in words


def test_llama_2_7b_is_half_a_mebibyte_a_token():
    spec = cache_spec(LLAMA_2_7B)
    assert spec.bytes_per_token("float16") == 524_288
    assert spec.nbytes(4096, 1, "float16") == 2 * GIB
    assert spec.nbytes(32768, 1, "float16") == 16 * GIB
    assert spec.nbytes(4096, 32, "float16") == 64 * GIB
    weights = 13_476_831_232
    assert spec.nbytes(25_705, 1, "float16") < weights < spec.nbytes(25_706, 1, "float16")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"context": -1}, "context is -1"),
        ({"context": 1.5}, "context is 1.5"),
        ({"context": True}, "context is true"),
        ({"context": 2**41}, "context is 2199023255552"),
        ({"batch": 0}, "batch is 0"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0"),
        ({"block_size": 0, "policy": "paged"}, "block_size is 0"),
        ({"cache_dtype": "float8"}, 'cache_dtype is "float8"'),
        ({"policy": "all"}, 'policy is "all"'),
    ],
)
def test_a_wrong_argument_is_named(arguments, named):
    with pytest.raises(ConfigError) as caught:
        cache_spec(LLAMA_2_7B).nbytes(**{"context": 1, **arguments})
    assert named in str(caught.value)


def test_users_of_llama_2_7b():
    sequence, weights = 2 * GIB, 13_476_831_232
    assert fit_users(sequence, 80 * GB, weights) == 30
    assert fit_users(sequence, 81_920 * 2**20, weights) == 33
    assert fit_users(sequence, 81_920 * 2**20, weights, "0.9") == 29
    assert fit_users(sequence, 80 * GB, weights, 0.9) == 27


def test_the_division_is_exact():
    assert fit_users(9, 100, 0, "0.9") == 10, "0.9 is nine tenths, not a little less"
    assert fit_users(9, 100, 0, 0.9) == 10
    assert fit_users(1, 10, 10, tensor_parallel=3) == 6, "a third of 10 is more than 3"
    assert fit_users(1, 10, 9, tensor_parallel=3) == 7
    assert fit_users(3, 10, 1) == 3
    assert fit_users(3, 10, 1, overhead_bytes=1) == 2
    assert fit_users(3, 10, 11) == 0, "never a negative number of users"
    assert fit_users(0, 10, 1) is None, "without a cache there is no limit"
    assert fit_users(2**40, 2**59 + 2**40 - 1, 0) == 2**19


@given(
    st.integers(1, 10**12),
    st.integers(1, 10**12),
    st.integers(0, 10**12),
    st.decimals("0.01", "1", places=4),
    st.integers(1, 8),
)
def test_one_user_more_would_not_fit(sequence, memory, weights, utilization, parallel):
    users = fit_users(sequence, memory, weights, str(utilization), parallel)
    free = memory * Fraction(str(utilization)) - Fraction(weights, parallel)
    assert users is not None
    assert (users + 1) * sequence > free
    assert users == 0 or users * sequence <= free


@pytest.mark.parametrize(
    "utilization", ["0", "1.1", "-0.5", "", "x", "1/2", "1e-1", "nan", "0.9 ", "0" * 50, True, None]
)
def test_a_wrong_utilization_is_refused(utilization):
    with pytest.raises(ConfigError, match="utilization is"):
        fit_users(1, 1, 1, utilization)


def test_overhead_is_that_of_one_gpu():
    assert fit_users(1, 100, 40, tensor_parallel=4, overhead_bytes=30) == 100 - 10 - 30
    assert fit_users(7, 100, 41, "0.5", 2, 9) == 2  # (50 - 20.5 - 9) / 7 = 2.93


@pytest.mark.parametrize("small", [1e-05, 1e-7, 2.5e-10, 1e-3])
def test_a_small_share_as_a_float_is_the_decimal_that_it_is_written_as(small):
    assert fit_users(1, 10**12, 0, small) == 10**12 * Fraction(repr(small)) // 1
    assert fit_users(1, 10**18, 0, small) == 10**18 * Fraction(repr(small))


@pytest.mark.parametrize("share", [float("nan"), float("inf"), 1e5, -1e-05, 0.0, 1e300])
def test_a_float_that_is_no_share_is_refused(share):
    with pytest.raises(ConfigError, match="utilization is"):
        fit_users(1, 1, 1, share)
