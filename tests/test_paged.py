"""Lesson 10's book-keeping and its cache: nothing leaked, nothing shared by mistake, equal to contiguous."""

from __future__ import annotations

import random
import sys
from itertools import accumulate, combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Tensor

from kvbook.lessons.cache import PreallocatedCache
from kvbook.lessons.decoder import Decoder, DecoderConfig, generate
from kvbook.lessons.measure import Watch, held_nbytes
from kvbook.lessons.paged import (
    TIMELINE,
    BlockManager,
    BlockPool,
    BlockTables,
    NamedPool,
    OutOfBlocksError,
    PagedCache,
    SharedTables,
    SharingCache,
    block_names,
    gather,
    happen,
)

CONFIG = DecoderConfig(
    vocab_size=97,
    dim=24,
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    ffn_dim=40,
    max_seq_len=32,
)
TOKEN = 2 * 2 * 3 * 4 * 8  # bytes of a token's rows in float64
NAN = float("nan")


def make_model() -> Decoder:
    torch.manual_seed(0)
    model = Decoder(CONFIG).double().requires_grad_(False)
    for weight in model.parameters():
        weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) / 4)
    return model


MODEL = make_model()


def make(kind: type[PagedCache] = PagedCache, batch: int = 1, **options) -> PagedCache:
    cache = kind(CONFIG, batch, dtype=torch.float64, **options)
    cache.k.fill_(NAN)
    cache.v.fill_(NAN)
    return cache


def random_ids(batch: int, n: int, seed: int = 0) -> Tensor:
    return torch.randint(97, (batch, n), generator=torch.Generator().manual_seed(seed))


def feed(cache: PagedCache, ids: Tensor, pieces: list[int]) -> Tensor:
    return torch.cat([MODEL(piece, cache) for piece in ids.split(pieces, dim=1)], dim=1)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def poison(cache: PagedCache) -> None:
    """NaN into every slot in which no live token lies: free blocks, room made, the ends of blocks."""
    size, used = cache.tables.block_size, {}
    for seq, table in cache.tables.tables.items():
        for place, block in enumerate(table):
            tokens = min(size, max(0, cache.tables.lengths[seq] - place * size))
            used[block] = max(used.get(block, 0), tokens)
    for block in range(cache.tables.pool.num_blocks):
        for rows in (cache.k, cache.v):
            rows[:, :, block, used.get(block, 0) :] = NAN


def adds_up(tables: BlockTables) -> None:
    """Counts are those of the tables; every block is free or in use, and none is both."""
    pool = tables.pool
    owners = [0] * pool.num_blocks
    for table in tables.tables.values():
        assert len(set(table)) == len(table)
        for block in table:
            owners[block] += 1
    assert owners == pool.ref_counts
    free = [*pool.empty, *getattr(pool, "unused", ())]
    assert sorted(free) == [block for block, n in enumerate(owners) if n == 0]
    assert pool.num_free_blocks == len(free)
    if isinstance(pool, NamedPool):
        assert {name: block for block, name in pool.name_of.items()} == pool.block_of
        assert len(pool.name_of) == len(pool.block_of)
        assert set(pool.unused) <= set(pool.name_of)
        assert not set(pool.empty) & set(pool.name_of)


# The book-keeping


def test_blocks_are_taken_in_a_stated_order() -> None:
    pool = BlockPool(3)
    assert [pool.take(), pool.take()] == [0, 1]
    pool.give_back(0)
    assert [pool.take(), pool.take()] == [0, 2]
    with pytest.raises(OutOfBlocksError, match="All 3 blocks are in use"):
        pool.take()


@pytest.mark.parametrize("block", [-1, 3, 2])
def test_a_block_that_is_not_in_use_can_be_neither_shared_nor_given_back(block: int) -> None:
    for pool in (BlockPool(3), NamedPool(3)):
        pool.take()
        pool.take()
        for method in (pool.give_back, pool.share):
            with pytest.raises(ValueError, match=f"block is {block}"):
                method(block)
        assert pool.num_free_blocks == 1


def test_a_count_reaches_zero_exactly_once() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.share(block)
    pool.give_back(block)
    assert (pool.ref_counts, pool.num_free_blocks) == ([1, 0], 1)
    pool.give_back(block)
    assert (pool.ref_counts, pool.num_free_blocks) == ([0, 0], 2)
    with pytest.raises(ValueError, match="block is 0"):
        pool.give_back(block)
    assert (pool.ref_counts, pool.num_free_blocks) == ([0, 0], 2)


def test_freeing_twice_is_an_error_and_frees_once() -> None:
    tables = BlockManager(4, 3)
    seq, other = tables.start(), tables.start()
    tables.append(seq, 5)
    tables.append(other, 1)
    tables.free(seq)
    with pytest.raises(ValueError, match=f"sequence is {seq}; it was freed before"):
        tables.free(seq)
    assert tables.pool.num_free_blocks == 3
    adds_up(tables)
    new = tables.start()  # its number is a new one: an old handle never reaches another's blocks
    assert new not in (seq, other)


@pytest.mark.parametrize("size", [1, 2, 4, 5])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_block_borders(size: int, extra: int) -> None:
    n = 3 * size + extra
    blocks = {-1: 3 if size > 1 else 2, 0: 3, 1: 4}[extra]
    whole, single = BlockManager(9, size), BlockManager(9, size)
    seq = whole.start()
    whole.append(seq, n)
    one = single.start()
    for _ in range(n):
        single.append(one)
    assert whole.tables == single.tables == {0: list(range(blocks))}
    assert whole.slots_used() == n


def test_out_of_blocks_fails_whole() -> None:
    tables = BlockManager(4, 2)
    a, b = tables.start(), tables.start()
    tables.append(a, 3)
    before = [list(tables.tables[a]), dict(tables.lengths), list(tables.pool.empty)]
    for wanted in ({b: 5}, {a: 2, b: 3}, {a: 2**60}):
        with pytest.raises(OutOfBlocksError, match="blocks are needed; 2 are free"):
            tables.reserve(wanted)
    with pytest.raises(OutOfBlocksError, match="3 blocks are needed; 2 are free"):
        tables.append(b, 5)
    assert before == [list(tables.tables[a]), dict(tables.lengths), list(tables.pool.empty)]
    adds_up(tables)
    tables.append(b, 4)
    assert tables.pool.num_free_blocks == 0
    tables.append(a)  # a slot is left in its last block
    with pytest.raises(OutOfBlocksError, match="1 blocks are needed; 0 are free"):
        tables.append(a)


def test_a_copy_counts_as_a_block_that_is_needed() -> None:
    tables = BlockManager(2, 4)
    seq = tables.start()
    tables.append(seq, 6)
    twin = tables.fork(seq)
    with pytest.raises(OutOfBlocksError, match="1 blocks are needed; 0 are free"):
        tables.append(twin)
    assert tables.tables == {seq: [0, 1], twin: [0, 1]}
    adds_up(tables)
    tables.free(seq)
    assert tables.append(twin) == []  # the only owner that is left writes in place


def test_the_last_owner_needs_no_copy_and_none_is_counted() -> None:
    tables = BlockManager(4, 4)
    seq = tables.start()
    tables.append(seq, 6)
    twins = [seq, tables.fork(seq), tables.fork(seq)]
    wanted = dict.fromkeys(twins, 1)
    assert tables.missing(wanted) == 2 == tables.pool.num_free_blocks
    assert tables.reserve(wanted) == [(1, 2), (1, 3)]
    assert [tables.tables[twin][1] for twin in twins] == [2, 3, 1]
    adds_up(tables)


def test_a_fork_shares_no_room_that_holds_no_token() -> None:
    """Room made for a pass that broke off: if a fork got it, both would write there."""
    tables = SharedTables(8, 2)
    seq = tables.start()
    tables.append(seq, 2)
    tables.reserve({seq: 3})
    twin = tables.fork(seq)
    assert tables.tables[twin] == [0]
    tables.append(seq)
    tables.append(twin)
    assert tables.tables[seq][1] != tables.tables[twin][1]
    adds_up(tables)


def test_room_that_was_not_used_is_given_back() -> None:
    tables = BlockManager(5, 2)
    seq = tables.start()
    tables.reserve({seq: 9})
    assert tables.pool.num_free_blocks == 0
    tables.append(seq, 3)
    tables.trim(seq)
    assert (tables.tables[seq], tables.pool.num_free_blocks) == ([0, 1], 3)
    tables.trim(seq)
    assert tables.tables[seq] == [0, 1]
    empty = tables.start()
    tables.reserve({empty: 1})
    tables.trim(empty)
    assert tables.tables[empty] == []
    adds_up(tables)


@pytest.mark.parametrize("n", [-1, 1.0, True, "1", None])
def test_odd_numbers_of_tokens_are_refused(n: object) -> None:
    for length in (0, 2, 3):
        tables = BlockManager(5, 3)
        seq = tables.start()
        tables.append(seq, length)
        with pytest.raises(
            ValueError, match=r"n is .* for sequence 0; it must be an int, 0 or more"
        ):
            tables.append(seq, n)
        assert tables.lengths == {seq: length}


def test_a_sequence_that_is_not_live_is_refused() -> None:
    tables = BlockManager(5, 3)
    gone = tables.start()
    tables.append(gone, 2)
    tables.free(gone)
    for call in (tables.append, tables.fork, lambda seq: tables.remember(seq, [])):
        for seq in (gone, 7):
            with pytest.raises(ValueError, match=f"for sequence {seq}: it must be live"):
                call(seq)
    adds_up(tables)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", None])
def test_pools_and_blocks_of_nothing_are_refused(bad: object) -> None:
    with pytest.raises(ValueError, match=r"num_blocks is .*; it must be an int, 1 or more"):
        BlockManager(bad, 4)
    with pytest.raises(ValueError, match=r"block_size is .*; it must be an int, 1 or more"):
        BlockManager(4, bad)
    with pytest.raises(ValueError, match="it must be an int, 1 or more"):
        PagedCache(CONFIG, block_size=bad)


def steps(tables: BlockManager, seed: int) -> int:
    """Lines of kvbook's code that a run of operations executes."""
    rng, live, lines = random.Random(seed), [tables.start()], 0

    def count(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return count if "paged" in frame.f_code.co_filename else None

    sys.settrace(count)
    try:
        for number in range(600):
            seq = rng.choice(live)
            if number % 7 == 3:
                live.append(tables.fork(seq))
            elif number % 20 == 9:
                live.remove(seq)
                tables.free(seq)
            else:
                tables.append(seq, 1 + number % 4)
    finally:
        sys.settrace(None)
    return lines


def test_an_operation_takes_as_many_steps_in_a_large_pool_as_in_a_small_one() -> None:
    assert len({steps(BlockManager(n, 4), seed=1) for n in (800, 5_000, 300_000)}) == 1


# Names, prefixes, eviction


def test_names_depend_on_all_that_came_before() -> None:
    a, b = (list(block_names(tokens, 2)) for tokens in ([1, 2, 3, 4, 5], [9, 2, 3, 4, 5]))
    assert len(a) == len(b) == 2
    assert not set(a) & set(b)  # the blocks (3, 4) are equal, their texts are not
    assert list(block_names([1, 2, 3, 4], 2)) == a
    assert next(block_names([1, 2, 7, 8], 2)) == a[0]
    assert list(block_names([1], 2)) == []


def names_without_parents(tokens: list[int], block_size: int) -> list[bytes]:
    """The wrong version: a block's name is that of its own tokens."""
    ends = range(block_size, len(tokens) + 1, block_size)
    return [repr(tokens[end - block_size : end]).encode() for end in ends]


def shares_by_mistake(names) -> bool:
    """Whether a text gets another one's block: the second block is equal, the first one is not."""
    import kvbook.lessons.paged as module

    kept, module.block_names = module.block_names, names
    try:
        tables = BlockManager(9, 2)
        for first in ([1, 2], [5, 6]):
            seq = tables.start()
            tables.append(seq, 4)
            tables.remember(seq, [*first, 3, 4])
        seq = tables.start([5, 6, 3, 4, 7])
        return tables.tables[seq] != tables.tables[1]
    finally:
        module.block_names = kept


def test_an_equal_block_after_another_beginning_is_not_shared() -> None:
    assert not shares_by_mistake(block_names)
    assert shares_by_mistake(names_without_parents)


def test_names_do_not_rest_on_python_s_hash() -> None:
    """hash() gives one number for different tokens, so it alone must not decide what is equal."""
    assert hash((0, 5)) == hash((2**61 - 1, 5))
    assert list(block_names([0, 5], 2)) != list(block_names([2**61 - 1, 5], 2))


@pytest.mark.parametrize(
    ("length", "found"), [(1, 0), (2, 0), (3, 0), (4, 3), (6, 3), (7, 6), (8, 6)]
)
def test_at_least_one_token_is_always_computed_again(length: int, found: int) -> None:
    tables = BlockManager(9, 3)
    seq = tables.start()
    tables.append(seq, 8)
    tables.remember(seq, range(8))
    new = tables.start(range(length))
    assert tables.lengths[new] == found < length
    assert tables.tables[new] == [0, 1][: found // 3]
    adds_up(tables)


def test_rows_are_found_only_when_they_are_computed() -> None:
    """Between reserving and remembering the rows are not there yet: nobody may get them."""
    tables = BlockManager(9, 2)
    seq = tables.start([1, 2, 3, 4, 5])
    tables.reserve({seq: 5})
    assert tables.lengths[tables.start([1, 2, 3, 4, 5])] == 0
    with pytest.raises(ValueError, match="5 tokens; sequence 0 holds 0"):
        tables.remember(seq, [1, 2, 3, 4, 5])
    tables.append(seq, 5)
    tables.remember(seq, [1, 2, 3, 4, 5])
    assert tables.lengths[tables.start([1, 2, 3, 4, 5])] == 4


def test_two_that_computed_the_same_keep_one_name() -> None:
    tables = BlockManager(9, 2)
    first, second = tables.start([1, 2, 3]), tables.start([1, 2, 3])
    for seq in (first, second):
        tables.append(seq, 3)
        tables.remember(seq, [1, 2, 3])
    assert len(tables.pool.block_of) == 1
    adds_up(tables)
    tables.free(second)  # the unnamed twin is empty now, the named one is still in use
    assert list(tables.pool.unused) == []
    tables.free(first)
    assert list(tables.pool.unused) == [0]
    adds_up(tables)


def test_the_block_unused_for_longest_is_evicted_first() -> None:
    tables = BlockManager(4, 1)
    texts = ([1, 9], [2, 9], [3, 9])
    for text in texts:
        seq = tables.start()
        tables.append(seq, 1)
        tables.remember(seq, text[:1])
        tables.free(seq)
    assert list(tables.pool.unused) == [0, 1, 2]  # empty blocks are taken before names are lost

    tables = BlockManager(3, 1)
    live = [tables.start() for _ in texts]
    for seq, text in zip(live, texts, strict=True):
        tables.append(seq, 1)
        tables.remember(seq, text[:1])
    for seq in live:
        tables.free(seq)
    tables.free(tables.start(texts[0]))  # used again, so it is now the newest
    assert list(tables.pool.unused) == [1, 2, 0]
    tables.append(tables.start(), 1)
    assert [tables.lengths[tables.start(text)] for text in texts] == [1, 0, 1]
    adds_up(tables)


def test_a_beginning_outlives_what_followed_it() -> None:
    tables = BlockManager(3, 2)
    seq = tables.start()
    tables.append(seq, 6)
    tables.remember(seq, range(6))
    tables.free(seq)
    tables.append(tables.start(), 1)
    assert tables.lengths[tables.start(range(9))] == 4


def test_cached_blocks_count_as_free_and_never_refuse_a_request() -> None:
    tables = BlockManager(3, 2)
    for seed in range(5):
        seq = tables.start([seed] * 6)
        tables.append(seq, 6)
        tables.remember(seq, [seed] * 6)
        tables.free(seq)
        assert tables.pool.num_free_blocks == 3
        adds_up(tables)


def test_a_request_that_does_not_fit_gives_back_what_it_had_found() -> None:
    tables, live = BlockManager(3, 2), {}
    happen(tables, live, ("arrive", "A", [1, 2, 3, 4]))
    with pytest.raises(OutOfBlocksError):
        happen(tables, live, ("arrive", "B", [1, 2, 5, 6, 7]))
    assert list(live) == ["A"]
    assert tables.pool.ref_counts == [1, 1, 0]
    adds_up(tables)
    happen(tables, live, ("finish", "A"))
    with pytest.raises(OutOfBlocksError):
        happen(tables, live, ("arrive", "B", [1, 2, 5, 6, 7, 8, 9]))
    assert tables.pool.num_free_blocks == 3
    adds_up(tables)


class Machine(RuleBasedStateMachine):
    """Random life of a small pool. Slots hold real tokens, written where the tables say."""

    BLOCKS, SIZE = 9, 3

    def __init__(self) -> None:
        super().__init__()
        self.tables = BlockManager(self.BLOCKS, self.SIZE)
        self.memory = [[None] * self.SIZE for _ in range(self.BLOCKS)]
        self.texts: dict[int, list[int]] = {}
        self.gone: list[int] = []

    def write(self, seq: int, tokens: list[int]) -> None:
        before = self.tables.lengths[seq]
        state = self.snapshot()
        try:
            copies = self.tables.append(seq, len(tokens))
        except OutOfBlocksError:
            assert self.snapshot() == state
            raise
        for old, new in copies:
            self.memory[new] = list(self.memory[old])
        for place, token in enumerate(tokens, before):
            block = self.tables.tables[seq][place // self.SIZE]
            assert self.tables.pool.ref_counts[block] == 1, "a shared block would be written"
            self.memory[block][place % self.SIZE] = token
        self.texts[seq] += tokens

    def snapshot(self) -> list:
        pool = self.tables.pool
        tables = {seq: list(table) for seq, table in self.tables.tables.items()}
        return [tables, dict(self.tables.lengths), list(pool.empty), list(pool.unused)]

    @rule(prompt=st.lists(st.integers(0, 1), max_size=10))
    def arrive(self, prompt: list[int]) -> None:
        seq = self.tables.start(prompt)
        found = self.tables.lengths[seq]
        assert found < len(prompt) or not prompt
        self.texts[seq] = prompt[:found]
        try:
            self.write(seq, prompt[found:])
        except OutOfBlocksError:
            self.tables.free(seq)
            del self.texts[seq]

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 1), max_size=5))
    def grow(self, data: st.DataObject, tokens: list[int]) -> None:
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        try:
            self.write(seq, tokens)
        except OutOfBlocksError:
            assert self.tables.missing({seq: len(tokens)}) > self.tables.pool.num_free_blocks

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        free = self.tables.pool.num_free_blocks
        self.texts[self.tables.fork(seq)] = list(self.texts[seq])
        assert self.tables.pool.num_free_blocks == free

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        self.tables.remember(seq, self.texts[seq])

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), room=st.integers(0, 7))
    def a_pass_breaks_off(self, data: st.DataObject, room: int) -> None:
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        try:
            copies = self.tables.reserve({seq: room})
        except OutOfBlocksError:
            return
        for old, new in copies:
            self.memory[new] = list(self.memory[old])
        if data.draw(st.booleans()):
            self.tables.trim(seq)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.texts)))
        self.tables.free(seq)
        self.gone.append(seq)
        del self.texts[seq]

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def finish_twice(self, data: st.DataObject) -> None:
        state = self.snapshot()
        with pytest.raises(ValueError, match="freed before"):
            self.tables.free(data.draw(st.sampled_from(self.gone)))
        assert self.snapshot() == state

    @invariant()
    def counts_add_up(self) -> None:
        adds_up(self.tables)

    @invariant()
    def contents_are_those_of_plain_lists(self) -> None:
        for seq, text in self.texts.items():
            table = self.tables.tables[seq]
            slots = [token for block in table for token in self.memory[block]]
            assert slots[: len(text)] == text
            assert self.tables.lengths[seq] == len(text)
            assert len(table) >= -(-len(text) // self.SIZE)

    @invariant()
    def a_named_block_holds_what_its_name_says(self) -> None:
        pool = self.tables.pool
        for block, name in pool.name_of.items():
            for text in self.texts.values():
                for place, other in enumerate(block_names(text, self.SIZE)):
                    if name == other:
                        held = text[place * self.SIZE : (place + 1) * self.SIZE]
                        assert self.memory[block] == held


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestRandomLife = Machine.TestCase


def test_the_machine_finds_an_owner_that_writes_a_shared_block() -> None:
    """The wrong version: no copy on write. The check of random life must fail on it."""

    class NoCopy(BlockManager):
        def written(self, wanted):
            return iter(())

    machine = Machine()
    machine.tables = NoCopy(Machine.BLOCKS, Machine.SIZE)
    seq = machine.tables.start()
    machine.texts[seq] = []
    machine.write(seq, [0, 0, 0, 1])
    twin = machine.tables.fork(seq)
    machine.texts[twin] = list(machine.texts[seq])
    with pytest.raises(AssertionError, match="a shared block would be written"):
        machine.write(twin, [1])


# The cache


@settings(max_examples=40, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6).filter(lambda p: sum(p) <= 20),
    batch=st.integers(1, 3),
    size=st.sampled_from([1, 2, 3, 5, 16]),
    seed=st.integers(0, 99),
)
def test_any_split_equals_no_cache(pieces: list[int], batch: int, size: int, seed: int) -> None:
    ids = random_ids(batch, sum(pieces), seed)
    cache = make(batch=batch, num_blocks=batch * -(-20 // size), block_size=size)
    plain = PreallocatedCache(CONFIG, batch, dtype=torch.float64)
    expected = MODEL(ids)
    for end, piece in zip(accumulate(pieces), ids.split(pieces, dim=1), strict=True):
        found = MODEL(piece, cache)
        same(found, MODEL(piece, plain))
        same(found, expected[:, end - piece.shape[1] : end])
        poison(cache)
    adds_up(cache.tables)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=5),
    size=st.sampled_from([1, 3, 4]),
    seed=st.integers(0, 99),
)
def test_rows_of_unequal_length(steps: list[tuple[int, int, int]], size: int, seed: int) -> None:
    texts = random_ids(3, 20, seed)
    expected = [MODEL(text[None])[0] for text in texts]
    cache = make(batch=3, block_size=size)
    for counts in steps:
        q_len = max(1, *counts)
        ids = torch.zeros(3, q_len, dtype=torch.long)
        before = cache.lengths.tolist()
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            ids[row, :count] = texts[row, start : start + count]
        logits = MODEL(ids, cache, counts=torch.tensor(counts))
        poison(cache)
        for row, (start, count) in enumerate(zip(before, counts, strict=True)):
            same(logits[row, :count], expected[row][start : start + count])
    lengths = [sum(column) for column in zip(*steps, strict=True)]
    assert cache.lengths.tolist() == lengths
    assert [cache.tables.lengths[seq] for seq in cache.sequences] == lengths
    held = sum(-(-n // size) for n in lengths)  # the room for padding was given back
    assert cache.tables.pool.num_blocks - cache.tables.pool.num_free_blocks == held
    assert cache.nbytes_used == sum(lengths) * TOKEN
    adds_up(cache.tables)


@pytest.mark.parametrize("n", [11, 12, 13])
def test_block_borders_through_the_model(n: int) -> None:
    ids = random_ids(2, n + 3)
    cache = make(batch=2, block_size=4)
    same(feed(cache, ids, [n, 1, 1, 1]), MODEL(ids))


def test_stale_rows_reach_attention_if_they_are_not_cleared() -> None:
    """The wrong version: the mask alone. 0 times NaN is NaN."""

    class MaskOnly(PagedCache):
        def update(self, layer, k, v):
            blocks, slots = self.make_room(k.shape[2])
            found = []
            for rows, new in ((self.k[layer], k), (self.v[layer], v)):
                rows[:, blocks, slots] = new.transpose(0, 1)
                found.append(gather(rows, self.block_table)[:, :, : self.end + k.shape[2]])
            self.stored[layer] = k.shape[2]
            return found

    ids = random_ids(2, 9)
    for kind, is_clean in ((PagedCache, True), (MaskOnly, False)):
        cache = make(kind, batch=2, block_size=4)
        MODEL(ids[:, :8], cache, counts=torch.tensor([2, 8]))
        poison(cache)
        logits = MODEL(ids[:, 8:], cache)
        assert bool(logits.isfinite().all()) is is_clean


def test_blocks_of_a_finished_sequence_are_taken_over_clean() -> None:
    cache = make(SharingCache, batch=2, num_blocks=6, block_size=4)
    ids = random_ids(2, 12)
    feed(cache, ids, [12])
    poison(cache)
    cache.free(0)
    new = random_ids(1, 7, seed=3)
    padded = torch.cat([new, torch.zeros(1, 7, dtype=torch.long)])
    with pytest.raises(OutOfBlocksError):  # padding of the row that goes on needs room, too
        MODEL(padded, cache, counts=torch.tensor([7, 0]))
    cache.free(1)
    cache.k.fill_(NAN)
    cache.v.fill_(NAN)
    same(MODEL(padded, cache, counts=torch.tensor([7, 0]))[:1], MODEL(new))
    adds_up(cache.tables)


def test_reset_and_reuse() -> None:
    cache = make(batch=2, num_blocks=6, block_size=4)
    feed(cache, random_ids(2, 12, seed=1), [7, 5])
    cache.reset()
    assert cache.lengths.tolist() == [0, 0]
    assert cache.tables.pool.num_free_blocks == 6
    poison(cache)
    ids = random_ids(2, 9, seed=2)
    same(feed(cache, ids, [4, 1, 4]), MODEL(ids))


def test_generate_twice_with_one_cache() -> None:
    ids = random_ids(1, 5)
    cache = make(num_blocks=3, block_size=4)
    for _ in range(2):
        cache.reset()
        assert generate(MODEL, ids, 8, cache).equal(generate(MODEL, ids, 8))
        assert cache.lengths.tolist() == [12]


def test_bytes_are_the_pool_and_the_table_and_what_is_used() -> None:
    cache = make(batch=2, num_blocks=9, block_size=4)
    assert cache.nbytes == 36 * TOKEN
    feed(cache, random_ids(2, 7), [3, 4])
    assert cache.block_table.shape == (2, 2)
    assert cache.nbytes == 36 * TOKEN + 2 * 2 * 8
    assert cache.nbytes == held_nbytes(cache) - held_nbytes(cache.lengths)
    assert cache.nbytes_used == 14 * TOKEN
    assert cache.k.shape == cache.v.shape == (2, 3, 9, 4, 4)


def test_out_of_blocks_leaves_the_cache_as_it_was() -> None:
    cache = make(batch=2, num_blocks=4, block_size=4)
    ids = random_ids(2, 9)
    feed(cache, ids[:, :7], [7])
    rows, lengths = cache.k[:, :, :, :3].clone(), cache.lengths
    with pytest.raises(OutOfBlocksError, match="2 blocks are needed; 0 are free"):
        MODEL(ids[:, 7:], cache)
    assert cache.lengths is lengths
    assert cache.k[:, :, :, :3].equal(rows)
    adds_up(cache.tables)
    same(MODEL(ids[:, 7:8], cache), MODEL(ids[:, :8])[:, 7:])


def test_one_sequence_cannot_hold_more_than_the_pool() -> None:
    cache = make(num_blocks=2, block_size=4)
    feed(cache, random_ids(1, 8), [8])
    with pytest.raises(OutOfBlocksError, match="1 blocks are needed; 0 are free"):
        feed(cache, random_ids(1, 1), [1])


def test_a_pass_that_breaks_off_can_be_tried_again() -> None:
    ids, cache = random_ids(2, 9), make(batch=2, block_size=3)
    MODEL(ids[:, :4], cache, counts=torch.tensor([4, 3]))
    lengths, refuse = cache.lengths, MODEL.blocks[1].register_forward_pre_hook
    hook = refuse(lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    for n in (5, 8):
        with pytest.raises(RuntimeError, match="out of memory"):
            MODEL(random_ids(2, n, seed=7), cache)
    hook.remove()
    assert cache.lengths is lengths
    again = MODEL(torch.stack([ids[0, 4:9], ids[1, 3:8]]), cache)
    same(again[0], MODEL(ids)[0, 4:])
    same(again[1], MODEL(ids)[1, 3:8])
    assert cache.tables.pool.num_blocks - cache.tables.pool.num_free_blocks == 6
    adds_up(cache.tables)


def test_tokens_without_rows_are_not_counted() -> None:
    cache = make(batch=2, block_size=3)
    with pytest.raises(ValueError, match=r"counts is \[1, 1\]; the pass stored 0"):
        cache.advance(1)
    with pytest.raises(ValueError, match="counts is -1"):
        cache.advance(-1)
    assert cache.lengths.tolist() == [0, 0]
    MODEL(random_ids(2, 4), cache)
    with pytest.raises(ValueError, match="the pass stored 0"):
        cache.advance(torch.tensor([0, 1]))
    assert cache.lengths.tolist() == [4, 4]


def test_everything_stays_on_the_cache_s_device() -> None:
    model = make_model().to("meta")
    cache = PagedCache(CONFIG, 2, block_size=3, dtype=torch.float64, device="meta")
    for counts in ([5, 3], [1, 1], [2, 4]):
        ids = torch.zeros(2, max(counts), dtype=torch.long, device="meta")
        assert model(ids, cache, counts=torch.tensor(counts)).device.type == "meta"
    assert cache.lengths.tolist() == [8, 8]
    with torch.device("meta"):
        cache = PagedCache(CONFIG, 2, dtype=torch.float64, device="cpu")
    ids = random_ids(2, 9)
    same(feed(cache, ids, [4, 5]), MODEL(ids))


def test_rows_that_do_not_fit_are_refused_before_a_block_is_taken() -> None:
    cache = make(batch=2)
    k = torch.ones(2, 3, 2, 4, dtype=torch.float64)
    for bad in (k[:1], k[:, :2], k[..., :3], k.float()):
        with pytest.raises(ValueError, match=r"the cache (takes|holds)"):
            cache.update(0, k, bad)
    with pytest.raises(ValueError, match="layer is 2"):
        cache.update(2, k, k)
    assert cache.tables.pool.num_free_blocks == cache.tables.pool.num_blocks


def test_no_autograd_history_stays() -> None:
    model, cache = Decoder(CONFIG).double(), make()
    assert model(random_ids(1, 3), cache).requires_grad
    assert not cache.k.requires_grad
    assert cache.k.grad_fn is None


def test_a_step_copies_one_layer_s_rows_and_no_more() -> None:
    cache = make(batch=2, block_size=4)
    feed(cache, random_ids(2, 19), [19])
    with Watch(cache) as watch:
        k = torch.ones(2, 3, 1, 4, dtype=torch.float64)
        cache.update(0, k, k)
    rows = 2 * 20 * TOKEN // 2  # K and V of one of two layers
    assert rows <= watch.peak - held_nbytes([cache.k, cache.v]) < 1.6 * rows


# Sharing through the model


def test_a_fork_writes_on_beside_its_parent() -> None:
    cache = make(SharingCache, batch=2, num_blocks=6, block_size=4)
    ids = random_ids(1, 6)
    blank = torch.zeros(1, 6, dtype=torch.long)
    MODEL(torch.cat([ids, blank]), cache, counts=torch.tensor([6, 0]))
    cache.fork(0, into=1)
    assert cache.lengths.tolist() == [6, 6]
    assert cache.nbytes_used == 6 * TOKEN  # nothing is held twice
    one, two = random_ids(1, 5, seed=1), random_ids(1, 5, seed=2)
    found = feed(cache, torch.cat([one, two]), [1, 3, 1])
    for row, rest in enumerate((one, two)):
        same(found[row], MODEL(torch.cat([ids, rest], 1))[0, 6:])
    assert len(set(cache.tables.tables[cache.sequences[0]][:1])) == 1
    first, second = (cache.tables.tables[seq] for seq in cache.sequences)
    assert first[0] == second[0]
    assert not set(first[1:]) & set(second[1:])
    adds_up(cache.tables)


@pytest.mark.parametrize("goes", [0, 1])
def test_after_a_copy_either_owner_may_go(goes: int) -> None:
    cache = make(SharingCache, batch=2, block_size=4)
    ids = random_ids(1, 6)
    MODEL(ids.expand(2, -1).clone(), cache, counts=torch.tensor([6, 0]))
    cache.fork(0, into=1)
    step = random_ids(2, 1, seed=4)
    MODEL(step, cache)
    stays = 1 - goes
    cache.free(goes)
    poison(cache)
    last = random_ids(1, 1, seed=5)
    found = MODEL(last.expand(2, -1).clone(), cache)[stays]
    whole = torch.cat([ids[0], step[stays], last[0]])
    same(found, MODEL(whole[None])[0, -1:])


@pytest.mark.parametrize("n", [7, 8, 9])
def test_a_prompt_that_is_fully_cached_gives_the_same_logits(n: int) -> None:
    """Also one of exactly full blocks: its last block is computed again."""
    cache = make(SharingCache, batch=2, num_blocks=9, block_size=4)
    text = random_ids(1, 9)[0].tolist()
    ids = torch.tensor([text, text])
    MODEL(ids, cache, counts=torch.tensor([9, 0]))
    cache.remember(0, text)
    cache.free(0)
    poisoned = cache.tables.pool.empty
    cache.k[:, :, poisoned], cache.v[:, :, poisoned] = NAN, NAN
    found = cache.begin(1, text[:n])
    assert found == 4 * ((n - 1) // 4)
    rest = ids[:, found:n]
    logits = MODEL(rest, cache, counts=torch.tensor([0, n - found]))
    same(logits[1], MODEL(ids[:1, :n])[0, found:])
    adds_up(cache.tables)


def test_found_blocks_are_never_written() -> None:
    cache = make(SharingCache, batch=2, num_blocks=9, block_size=4)
    text = random_ids(1, 9)[0].tolist()
    MODEL(torch.tensor([text, text]), cache, counts=torch.tensor([9, 0]))
    cache.remember(0, text)
    before = cache.k[:, :, :2].clone()
    cache.begin(1, text[:8])
    MODEL(random_ids(2, 5), cache, counts=torch.tensor([1, 5]))
    assert cache.k[:, :, :2].equal(before)


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_is_not_there(row: int) -> None:
    cache = make(SharingCache, batch=2)
    for call in (
        lambda: cache.begin(row, [1]),
        lambda: cache.free(row),
        lambda: cache.fork(row, 0),
        lambda: cache.fork(0, row),
        lambda: cache.remember(row, []),
    ):
        with pytest.raises(ValueError, match=f"row is {row}; the cache has 0 to 1"):
            call()
    adds_up(cache.tables)
    assert len(cache.tables.tables) == 2


# Bad tokens, bad events, room


ODD = (["x"], [2**63], [1, 2, 3, 1.5, 4], torch.ones(1, 5, dtype=torch.long), [None], "ab")


@pytest.mark.parametrize("prompt", ODD)
def test_what_is_no_token_is_refused_before_anything_is_shared(prompt: object) -> None:
    tables, live = BlockManager(9, 2), {}
    happen(tables, live, ("arrive", "A", [1, 2, 3, 4, 5]))
    state = [list(tables.pool.ref_counts), dict(tables.lengths), dict(tables.pool.block_of)]
    for call in (
        lambda: tables.start(prompt),
        lambda: tables.remember(0, prompt),
        lambda: happen(tables, live, ("arrive", "B", prompt)),
        lambda: happen(tables, live, ("grow", "A", prompt)),
    ):
        with pytest.raises(ValueError, match=r"token is .*; it must be an int of 64 bits") as told:
            call()
        assert "\n" not in str(told.value)
        assert state == [tables.pool.ref_counts, tables.lengths, tables.pool.block_of]
    assert live == {"A": (0, [1, 2, 3, 4, 5])}
    adds_up(tables)


def test_found_blocks_are_given_back_if_a_later_token_is_bad() -> None:
    tables = BlockManager(9, 2)
    seq = tables.start([1, 2, 3])
    tables.append(seq, 3)
    tables.remember(seq, [1, 2, 3])
    with pytest.raises(ValueError, match="token is 'x'"):
        tables.start([1, 2, 3, "x", 5])
    assert tables.pool.ref_counts[0] == 1
    assert tables.start(torch.tensor([1, 2, 9])) == 1  # ints of other kinds will do
    adds_up(tables)


@pytest.mark.parametrize(
    "event",
    [
        ("arrive", "A", [1]),
        ("fork", "A", "B"),
        ("fork", "A", "A"),
        ("fork", "Z", "C"),
        ("grow", "Z", [1]),
        ("finish", "Z"),
        ("swell", "A", [1]),
        ("grow", "A"),
    ],
)
def test_an_event_that_cannot_be_is_refused_whole(event: tuple) -> None:
    tables, live = BlockManager(9, 2), {}
    happen(tables, live, ("arrive", "A", [1, 2, 3]))
    happen(tables, live, ("arrive", "B", [1, 2, 4]))
    before = dict(live), list(tables.pool.ref_counts)
    with pytest.raises(ValueError, match=r"cannot be: live are A, B\."):
        happen(tables, live, event)
    assert (live, tables.pool.ref_counts) == before
    assert len(tables.tables) == 2


def test_the_lessons_timeline_is_the_story_that_is_told() -> None:
    """A, B and E begin with eight tokens, D and G have the same thirteen, C is a fork, F comes twice."""
    texts: dict[str, list[int]] = {}
    prompts: dict[str, list[list[int]]] = {}
    for what, name, *more in TIMELINE:
        if what == "arrive":
            texts[name] = list(more[0])
            prompts.setdefault(name, []).append(list(more[0]))
        elif what == "fork":
            texts[more[0]] = list(texts[name])
        elif what == "grow":
            texts[name] += more[0]
    assert all(len(set(text)) == len(text) for text in texts.values())
    sizes = {name: len(given[0]) for name, given in prompts.items()}
    assert sizes == {"A": 10, "B": 11, "D": 13, "E": 12, "F": 10, "G": 13}
    assert prompts["F"][0] == prompts["F"][1]
    assert {name: len(text) for name, text in texts.items()} == sizes | {"A": 14, "C": 15, "D": 17}
    alike = {frozenset("AB"): 8, frozenset("AE"): 8, frozenset("BE"): 8, frozenset("DG"): 13}
    alike |= {frozenset("AC"): 13, frozenset("BC"): 8, frozenset("CE"): 8}
    for one, other in combinations(texts, 2):
        common = alike.get(frozenset(one + other), 0)
        assert texts[one][:common] == texts[other][:common]
        assert not {*texts[one][common:]} & {*texts[other][common:]}
    tables, live, waits = BlockManager(10, 4), {}, []
    for number, event in enumerate(TIMELINE):
        try:
            happen(tables, live, event)
        except OutOfBlocksError:
            waits.append((number, event[1]))
        adds_up(tables)
    assert waits == [(12, "F")]
    assert (live, tables.pool.num_free_blocks) == ({}, 10)


def test_growing_by_nothing_writes_nothing_and_copies_nothing() -> None:
    tables = SharedTables(2, 4)
    seq = tables.start()
    tables.append(seq, 6)
    twin = tables.fork(seq)
    assert list(tables.written({twin: 0})) == []
    assert tables.missing({twin: 0}) == 0
    assert tables.reserve({twin: 0}) == tables.append(twin, 0) == []
    assert tables.tables[twin] == [0, 1]


def test_capacity_is_tokens_of_each_sequence_as_in_every_cache() -> None:
    cache = make(PagedCache, 2, capacity=9, block_size=4)
    assert (cache.tables.pool.num_blocks, cache.capacity) == (6, 12)
    assert PagedCache(CONFIG, 2, 9).tables.pool.num_blocks == 2
    for bad in (0, 1.5, True):
        with pytest.raises(ValueError, match="must be an int, 1 or more"):
            PagedCache(CONFIG, 2, bad)
    with pytest.raises(ValueError, match=r"capacity is 9 and num_blocks 4; one of them says"):
        PagedCache(CONFIG, 2, 9, num_blocks=4)


def test_generate_refuses_before_it_runs_what_the_free_blocks_do_not_hold() -> None:
    ids = random_ids(2, 5)
    cache = make(batch=2, num_blocks=4, block_size=4)
    with pytest.raises(ValueError, match=r"5 \+ 8 tokens: at least \+ 0, at most 9"):
        generate(MODEL, ids, 8, cache)
    assert cache.tables.pool.num_free_blocks == 4
    assert generate(MODEL, ids, 4, cache).equal(generate(MODEL, ids, 4))
    cache.reset()
    assert cache.capacity == 8


def test_room_counts_blocks_that_others_hold_and_copies() -> None:
    cache = make(SharingCache, 2, num_blocks=6, block_size=4)
    MODEL(random_ids(2, 6), cache, counts=torch.tensor([6, 0]))
    assert cache.capacity == 6 + 8  # row 0: 2 slots and 2 blocks; row 1: 2 blocks
    cache.fork(0, into=1)
    assert (
        cache.capacity == 6 + 6
    )  # a copy, then 2 slots and a block each; the last block is no help
    cache.free(0)
    assert cache.capacity == 6 + 8
    with pytest.raises(OutOfBlocksError):
        MODEL(random_ids(2, 9), cache)
    MODEL(random_ids(2, 8), cache)
    adds_up(cache.tables)


def test_an_empty_pass_is_a_pass() -> None:
    cache, k = make(batch=2), torch.ones(2, 3, 0, 4, dtype=torch.float64)
    for layer in (0, 1):
        assert cache.update(layer, k, k)[0].shape == (2, 3, 0, 4)
    assert cache.block_table.dtype == torch.long
    cache.advance(0)
    assert cache.lengths.tolist() == [0, 0]


def test_a_pass_that_stored_some_layers_only_does_not_count() -> None:
    cache, k = make(batch=2), torch.ones(2, 3, 2, 4, dtype=torch.float64)
    cache.update(0, k, k)
    with pytest.raises(ValueError, match=r"counts is \[2, 1\]; the pass stored 0\."):
        cache.advance(torch.tensor([2, 1]))
    assert cache.lengths.tolist() == [0, 0]
    cache.update(1, k, k)
    cache.advance(torch.tensor([2, 1]))
    assert cache.lengths.tolist() == [2, 1]


@pytest.mark.parametrize("second", [2, 1, 3])
def test_a_pass_takes_nothing_over_from_one_that_broke_off(second: int) -> None:
    """The first pass got through and was not counted; the second ends after one of two layers."""
    cache = make(batch=2)
    for n, upto in ((2, 2), (second, 1)):
        k = torch.full((2, 3, n, 4), float(n), dtype=torch.float64)
        for layer in range(upto):
            cache.update(layer, k, k)
    with pytest.raises(ValueError, match=r"counts is \[1, 1\]; the pass stored 0\."):
        cache.advance(1)
    assert cache.lengths.tolist() == [0, 0]
    cache.update(1, k, k)
    cache.advance(second)
    assert cache.lengths.tolist() == [second, second]


def test_bytes_in_the_middle_of_a_pass_are_those_held() -> None:
    cache, k = make(batch=2, block_size=4), torch.ones(2, 3, 5, 4, dtype=torch.float64)
    cache.update(0, k, k)
    assert cache.nbytes == held_nbytes(cache) - held_nbytes(cache.lengths)


@pytest.mark.parametrize("change", ["begin", "free", "fork", "reset"])
def test_a_pass_that_broke_off_is_forgotten_when_a_row_changes(change: str) -> None:
    cache, k = make(SharingCache, 2, block_size=4), torch.ones(2, 3, 1, 4, dtype=torch.float64)
    ids = random_ids(2, 6)
    MODEL(ids, cache, counts=torch.tensor([6, 3]))
    for layer in (0, 1):
        cache.update(layer, k, k)  # a pass of one token that is never counted
    if change == "begin":
        cache.begin(1, ids[1].tolist())
    elif change == "fork":
        cache.fork(0, into=1)
    elif change == "free":
        cache.free(1)
    else:
        cache.reset()
    with pytest.raises(ValueError, match="the pass stored 0"):
        cache.advance(1)
    poison(cache)
    before = {"fork": [ids[0], ids[0]], "reset": [ids[0, :0]] * 2}.get(change, [ids[0], ids[0, :0]])
    new = random_ids(2, 1, seed=8)
    found = MODEL(new, cache)
    for row, text in enumerate(before):
        same(found[row], MODEL(torch.cat([text, new[row]])[None])[0, -1:])
    adds_up(cache.tables)


def test_a_copy_on_write_copies_keys_and_values() -> None:
    cache = make(SharingCache, 2, block_size=4)
    MODEL(random_ids(2, 6), cache, counts=torch.tensor([6, 0]))
    cache.fork(0, into=1)
    MODEL(random_ids(2, 1, seed=2), cache)
    one, two = (cache.tables.tables[seq][1] for seq in cache.sequences)
    assert one != two
    for rows in (cache.k, cache.v):
        assert rows[:, :, one, :2].equal(rows[:, :, two, :2])
        assert rows[:, :, one, :3].isfinite().all()


# Passes that are refused or break off


class Passes(RuleBasedStateMachine):
    """Passes that end well, are refused or break off, between rows that begin, fork and go.

    A row of keys or values holds one number for all that came before it, so each is known beforehand.
    """

    BATCH, SIZE, BLOCKS = 3, 3, 9

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.make_cache()
        poison(self.cache)
        self.texts: list[list[int]] = [[] for _ in range(self.BATCH)]
        self.under_way: list[list[int]] | None = None  # the new tokens, if each layer has them
        self.numbers: dict[tuple, float] = {}

    def make_cache(self) -> SharingCache:
        return make(SharingCache, self.BATCH, num_blocks=self.BLOCKS, block_size=self.SIZE)

    def rows(self, texts: list[list[int]], layer: int) -> Tensor:
        """[batch, heads, tokens, width] of texts of one length: each token's number."""
        keys = [[(layer, *text[: end + 1]) for end in range(len(text))] for text in texts]
        found = [
            [self.numbers.setdefault(key, len(self.numbers) + 1.0) for key in row] for row in keys
        ]
        return torch.tensor(found, dtype=torch.float64)[:, None, :, None].expand(-1, 3, -1, 4)

    def state(self) -> list:
        cache, pool = self.cache, self.cache.tables.pool
        tables = {seq: list(table) for seq, table in cache.tables.tables.items()}
        lists = [list(pool.ref_counts), list(pool.empty), list(pool.unused), dict(pool.block_of)]
        counts = [cache.lengths.tolist(), dict(cache.tables.lengths), cache.capacity]
        return [tables, *lists, *counts, dict(cache.stored), id(cache.place), cache.block_table]

    def run(self, new: list[list[int]], layers: int) -> None:
        """The first layers of a pass; raises OutOfBlocksError having changed nothing."""
        state, q_len = self.state(), len(new[0])
        for layer in range(layers):
            parts = [
                self.rows([[*text, *more]], layer)
                for text, more in zip(self.texts, new, strict=True)
            ]
            k = torch.cat([part[:, :, -q_len:] for part in parts])
            try:
                keys, values = self.cache.update(layer, k, -k)
            except OutOfBlocksError:
                assert self.state() == state
                raise
            self.under_way = new if layer == len(self.cache.k) - 1 else None
            for row, part in enumerate(parts):
                n = part.shape[2]
                assert keys[row, :, :n].equal(part[0])
                assert values[row, :, :n].equal(-part[0])
                assert not keys[row, :, n:].any()
                assert not values[row, :, n:].any()

    @rule(
        counts=st.lists(st.integers(0, 5), min_size=3, max_size=3),
        layers=st.integers(1, 2),
        bit=st.integers(0, 1),
    )
    def a_pass(self, counts: list[int], layers: int, bit: int) -> None:
        if self.under_way is None and self.cache.place is None:
            poison(self.cache)
        try:
            self.run([[bit] * max(1, *counts) for _ in counts], layers)
        except OutOfBlocksError:
            return
        if layers == 2 and sum(counts) % 2:  # half of those that got through break off afterwards
            self.count(counts)

    @rule(n=st.integers(1, 3))
    def it_breaks_off_earlier_the_second_time(self, n: int) -> None:
        try:
            self.run([[0] * n] * self.BATCH, layers=2)
            self.run([[1] * n] * self.BATCH, layers=1)
        except OutOfBlocksError:
            return
        self.count([n] * self.BATCH)

    @rule(counts=st.lists(st.integers(0, 3), min_size=3, max_size=3))
    def count(self, counts: list[int]) -> None:
        most = len(self.under_way[0]) if self.under_way else 0
        state = self.state()
        if max(counts) > most:
            with pytest.raises(ValueError, match=f"the pass stored {most}"):
                self.cache.advance(torch.tensor(counts))
            assert self.state() == state
            return
        self.cache.advance(torch.tensor(counts))
        for text, more, n in zip(self.texts, self.under_way or [[]] * 3, counts, strict=True):
            text += more[:n]
        self.row_has_changed()
        poison(self.cache)

    @rule(
        kind=st.sampled_from(["long", "dtype", "batch", "layer", "width"]), layer=st.integers(0, 1)
    )
    def refused(self, kind: str, layer: int) -> None:
        k = torch.ones(self.BATCH, 3, 2, 4, dtype=torch.float64)
        given = {
            "long": torch.ones(self.BATCH, 3, 40, 4, dtype=torch.float64),
            "dtype": k.float(),
            "batch": k[:2],
            "width": k[..., :3],
        }.get(kind, k)
        state = self.state()
        with pytest.raises(ValueError, match=r"needed|takes|holds|layer is"):
            self.cache.update(2 if kind == "layer" else layer, given, given)
        assert self.state() == state

    def row_has_changed(self) -> None:
        """No pass is under way: the tables cover the tokens and no more."""
        self.under_way = None
        assert (self.cache.place, self.cache.stored) == (None, {})
        for seq in self.cache.sequences:
            blocks = -(-self.cache.tables.lengths[seq] // self.SIZE)
            assert len(self.cache.tables.tables[seq]) == blocks

    @rule(row=st.integers(0, 2), text=st.lists(st.integers(0, 1), max_size=8))
    def begin(self, row: int, text: list[int]) -> None:
        self.texts[row] = text[: self.cache.begin(row, text)]
        self.row_has_changed()

    @rule(row=st.integers(0, 2), into=st.integers(0, 2))
    def fork(self, row: int, into: int) -> None:
        if row != into:
            self.cache.fork(row, into)
            self.texts[into] = list(self.texts[row])
            self.row_has_changed()

    @rule(row=st.integers(0, 2))
    def free(self, row: int) -> None:
        self.cache.free(row)
        self.texts[row] = []
        self.row_has_changed()

    @rule(row=st.integers(0, 2))
    def remember(self, row: int) -> None:
        self.cache.remember(row, self.texts[row])

    @invariant()
    def lengths_are_those_counted(self) -> None:
        lengths = [len(text) for text in self.texts]
        assert self.cache.lengths.tolist() == lengths
        assert [self.cache.tables.lengths[seq] for seq in self.cache.sequences] == lengths
        adds_up(self.cache.tables)


Passes.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPasses = Passes.TestCase


def test_rows_of_a_pass_that_broke_off_are_not_counted_with_the_next_one() -> None:
    """Both layers have the first pass, one has the second: its other rows are stale."""
    cache, k = make(batch=1), torch.ones(1, 3, 2, 4, dtype=torch.float64)
    for layer in (0, 1):
        cache.update(layer, k, k)
    cache.update(0, 2 * k, 2 * k)
    with pytest.raises(ValueError, match=r"counts is \[2\]; the pass stored 0"):
        cache.advance(2)
    cache.update(1, 2 * k, 2 * k)
    cache.advance(2)
    assert cache.update(1, k, k)[0][:, :, :2].equal(2 * k)


def test_room_of_a_pass_that_broke_off_is_given_back() -> None:
    cache = make(SharingCache, 2, num_blocks=8, block_size=2)
    long, short = (torch.ones(2, 3, n, 4, dtype=torch.float64) for n in (8, 1))
    cache.update(0, long, long)
    assert cache.tables.pool.num_free_blocks == 0
    cache.update(0, short, short)
    assert cache.tables.pool.num_free_blocks == 6
    cache.update(0, long, long)
    cache.free(1)
    assert (cache.tables.pool.num_free_blocks, cache.capacity) == (8, 8)


def test_a_known_prompt_of_one_token_is_computed_again_with_blocks_of_one() -> None:
    manager = BlockManager(4, block_size=1)
    first = manager.start([7])
    manager.append(first)
    manager.remember(first, [7])
    assert manager.lengths[manager.start([7])] == 0  # the last token must pass through the model
    assert manager.lengths[manager.start([7, 8])] == 1
    assert manager.lengths[manager.start()] == 0
