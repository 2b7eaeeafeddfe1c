"""Interfaces of the components of flows: source, channel, sink, interceptor, encoding. docs/flows.md.

Everything that blocks takes a deadline in seconds. Nothing here decides or does I/O.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from pipeline.flows.event import Event, EventBatch

Put = Callable[[Sequence[EventBatch]], None]
"""Hands event batches from a source to its flow, all or none; when it returns they have the flow's guarantee. Raises
ChannelFull (retry later), ChannelFailed, EventError (an event exceeds a limit: do not retry)."""
Figures = dict[str, Any]
"""Counts and times of one part, for health and status; `problems` is a list of messages for the operator."""


class FlowError(RuntimeError):
    """Failure of a flow. The message says what, where and what to do."""


class ChannelFull(FlowError):
    """The channel has no room and kept nothing of this call. The caller keeps the event batches and retries."""


class ChannelFailed(FlowError):
    """The channel cannot keep its promise (disk, broker, closed). It may or may not hold the event batches: put them
    again under the same identity."""


class SinkFailed(FlowError):
    """The sink refused the event batches. `retry`: True if it may take them later; else they are quarantined."""

    def __init__(self, reason: str, retry: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.retry = reason, retry


class Take:
    """Event batches taken from a channel. Only the first call of `commit` or `rollback` takes effect; as a context
    manager it commits at the end of the block and rolls back on an exception.

    `commit` raises ChannelFailed if the channel could not record it: the event batches are then delivered again."""

    __slots__ = ("_commit", "_done", "_lock", "_rollback", "event_batches")

    def __init__(
        self, event_batches: Sequence[EventBatch], commit: Callable[[], None], rollback: Callable[[], None]
    ) -> None:
        self.event_batches = tuple(event_batches)
        self._commit, self._rollback = commit, rollback
        self._lock, self._done = threading.Lock(), False

    @property
    def parcels(self) -> tuple[EventBatch, ...]:
        """Deprecated name of `event_batches`, for channels and sinks of other packages."""
        warnings.warn("Take.parcels is called event_batches now", DeprecationWarning, stacklevel=2)
        return self.event_batches

    def commit(self) -> None:
        """Confirm delivery; the channel may forget the event batches."""
        if self._first():
            try:
                self._commit()
            except BaseException:
                self._rollback()
                raise

    def rollback(self) -> None:
        """Return the event batches to the channel, in their order."""
        if self._first():
            self._rollback()

    def _first(self) -> bool:
        with self._lock:
            first, self._done = not self._done, True
            return first

    def __enter__(self) -> Take:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.commit()
        else:
            self.rollback()

    def __bool__(self) -> bool:
        return bool(self.event_batches)


class ChannelReader(Protocol):
    """View of one branch of a channel."""

    def take(self, most: int, wait_s: float) -> Take:
        """Take the next event batches in order, at most `most`. Waits at most `wait_s` for the first one, then returns
        an empty Take. Raises ChannelFailed."""
        ...


@runtime_checkable
class WakeableReader(Protocol):
    """Reader whose `take` can be interrupted when its flow stops."""

    def wake(self) -> None:
        """End a waiting `take` now, with what there is; if none waits, the next one returns without waiting."""
        ...


class Channel(ChannelReader, Protocol):
    """Bounded, thread-safe. Uncommitted event batches are taken again in order, after a rollback or a restart."""

    def start(self) -> None:
        """Open the channel. Raises ChannelFailed, or a typed error of its own that names the remedy."""
        ...

    def put(self, event_batches: Sequence[EventBatch], deadline_s: float) -> None:
        """Keep all event batches or none within `deadline_s`; event batches whose identity it has had are dropped and
        counted. Raises ChannelFull, ChannelFailed."""
        ...

    def stop(self, deadline_s: float) -> None:
        """Close the channel; open takes are rolled back."""
        ...

    def figures(self) -> Figures: ...


class Source(Protocol):
    """Event-driven source: puts events into a flow from threads of its own."""

    def start(self, put: Put) -> None: ...

    def stop(self, deadline_s: float) -> None:
        """Stop putting events; no call of `put` runs after the return, unless the deadline was too short."""
        ...

    def figures(self) -> Figures: ...


class PollableSource(Protocol):
    """Source driven by a runner. `poll` is called again at once after True, otherwise on `context.wake()` or after the
    runner's idle time, which never grows."""

    def start(self) -> None: ...

    def poll(self, put: Put) -> bool:
        """Put what is available; False if there was nothing. Event batches that `put` refuses are kept and put
        again."""
        ...

    def stop(self, deadline_s: float) -> None: ...

    def figures(self) -> Figures: ...


class Sink(Protocol):
    """End of a flow, or the way to the next agent."""

    def start(self) -> None: ...

    def deliver(self, event_batches: Sequence[EventBatch]) -> None:
        """Deliver event batches; after the return they have the sink's durability, and the runner commits. Raises
        SinkFailed. Bounds every wait by a deadline of its own, or calls `context.progress()`."""
        ...

    def stop(self, deadline_s: float) -> None: ...

    def figures(self) -> Figures: ...


class Interceptor(Protocol):
    """Filter between a source and the channel."""

    def __call__(self, event_batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
        """Return the event batches, changed or fewer. One with an identity keeps its bytes, or is dropped whole."""
        ...

    def figures(self) -> Figures: ...


class Encoding(Protocol):
    """Conversion of events to the bytes of a file or message, and back."""

    def encode(self, events: Sequence[Event]) -> bytes: ...

    def decode(self, data: bytes) -> Sequence[Event]:
        """Inverse of `encode` where there is one. Raises ValueError."""
        ...
