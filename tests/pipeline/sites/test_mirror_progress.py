"""Mirror progress for any order of the other site's answers, and the union of two stores."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.client import KazooClient

from artimon.model.ack_state import AckDecision, Position
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.ranges import LaneId, LaneRanges, RangeSet
from pipeline.link.answers import MessageAnswer
from pipeline.sites.mirror import MirrorConfig, TopicMirror
from pipeline.sites.mirror_progress import MirrorProgress, SourceMessage, merge_offsets
from pipeline.sites.sites_report import SitesUnionError, compare_stores, intersection


def at(offset: int) -> Position:
    return Position("other", "topic", 0, 1000 + offset)


def reading(count: int, compacted: bool = False) -> MirrorProgress:
    handing = MirrorProgress(compacted=compacted)
    for offset in range(count):
        assert handing.add(SourceMessage(0, offset))
    return handing


class Record(NamedTuple):
    """Message in the shape of Kafka's consumer."""

    partition: int
    offset: int
    value: bytes


class Interrupted(TopicMirror):
    """Accepts one message a call. During its second call the other site reports the loss of the first message."""

    calls = 0

    def _call_collector(self, messages: list[bytes]) -> list[MessageAnswer]:
        self.calls += 1
        if self.calls == 2:
            self.apply_verdict(AckDecision(resend=((SourceMessage(0, 0), "lost"),)))
        return [MessageAnswer(at(0)) for _ in messages[:1]]


def test_messages_in_flight_during_a_loss_are_read_again() -> None:
    """The rest of the poll must not move the hand-over past the offset it returns to."""
    config = MirrorConfig("h", "127.0.0.1:1", "127.0.0.1:1", topic_prefix="t")
    running = Interrupted(config, "samples", KazooClient("127.0.0.1:1"), SYSTEM_CLOCK, False)
    running._send_records([Record(0, offset, b"batch") for offset in range(4)], threading.Event())
    assert running.calls == 2
    assert running.progress.next_offset(0) == 0
    assert running.progress.lost == 0


@given(st.permutations(range(6)), st.integers(0, 6))
def test_an_offset_counts_once_all_below_it_are_handed_over(order: list[int], count: int) -> None:
    handing = reading(6)
    for offset in order:
        handing.mark_placed(SourceMessage(0, offset), at(offset), acked=False)
    assert handing.handed_until == {}, "placed is not acked"
    done = set(order[:count])
    handing.apply_verdict(AckDecision(tuple(SourceMessage(0, offset) for offset in done)))
    prefix = next(n for n in range(7) if n not in done)
    assert handing.handed_until.get(0, 0) == prefix
    assert handing.in_flight == 6 - prefix


def test_messages_lost_at_the_other_site_are_read_again() -> None:
    handing = reading(4)
    for offset in range(4):
        handing.mark_placed(SourceMessage(0, offset), at(offset), acked=False)
    handing.apply_verdict(AckDecision((SourceMessage(0, 0), SourceMessage(0, 3))))
    assert handing.apply_verdict(AckDecision(resend=((SourceMessage(0, 1), "lost"),))) == {0}
    assert handing.next_offset(0) == 1
    assert handing.add(SourceMessage(0, 1))
    assert not handing.add(SourceMessage(0, 1)), "once"


def test_messages_deleted_at_the_source_are_counted() -> None:
    handing = reading(1)
    handing.add(SourceMessage(0, 5))
    assert handing.lost == 4
    handing = reading(1, compacted=True)
    handing.add(SourceMessage(0, 5))
    assert handing.lost == 0


def test_invalid_messages_do_not_stop_the_hand_over() -> None:
    handing = reading(2)
    handing.skip(SourceMessage(0, 0))
    handing.mark_placed(SourceMessage(0, 1), at(1), acked=True)
    assert handing.handed_until == {0: 2}
    assert handing.skipped == 1


def test_offsets_of_two_hand_overs_never_decrease() -> None:
    assert merge_offsets({0: 5, 1: 2}, {0: 3, 2: 9}) == {0: 5, 1: 2, 2: 9}


def held(*ranges: tuple[int, int], lane: int = 0) -> LaneRanges:
    lanes = LaneRanges()
    for start, end in ranges:
        lanes.add_range(LaneId("a", 1, lane), start, end)
    return lanes


def test_lanes_split_between_sites_yield_each_batch_once() -> None:
    report = compare_stores({"near": held((0, 57), (90, 100)), "far": held((57, 90))})
    assert report.is_exact
    assert report.stores_to_read() == ["near", "far"]
    assert report.union_count == 100
    assert report.missing == {}


def test_a_mirrored_site_is_left_out_of_the_union() -> None:
    report = compare_stores({"edge": held((0, 50)), "whole": held((0, 80))})
    assert report.stores_to_read() == ["whole"]


def test_batches_that_two_sites_hold_are_named() -> None:
    report = compare_stores({"near": held((0, 57)), "far": held((50, 90))})
    assert [list(one.ranges) for one in report.overlaps] == [[(50, 57)]]
    with pytest.raises(SitesUnionError, match="near"):
        report.stores_to_read()


def test_numbers_that_no_site_has_are_named() -> None:
    report = compare_stores({"near": held((0, 10)), "far": held((20, 30))})
    assert [list(gaps) for gaps in report.missing.values()] == [[(10, 20)]]


numbers = st.sets(st.integers(0, 60))


def ranges(of: set[int]) -> RangeSet:
    return RangeSet((n, n + 1) for n in of)


@given(numbers, numbers)
def test_common_numbers(ones: set[int], twos: set[int]) -> None:
    assert intersection(ranges(ones), ranges(twos)) == ranges(ones & twos)
