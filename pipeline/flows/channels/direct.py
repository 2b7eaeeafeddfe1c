"""Disk failover: straight to the sink while it takes everything, into the log when it does not.

Whoever puts gets an answer once the sink has it or the disk has it, so nothing that was taken is lost either way; while
all is well no disk is waited for. Order is kept: as long as anything waits in the log, everything goes behind it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from artimon.model.batch import BatchId
from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.flows.channels.file import FileChannel
from pipeline.flows.event import Parcel
from pipeline.flows.numbering import Numbering
from pipeline.flows.spi import Capabilities, ChannelFull, Figures, Sink, SinkFailed, Take
from pipeline.flows.watch import RESTART_LEAST_S, RESTART_MOST_S
from pipeline.timer import backoff

log = logging.getLogger(__name__)


class DirectChannel:
    """A file channel and the sink in front of it. The sink has one call at a time: here, or by the runner that drains
    the log.

    Numbers that go straight to the sink are not in the log, so they are of an epoch that begins with each start.
    Locks: `_turn` is held over a put, the sink's call included."""

    def __init__(self, behind: FileChannel, sink: Sink, agent: str, source: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._behind, self._sink, self._clock = behind, sink, clock
        self._numbering = Numbering(agent, source)
        self._turn = threading.Lock()
        self._row, self._not_before = 0, 0.0
        self.direct = self.logged = 0
        """Parcels that went straight to the sink, and into the log."""
        self.closed = False

    @property
    def capabilities(self) -> Capabilities:
        return self._behind.capabilities

    def start(self) -> None:
        self._behind.start()

    def put(self, parcels: Sequence[Parcel], deadline_s: float) -> None:
        """As the sink or the log promises; waits for the sink as long as the sink itself does."""
        ends = self._clock.monotonic() + deadline_s
        if not self._turn.acquire(timeout=deadline_s):
            raise ChannelFull(f"another put has waited for the sink for {deadline_s:g} s")
        try:
            fresh = self._behind.unknown(parcels)
            named = [self._numbering.seal(parcel, self._clock.now_ms()) for parcel in fresh]
            if named and not self._straight(named):
                self._behind.put(named, max(0.1, ends - self._clock.monotonic()))
                self.logged += len(named)
        finally:
            self._turn.release()

    @property
    def waiting(self) -> int:
        """Parcels in the log."""
        return self._behind.waiting

    @property
    def oldest_ms(self) -> int:
        """When the oldest parcel in the log came."""
        return self._behind.oldest_ms

    def done(self, id: BatchId) -> bool:
        """Whether the sink has it."""
        return self._behind.done(id)

    def take(self, most: int, wait_s: float) -> Take:
        """Of what is in the log."""
        return self._behind.take(most, wait_s)

    def wake(self) -> None:
        """As Waking."""
        self._behind.wake()

    def stop(self, deadline_s: float) -> None:
        self.closed = True
        self._behind.stop(deadline_s)

    def figures(self) -> Figures:
        return {**self._behind.figures(), "direct": self.direct, "logged": self.logged}

    def _straight(self, parcels: Sequence[Parcel]) -> bool:
        """Whether the sink has them."""
        if self.closed or self._behind.waiting or self._clock.monotonic() < self._not_before:
            return False
        try:
            self._sink.deliver(parcels)
        except Exception as error:
            if not isinstance(error, SinkFailed):
                log.exception("the sink broke its rules; the log keeps what it was given")
            self._row += 1
            self._not_before = self._clock.monotonic() + backoff(self._row, RESTART_LEAST_S, RESTART_MOST_S)
            return False
        self._row = 0
        self.direct += len(parcels)
        self._behind.passed_by(parcels)
        return True
