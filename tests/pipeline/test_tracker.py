"""pipeline.delivery.tracker, timer and collectors: pure, tested in every order of events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.ack_state import AckDecision, Position
from artimon.model.batch import NO_LANE, BatchHeader, BatchId, BatchKind
from pipeline.delivery.tracker import LaneCall, Tracker
from pipeline.link.answers import MessageAnswer
from pipeline.link.collector_choice import CollectorEndpoint, Collectors, parse_endpoint
from pipeline.link.collector_link import MAX_CALL_BYTES
from pipeline.link.timer import AdaptiveTimer, backoff_s
from pipeline.wal.state_records import LogPosition


def header(lane: int, sequence: int, rows: int = 3) -> BatchHeader:
    id = BatchId("a", 0 if lane == NO_LANE else 1, lane, sequence)
    kind = BatchKind.SERIES if lane == NO_LANE else BatchKind.SAMPLES
    return BatchHeader(kind, id, "s", bytes(16), 0, 0, rows, 0, "default", 90, 100)


def add(tracker: Tracker, lane: int, sequence: int, size: int = 100) -> None:
    tracker.add(header(lane, sequence), LogPosition(1, lane * 10_000_000 + sequence * 1000, size), now_ms=sequence)


def position(sequence: int) -> Position:
    return Position("c", "t", 0, sequence)


def take(tracker: Tracker, now: float = 0.0) -> LaneCall:
    group = tracker.take_call(now)
    assert group is not None
    return group


def ok(group: LaneCall) -> list[MessageAnswer]:
    return [MessageAnswer(position(item.id.sequence)) for item in group.items]


def test_a_lane_is_sent_in_order_one_group_at_a_time() -> None:
    tracker = Tracker()
    for number in range(4):
        add(tracker, 0, number)
    group = take(tracker)
    assert [item.id.sequence for item in group.items] == [0, 1, 2, 3]
    add(tracker, 0, 4)
    assert tracker.take_call(0.0) is None, "the lane has a call in flight"
    tracker.apply_answers(group, ok(group), 0.0)
    assert [item.id.sequence for item in take(tracker).items] == [4]


def test_groups_are_bounded_and_one_huge_batch_is_sent_alone() -> None:
    tracker = Tracker()
    for number in range(3):
        add(tracker, 0, number, size=MAX_CALL_BYTES // 2)
    add(tracker, 1, 0, size=MAX_CALL_BYTES * 2)
    sizes = {}
    for _ in range(2):
        group = take(tracker)
        sizes[group.lane.lane] = len(group.items)
    assert sizes == {0: 2, 1: 1}


def test_a_failed_lane_waits_and_delays_no_other() -> None:
    tracker = Tracker()
    add(tracker, 0, 0)
    add(tracker, 1, 0)
    bad = take(tracker)
    good = take(tracker)
    tracker.apply_answers(bad, [MessageAnswer(None, "kafka: partition has no leader")], 10.0)
    tracker.apply_answers(good, ok(good), 10.0)
    add(tracker, 1, 1)
    assert take(tracker, 10.0).lane == good.lane
    assert tracker.take_call(10.0) is None
    due = tracker.next_due()
    assert due is not None
    assert due > 10.0
    assert take(tracker, due).lane == bad.lane
    assert tracker.nacks == {"kafka": 1}


def test_a_call_without_an_answer_is_repeated_unchanged() -> None:
    tracker = Tracker()
    for number in range(3):
        add(tracker, 0, number)
    first = take(tracker)
    tracker.call_failed(first, 0.0)
    again = take(tracker, 100.0)
    assert [item.id for item in again.items] == [item.id for item in first.items]
    assert tracker.pending == 3


def test_a_refused_batch_does_not_delay_those_behind_it() -> None:
    tracker = Tracker()
    for number in range(3):
        add(tracker, 0, number)
    group = take(tracker)
    answers = ok(group)
    answers[1] = MessageAnswer(None, "damaged: digest", is_permanent=True)
    outcome = tracker.apply_answers(group, answers, 0.0)
    assert [item.id.sequence for item in outcome.sent] == [0, 2]
    add(tracker, 0, 3)
    assert [item.id.sequence for item in take(tracker, 0.0).items] == [3]
    due = tracker.next_due()
    assert due is None or due > 0.0


def test_refused_batches_come_back_in_order() -> None:
    tracker = Tracker()
    for number in range(3):
        add(tracker, 0, number)
    group = take(tracker)
    tracker.apply_answers(group, [MessageAnswer(None, "damaged: x", is_permanent=True) for _ in group.items], 0.0)
    assert tracker.take_call(0.0) is None
    assert [item.id.sequence for item in take(tracker, 1000.0).items] == [0, 1, 2]


def test_at_level_hdfs_sent_is_not_acked() -> None:
    tracker = Tracker()
    add(tracker, 0, 0)
    group = take(tracker)
    outcome = tracker.apply_answers(group, ok(group), 0.0)
    assert not outcome.done
    assert tracker.pending == 1
    assert tracker.take_call(1e9) is None, "an offset is held: time alone sends nothing again"
    done = tracker.apply_verdict(AckDecision(acked=(group.items[0].id,)))
    assert [item.id for item in done] == [group.items[0].id]
    assert tracker.pending == 0
    assert tracker.apply_verdict(AckDecision(acked=(group.items[0].id,))) == [], "an ack counts once"


def test_at_level_kafka_sent_is_acked() -> None:
    tracker = Tracker(ack_on_sent=True)
    add(tracker, 0, 0)
    group = take(tracker)
    assert tracker.apply_answers(group, ok(group), 0.0).done == list(group.items)
    assert tracker.pending == 0
    assert tracker.unacked() == []


def test_announcements_are_forgotten_once_kafka_has_them() -> None:
    tracker = Tracker()
    add(tracker, NO_LANE, 0)
    group = take(tracker)
    assert tracker.apply_answers(group, ok(group), 0.0).done == list(group.items)
    assert tracker.acked_count == 0
    assert tracker.pending == 0


def test_evidence_of_loss_is_counted_and_sends_again() -> None:
    tracker = Tracker()
    tracker.restore_sent(header(0, 7), LogPosition(1, 16, 10), position(7), 0)
    id = header(0, 7).id
    tracker.apply_verdict(AckDecision(checked=((id, 3),)))
    assert tracker.unacked()[0].checked_version == 3
    tracker.apply_verdict(AckDecision(resend=((id, "lost"),)))
    assert tracker.unacked() == []
    assert take(tracker).items[0].id == id
    assert tracker.resent_count == 1


def test_unreadable_batches_are_given_up_and_the_rest_is_sent() -> None:
    tracker = Tracker()
    for number in range(3):
        add(tracker, 0, number)
    group = take(tracker)
    tracker.drop_unreadable(group, [group.items[1]])
    assert [item.id.sequence for item in take(tracker).items] == [0, 2]
    assert tracker.pending == 2


def test_a_batch_shed_during_its_read_is_not_counted_as_unreadable() -> None:
    """A segment that was deleted while a sender held its batch is counted as shed only."""
    tracker = Tracker()
    for number in range(3):
        add(tracker, 0, number)
    group = take(tracker)
    shed, damaged = group.items[:2]
    assert tracker.stop_sending([shed.place]) == set()
    assert tracker.drop_unreadable(group, [shed, damaged]) == [damaged]
    assert tracker.pending == 1
    assert [item.id.sequence for item in take(tracker).items] == [2]


def test_the_oldest_batch_is_known_in_any_state() -> None:
    tracker = Tracker()
    assert tracker.oldest_ms() is None
    tracker.restore_sent(header(0, 5), LogPosition(1, 16, 10), position(5), 5)
    add(tracker, 1, 9)
    assert tracker.oldest_ms() == 5


def test_batches_in_flight_count_for_the_age_of_unsent_data() -> None:
    tracker = Tracker()
    tracker.restore_sent(header(0, 5), LogPosition(1, 16, 10), position(5), 5)
    assert (tracker.unsent_count, tracker.oldest_unsent_ms()) == (0, None)
    tracker.add(header(1, 0), LogPosition(1, 16, 10), 70)
    tracker.add(header(1, 1), LogPosition(1, 16, 10), 90)
    assert (tracker.unsent_count, tracker.oldest_unsent_ms()) == (2, 70)
    group = take(tracker)
    assert (tracker.unsent_count, tracker.oldest_unsent_ms()) == (2, 70), "a hanging call hides nothing"
    tracker.call_failed(group, 0.0)
    assert tracker.oldest_unsent_ms() == 70
    group = take(tracker, 100.0)
    tracker.apply_answers(group, ok(group), 100.0)
    assert (tracker.unsent_count, tracker.oldest_unsent_ms(), tracker.oldest_ms()) == (0, None, 5)


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "ok", "nack", "ours", "fail", "judge"]), st.integers(0, 3)), max_size=60
)


@given(STEPS)
@settings(max_examples=200)
def test_no_batch_is_ever_forgotten_before_its_ack(steps: list[tuple[str, int]]) -> None:
    """In any order of events every batch that is not acked is ready, held, in flight or waits for its ack."""
    tracker = Tracker()
    added: set[BatchId] = set()
    acked: set[BatchId] = set()
    now = 0.0
    for what, lane in steps:
        now += 400.0
        if what == "add":
            number = sum(1 for id in added if id.lane == lane)
            add(tracker, lane, number)
            added.add(header(lane, number).id)
        elif what == "judge":
            keys = tuple(s.key for s in tracker.unacked())
            tracker.apply_verdict(AckDecision(acked=keys[:1], resend=tuple((k, "lost") for k in keys[1:2])))
            acked.update(keys[:1])
        elif (group := tracker.take_call(now)) is not None:
            if what == "fail":
                tracker.call_failed(group, now)
            else:
                bad = MessageAnswer(None, f"{what}: x", is_permanent=what == "ours")
                answers = [a if what == "ok" else bad for a in ok(group)]
                tracker.apply_answers(group, answers, now)
        left = {s.key for s in tracker.unacked()}
        left |= {item.id for _, one in tracker.lanes() for item in (*one.backlog, *one.refused)}
        assert left == added - acked
        assert tracker.pending == len(left)


def test_the_timer_follows_answers_and_doubles_when_they_fail() -> None:
    timer = AdaptiveTimer(min_s=1.0, max_s=60.0)
    assert timer.deadline() == 1.0
    for _ in range(50):
        timer.record_answer(10.0)
    assert 10.0 <= timer.deadline() <= 15.0
    calm = timer.deadline()
    timer.record_timeout()
    assert timer.deadline() == pytest.approx(2 * calm)
    for _ in range(10_000):
        timer.record_timeout()
    assert timer.deadline() == 60.0
    timer.record_answer(10.0)
    assert timer.deadline() < 20.0


def test_backoff_is_clamped_before_it_overflows_and_never_zero() -> None:
    waits = [backoff_s(n) for n in (1, 2, 3, 22, 40, 5000)]
    assert waits == sorted(waits)
    assert waits[0] > 0
    assert waits[-1] == 10.0
    assert backoff_s(0) == 0.0


A, B = CollectorEndpoint("127.0.0.1", 1), CollectorEndpoint("127.0.0.1", 2)


def test_failed_collectors_are_left_and_used_again() -> None:
    collectors = Collectors("agent-1")
    assert collectors.pick(0.0) is None
    collectors.update({"a": A, "b": B})
    first = collectors.pick(0.0)
    assert first is not None
    collectors.note_failure(first, 0.0)
    second = collectors.pick(0.0)
    assert second is not None
    assert second != first
    collectors.note_failure(second, 0.0)
    assert collectors.pick(0.0) is None
    assert collectors.pick(60.0) == first
    collectors.note_answer(first)
    assert collectors.count_healthy() == 1


def test_simultaneous_failures_count_once() -> None:
    collectors = Collectors("agent-1")
    collectors.update({"a": A})
    for _ in range(50):
        collectors.note_failure(A, 0.0)
    assert collectors.pick(1.0) == A


def test_an_empty_list_of_collectors_is_ignored() -> None:
    collectors = Collectors("agent-1")
    collectors.update({"a": A})
    collectors.update({})
    assert collectors.pick(0.0) == A
    collectors.update({"b": B})
    assert collectors.pick(0.0) == B


def test_agents_spread_over_collectors() -> None:
    first = set()
    for n in range(30):
        collectors = Collectors(f"agent-{n}")
        collectors.update({"a": A, "b": B})
        first.add(collectors.pick(0.0))
    assert first == {A, B}


@pytest.mark.parametrize("data", [b"", b"{}", b'{"host": "x"}', b'{"host": "x", "port": "y"}', b"[1]"])
def test_invalid_collectors_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_endpoint(data)
