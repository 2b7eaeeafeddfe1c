"""Access of a component to the flow that it is part of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.control.group_directory import GroupDirectory
from pipeline.flows.spi import Encoding, FlowError

INSECURE = "insecure"
"""Key of `Context.shared`: sources may serve other machines without authentication."""
BRANCHES = "branches"
"""Key of `Context.shared`: policies of the branches of a fan-out, by name, for the channel."""
DIRECT_SINK = "straight"
"""Key of `Context.shared`: the sink that a channel hands over to directly while that works (disk failover)."""
GROUPS = "groups"
"""Key of `Context.shared`: the agent's directory of groups (pipeline/control/group_directory.py)."""


def _do_nothing() -> None:
    """Do nothing: no runner drives the component yet."""


class EncodingFactory(Protocol):
    """Registered encodings."""

    def encoding(self, name: str, context: Context) -> Encoding:
        """Build an encoding. Raises FlowError for an unknown name."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """Context of one component. `folder`: the flow's own, exists; `wake()`: data is ready to poll; `progress()`: long
    work is making progress. `shared`: objects that the process gives to its flows by name (endpoints, settings)."""

    agent: str
    flow: str
    component: str
    folder: Path
    encodings: EncodingFactory
    clock: Clock = SYSTEM_CLOCK
    wake: Callable[[], None] = _do_nothing
    progress: Callable[[], None] = _do_nothing
    shared: dict[str, Any] = field(default_factory=dict)

    def named(self, component: str) -> Context:
        """Return the context of another component of the flow."""
        return replace(self, component=component)

    def directory(self, part: str, group: str) -> GroupDirectory:
        """Return the agent's directory of groups. Raises FlowError, which names `part`, if there is none."""
        found: GroupDirectory | None = self.shared.get(GROUPS)
        if found is None:
            raise FlowError(f"{part}: group {group!r} needs ZooKeeper, and this agent has none")
        return found
