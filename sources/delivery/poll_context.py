"""Context shared by all polls of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from artimon.model.clock import Clock
from sources.base.endpoint_address import EndpointAddress
from sources.delivery.endpoint_status import Statuses
from sources.delivery.figures import Figures
from sources.delivery.placement import Placement
from sources.delivery.poll_limits import PollLimits
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_config import SourceConfig
from sources.delivery.source_owners import Owners


async def _nothing(_: bytes) -> None:
    return


@dataclass(frozen=True, slots=True)
class PollContext:
    """Collaborators and settings of all polls. One instance per agent."""

    config: SourceConfig
    clock: Clock
    limits: PollLimits
    delivery: ReadingDelivery
    placement: Placement
    owners: Owners
    statuses: Statuses
    figures: Figures
    sure: Callable[[EndpointAddress], bool] = lambda _: True
    """Returns True if this agent is certain to hold the lease of an endpoint."""
    take_final: Callable[[bytes], Awaitable[None]] = _nothing
    """Takes the final snapshot of an ended process by uuid, if it left one (`sources.poll.final_folder`)."""
