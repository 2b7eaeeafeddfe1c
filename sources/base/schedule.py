"""Schedule of polls: each source has its own phase early in each period, so that a bucket gets exactly one sample.

Functions of epoch milliseconds, pure but for `sleep_until` and `end_tasks`. A bucket of `period` that ends at e covers
(e - period, e].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import xxhash

from artimon.model.clock import Clock

FIRST_PHASE = 0.5 / 60
LAST_PHASE = 9.5 / 60
"""Bounds of the phases as fractions of a period: 0.5 s to 9.5 s of a minute."""


def phase_ms(source: str, period_ms: int) -> int:
    """Return the offset of a source's polls in the period, in ms. It depends on the name alone."""
    share = int(xxhash.xxh3_64_intdigest(source.encode())) / 2**64
    return round(period_ms * (FIRST_PHASE + share * (LAST_PHASE - FIRST_PHASE)))


Pace = Callable[[], tuple[int, int]]
"""Returns phase and period in ms. Called before each tick, because both may change while a source runs."""


def bucket_end(time_ms: int, period_ms: int) -> int:
    """Return the end of the bucket that covers `time_ms`."""
    return -(-time_ms // period_ms) * period_ms


def next_tick(now_ms: int, phase: int, period_ms: int, sampled_ms: int | None = None) -> int:
    """Return the first tick (k x period + phase) after `now_ms` outside the bucket that holds `sampled_ms`."""
    tick = now_ms - (now_ms - phase) % period_ms + period_ms
    if sampled_ms is not None and bucket_end(tick, period_ms) == bucket_end(sampled_ms, period_ms):
        tick += period_ms
    return tick


def missed_ticks(planned_ms: int, now_ms: int, period_ms: int) -> int:
    """Return the number of ticks missed since the planned one. Missed ticks are skipped, not made up for."""
    return max(0, (now_ms - planned_ms) // period_ms)


def announce_day(now_ms: int, key: str) -> int:
    """Return a number that changes once a day. The time of the change depends on the key."""
    day = 86_400_000
    return (now_ms + int(xxhash.xxh3_64_intdigest(key.encode())) % day) // day


BACKOFF_AFTER_FAILURES = 3
"""Consecutive failed polls before the back-off of an endpoint begins."""
MAX_BACKOFF_PERIODS = 8
MAX_SLEEP_S = 30.0
"""Longest wait of `sleep_until` before it reads the clock again, in seconds."""
END_S = 5.0


def wait_s(now_ms: int, tick_ms: int, most_ms: int) -> float:
    """Return the seconds until a tick. Return 0 if its time has come, or if it is more than `most_ms` ahead: then the
    wall clock was set back, and earlier ticks come first."""
    return 0.0 if tick_ms - now_ms > most_ms else max(0.0, (tick_ms - now_ms) / 1000)


async def sleep_until(tick_ms: int, clock: Clock, most_ms: Callable[[], int]) -> None:
    """Wait for a tick (see `wait_s`) in short sleeps, because the clock may be set and `most_ms` may change."""
    while (left := wait_s(clock.now_ms(), tick_ms, most_ms())) > 0:
        await asyncio.sleep(min(left, MAX_SLEEP_S))


async def end_tasks(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait at most END_S until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=END_S)


def periods_until_next(failures: int, endpoint: str) -> int:
    """Return the periods until the next poll of an endpoint after `failures` consecutive failures.

    1 at first, later up to 2, 4 and 8. Jitter by endpoint spreads endpoints that failed at the same time."""
    if failures < BACKOFF_AFTER_FAILURES:
        return 1
    most = min(MAX_BACKOFF_PERIODS, 2 << min(failures - BACKOFF_AFTER_FAILURES, 16))
    return most - int(xxhash.xxh3_64_intdigest(f"{endpoint}/{failures}".encode())) % (most // 2 + 1)
