"""Range sets of numbers, compared with plain sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.ranges import LaneId, LaneRanges, RangeSet

LANE = LaneId("host-1", 0xFFEE, 3)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30), st.lists(st.integers(0, 60)))
def test_a_range_set_behaves_like_a_set(ranges: list[tuple[int, int]], singles: list[int]) -> None:
    """After any additions it has the same numbers as the set, as sorted ranges that do not touch."""
    tested, model = RangeSet(), set[int]()
    for start, length in ranges:
        tested.add_range(start, start + length)
        model.update(range(start, start + length))
    for number in singles:
        assert tested.add(number) == (number not in model)
        model.add(number)
    assert {n for a, b in tested for n in range(a, b)} == model
    assert tested.count() == len(model)
    assert all(n in tested for n in model)
    assert not any(n in tested for n in set(range(80)) - model)
    edges = [edge for pair in tested for edge in pair]
    assert edges == sorted(set(edges))


def test_a_lane_without_gaps_is_one_range() -> None:
    lanes = LaneRanges()
    assert all(lanes.add(LANE, n) for n in range(1000))
    assert not lanes.add(LANE, 500)
    assert list(lanes[LANE]) == [(0, 1000)]


def test_a_missing_number_costs_one_range() -> None:
    lanes = LaneRanges()
    for n in (*range(10), *range(11, 20)):
        lanes.add(LANE, n)
    assert list(lanes[LANE]) == [(0, 10), (11, 20)]
    assert not lanes.contains(LANE, 10)
    assert lanes.add(LANE, 10)
    assert list(lanes[LANE]) == [(0, 20)]


@given(
    st.dictionaries(
        st.builds(LaneId, st.text("a/é-9", min_size=1), st.integers(0, 2**64 - 1), st.integers(0, 9)),
        st.lists(st.integers(0, 2**63), min_size=1, max_size=5),
        max_size=4,
    )
)
def test_lanes_round_trip_through_json(content: dict[LaneId, list[int]]) -> None:
    """Agent names may hold slashes: they come last in the text of a lane."""
    lanes = LaneRanges()
    for lane, numbers in content.items():
        for number in numbers:
            lanes.add(lane, number)
    assert LaneRanges.from_json(lanes.to_json()) == lanes


def test_update_and_copy_share_no_state() -> None:
    first, second = LaneRanges(), LaneRanges()
    first.add_range(LANE, 0, 5)
    second.add_range(LANE, 5, 9)
    before = first.copy()
    first.update(second)
    assert list(first[LANE]) == [(0, 9)]
    assert list(before[LANE]) == [(0, 5)]
    first.forget(LANE)
    assert len(first) == 0


@pytest.mark.parametrize("text", ["", "zz/1/a", "1/x/a"])
def test_an_invalid_lane_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        LaneId.parse(text)
