"""Credits: how many bytes of an agent a collector takes at once. Pure: no I/O, no clock, no threads.

A collector shares what it may hold among the agents that have called lately, and says each one's share with every
answer. An agent never has more on its way to a collector than the last share that it was told.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)

LEAST = 1024 * 1024
"""What every agent may send, and all that it may send to a collector that never answered: any single message fits."""
NOT_TOLD = -1
REMEMBERED_S = 10.0
"""An agent that has been silent for so long has no share."""
MOST_AGENTS = 10_000


@dataclass(slots=True)
class Shares:
    """The collector's side. `total` bytes are divided evenly; the least share is LEAST, so with very many agents the
    limit of what is read at once (FramedServer's budget) holds back what the shares do not."""

    total: int
    _seen: dict[str, float] = field(default_factory=dict)

    def share(self, agent: str, now: float) -> int:
        """Bytes that this agent may have on its way, from now on."""
        self._seen.pop(agent, None)
        self._seen[agent] = now  # the order of the dictionary is that of the last calls
        while self._seen and (next(iter(self._seen.values())) < now - REMEMBERED_S or len(self._seen) > MOST_AGENTS):
            del self._seen[next(iter(self._seen))]
        return max(LEAST, self.total // len(self._seen))

    @property
    def agents(self) -> int:
        """Those that called lately."""
        return len(self._seen)


@dataclass(slots=True)
class Credits(Generic[Peer]):
    """The agent's side, by collector. Invariant: what is on its way is at most the credit when the last call began."""

    most: int = 1 << 62
    """What the agent itself allows, whatever is granted; a single message always fits."""
    _granted: dict[Peer, int] = field(default_factory=dict)
    _flying: dict[Peer, int] = field(default_factory=dict)

    def room(self, peer: Peer) -> int:
        """Bytes that a call to this collector may have now; may be negative after a credit was cut."""
        return min(self._granted.get(peer, LEAST), max(self.most, LEAST)) - self.flying(peer)

    def flying(self, peer: Peer) -> int:
        """Bytes without an answer yet."""
        return self._flying.get(peer, 0)

    def began(self, peer: Peer, size: int) -> None:
        """A call is about to go."""
        self._flying[peer] = self.flying(peer) + size

    def ended(self, peer: Peer, size: int, granted: int | None) -> None:
        """A call ended. `granted`: the new credit; NOT_TOLD by a collector that knows no credits; None: no answer, so
        that only the least is sent until there is one."""
        self.returned(peer, size)
        if granted is None:
            self._granted.pop(peer, None)
        else:
            self._granted[peer] = 1 << 62 if granted == NOT_TOLD else granted

    def returned(self, peer: Peer, size: int) -> None:
        """A call that was about to go does not."""
        left = self.flying(peer) - size
        if left > 0:
            self._flying[peer] = left
        else:
            self._flying.pop(peer, None)

    def keep(self, known: set[Peer]) -> None:
        """Forget collectors that are gone."""
        for peer in [peer for peer in self._granted if peer not in known]:
            del self._granted[peer]
