"""Assignment of units of work to agents by rendezvous hashing. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash


def assigned_agent(unit: str, agents: Iterable[str]) -> str:
    """Return the agent for a unit; "" without agents. An agent that joins or leaves moves no unit between others."""
    return max(agents, key=lambda name: (xxhash.xxh3_64_intdigest(f"{name}\n{unit}".encode()), name), default="")
