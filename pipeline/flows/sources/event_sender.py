"""Hand-over of events from a source's thread: waits for room, and gives up only when the source stops."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable

from artimon.model.clock import Clock
from pipeline.flows.event import Event, EventError, batch_events
from pipeline.flows.spi import ChannelFull, FlowError, Put
from pipeline.link.timer import backoff_s

log = logging.getLogger(__name__)


class SourceStoppedError(ConnectionAbortedError):
    """The source stops; the events of this call were not handed over."""


class EventSender:
    """Path from a source's threads into its flow. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._put: Put | None = None
        self._lock = threading.Lock()
        self.is_stopping = threading.Event()
        self.counts: Counter[str] = Counter()
        self.problem = ""

    def open(self, put: Put) -> None:
        self._put = put
        self.is_stopping.clear()

    def close(self) -> None:
        """Stop the threads that wait for room."""
        self.is_stopping.set()

    def try_put(self, events: Iterable[Event]) -> str:
        """Put events; return "" or the reason of a refusal: `bad: …` if one exceeds a limit (counted as `bad`), `full:
        …`, `failed: …`. After `bad` or `full` nothing was kept."""
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
            self._put(batch_events(taken))
        except EventError as error:
            return f"bad: {error}"
        except FlowError as error:
            return self._refused(error)
        except Exception as error:  # a reading thread must survive any error of a channel
            log.exception("put")
            return self._refused(error)
        self.problem = ""
        self.count("events", len(taken))
        return ""

    def _refused(self, error: Exception) -> str:
        self.count("refused", 1)
        self.problem = str(error)
        return f"full: {error}" if isinstance(error, ChannelFull) else f"failed: {error}"

    def put_with_retry(self, events: Iterable[Event]) -> None:
        """Put events, retrying until there is room, which holds back the sender. Events that exceed a limit are counted
        and left out, one by one. Raises Stopped."""
        taken = list(events)
        failures = 0
        while reason := self._try(taken):
            if reason.startswith("bad:"):
                if len(taken) == 1:
                    self.count("bad", 1)
                    return
                for event in taken:
                    self.put_with_retry([event])
                return
            failures += 1
            if self._clock.wait(self.is_stopping, backoff_s(failures, 0.05, 2.0)):
                raise SourceStoppedError

    def figures(self) -> dict[str, int]:
        with self._lock:
            return dict(self.counts)

    def count(self, what: str, number: int) -> None:
        with self._lock:
            self.counts[what] += number
