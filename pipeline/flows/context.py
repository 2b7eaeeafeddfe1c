"""What a component may know of the flow that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.control.directory import Directory
from pipeline.flows.spi import Encoding, FlowError

INSECURE = "insecure"
"""Key of `Context.shared`: sources may serve other machines without authentication."""
BRANCHES = "branches"
"""Key of `Context.shared`: policies of the branches of a fan-out, by name, for the channel."""
STRAIGHT = "straight"
"""Key of `Context.shared`: the sink that a channel hands over to directly while that works (disk failover)."""
GROUPS = "groups"
"""Key of `Context.shared`: the agent's directory of groups (pipeline/control/directory.py)."""


def _nothing() -> None:
    """Before a runner drives the component there is nobody to tell."""


class Encodings(Protocol):
    """The encodings that are registered."""

    def encoding(self, name: str, context: Context) -> Encoding:
        """Build one. Raises FlowError for an unknown name."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """Of one component. `folder`: the flow's own, exists; `wake()`: there is something to poll; `progress()`: work that
    takes long is getting on. `shared`: what the process hands to its flows by name (endpoints, settings)."""

    agent: str
    flow: str
    component: str
    folder: Path
    encodings: Encodings
    clock: Clock = SYSTEM_CLOCK
    wake: Callable[[], None] = _nothing
    progress: Callable[[], None] = _nothing
    shared: dict[str, Any] = field(default_factory=dict)

    def named(self, component: str) -> Context:
        """The same for another component of the flow."""
        return replace(self, component=component)

    def directory(self, part: str, group: str) -> Directory:
        """The agent's directory of groups. Raises FlowError if it has none. `part`: who asks, for the text."""
        found: Directory | None = self.shared.get(GROUPS)
        if found is None:
            raise FlowError(f"{part}: group {group!r} needs ZooKeeper, and this agent has none")
        return found
