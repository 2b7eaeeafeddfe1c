"""When a source is polled: at a phase of its own early in each period, so that each bucket gets exactly one sample.

Pure functions of epoch milliseconds. A bucket of `period` that ends at e covers (e - period, e].
"""

from __future__ import annotations

from collections.abc import Callable

import xxhash

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
