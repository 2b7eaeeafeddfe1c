"""The interfaces of flows: what a source, a channel, a sink, an interceptor or an encoding is. docs/flows.md.

Everything that blocks takes a deadline in seconds. Everything that decides is elsewhere; nothing here does I/O.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from pipeline.flows.event import Event, Parcel

Put = Callable[[Sequence[Parcel]], None]
"""How a source hands over: all or none; when it returns they are as safe as the flow promises. Raises ChannelFull (try
again later), ChannelFailed, EventError (an event breaks a limit; it never will be taken)."""
Figures = dict[str, Any]
"""Counts and times of one part, for health and status; `problems` is a list of texts for a person."""


class FlowError(RuntimeError):
    """Something of a flow failed. The text says what, where and what to do."""


class ChannelFull(FlowError):
    """The channel kept nothing of this call for want of room. Who calls keeps it and tries again."""


class ChannelFailed(FlowError):
    """The channel cannot do what it promises (disk, broker, closed). What was being put may or may not be kept: put it
    again under the same identity."""


class SinkFailed(FlowError):
    """The sink did not take these. `retry`: whether it may take them later; else they are set aside and counted."""

    def __init__(self, reason: str, retry: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.retry = reason, retry


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a channel promises once `put` has returned."""

    durable: bool
    """It survives the end of the process; else what it holds is lost with it."""
    power_safe: bool
    """It survives loss of power too."""
    shared: bool = False
    """Other processes may read it (Kafka)."""


class Take:
    """Parcels on their way out of a channel. Exactly one of `commit` and `rollback` takes effect, the first; as a
    context manager an exception rolls back and the end of the block commits.

    `commit` raises ChannelFailed if the channel could not note it: the parcels then come again."""

    __slots__ = ("_commit", "_done", "_lock", "_rollback", "parcels")

    def __init__(self, parcels: Sequence[Parcel], commit: Callable[[], None], rollback: Callable[[], None]) -> None:
        self.parcels = tuple(parcels)
        self._commit, self._rollback = commit, rollback
        self._lock, self._done = threading.Lock(), False

    def commit(self) -> None:
        """They are where they belong; the channel may forget them."""
        if self._first():
            try:
                self._commit()
            except BaseException:
                self._rollback()
                raise

    def rollback(self) -> None:
        """They come again, in their order."""
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
        return bool(self.parcels)


class Reader(Protocol):
    """One branch's view of a channel."""

    def take(self, most: int, wait_s: float) -> Take:
        """The next parcels, at most `most`, in order; waits at most `wait_s` for the first, wakes when there is one;
        without parcels if none came. Raises ChannelFailed."""
        ...


@runtime_checkable
class Waking(Protocol):
    """A reader whose `take` need not be waited for when its flow stops."""

    def wake(self) -> None:
        """Let the take that waits end now, with what there is; if none waits, the next one does not wait either."""
        ...


class Channel(Reader, Protocol):
    """Bounded, thread-safe. What was taken and not committed comes again in order, after a rollback or a restart."""

    @property
    def capabilities(self) -> Capabilities: ...

    def start(self) -> None:
        """Open it; raises ChannelFailed or a typed error of its own that says what to do."""
        ...

    def put(self, parcels: Sequence[Parcel], deadline_s: float) -> None:
        """Keep all of them or none within `deadline_s`; an identity that the channel has had is dropped and counted.
        Raises ChannelFull, ChannelFailed."""
        ...

    def stop(self, deadline_s: float) -> None:
        """Give up the channel; takes that are open are rolled back."""
        ...

    def figures(self) -> Figures: ...


@runtime_checkable
class Branching(Protocol):
    """A channel that several sinks read, each at its own pace."""

    def reader(self, branch: str) -> Reader:
        """The view of one of the branches that the channel was made with."""
        ...


class Source(Protocol):
    """Brings events into a flow on threads of its own."""

    def start(self, put: Put) -> None: ...

    def stop(self, deadline_s: float) -> None:
        """Bring nothing more; when it returns no call of `put` is running, unless the deadline was too short."""
        ...

    def figures(self) -> Figures: ...


class PollableSource(Protocol):
    """A source that a runner drives: `poll` is called again at once while it is True, and else when the source calls
    `context.wake()`, at the latest after the runner's idle time, which never grows."""

    def start(self) -> None: ...

    def poll(self, put: Put) -> bool:
        """Hand over what there is; False if there was nothing. What `put` refuses is kept and comes again."""
        ...

    def stop(self, deadline_s: float) -> None: ...

    def figures(self) -> Figures: ...


class Sink(Protocol):
    """Where a flow ends, or the way to its next agent."""

    def start(self) -> None: ...

    def deliver(self, parcels: Sequence[Parcel]) -> None:
        """When it returns they are as durable as the sink promises; the runner commits only then. Raises SinkFailed;
        has a deadline of its own for whatever it waits for, or calls `context.progress()`."""
        ...

    def stop(self, deadline_s: float) -> None: ...

    def figures(self) -> Figures: ...


class Interceptor(Protocol):
    """Looks at what a source hands over before the channel does."""

    def __call__(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """These, changed or fewer. A parcel that has an identity keeps its bytes: it may only be dropped whole."""
        ...

    def figures(self) -> Figures: ...


class Group(Sink, Protocol):
    """Several sinks that look like one: a runner drives it as it drives a sink."""


class Encoding(Protocol):
    """How events become bytes of a file or message, and back."""

    def encode(self, events: Sequence[Event]) -> bytes: ...

    def decode(self, data: bytes) -> Sequence[Event]:
        """Inverse of `encode` where there is one. Raises ValueError."""
        ...


Headers = Mapping[str, str]
