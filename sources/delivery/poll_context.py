"""Context shared by all polls of an agent, and the limits of polls, open files and connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from artimon.model.clock import Clock
from sources.base.endpoint_address import EndpointAddress
from sources.delivery.endpoint_status import EndpointStatuses
from sources.delivery.placement_resolver import PlacementResolver
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_config import SourceConfig
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners

_LARGE_AT_ONCE = 8
SPARE = 512
"""File descriptors reserved for everything but kept connections: log, state, running polls, client threads."""


class PollLimits:
    """Limits shared by polls: running polls, large answers in memory, and connections kept open between polls
    (`most_kept`; beyond it each poll opens a new one). `parsing` is held while the answer of a foreign server is
    parsed: one at a time."""

    def __init__(self, concurrency: int, most_kept: int = 20_000) -> None:
        self.most_kept, self.kept = most_kept, 0
        self._healthy = asyncio.Semaphore(concurrency)
        self._failing = asyncio.Semaphore(max(1, concurrency // 4))
        self.large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.parsing = asyncio.Lock()

    def place(self, failing: bool) -> asyncio.Semaphore:
        """Return the semaphore of healthy or failing endpoints, so that hanging ones do not block the others."""
        return self._failing if failing else self._healthy


async def _nothing(_: bytes) -> None:
    return


@dataclass(frozen=True, slots=True)
class PollContext:
    """Collaborators and settings of all polls. One instance per agent."""

    config: SourceConfig
    clock: Clock
    limits: PollLimits
    delivery: ReadingDelivery
    placement: PlacementResolver
    owners: SourceOwners
    statuses: EndpointStatuses
    figures: SourceCounts
    holds_lease: Callable[[EndpointAddress], bool] = lambda _: True
    """Returns True if this agent is certain to hold the lease of an endpoint."""
    take_final: Callable[[bytes], Awaitable[None]] = _nothing
    """Takes the final snapshot of an ended process by uuid, if it left one (`sources.poll.final_folder`)."""
