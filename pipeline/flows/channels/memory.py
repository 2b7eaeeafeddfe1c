"""Channel in memory: fast, bounded, and lost with the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from artimon.model.batch import NO_LANE
from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.delivery.batch_numbers import LaneNumbers
from pipeline.flows.channels.branch_ledger import BranchPolicy
from pipeline.flows.channels.ledger_channel import LedgerChannel, branches_of
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch, memory_bytes, with_identity
from pipeline.flows.options import Options
from pipeline.flows.registry import Component
from pipeline.flows.spi import ChannelFailed, ChannelFull, Figures


class MemoryOptions(Options):
    """Limits beyond which `put` waits, then refuses."""

    bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    parcels: int = Field(default=10_000, ge=1)


class MemoryChannel(LedgerChannel[EventBatch]):
    """Event batches in the order of their puts. Each gets an identity, of an epoch that begins with the process, so
    that a sink's retry after a lost reply is recognised."""

    def __init__(
        self,
        options: MemoryOptions,
        agent: str,
        source: str,
        branches: Mapping[str, BranchPolicy] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(branches, clock)
        self._options = options
        self._numbers, self._source = LaneNumbers(agent), source
        self.lost = 0
        """Event batches in the channel when it stopped."""

    def start(self) -> None:
        with self._cond:
            self._open = True

    def put(self, event_batches: Sequence[EventBatch], deadline_s: float) -> None:
        sizes = [memory_bytes(event_batch) for event_batch in event_batches]
        size = sum(sizes)
        if size > self._options.bytes or len(event_batches) > self._options.parcels:
            raise ChannelFull(
                f"{len(event_batches)} event batches of {size} bytes never fit: the channel has {self._limits()}"
            )
        with self._cond:
            self._cond.wait_for(
                lambda: not self._open or self._has_room(len(event_batches), size), max(0.0, deadline_s)
            )
            if not self._open:
                raise ChannelFailed("the channel is closed")
            if not self._has_room(len(event_batches), size):
                raise ChannelFull(f"{self._ledger.held_bytes} bytes wait in memory; the channel has {self._limits()}")
            for event_batch, one in zip(event_batches, sizes, strict=True):
                self._add(event_batch, one)
            self._cond.notify_all()
        self._skip_excess()

    def stop(self, deadline_s: float) -> None:  # noqa: ARG002
        self._close_ledger()
        self.lost = self.waiting

    def figures(self) -> Figures:
        return {**super().figures(), "limit_bytes": self._options.bytes, "lost": self.lost}

    def _add(self, event_batch: EventBatch, size: int) -> None:
        """Called under `_cond`."""
        if event_batch.id is not None and self._accepted.has(event_batch.id):
            self.repeats += 1
            return
        event_batch = with_identity(event_batch, self._numbers, self._source)
        self._ledger.add(event_batch, size, since_ms=self._clock.now_ms())
        if event_batch.id is not None and event_batch.id.lane != NO_LANE:
            self._pending.add(event_batch.id)
            self._accepted.add(event_batch.id, self._clock.now_ms())
            self._accepted.limit_size(self._clock.now_ms())

    def _read(self, items: Sequence[EventBatch]) -> tuple[list[EventBatch], list[int]]:
        return list(items), []

    def _has_room(self, count: int, size: int) -> bool:
        ledger = self._ledger
        return ledger.held_bytes + size <= self._options.bytes and ledger.held_count + count <= self._options.parcels

    def _limits(self) -> str:
        return f"room for {self._options.parcels} event batches and {self._options.bytes} bytes"


def _build(options: MemoryOptions, context: Context) -> MemoryChannel:
    return MemoryChannel(options, context.agent, context.flow, branches_of(context), context.clock)


MEMORY = Component("memory", MemoryOptions, _build, durable=False, outside={})
