"""The paging explorer's Python side, and that its page plays events as `kvbook.lessons.paged` does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbook.explorer.paging import CHATS, MAX_EVENTS, Event, PagingExplorer, replay

ROOT = Path(__file__).parent.parent
SYSTEM = list(range(8))
EVENTS: list[Event] = [
    ("arrive", "A", [*SYSTEM, 20, 21]),
    ("grow", "A", [22, 23, 24]),
    ("arrive", "B", [*SYSTEM, 30, 31, 32]),
    ("fork", "A", "C"),
    ("grow", "C", [40, 41]),
    ("finish", "A", None),
]


def ask(code: str, given: Any = None) -> Any:
    """What a piece of the page's JavaScript answers."""
    node = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "--eval", code],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return json.loads(node.stdout)


def explorer(**changes: Any) -> PagingExplorer:
    options: dict[str, Any] = {"num_blocks": 10, "block_size": 4, "max_len": 20}
    return PagingExplorer(EVENTS, **{**options, **changes})


def test_the_vectors_are_current() -> None:
    tool = ROOT / "tools/make_paging_vectors.py"
    result = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_a_timeline_by_hand() -> None:
    moments = replay(EVENTS, num_blocks=10, block_size=4, max_len=20)
    assert len(moments) == len(EVENTS) + 1
    assert moments[0].ref_counts == [0] * 10
    after = moments[5]  # C has grown: block 3, which A has too, is copied to block 5
    assert after.tables == {"A": [0, 1, 2, 3], "B": [0, 1, 4], "C": [0, 1, 2, 5]}
    assert (after.written, after.filled, after.paged) == (13 + 11 + 15, 19, 24)
    assert (after.exact, after.maximum) == (39, 60)
    assert (after.asked, after.found, after.copies, after.refused) == (21, 8, 1, 0)
    assert moments[6].ref_counts[3] == 0


def test_without_sharing_every_request_has_blocks_of_its_own() -> None:
    moments = replay(EVENTS, num_blocks=20, block_size=4, max_len=20, sharing=False)
    assert (moments[5].written, moments[5].filled, moments[5].copies, moments[5].found) == (
        *(39, 39),
        *(0, 0),
    )
    assert all(max(moment.ref_counts) <= 1 and not moment.unused for moment in moments)


def test_what_was_not_let_in_is_left_out_and_may_come_again() -> None:
    events: list[Event] = [
        ("arrive", "A", [1, 2, 3, 4, 5]),
        ("arrive", "B", [6, 7, 8]),
        ("grow", "B", [9]),
        ("fork", "B", "C"),
        ("finish", "A", None),
        ("arrive", "B", [6, 7, 8]),
        ("arrive", "B", [6, 7]),
    ]
    moments = replay(events, num_blocks=3, block_size=2, max_len=8)
    assert [moment.refused for moment in moments] == [0, 0, 1, 1, 1, 1, 1, 1]
    assert moments[4].lengths == {"A": 5}
    assert moments[7].lengths == moments[6].lengths == {"B": 3}


def test_it_starts_where_most_is_held_and_answers_from_python() -> None:
    one = PagingExplorer()
    assert repr(one) == "PagingExplorer(Twelve chats: 77 events)"
    assert one.moment.paged == max(
        moment.paged
        for moment in replay(
            [(what, name, more) for what, name, more in one.timelines[0]["events"]],
            num_blocks=48,
            block_size=16,
            max_len=256,
        )
    )
    assert one.moment.maximum > 3 * one.moment.paged
    one.step, one.sharing = 0, False  # as the page sets them
    assert one.moment.written == 0
    own = explorer(step=5)
    assert repr(own) == "PagingExplorer(This lesson’s: 6 events)"
    assert [timeline["name"] for timeline in own.timelines] == ["This lesson’s", CHATS]
    own.block_size = 8
    assert own.moment.paged == 8 * 4


def test_it_starts_with_the_same_settings_in_the_page_as_in_python() -> None:
    one = PagingExplorer()
    initial = ask(
        'import { INITIAL, toTraits } from "./kvbook/explorer/src/paging/state.js";'
        "console.log(JSON.stringify(toTraits(INITIAL)));"
    )
    assert one.start == {**initial, "step": one.step}
    assert set(one.start) | {"start", "link", "timelines", "bytes_per_token"} == {
        name for name in one.trait_names(sync=True) if not name.startswith("_")
    } - {"layout", "tabbable", "tooltip", "comm"}


def test_the_chats_are_the_same_in_the_page() -> None:
    one = PagingExplorer()
    options = {"blockSize": 16, "numBlocks": 24, "sharing": True, "maxLen": 256}
    held = ask(
        'import { readFileSync } from "node:fs";'
        'import { play } from "./kvbook/explorer/src/paging/timeline.js";'
        'const [events, options] = JSON.parse(readFileSync(0, "utf8"));'
        "console.log(JSON.stringify(play(events, options).map(({ tokens, sums }) =>"
        " [tokens.paged, tokens.filled, sums.refused])));",
        [one.timelines[0]["events"], options],
    )
    events = [(what, name, more) for what, name, more in one.timelines[0]["events"]]
    moments = replay(events, num_blocks=24, block_size=16, max_len=256)
    assert held == [[m.paged, m.filled, m.refused] for m in moments]
    assert moments[-1].refused > 0


def test_the_state_is_plain_json_and_carries_its_code() -> None:
    one = explorer(num_blocks=np.int64(9), bytes_per_token=np.int64(512), step=2)
    state = one.get_state()
    assert "export" in state["_esm"]
    assert ".kvbook-paging" in state["_css"]
    plain = json.loads(json.dumps({key: v for key, v in state.items() if key != "layout"}))
    assert (plain["pool_tokens"], plain["bytes_per_token"], plain["step"]) == (36, 512, 2)
    assert plain["timelines"][0]["events"][3] == ["fork", "A", "C"]


A = ("arrive", "A", [1])


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], "timeline has 0 events; it must have 1 to 200."),
        ([A] * (MAX_EVENTS + 1), "timeline has 201 events; it must have 1 to 200."),
        ([("come", "A", [1])], "event 1 is 'come'; it must be one of arrive, grow, fork, finish."),
        ([("arrive", "", [1])], "event 1 names ''; a name must be a text of 1 to 12 characters."),
        ([A, ("fork", "A", 5)], "event 2 names 5; a name must be a text of 1 to 12 characters."),
        ([A, ("grow", "B", [1])], "event 2 is of 'B', which has not arrived."),
        ([("arrive", "A", [])], "event 1 must have tokens: a list of whole numbers from 0 up."),
        ([A, ("grow", "A", [0.5])], "event 2 must have tokens: a list of whole numbers"),
        ([A, ("grow", "A", 5)], "event 2 must have tokens: a list of whole numbers"),
        (5, "timeline is 5; it must be a list of events."),
        ([5], "event 1 is 5; it must be a list of up to three items."),
        ([None], "event 1 is None; it must be a list of up to three items."),
        ([("arrive", "A", [1], 2)], "event 1 is ('arrive', 'A', [1], 2); it must be a list of up"),
        ([("arrive", "A", [-1])], "event 1 must have tokens: a list of whole numbers"),
        ([("arrive", "A", [1] * 20_001)], "timeline has 20001 tokens; 20000 are the most."),
    ],
)
def test_a_timeline_that_is_none_is_refused(events: list[Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        PagingExplorer(events)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"block_size": 3}, "block_size is 3; it must be one of 1, 2, 4, 8, 16, 32, 64, 128, 256."),
        ({"num_blocks": 0}, "num_blocks is 0; it must be a whole number from 1 to 512."),
        ({"num_blocks": 65, "block_size": 64}, "num_blocks is 65; it must be a whole number from"),
        ({"max_len": 2.5}, "max_len is 2.5; it must be a whole number from 1 to 4096."),
        ({"step": 7}, "step is 7; it must be a whole number from 0 to 6."),
        ({"bytes_per_token": 0}, "bytes_per_token is 0; it must be a whole number from 1"),
        ({"block_size": 4.0}, "block_size is 4.0; it must be a whole number from 1 to 256."),
        ({"sharing": "no"}, "sharing is 'no'; it must be True or False."),
        ({"title": ""}, "title is ''; it must be a text of 1 to 40 characters."),
    ],
)
def test_what_is_out_of_range_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as told:
        explorer(**changes)
    assert "\n" not in str(told.value)


def test_a_name_that_comes_again_and_a_growth_that_is_refused_count_what_is_held() -> None:
    again: list[Event] = [
        ("arrive", "A", [1, 2]),
        ("finish", "A", None),
        ("arrive", "A", list(range(20))),
    ]
    moments = replay(again, num_blocks=9, block_size=4, max_len=20)
    assert [moment.exact for moment in moments] == [0, 2, 0, 20]
    assert PagingExplorer([*again, ("finish", "A"), again[0]]).timelines[0]["longest"] == 20
    refused: list[Event] = [("arrive", "A", [1]), ("grow", "A", [2, 3, 4]), ("grow", "A", [2])]
    moments = replay(refused, num_blocks=1, block_size=2, max_len=9)
    assert [moment.exact for moment in moments] == [0, 2, 2, 2]


def test_numpy_sizes_will_do_and_traits_out_of_range_show_the_nearest() -> None:
    assert explorer(block_size=np.int64(4)).start["block_size"] == 4
    one = explorer()
    one.timeline, one.step = 7, 500
    assert one.moment.written == 0  # the chats, when all are gone
    assert "Twelve chats" in repr(one)
    one.timeline, one.step = -1, -1
    assert one.moment.written == 0
