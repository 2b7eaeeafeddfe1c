"""Entry of a flow: limits and interceptors before the channel's own put."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from artimon.model.clock import Clock
from artimon.model.event import EventError, split_events
from pipeline.flows.event import EventBatch
from pipeline.flows.spi import ChannelFailed, ChannelFull, Figures, FlowError, Interceptor

log = logging.getLogger(__name__)

PutIntoChannel = Callable[[Sequence[EventBatch], float], None]


class FlowEntry:
    """`put` of a flow. Thread-safe; waits at most `put_s` for room.

    Locks: `_lock` guards the counts."""

    def __init__(
        self, interceptors: Sequence[tuple[str, Interceptor]], into: PutIntoChannel, put_s: float, clock: Clock
    ) -> None:
        self._interceptors, self._put_into, self._put_s, self._clock = list(interceptors), into, put_s, clock
        self._lock = threading.Lock()
        self.events = self.event_batches = self.last_ms = 0
        """Accepted since the flow started."""
        self.refused: Counter[str] = Counter()
        """Calls of which nothing was kept, by reason."""
        self.is_open = True

    def put(self, event_batches: Sequence[EventBatch]) -> None:
        """Put all or none. Raises ChannelFull, ChannelFailed, EventError."""
        if not self.is_open:
            raise ChannelFull("the flow is paused or stopping: keep the event batches and retry")
        try:
            passed = self._intercepted(_cut_to_fit(event_batches))
            if passed:
                self._put_into(passed, self._put_s)
        except (FlowError, EventError) as error:
            with self._lock:
                self.refused[_refusal_reason(error)] += 1
            raise
        with self._lock:
            self.event_batches += len(passed)
            self.events += sum(len(event_batch.events) for event_batch in passed)
            self.last_ms = self._clock.now_ms()

    def figures(self) -> Figures:
        with self._lock:
            found: Figures = {
                "events": self.events,
                "parcels": self.event_batches,
                "last_put_ms": self.last_ms,
                "refused": dict(self.refused),
            }
        if self._interceptors:
            found["interceptors"] = [{"name": name, **one.figures()} for name, one in self._interceptors]
        return found

    def _intercepted(self, event_batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
        for name, interceptor in self._interceptors:
            if not event_batches:
                break
            try:
                event_batches = interceptor(event_batches)
            except Exception as error:  # third-party code: nothing of this call is kept
                log.exception("interceptor %s", name)
                raise ChannelFailed(f"interceptor {name}: {type(error).__name__}: {error}") from error
        return _cut_to_fit(event_batches) if self._interceptors else event_batches


def _cut_to_fit(event_batches: Sequence[EventBatch]) -> list[EventBatch]:
    """Return the event batches; those without an identity are cut so that each fits into a batch. Raises EventError."""
    fitting: list[EventBatch] = []
    for event_batch in event_batches:
        if event_batch.data is not None or event_batch.id is not None:
            fitting.append(event_batch)
        else:
            fitting += [EventBatch(events) for events in split_events(event_batch.events)]
    return fitting


def _refusal_reason(error: Exception) -> str:
    if isinstance(error, ChannelFull):
        return "full"
    return "event" if isinstance(error, EventError) else "failed"
