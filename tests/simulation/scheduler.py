"""Virtual time: one heap of events, one thread, one source of chance. The same seed gives the same run, event by event.

A process that waits for a disk, a server or a clock in the middle of a call *blocks*: the events up to the end of its
wait happen inside the call. If the process is killed meanwhile, the call ends with `Killed` and nothing after it
happens. Of two processes that block at once the one that blocked later continues first.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]
START_MS = 1_795_000_000_000
MAX_EVENTS = 60_000
"""Maximum of events of one run; more mean an endless loop."""
MAX_DEPTH = 24
"""Maximum of calls that block inside one another; deeper calls do not wait."""


class Killed(BaseException):
    """The process is gone at this point."""


class Violation(BaseException):
    """A broken promise, named in the text. It is no Exception, because processes survive any Exception."""


class Endless(RuntimeError):
    """A run had more events than any valid run has."""


class Process:
    """A process that can be killed and started again. `life` counts its incarnations."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = 0
        self.up = False
        self.blocked = 0
        """Number of its calls that wait."""
        self.stopped_until = 0.0
        """End of its suspension (SIGSTOP)."""
        self.passes = 0
        """Calls that it still finishes before it is suspended."""

    def started(self) -> None:
        """Mark the process as running."""
        self.life += 1
        self.up = True

    def died(self) -> None:
        """Mark the process as dead: none of its planned actions will happen."""
        self.life += 1
        self.up = False


class Scheduler:
    """Event loop. Time is in seconds since the start of the run."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.events = 0
        self.done = False
        self._heap: list[tuple[float, int, Action, Process | None, int]] = []
        self._number = 0
        self._depth = 0
        self._trace = trace

    @property
    def now_ms(self) -> int:
        """Wall clock."""
        return START_MS + int(self.now * 1000)

    @property
    def tracing(self) -> bool:
        return self._trace is not None

    def say(self, text: str) -> None:
        """Write one line of the trace."""
        if self._trace is not None:
            self._trace(f"{self.now:10.3f} {text}")

    def later(self, delay_s: float, action: Action, owner: Process | None = None) -> None:
        """Plan `action`, unless its owner is dead; it is dropped if its owner is killed before."""
        if owner is not None and not owner.up:
            return
        self._number += 1
        heappush(self._heap, (self.now + delay_s, self._number, action, owner, 0 if owner is None else owner.life))

    def run(self, until: float) -> None:
        """Run everything up to a time, or until `done`."""
        heap = self._heap
        while heap and not self.done and heap[0][0] <= until:
            at, _, action, owner, life = heappop(heap)
            if owner is not None and owner.life != life:
                continue
            self.events += 1
            if self.events > MAX_EVENTS:
                raise Endless(f"{MAX_EVENTS} events, and no end")
            if at > self.now:
                self.now = at
            action()
        if not self.done and until > self.now:
            self.now = until

    def block(self, owner: Process, seconds: float) -> None:
        """Let `owner` wait. Raises Killed if it is killed meanwhile."""
        life = owner.life
        if self._depth < MAX_DEPTH:
            self._depth += 1
            owner.blocked += 1
            try:
                self.run(self.now + seconds)
            finally:
                owner.blocked -= 1
                self._depth -= 1
        if owner.life != life or self.done:
            raise Killed

    def chance(self, probability: float) -> bool:
        """Return True with that probability."""
        return self.random.random() < probability


class SimClock:
    """artimon.model.clock.Clock of one process."""

    def __init__(self, scheduler: Scheduler, owner: Process) -> None:
        self._scheduler, self._owner = scheduler, owner

    def now_ms(self) -> int:
        return self._scheduler.now_ms

    def monotonic(self) -> float:
        return self._scheduler.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self._scheduler.block(self._owner, max(0.0, seconds))
        return stop.is_set()
