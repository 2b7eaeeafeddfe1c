"""Context of every poll of an agent, whatever is polled."""

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
    """One for each agent."""

    config: SourceConfig
    clock: Clock
    limits: PollLimits
    delivery: ReadingDelivery
    placement: Placement
    owners: Owners
    statuses: Statuses
    figures: Figures
    sure: Callable[[EndpointAddress], bool] = lambda _: True
    """Whether this agent polls an endpoint beyond doubt."""
    take_final: Callable[[bytes], Awaitable[None]] = _nothing
    """Takes the final snapshot of a process that has ended, if it left one (processes.final_folder)."""
