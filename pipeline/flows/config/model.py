"""What a file of flows says, once it has been found right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field

from pipeline.delivery.modes import Delivery
from pipeline.flows.options import Options
from pipeline.flows.registry import Component


class FlowOptions(Options):
    """What stands beside the components of a flow."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    delivery: Delivery = Delivery.END_TO_END
    put_s: float = Field(default=5.0, gt=0, le=60)
    """A put waits at most so long for room."""
    start_s: float = Field(default=10.0, gt=0, le=300)
    """Time for each part to start."""
    stop_s: float = Field(default=5.0, gt=0, le=300)
    """Time for each part to stop."""
    stall_s: float = Field(default=60.0, gt=0)
    """A runner without progress for so long is an alarm."""
    idle_s: float = Field(default=0.2, gt=0, le=60)
    """How long to wait before a source that had nothing is polled again, unless it wakes its runner."""
    batch: int = Field(default=100, ge=1, le=10_000)
    """Parcels in one delivery."""
    off: bool = False
    """Checked, and not run."""


class BranchOptions(Options):
    """What a sink of a fan-out may say beside its own options."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = None
    required: bool = True
    behind_bytes: int = Field(default=64 * 1024 * 1024, ge=1)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A component with the options it gets."""

    component: Component
    options: BaseModel


@dataclass(frozen=True, slots=True)
class SinkChosen:
    """A sink of a flow or group."""

    name: str
    chosen: Chosen
    branch: BranchOptions = field(default_factory=lambda: BranchOptions())


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """One flow. `group` is None for a single sink."""

    options: FlowOptions
    source: Chosen
    interceptors: tuple[Chosen, ...]
    channel: Chosen
    sinks: tuple[SinkChosen, ...]
    group: Chosen | None = None

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def fans_out(self) -> bool:
        return self.group is not None and self.group.component.name == "fan-out"
