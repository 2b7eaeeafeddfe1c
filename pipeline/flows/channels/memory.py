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
        """Parcels in the channel when it stopped."""

    def start(self) -> None:
        with self._cond:
            self._open = True

    def put(self, parcels: Sequence[EventBatch], deadline_s: float) -> None:
        sizes = [memory_bytes(parcel) for parcel in parcels]
        size = sum(sizes)
        if size > self._options.bytes or len(parcels) > self._options.parcels:
            raise ChannelFull(f"{len(parcels)} parcels of {size} bytes never fit: the channel has {self._limits()}")
        with self._cond:
            self._cond.wait_for(lambda: not self._open or self._has_room(len(parcels), size), max(0.0, deadline_s))
            if not self._open:
                raise ChannelFailed("the channel is closed")
            if not self._has_room(len(parcels), size):
                raise ChannelFull(f"{self._ledger.held_bytes} bytes wait in memory; the channel has {self._limits()}")
            for parcel, one in zip(parcels, sizes, strict=True):
                self._add(parcel, one)
            self._cond.notify_all()
        self._skip_excess()

    def stop(self, deadline_s: float) -> None:  # noqa: ARG002
        self._close_ledger()
        self.lost = self.waiting

    def figures(self) -> Figures:
        return {**super().figures(), "limit_bytes": self._options.bytes, "lost": self.lost}

    def _add(self, parcel: EventBatch, size: int) -> None:
        """Called under `_cond`."""
        if parcel.id is not None and self._accepted.has(parcel.id):
            self.repeats += 1
            return
        parcel = with_identity(parcel, self._numbers, self._source)
        self._ledger.add(parcel, size, since_ms=self._clock.now_ms())
        if parcel.id is not None and parcel.id.lane != NO_LANE:
            self._pending.add(parcel.id)
            self._accepted.add(parcel.id, self._clock.now_ms())
            self._accepted.limit_size(self._clock.now_ms())

    def _read(self, items: Sequence[EventBatch]) -> tuple[list[EventBatch], list[int]]:
        return list(items), []

    def _has_room(self, count: int, size: int) -> bool:
        ledger = self._ledger
        return ledger.held_bytes + size <= self._options.bytes and ledger.held_count + count <= self._options.parcels

    def _limits(self) -> str:
        return f"room for {self._options.parcels} parcels and {self._options.bytes} bytes"


def _build(options: MemoryOptions, context: Context) -> MemoryChannel:
    return MemoryChannel(options, context.agent, context.flow, branches_of(context), context.clock)


MEMORY = Component("memory", MemoryOptions, _build, durable=False, outside={})
