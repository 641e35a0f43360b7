"""An explorer for paging: requests arrive, grow, fork and finish; blocks are taken, shared, copied and freed.

The page plays the events through the same book-keeping as `kvbook.lessons.paged`, so it needs no kernel.
With one, the traits follow the reader's hand and `moment` answers from Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import takewhile
from operator import index
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvbook.explorer.checks import choice, whole
from kvbook.lessons.paged import BlockManager, OutOfBlocksError, block_names, happen

Event = tuple[str, str, Any]
"""("arrive", name, prompt), ("grow", name, tokens), ("fork", name, new name), ("finish", name, None)."""

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
KINDS = ("arrive", "grow", "fork", "finish")
MAX_BLOCKS = 512
MAX_POOL = 4096  # tokens
MAX_EVENTS = 200
MAX_TOKENS = 20_000  # of all events of a timeline: they are stored in the notebook
MAX_NAME = 12  # characters
MAX_TITLE = 40
CHATS = "Twelve chats"


class PagingExplorer(anywidget.AnyWidget):
    """Step through requests and see the blocks that they take, and what other ways would waste.

    timeline         events: ("arrive", name, prompt tokens), ("grow", name, new tokens),
                     ("fork", name, new name), ("finish", name); None: chats that begin alike. An event
                     of a request that was not let in is left out, as is an arrival of one that is there.
    num_blocks       blocks of the pool; block_size: tokens in each, a power of two up to 256
    max_len          the longest length, in tokens, that a server would reserve for each request
    sharing          whether equal beginnings and forks share blocks
    step             how many events have happened; None: where most is held
    bytes_per_token  bytes of cache that a token takes; 46,080 is SmolLM2 135M in float32
    title            what a button calls the timeline
    link             whether the page's address follows the settings (the first explorer's only)

    Raises ValueError, one sentence, for what is not allowed.
    """

    _esm = Path(__file__).parent / "static/paging.js"
    _css = Path(__file__).parent / "static/paging.css"

    timelines = traitlets.List(traitlets.Dict()).tag(sync=True)
    timeline = traitlets.Int().tag(sync=True)  # which of them
    step = traitlets.Int().tag(sync=True)
    block_size = traitlets.Int().tag(sync=True)
    sharing = traitlets.Bool().tag(sync=True)
    pool_tokens = traitlets.Int().tag(sync=True)
    max_len = traitlets.Int().tag(sync=True)
    bytes_per_token = traitlets.Int().tag(sync=True)
    link = traitlets.Bool().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        timeline: Sequence[Sequence[Any]] | None = None,
        num_blocks: int = 48,
        block_size: int = 16,
        max_len: int = 256,
        *,
        sharing: bool = True,
        step: int | None = None,
        bytes_per_token: int = 46_080,
        title: str = "This lesson’s",
        link: bool = True,
    ) -> None:
        choice("block_size", block_size, BLOCK_SIZES)
        block_size = whole("block_size", block_size, 1, 256) or 1
        if not isinstance(sharing, bool):
            raise ValueError(f"sharing is {sharing!r}; it must be True or False.")
        most = min(MAX_BLOCKS, MAX_POOL // block_size)
        num_blocks = whole("num_blocks", num_blocks, 1, most) or 1
        max_len = whole("max_len", max_len, 1, MAX_POOL) or 1
        if not isinstance(title, str) or not 1 <= len(title) <= MAX_TITLE:
            raise ValueError(
                f"title is {title!r}; it must be a text of 1 to {MAX_TITLE} characters."
            )
        chats = _described(CHATS, _chats(), 48, 16, 256)
        own = (
            []
            if timeline is None
            else [_described(title, _events(timeline), num_blocks, block_size, max_len)]
        )
        timelines = [*own, chats]
        first = timelines[0]
        start = {
            "timeline": 0,
            "step": first["step"] if step is None else whole("step", step, 0, len(first["events"])),
            "block_size": block_size,
            "sharing": sharing,
            "pool_tokens": num_blocks * block_size,
            "max_len": max_len,
        }
        super().__init__(
            **start,
            start=start,
            timelines=timelines,
            bytes_per_token=whole("bytes_per_token", bytes_per_token, 1, 2**40),
            link=bool(link),
        )

    def __repr__(self) -> str:
        one = self._shown
        return f"PagingExplorer({one['name']}: {len(one['events'])} events)"

    @property
    def _shown(self) -> dict[str, Any]:
        """The timeline that is shown: the nearest one, as in the page, if there is no such number."""
        return self.timelines[min(max(0, self.timeline), len(self.timelines) - 1)]

    @property
    def moment(self) -> Moment:
        """What is held after `step` events with the settings as they are now."""
        moments = replay(
            [(what, name, more) for what, name, more in self._shown["events"]],
            num_blocks=max(1, self.pool_tokens // self.block_size),
            block_size=self.block_size,
            max_len=self.max_len,
            sharing=self.sharing,
        )
        return moments[min(max(0, self.step), len(moments) - 1)]


@dataclass(frozen=True)
class Moment:
    """The book-keeping after an event. All counts are tokens, but for those of blocks."""

    tables: dict[str, list[int]]  # of each live request, its blocks
    lengths: dict[str, int]
    ref_counts: list[int]  # of each block, its owners
    unused: list[int]  # free blocks that keep their rows, the one unused for longest first
    written: int  # of all live requests; what several share counts for each
    filled: int  # slots in which a token lies
    paged: int  # slots of the blocks in use
    exact: int  # what the live requests hold in the end
    maximum: int  # what they may hold
    asked: int  # prompt tokens so far
    found: int  # of these, those that lay there already
    copies: int  # blocks copied on write so far
    refused: int  # events so far that found too few free blocks


def replay(
    events: Sequence[Event], *, num_blocks: int, block_size: int, max_len: int, sharing: bool = True
) -> list[Moment]:
    """Let all events happen: the moments before the first one and after each of them."""
    manager = BlockManager(num_blocks, block_size)
    live: dict[str, tuple[int, list[int]]] = {}
    there: list[dict[str, int]] = []  # at each moment, the sequence of each live request
    finals: dict[int, int] = {}  # the most tokens that each sequence holds: a name may come again
    sums = dict.fromkeys(("asked", "found", "copies", "refused"), 0)

    def now() -> Moment:
        tables = {name: list(manager.tables[seq]) for name, (seq, _) in live.items()}
        lengths = {name: manager.lengths[seq] for name, (seq, _) in live.items()}
        there.append({name: seq for name, (seq, _) in live.items()})
        finals.update({seq: lengths[name] for name, seq in there[-1].items()})
        return Moment(
            tables,
            lengths,
            list(manager.pool.ref_counts),
            list(manager.pool.unused),
            written=sum(lengths.values()),
            filled=manager.slots_used(),
            paged=(num_blocks - manager.pool.num_free_blocks) * block_size,
            exact=0,  # known when all has happened
            maximum=len(live) * max_len,
            **sums,
        )

    moments = [now()]
    for what, name, more in events:
        is_there = name in live
        if is_there != (what == "arrive") and not (what == "fork" and more in live):
            event = (what, name, more)
            found = _found(manager, more) if what == "arrive" and sharing else 0
            try:
                copies = happen(manager, live, event) if sharing else _alone(manager, live, event)
            except OutOfBlocksError:
                sums["refused"] += 1
            else:
                sums["copies"] += len(copies)
                if what == "arrive":
                    sums["asked"] += len(more)
                    sums["found"] += found
        moments.append(now())
    return [
        changed(moment, exact=sum(finals[seq] for seq in live_then.values()))
        for moment, live_then in zip(moments, there, strict=True)
    ]


def _found(manager: BlockManager, prompt: Sequence[int]) -> int:
    """Tokens of a prompt that lie in blocks already, before it arrives."""
    known = manager.pool.block_of
    names = block_names(prompt[:-1], manager.block_size)
    return manager.block_size * sum(1 for _ in takewhile(known.__contains__, names))


def _alone(
    manager: BlockManager, live: dict[str, tuple[int, list[int]]], event: Event
) -> list[tuple[int, int]]:
    """The event in a server that shares nothing: a fork copies all of its parent's tokens."""
    what, name, more = event
    if what == "grow":
        seq, tokens = live[name]
        manager.append(seq, len(more))
        tokens += more
    elif what == "finish":
        manager.free(live.pop(name)[0])
    else:
        into, tokens = (name, list(more)) if what == "arrive" else (more, list(live[name][1]))
        seq = manager.start()
        try:
            manager.append(seq, len(tokens))
        except OutOfBlocksError:
            manager.free(seq)
            raise
        live[into] = seq, tokens
    return []


def _longest(events: Sequence[Event]) -> int:
    """The most tokens that a request holds, if all are let in."""
    lengths: dict[str, int] = {}
    most = 0
    for what, name, more in events:
        if what == "arrive":
            lengths[name] = len(more)
        elif what == "grow":
            lengths[name] += len(more)
        elif what == "fork":
            lengths[more] = lengths[name]
        most = max(most, *lengths.values())
    return most


def _described(
    name: str, events: list[Event], num_blocks: int, block_size: int, max_len: int
) -> dict[str, Any]:
    """A timeline as the page takes it, with the event after which paging holds most."""
    moments = replay(events, num_blocks=num_blocks, block_size=block_size, max_len=max_len)
    held = [moment.paged for moment in moments]
    return {
        "name": name,
        "events": [list(event) for event in events],
        "block_size": block_size,
        "pool_tokens": num_blocks * block_size,
        "max_len": max_len,
        "step": held.index(max(held)),
        "longest": _longest(events),
    }


def _events(timeline: Sequence[Sequence[Any]]) -> list[Event]:
    """The events as plain values. Raises ValueError."""
    if not isinstance(timeline, list | tuple):
        raise ValueError(f"timeline is {timeline!r:.40}; it must be a list of events.")
    if not 1 <= len(timeline) <= MAX_EVENTS:
        raise ValueError(f"timeline has {len(timeline)} events; it must have 1 to {MAX_EVENTS}.")
    known: set[str] = set()
    events: list[Event] = []
    for i, given in enumerate(timeline, 1):
        if not isinstance(given, list | tuple) or not 1 <= len(given) <= 3:
            raise ValueError(f"event {i} is {given!r:.40}; it must be a list of up to three items.")
        what, name, more = (*given, None, None)[:3]
        choice(f"event {i}", what, KINDS)
        _check_name(i, name)
        if what != "arrive" and name not in known:
            raise ValueError(f"event {i} is of {name!r}, which has not arrived.")
        if what == "fork":
            _check_name(i, more)
            known.add(more)
        elif what == "finish":
            more = None
        else:
            more = _tokens(i, more)
            known.add(name)
        events.append((what, name, more))
    total = sum(len(more) for what, _, more in events if what in ("arrive", "grow"))
    if total > MAX_TOKENS:
        raise ValueError(f"timeline has {total} tokens; {MAX_TOKENS} are the most.")
    return events


def _check_name(i: int, name: Any) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME:
        raise ValueError(
            f"event {i} names {name!r}; a name must be a text of 1 to {MAX_NAME} characters."
        )


def _tokens(i: int, given: Any) -> list[int]:
    try:
        tokens = [index(token) for token in given]
    except TypeError:
        tokens = []
    if not tokens or not all(0 <= token < 2**31 for token in tokens):
        raise ValueError(f"event {i} must have tokens: a list of whole numbers from 0 up.")
    return tokens


def _chats() -> list[Event]:
    """Twelve chats with one system prompt of 48 tokens; two ask for a second answer, one comes back."""
    system = list(range(48))
    fresh = iter(range(48, MAX_TOKENS))

    def new(n: int) -> list[int]:
        return [next(fresh) for _ in range(n)]

    asks = [21, 9, 34, 14, 52, 7, 26, 18, 11, 40, 16, 23]
    answers = [3, 5, 1, 4, 2, 6, 2, 3, 5, 1, 4, 2]  # growths of 16 tokens each
    events: list[Event] = []
    texts: dict[str, list[int]] = {}
    left: dict[str, int] = {}

    def everyone_grows() -> None:
        for name in list(left):
            tokens = new(16)
            texts[name] += tokens
            events.append(("grow", name, tokens))
            left[name] -= 1
            if not left[name]:
                del left[name]
                events.append(("finish", name, None))

    for i, (ask, answer) in enumerate(zip(asks, answers, strict=True)):
        name = chr(ord("A") + i)
        before = texts["C"] if name == "J" else system  # J is C, who asks again
        texts[name], left[name] = [*before, *new(ask)], answer
        events.append(("arrive", name, list(texts[name])))
        if name in "BF":  # two answers to one question
            twin = name + "2"
            texts[twin], left[twin] = list(texts[name]), answer
            events.append(("fork", name, twin))
        if i % 2:
            everyone_grows()
    while left:
        everyone_grows()
    return events
