"""Credit-based flow control: bytes that an agent may have in flight to a collector. Pure: no I/O, clock or threads.

A collector divides its memory among the agents that called lately, and sends each its share with every answer. An agent
never has more in flight to a collector than its last share.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)

MIN_CREDIT_BYTES = 1024 * 1024
"""Least credit in bytes, also for a collector that never answered: any single message fits."""
NO_CREDIT_INFO = -1
REMEMBERED_S = 10.0
"""Seconds of silence after which an agent has no share."""
MAX_AGENTS = 10_000


@dataclass(slots=True)
class CollectorCredits:
    """Credits on the collector's side. `total` bytes are divided evenly. The least share is MIN_CREDIT_BYTES, so
    with very many agents the read limit (FramedServer's budget) bounds the memory instead."""

    total: int
    _last_call_s: dict[str, float] = field(default_factory=dict)

    def share(self, agent: str, now: float) -> int:
        """Return the bytes that this agent may have in flight from now on."""
        self._last_call_s.pop(agent, None)
        self._last_call_s[agent] = now  # the dictionary is ordered by the last call
        while self._last_call_s and (
            next(iter(self._last_call_s.values())) < now - REMEMBERED_S or len(self._last_call_s) > MAX_AGENTS
        ):
            del self._last_call_s[next(iter(self._last_call_s))]
        return max(MIN_CREDIT_BYTES, self.total // len(self._last_call_s))

    @property
    def agents(self) -> int:
        """Number of agents that called lately."""
        return len(self._last_call_s)


@dataclass(slots=True)
class AgentCredits(Generic[Peer]):
    """Credits on the agent's side, by collector. Invariant: bytes in flight <= credit at the start of the last call."""

    most: int = 1 << 62
    """The agent's own limit in bytes, whatever is granted; a single message always fits."""
    _granted: dict[Peer, int] = field(default_factory=dict)
    _in_flight: dict[Peer, int] = field(default_factory=dict)

    def room(self, peer: Peer) -> int:
        """Return the bytes that a call to this collector may have now; negative after a credit was cut."""
        return min(self._granted.get(peer, MIN_CREDIT_BYTES), max(self.most, MIN_CREDIT_BYTES)) - self.in_flight(peer)

    def in_flight(self, peer: Peer) -> int:
        """Return the bytes without an answer yet."""
        return self._in_flight.get(peer, 0)

    def reserve(self, peer: Peer, size: int) -> None:
        """Reserve bytes for a call that is about to begin."""
        self._in_flight[peer] = self.in_flight(peer) + size

    def settle(self, peer: Peer, size: int, granted: int | None) -> None:
        """End a call. `granted`: the new credit; NO_CREDIT_INFO from a collector without credits; None: no answer, so
        only the minimum is allowed until the next answer."""
        self.cancel(peer, size)
        if granted is None:
            self._granted.pop(peer, None)
        else:
            self._granted[peer] = 1 << 62 if granted == NO_CREDIT_INFO else granted

    def cancel(self, peer: Peer, size: int) -> None:
        """Return the bytes of a call that was not made."""
        left = self.in_flight(peer) - size
        if left > 0:
            self._in_flight[peer] = left
        else:
            self._in_flight.pop(peer, None)

    def retain(self, known: set[Peer]) -> None:
        """Forget collectors that have gone."""
        for peer in [peer for peer in self._granted if peer not in known]:
            del self._granted[peer]
