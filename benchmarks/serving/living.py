"""Continuation of a world: a clock that runs from its end, and its next minutes, fed at their times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from artimon.model.clock import ManualClock
from artimon.model.feed_codec import FeedRange
from artimon.model.vshards import ALL_VSHARDS
from benchmarks.loads.racks import MINUTE_MS
from sources.base.schedule import phase_ms

TURN_S = 1.0
"""Interval of feeds, the same as that of the buckets query."""


class WorldClock(ManualClock):
    """Clock that stands still until `start`, and then runs with the machine's clock."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.start_s: float | None = None
        """Monotonic time of `start` in seconds; None before it."""

    def start(self) -> None:
        """Start to run."""
        self.start_s = time.monotonic()

    def now_ms(self) -> int:
        """Return the time of the world."""
        passed = 0.0 if self.start_s is None else time.monotonic() - self.start_s
        return super().now_ms() + round(passed * 1000)

    def monotonic(self) -> float:
        """Return the time of the world in seconds."""
        return self.now_ms() / 1000


class Living:
    """Feeder of the minutes after the end of a world: each source at its phase after the time of its sample."""

    def __init__(self, world: Any, settled_ms: int, offset: int, feed: Callable[[FeedRange], None]) -> None:
        self._world, self._feed, self.offset, self.samples = world, feed, offset, 0
        wait_ms = world.time_ms(world.minutes) - world.end_ms - settled_ms
        names = [source[0] for source in world.sources()]
        self._due = sorted((wait_ms + phase_ms(name, MINUTE_MS), i) for i, name in enumerate(names))

    def run(self, stop: threading.Event, now_s: Callable[[], float] = time.monotonic) -> None:
        """Feed until `stop`; call it right after the start of the world's clock."""
        began = now_s()
        fed_ms = -1.0
        while not stop.wait(TURN_S):
            until_ms = (now_s() - began) * 1000
            for minute in range(int(max(0.0, fed_ms) // MINUTE_MS), int(until_ms // MINUTE_MS) + 1):
                start = minute * MINUTE_MS
                self._send(minute, [i for due, i in self._due if fed_ms < start + due <= until_ms])
            fed_ms = until_ms

    def _send(self, minute: int, sources: list[int]) -> None:
        if sources:
            range_ = self._world.poll(self._world.minutes + minute, self.offset, ALL_VSHARDS, sources)
            self._feed(range_)
            self.offset, self.samples = range_.until, self.samples + len(range_.samples)
