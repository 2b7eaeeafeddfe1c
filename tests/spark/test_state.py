"""The chain of appends as pure arithmetic, without server or clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.hash_routing import partition_of
from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable.lane_columns import decode_lanes, encode_lanes
from artimon.rawtable.schema import RAW_SCHEMA
from artimon.rawtable.table_state import (
    END_OF_LOG,
    FORGET_LANE_MS,
    Increment,
    LogGap,
    RawState,
    TableStateError,
    TableTotals,
    advance,
    append_epoch,
    close_gaps,
    end_of_epoch,
    find_gaps,
    from_json,
    to_json,
)
from benchmarks.fleet_append import fleet_state, state_bytes

GOLDEN = Path(__file__).parents[1] / "golden" / "raw"


def begun(partitions: int = 2) -> RawState:
    return close_gaps(RawState(), "w", "cluster", "artimon.samples", "topic-1", partitions, [])


def seen(lane: LaneId, *numbers: int) -> LaneRanges:
    ranges = LaneRanges()
    for number in numbers:
        ranges.add(lane, number)
    return ranges


def step(partition: int, until: int, lane: LaneId, *numbers: int, at: int = 1_000) -> Increment:
    return Increment(
        {partition: until}, {partition: seen(lane, *numbers)}, {lane: at}, TableTotals(rows=len(numbers)), at
    )


A, B = LaneId("a", 1, 0), LaneId("b/c", 2, 3)


def test_an_append_moves_its_partitions_only() -> None:
    first = advance(begun(), "w", step(0, 5, A, 0, 1, 2))
    second = advance(first, "w", step(1, 2, B, 7))
    assert dict(second.until()) == {0: 5, 1: 2}
    assert second.append == 3
    assert second.totals.rows == 4
    assert second.lanes[0].contains(A, 2)
    assert not second.lanes[0].contains(B, 7)


def test_an_append_that_moves_backwards_is_refused() -> None:
    state = advance(begun(), "w", step(0, 5, A, 0))
    with pytest.raises(TableStateError, match="partition 0: 4 does not continue 5"):
        advance(state, "w", step(0, 4, A, 1))
    with pytest.raises(TableStateError, match="partition 9"):
        advance(state, "w", step(9, 4, A, 1))


def test_the_previous_state_is_not_modified() -> None:
    before = advance(begun(), "w", step(0, 5, A, 0))
    copy = to_json(before, before)
    advance(before, "w", step(0, 6, A, 1))
    assert to_json(before, before) == copy


def test_lanes_silent_for_90_days_are_forgotten() -> None:
    state = advance(begun(), "w", step(0, 1, A, 0, at=1_000))
    kept = advance(state, "w", step(0, 2, B, 0, at=1_000 + FORGET_LANE_MS))
    assert kept.lanes[0].contains(A, 0)
    gone = advance(kept, "w", step(1, 1, B, 1, at=1_001 + FORGET_LANE_MS))
    assert not gone.lanes[0].contains(A, 0)
    assert A not in gone.last_ms


def test_the_state_survives_json() -> None:
    state = advance(begun(), "w", step(0, 5, A, 0, 2**60))
    state = close_gaps(
        state, "v", "c", "artimon.samples", "topic-2", 2, find_gaps(state, "topic-2", {0: (3, 9), 1: (0, 0)})
    )
    assert from_json(json.loads(json.dumps(to_json(state, begun())))) == state
    assert to_json(advance(begun(), "w", step(0, 5, A)), begun())["topics"][0]["from"] == {"0": 0, "1": 0}


@pytest.mark.parametrize(
    "damage",
    [{"format": 3}, {"lanes": "nonsense"}, {"lanes": "AAAA"}, {"lanes": None}, {"format": 1}, {"topics": None}],
)
def test_an_unreadable_state_is_an_error(damage: dict[str, object]) -> None:
    with pytest.raises(TableStateError):
        from_json({**to_json(begun(), begun()), **damage})


@pytest.mark.parametrize(
    ("topic", "bounds", "gaps", "until"),
    [
        pytest.param("topic-1", {0: (0, 9), 1: (0, 0)}, [], {0: 5, 1: 0}, id="whole"),
        pytest.param("topic-1", {0: (7, 9), 1: (0, 0)}, [LogGap("lost", 0, 5, 7)], {0: 7, 1: 0}, id="log_starts_above"),
        pytest.param("topic-1", {0: (0, 3), 1: (0, 0)}, [LogGap("cut", 0, 3, 5)], {0: 3, 1: 0}, id="log_ends_below"),
        pytest.param(
            "topic-2",
            {0: (0, 9), 1: (2, 4)},
            [LogGap("topic", 0, 5, END_OF_LOG), LogGap("topic", 1, 0, END_OF_LOG), LogGap("lost", 1, 0, 2)],
            {0: 0, 1: 2},
            id="another_topic",
        ),
    ],
)
def test_gaps_are_named_and_reading_continues(
    topic: str, bounds: dict[int, tuple[int, int]], gaps: list[LogGap], until: dict[int, int]
) -> None:
    """Ranges missing from the log are named, reading continues where possible, and seen batches stay seen."""
    state = advance(begun(), "w", step(0, 5, A, 0, 1))
    assert find_gaps(state, topic, bounds) == gaps
    closed = close_gaps(state, "v", "c", "artimon.samples", topic, 2, gaps)
    assert dict(closed.until()) == until
    assert find_gaps(closed, topic, bounds) == []
    home = 0 if topic == "topic-1" else partition_of(A.agent, A.epoch, A.lane, 2)
    assert closed.lanes[home].contains(A, 1)


def test_adjacent_lost_ranges_are_merged() -> None:
    state = close_gaps(begun(), "w", "c", "t", "topic-1", 2, [LogGap("lost", 0, 0, 5)])
    state = close_gaps(state, "w", "c", "t", "topic-1", 2, [LogGap("lost", 0, 5, 9)])
    assert state.current is not None
    assert state.current.lost[0] == ((0, 9),)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.lists(st.integers(0, 20), max_size=5)), max_size=15)
)
def test_a_chain_of_appends_accumulates_offsets_and_lanes(steps: list[tuple[int, int, list[int]]]) -> None:
    state, numbers, until = begun(), {0: set[int](), 1: set[int]()}, {0: 0, 1: 0}
    for partition, more, brought in steps:
        until[partition] += more
        numbers[partition] |= set(brought)
        state = from_json(to_json(advance(state, "w", step(partition, until[partition], A, *brought)), state))
    assert dict(state.until()) == until
    for partition, expected in numbers.items():
        lanes = state.lanes.get(partition, LaneRanges())
        assert {n for n in range(21) if lanes.contains(A, n)} == expected


def test_the_state_matches_the_golden_file() -> None:
    """The JSON of docs/formats/raw.md, section 3: a change here is a change of the format."""
    state = advance(begun(), "w", step(0, 5, A, 0, 1, 4, at=1_795_000_000_000))
    epochs, at = {0: ((0, 0),), 1: ((0, 0), (3, 6))}, 1_795_000_020_000
    state = close_gaps(state, "v", "cluster", "artimon.samples", "topic-1", 2, [LogGap("lost", 1, 0, 7)], epochs, at)
    before = state
    state = advance(state, "v", step(1, 9, B, 3, at=1_795_000_030_000))
    first, second = (json.loads((GOLDEN / f"state-{number}.json").read_text()) for number in (1, 2))
    made = to_json(state, before)
    assert decode_lanes(made.pop("lanes")) == decode_lanes(second["lanes"])  # the bytes are those of a Parquet writer
    assert made == {name: value for name, value in second.items() if name != "lanes"}
    assert from_json(second) == from_json(first) == state


def test_the_state_of_a_fleet_is_small() -> None:
    """12,000 lanes of 3,000 agents, with random names, epochs, counts and times."""
    state = fleet_state()
    assert state_bytes(state) <= 150_000
    again = from_json(json.loads(json.dumps(to_json(state, state))))
    assert (again.lanes, again.last_ms) == (state.lanes, state.last_ms)


LANES = st.builds(
    LaneId, st.sampled_from(["a", "b/c", "", "é\n"]), st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1)
)
SPANS = st.lists(st.tuples(st.integers(0, 2**62), st.integers(1, 9)), min_size=1, max_size=4)


@given(
    st.dictionaries(st.integers(0, 3), st.dictionaries(LANES, SPANS, min_size=1, max_size=4), max_size=4),
    st.dictionaries(LANES, st.integers(0, 2**53), max_size=4),
)
def test_any_lanes_survive_their_columns(
    held: dict[int, dict[LaneId, list[tuple[int, int]]]], last_ms: dict[LaneId, int]
) -> None:
    """Also a lane in two partitions, one without a time, and a time without numbers."""
    lanes = {partition: LaneRanges() for partition in held}
    for partition, ranges in held.items():
        for lane, spans in ranges.items():
            for start, length in spans:
                lanes[partition].add_range(lane, start, start + length)
    some = {lane: 7 for ranges in list(held.values())[:2] for lane in ranges}
    assert decode_lanes(encode_lanes(lanes, {**some, **last_ms})) == (lanes, {**some, **last_ms})


def test_a_state_without_epochs_and_recent_gaps_is_read() -> None:
    """Tables of the first version stay usable: nothing is known of their logs until the raw query has read the
    epochs."""
    data = json.loads((GOLDEN / "state-1.json").read_text())
    del data["recent_gaps"]
    for topic in data["topics"]:
        del topic["epochs"]
    state = from_json(data)
    assert (state.recent_gaps, state.topics[-1].epochs) == ((), {})
    assert find_gaps(state, "topic-1", {0: (0, 5), 1: (0, 9)}, {0: ((7, 0),), 1: ((7, 0),)}) == []


def test_epochs_are_ordered_and_forget_truncated_offsets() -> None:
    """An epoch without records leaves no entry; one that begins lower shows that everything above is gone."""
    first = append_epoch(((0, 0),), 1, 100)
    assert first == ((0, 0), (1, 100))
    assert append_epoch(first, 2, 100) == ((0, 0), (2, 100))
    cut = append_epoch(append_epoch(first, 2, 150), 3, 90)
    assert cut == ((0, 0), (3, 90))
    assert [end_of_epoch(cut, e) for e in range(4)] == [90, 90, 90, END_OF_LOG]


def test_a_truncated_log_is_found_though_it_has_grown_again() -> None:
    state = close_gaps(RawState(), "w", "c", "t", "one", 2, [], {0: ((4, 0),), 1: ((4, 0),)})
    state = advance(state, "w", step(0, 50, A, 0))
    now = {0: ((4, 0), (5, 30)), 1: ((4, 0), (5, 0))}
    assert find_gaps(state, "one", {0: (0, 500), 1: (0, 9)}, now) == [LogGap("cut", 0, 30, 50)]
    whole = {0: ((4, 0), (5, 50)), 1: ((4, 0), (5, 0))}
    assert find_gaps(state, "one", {0: (0, 500), 1: (0, 9)}, whole) == []
    assert find_gaps(state, "one", {0: (0, 500), 1: (0, 9)}, whole, {0: 50, 1: 0}) == []
    assert find_gaps(state, "one", {0: (0, 500), 1: (0, 9)}, now, {0: 90}) == [LogGap("cut", 0, 30, 90)]
    unread = {0: ((4, 0), (5, 70)), 1: ((4, 0), (5, 0))}
    (gap,) = find_gaps(state, "one", {0: (0, 500), 1: (0, 9)}, unread, {0: 90})
    assert gap == LogGap("cut", 0, 70, 90), "the table had not read it, and agents send it again"
    assert close_gaps(state, "w", "c", "t", "one", 2, [gap], unread).until()[0] == 50
    older = {0: ((2, 0),), 1: ((2, 0),)}
    assert find_gaps(state, "one", {0: (10, 500), 1: (0, 9)}, older) == [
        LogGap("cut", 0, 0, 50),
        LogGap("lost", 0, 0, 10),
    ]
    after = close_gaps(state, "w", "c", "t", "one", 2, [LogGap("cut", 0, 0, 50), LogGap("lost", 0, 0, 10)], older)
    assert dict(after.until()) == {0: 10, 1: 0}
    assert find_gaps(after, "one", {0: (10, 500), 1: (0, 9)}, older) == []


def test_every_field_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "raw.md").read_text()
    fields = to_json(begun(), RawState())
    assert [
        name for name in (*fields, *fields["topics"][0]) if f"`{name}`" not in page and f".{name}`" not in page
    ] == []
    assert [name for name in RAW_SCHEMA.names if f"| `{name}` |" not in page] == []
