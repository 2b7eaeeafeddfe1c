"""What all that polls in an agent has in common, whatever it polls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from artimon.model.clock import Clock
from sources.config import SourceConfig
from sources.registry.address import EndpointAddress
from sources.shared.delivery import ReadingDelivery
from sources.shared.figures import Figures
from sources.shared.limits import PollLimits
from sources.shared.owners import Owners
from sources.shared.placement import Placement
from sources.shared.status import Statuses


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
