"""Validated content of a file of flows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field

from pipeline.delivery.delivery_mode import DeliveryMode
from pipeline.flows.options import Options
from pipeline.flows.registry import Component


class FlowOptions(Options):
    """Options of a flow in addition to its components."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    delivery: DeliveryMode = DeliveryMode.END_TO_END
    put_s: float = Field(default=5.0, gt=0, le=60)
    """Longest wait of a put for room, in seconds."""
    start_s: float = Field(default=10.0, gt=0, le=300)
    """Timeout of the start of each part, in seconds."""
    stop_s: float = Field(default=5.0, gt=0, le=300)
    """Timeout of the stop of each part, in seconds."""
    stall_s: float = Field(default=60.0, gt=0)
    """Seconds without progress after which a runner raises an alarm."""
    idle_s: float = Field(default=0.2, gt=0, le=60)
    """Pause in seconds after a poll that found nothing, unless the source wakes its runner."""
    batch: int = Field(default=100, ge=1, le=10_000)
    """Most event batches in one delivery."""
    off: bool = False
    """True for a flow that is validated but does not run."""


class BranchOptions(Options):
    """Options that every sink of a fan-out has in addition to its own."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] | None = None
    required: bool = True
    behind_bytes: int = Field(default=64 * 1024 * 1024, ge=1)


@dataclass(frozen=True, slots=True)
class ComponentConfig:
    """Component with its options."""

    component: Component
    options: BaseModel


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """Sink of a flow or group."""

    name: str
    component: ComponentConfig
    branch: BranchOptions = field(default_factory=lambda: BranchOptions())


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """One flow. `group` is None for a single sink."""

    options: FlowOptions
    source: ComponentConfig
    interceptors: tuple[ComponentConfig, ...]
    channel: ComponentConfig
    sinks: tuple[SinkConfig, ...]
    group: ComponentConfig | None = None

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def fans_out(self) -> bool:
        return self.group is not None and self.group.component.name == "fan-out"
