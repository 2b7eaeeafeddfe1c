"""Schedule of polls: each source at a phase of its own early in each period, so that a bucket gets exactly one sample.

Functions of epoch milliseconds, pure but for `until`. A bucket of `period` that ends at e covers (e - period, e].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import xxhash

from artimon.model.clock import Clock

FIRST = 0.5 / 60
LAST = 9.5 / 60
"""Phases lie within this part of a period: 0.5 s to 9.5 s of a minute."""


def phase_ms(source: str, period_ms: int) -> int:
    """The offset of a source's polls in the period; it depends on its name alone."""
    share = int(xxhash.xxh3_64_intdigest(source.encode())) / 2**64
    return round(period_ms * (FIRST + share * (LAST - FIRST)))


Pace = Callable[[], tuple[int, int]]
"""Phase and period in ms, asked before each tick: they may change while a source runs."""


def bucket_end(time_ms: int, period_ms: int) -> int:
    """End of the bucket that covers `time_ms`."""
    return -(-time_ms // period_ms) * period_ms


def next_tick(now_ms: int, phase: int, period_ms: int, sampled_ms: int | None = None) -> int:
    """The first tick (k x period + phase) after `now_ms` whose bucket does not hold the sample of `sampled_ms`."""
    tick = now_ms - (now_ms - phase) % period_ms + period_ms
    if sampled_ms is not None and bucket_end(tick, period_ms) == bucket_end(sampled_ms, period_ms):
        tick += period_ms
    return tick


def missed_ticks(planned_ms: int, now_ms: int, period_ms: int) -> int:
    """Whole ticks that passed unused since the planned one: they are skipped, not made up for."""
    return max(0, (now_ms - planned_ms) // period_ms)


def announce_day(now_ms: int, key: str) -> int:
    """A number that changes once a day, at a time of day of its own for each key."""
    day = 86_400_000
    return (now_ms + int(xxhash.xxh3_64_intdigest(key.encode())) % day) // day


PATIENT = 3
"""So many polls in a row may fail before an endpoint is asked less often."""
MOST_PERIODS = 8
LONGEST_S = 30.0
"""The clock is looked at this often at least while a tick is waited for."""


def wait_s(now_ms: int, tick_ms: int, most_ms: int) -> float:
    """Seconds until a tick. 0 when it has come, and when it is more than `most_ms` ahead, farther than it was planned:
    the wall clock was set back, and there are other ticks now."""
    return 0.0 if tick_ms - now_ms > most_ms else max(0.0, (tick_ms - now_ms) / 1000)


async def until(tick_ms: int, clock: Clock, most_ms: Callable[[], int]) -> None:
    """Wait for a tick as `wait_s` has it, never long at a time: the clock may be set, and `most_ms` may change."""
    while (left := wait_s(clock.now_ms(), tick_ms, most_ms())) > 0:
        await asyncio.sleep(min(left, LONGEST_S))


def periods_until_next(failures: int, endpoint: str) -> int:
    """In how many periods an endpoint is asked again that failed `failures` times in a row: in 1, later in up to 2, 4
    and at last 8; how many of these depends on the endpoint, so that those that fell silent together are not all asked
    together."""
    if failures < PATIENT:
        return 1
    most = min(MOST_PERIODS, 2 << min(failures - PATIENT, 16))
    return most - int(xxhash.xxh3_64_intdigest(f"{endpoint}/{failures}".encode())) % (most // 2 + 1)
