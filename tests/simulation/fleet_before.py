"""Agents of the version before in the simulated fleet.

They register at `/artimon/polling/agents/<name>` with the networks of their host, watch `/artimon/contexts` and read
the node of every other agent of their version; they know neither `/artimon/hosts` nor claims nor elections. Both
versions poll what is registered by context, under the same leases. Their leases are `version_before/`; their listing of
contexts is that of the present elected agents, which set the same watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Any
from unittest import mock

from sources.poll.registered_processes import RegisteredProcesses
from tests.simulation.fleet import GRACE_S, RECONCILE_S, Fleet, SimAgent, SimSession, simulated
from tests.simulation.version_before import group_leases
from tests.simulation.version_before.group_assignment import HostGroup
from tests.simulation.version_before.group_leases import GroupLeases

ERROR_PAUSE_S = 1.0


class _Running:
    """Event that is never set and for which nobody waits."""

    def is_set(self) -> bool:
        return False

    def wait(self, _seconds: float) -> bool:
        return False


class LeasesBefore(GroupLeases):
    """GroupLeases whose callbacks arrive at once."""

    alive = True

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        if self.alive:
            call(*arguments)


class CoordinatorBefore:
    """Discovery and leases of the version before, with the interface of HostCoordinator that SimAgent uses."""

    def __init__(self, session: SimSession, name: str, listed: Any, assigned: Any, now: Callable[[], float]) -> None:
        self._session, self._listed, self._assigned, self._now = session, listed, assigned, now
        network = frozenset({ip_network(f"172.16.{hash_of(name)}/32")})
        self._leases = LeasesBefore(
            session,  # type: ignore[arg-type]
            name,
            lambda: network,
            self._on_assigned,
            grace_s=GRACE_S,
            reconcile_s=RECONCILE_S,
        )
        self._leases._stop = _Running()  # type: ignore[assignment]
        self._processes = RegisteredProcesses(self._leases._wake.set)
        self._connections = -1

    @property
    def alive(self) -> bool:
        return self._leases.alive

    @alive.setter
    def alive(self, value: bool) -> None:
        self._leases.alive = value

    @property
    def woken(self) -> bool:
        return self._leases._wake.is_set()

    @property
    def next_pass(self) -> float:
        return self._now() + self._leases._pause()

    def holds_lease(self, unit: str) -> bool:
        return "," in unit and self._leases.holds_lease(_group(unit))

    def released(self, unit: str) -> None:
        self._leases.released(_group(unit))

    def _turn(self) -> float:
        """List contexts that changed, then make a pass of the leases; return the pause."""
        failures = self._leases.failures
        if not self._session.connected:
            return group_leases.PAUSE_S
        try:
            if self._session.connections != self._connections:
                self._processes.reset()
                self._connections = self._session.connections
            units = set(self._processes.read_contexts(self._session.client, True))
            listing = self._processes.changes(units)
            if listing:
                self._listed(listing)
            self._leases._wanted = frozenset(map(_group, units)), frozenset()
            if listing:
                self._leases._wake.set()
        except Exception:
            self._connections = -1
            self._leases._wake.set()
            return ERROR_PAUSE_S
        self._leases._run_once(self._session.client)
        return group_leases.PAUSE_S if self._leases.failures == failures else ERROR_PAUSE_S

    def _on_assigned(self, mine: frozenset[HostGroup], leaving: frozenset[HostGroup]) -> None:
        self._assigned(frozenset(one.key for one in mine), frozenset(one.key for one in leaving))


class AgentBefore(SimAgent):
    """One agent of the version before."""

    def _coordinator(self) -> Any:
        return CoordinatorBefore(
            self.session, self.host, self._on_listed, self._on_assigned, self.fleet.timeline.monotonic
        )


def _group(unit: str) -> HostGroup:
    ip, _, context = unit.partition(",")
    return HostGroup(context, ip)


def hash_of(name: str) -> str:
    """Return two numbers of an address from the number in a name."""
    number = int("".join(filter(str.isdigit, name)) or 0)
    return f"{number >> 8 & 255}.{number & 255}"


@contextmanager
def simulated_with_older(seed: int) -> Iterator[Fleet]:
    """Return a fleet in which the agents of `Fleet.older` are of the version before."""
    with simulated(seed) as fleet, mock.patch.object(group_leases, "monotonic", fleet.timeline.monotonic):
        fleet.agent_before = AgentBefore
        yield fleet
