"""Phases, ticks and buckets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from artimon.model.clock import ManualClock
from sources.base.schedule import (
    BACKOFF_AFTER_FAILURES,
    MAX_BACKOFF_PERIODS,
    announce_day,
    bucket_end,
    missed_ticks,
    next_tick,
    periods_until_next,
    phase_ms,
    wait_s,
)

MINUTE = 60_000


def test_thirty_polls_of_a_thousand_endpoints_put_one_sample_in_each_bucket() -> None:
    """Whenever an endpoint is met first, however late its polls are, no bucket is empty or has two samples."""
    start = 1_700_000_000_000 // MINUTE * MINUTE
    for n in range(1_000):
        clock = ManualClock(start + n * 61 % MINUTE)
        phase = phase_ms(f"shop/host/{n}", MINUTE)
        samples = [clock.now_ms()]  # asked at once who it is
        for poll in range(29):
            tick = next_tick(clock.now_ms(), phase, MINUTE, samples[-1])
            clock.advance(tick - clock.now_ms() + (n * poll) % 5_000)  # answers take up to 5 s
            samples.append(clock.now_ms())
        buckets = Counter(bucket_end(ms, MINUTE) for ms in samples)
        first = bucket_end(samples[0], MINUTE)
        assert buckets == {first + i * MINUTE: 1 for i in range(30)}


@given(st.text(), st.sampled_from([MINUTE, 10_000, 1_000]))
def test_phases_lie_within_the_first_ten_seconds_of_a_minute_or_their_like(source: str, period: int) -> None:
    phase = phase_ms(source, period)
    assert period * 0.5 / 60 - 1 <= phase <= period * 9.5 / 60 + 1
    assert phase == phase_ms(source, period)


def test_phases_are_spread() -> None:
    seconds = Counter(phase_ms(f"shop/host/{n}", MINUTE) // 1_000 for n in range(10_000))
    assert max(seconds.values()) < 1_500
    assert set(seconds) == set(range(10))


@given(st.integers(0, 2**42), st.integers(0, 9_999), st.none() | st.integers(0, 2**42))
def test_the_next_tick_is_ahead_on_the_phase_and_in_another_bucket(now: int, phase: int, sampled: int | None) -> None:
    tick = next_tick(now, phase, MINUTE, sampled)
    assert now < tick <= now + 2 * MINUTE
    assert tick % MINUTE == phase
    assert sampled is None or bucket_end(tick, MINUTE) != bucket_end(sampled, MINUTE)


def test_a_bucket_holds_its_end_and_not_its_start() -> None:
    assert bucket_end(MINUTE, MINUTE) == MINUTE
    assert bucket_end(MINUTE + 1, MINUTE) == 2 * MINUTE


def test_missed_ticks_are_counted() -> None:
    assert missed_ticks(1_000, 1_500, MINUTE) == 0
    assert missed_ticks(1_000, 1_000 + 3 * MINUTE + 5, MINUTE) == 3


def test_announcements_fall_due_once_a_day_at_a_time_of_their_own() -> None:
    day = 86_400_000
    start = 20_000 * day
    changes = []
    for key in ("0/a", "1/a", "0/b"):
        days = [announce_day(start + hour * 3_600_000, key) for hour in range(49)]
        assert days[-1] - days[0] == 2
        changes.append(days.index(days[0] + 1))
    assert len(set(changes)) == 3


def test_whoever_does_not_answer_is_asked_less_and_less_often() -> None:
    """In every period at first, then in fewer periods down to a limit, and not all at the same time."""
    names = [f"shop at 10.0.{i // 250}.{i % 250}:{i}" for i in range(1_000)]
    for failures in range(BACKOFF_AFTER_FAILURES):
        assert {periods_until_next(failures, name) for name in names} == {1}
    for failures, most in (
        (BACKOFF_AFTER_FAILURES, 2),
        (BACKOFF_AFTER_FAILURES + 1, 4),
        (BACKOFF_AFTER_FAILURES + 2, 8),
        (BACKOFF_AFTER_FAILURES + 50, MAX_BACKOFF_PERIODS),
    ):
        spread = Counter(periods_until_next(failures, name) for name in names)
        assert set(spread) == set(range(most // 2, most + 1))
        assert min(spread.values()) > 1_000 / len(spread) / 2


def test_a_clock_that_was_set_back_keeps_nobody_waiting() -> None:
    """A tick farther ahead than planned is ignored."""
    assert wait_s(1_000, 4_000, MINUTE) == 3.0
    assert wait_s(9_000, 4_000, MINUTE) == 0.0
    assert wait_s(4_000 - MINUTE, 4_000, MINUTE) == 60.0
    assert wait_s(4_000 - 60 * MINUTE, 4_000, MINUTE) == 0.0
