"""Virtual time of the simulated fleet. Code that waits for an answer runs in a greenlet, which gives way meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush

from greenlet import getcurrent, greenlet

Action = Callable[[], None]


class Timeline:
    """One heap of events, one source of chance: the same seed gives the same run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Action]] = []
        self._number = 0

    def monotonic(self) -> float:
        """Replacement of `time.monotonic`."""
        return self.now

    def later(self, delay_s: float, action: Action) -> None:
        """Plan an action."""
        self.at(self.now + delay_s, action)

    def at(self, time: float, action: Action) -> None:
        """Plan an action at a time."""
        self._number += 1
        heappush(self._heap, (time, self._number, action))

    def run(self, until: float) -> None:
        """Run everything up to a time."""
        while self._heap and self._heap[0][0] <= until:
            time, _, action = heappop(self._heap)
            self.now = max(self.now, time)
            self.events += 1
            action()
        self.now = max(self.now, until)

    def begin(self, work: Action) -> None:
        """Run work that may wait."""
        greenlet(work).switch()


class Answer:
    """Result of an asynchronous call (kazoo's IAsyncResult)."""

    def __init__(self) -> None:
        self.done = False
        self._value: object = None
        self._waiting: greenlet | None = None

    def resolve(self, value: object) -> None:
        """Give a value or an exception to whoever waits."""
        if self.done:
            return
        self.done, self._value = True, value
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.switch()

    def get(self, timeout: float | None = None) -> object:
        """Wait for the answer; raises it if it is an exception. The end of a connection ends every wait."""
        if not self.done:
            self._waiting = getcurrent()
            getcurrent().parent.switch()
        if isinstance(self._value, Exception):
            raise self._value
        return self._value
