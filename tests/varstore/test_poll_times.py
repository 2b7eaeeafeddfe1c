"""Times of polls by source, from which the alert engine sees whether a minute is complete."""

from __future__ import annotations

from artimon.model.batch import BatchId
from artimon.model.feed_codec import FeedEntry
from varstore.store.poll_times import MAX_PERIOD_MS, MAX_ROWS, PollTimes

NOW = 1_800_000_000_000


def batch(source: str, poll_ms: int, number: int = 0) -> FeedEntry:
    return FeedEntry(number, poll_ms, BatchId("a", 1, 0, number), source, poll_ms, 10, True, 0)


def test_the_period_is_the_time_between_the_last_two_polls() -> None:
    polls = PollTimes()
    polls.add([batch("a", NOW), batch("b", NOW)])
    assert polls.summary(NOW) == []  # one poll has no period
    polls.add([batch("a", NOW + 60_020), batch("b", NOW + 9_990), batch("b", NOW + 5)])
    seconds = NOW // 1000
    assert polls.summary(NOW) == [[10, seconds + 10, 1, "b"], [60, seconds + 61, 1, "a"]]


def test_sources_with_equal_times_are_one_row() -> None:
    polls = PollTimes()
    for at in (0, 60_000):
        polls.add([batch(name, NOW + at - 100) for name in ("a", "b", "c")])
    assert polls.summary(NOW) == [[60, NOW // 1000 + 60, 3, "a"]]


def test_a_poll_counts_once_all_its_batches_are_here() -> None:
    polls, seconds = PollTimes(), NOW // 1000
    polls.add([batch("a", NOW), batch("a", NOW), batch("a", NOW + 60_000)])
    assert polls.summary(NOW) == [[60, seconds, 1, "a"]]
    polls.add([batch("a", NOW + 60_000)])
    assert polls.summary(NOW) == [[60, seconds + 60, 1, "a"]]


def test_silent_and_slow_sources_are_left_out() -> None:
    polls = PollTimes()
    polls.add([batch("slow", NOW), batch("slow", NOW + MAX_PERIOD_MS + 1), batch("gone", NOW), batch("gone", NOW + 1)])
    assert [row[3] for row in polls.summary(NOW)] == ["gone"]
    assert polls.summary(NOW + 2 * MAX_PERIOD_MS + 1) == []


def test_the_summary_has_a_limit() -> None:
    polls = PollTimes()
    for at in (0, 1):
        polls.add([batch(str(one), NOW + 1000 * one + at * 60_000) for one in range(MAX_ROWS + 100)])
    rows = polls.summary(NOW)
    assert len(rows) == MAX_ROWS
    assert rows[0][3] == "0"  # the one that is due first
