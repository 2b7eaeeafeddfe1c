"""How a source on a thread of its own hands over: it waits for room, and gives up only when it is told to stop."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable

from artimon.model.clock import Clock
from pipeline.flows.event import Event, EventError, parcels_of
from pipeline.flows.spi import ChannelFull, FlowError, Put
from pipeline.link.timer import backoff

log = logging.getLogger(__name__)


class Stopped(ConnectionAbortedError):
    """The source stops; what was being handed over was not."""


class Handing:
    """The way from a source's threads into its flow. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._put: Put | None = None
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self.counts: Counter[str] = Counter()
        self.problem = ""

    def open(self, put: Put) -> None:
        self._put = put
        self.stopping.clear()

    def close(self) -> None:
        """Whoever waits for room is told."""
        self.stopping.set()

    def once(self, events: Iterable[Event]) -> str:
        """Hand over; "" or why not: `bad: …` if one of them breaks a limit (they are counted as `bad`), `full: …`,
        `failed: …`. Of what is bad or full nothing was kept."""
        taken = list(events)
        reason = self._try(taken)
        if reason.startswith("bad:"):
            self.count("bad", len(taken))
        return reason

    def _try(self, taken: list[Event]) -> str:
        if not taken:
            return ""
        if self._put is None:
            return "full: the source has not started"
        try:
            self._put(parcels_of(taken))
        except EventError as error:
            return f"bad: {error}"
        except FlowError as error:
            return self._refused(error)
        except Exception as error:  # a thread that reads must outlive whatever a channel does
            log.exception("put")
            return self._refused(error)
        self.problem = ""
        self.count("events", len(taken))
        return ""

    def _refused(self, error: Exception) -> str:
        self.count("refused", 1)
        self.problem = str(error)
        return f"full: {error}" if isinstance(error, ChannelFull) else f"failed: {error}"

    def until_taken(self, events: Iterable[Event]) -> None:
        """Hand over, waiting for room as long as it takes: so whoever sends is held back. What breaks a limit is
        counted and left out, one by one. Raises Stopped."""
        taken = list(events)
        failures = 0
        while reason := self._try(taken):
            if reason.startswith("bad:"):
                if len(taken) == 1:
                    self.count("bad", 1)
                    return
                for event in taken:
                    self.until_taken([event])
                return
            failures += 1
            if self._clock.wait(self.stopping, backoff(failures, 0.05, 2.0)):
                raise Stopped

    def figures(self) -> dict[str, int]:
        with self._lock:
            return dict(self.counts)

    def count(self, what: str, number: int) -> None:
        with self._lock:
            self.counts[what] += number
