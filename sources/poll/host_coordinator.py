"""Coordination of an agent with the others through ZooKeeper: which processes are registered, and which it polls.

In steady state an agent watches the processes of its own host only and reads no node of another agent. An elected one
also polls for hosts without an agent, and shares out the addresses of networks (`agent_election`).
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from time import monotonic
from typing import Any

from kazoo.exceptions import NoNodeError

from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS
from sources.poll.agent_election import AgentElection
from sources.poll.lease_units import Network, address_of_unit, network_of, network_path
from sources.poll.registered_processes import RegisteredProcesses, UnitListing, delete_empty_host
from sources.poll.unit_leases import UnitLeases
from sources.poll.zookeeper_session import SessionThread, ZooKeeperSession, drain

log = logging.getLogger(__name__)
CHECKS_PER_SESSION = 4
"""Checks of the session per session timeout; few of them need a read."""
PAUSE_S = 0.05
"""Seconds between passes, so that changes within them are handled together."""
ERROR_PAUSE_S = 1.0
AssignmentCallback = Callable[[frozenset[str], frozenset[str]], None]


class HostCoordinator(SessionThread):
    """Calls in the event loop: `listed(listing)` for units whose registered processes changed, and
    `assigned(mine, leaving)`: the units to poll, and those to give up once `released` is called for them.

    Threads: only `_thread` makes calls; the event loop calls `set_kept`, `released`, `holds_lease`."""

    def __init__(
        self,
        session: ZooKeeperSession,
        name: str,
        own_keys: Callable[[], Iterable[str]],
        networks: Collection[Network],
        *,
        listed: Callable[[UnitListing], None],
        assigned: AssignmentCallback,
        grace_s: float,
        reconcile_s: float,
    ) -> None:
        """`own_keys` returns the host keys of this host, `networks` are those of its containers; `reconcile_s`: seconds
        between checks of what the watches tell."""
        super().__init__(session, "coordinator")
        self._own_keys, self._networks = own_keys, networks
        self._on_listed, self._on_assigned = listed, assigned
        self._reconcile_s = reconcile_s
        self._leases = UnitLeases(name, self._wake.set)
        self._processes = RegisteredProcesses(self._wake.set)
        self._election = AgentElection(name, grace_s, reconcile_s, self._wake.set)
        self._kept: frozenset[str] = frozenset()
        self._own: frozenset[str] = frozenset()
        self._addresses: frozenset[str] = frozenset()
        """Host keys that are addresses in the networks of this host, as the elected agents tell."""
        self._addresses_changed = False
        self._leaving: set[str] = set()
        self._released: deque[str] = deque()
        self._empty: set[str] = set()
        """Hosts without a process at the last reconciliation."""
        self._session_number, self._connections = -1, -1
        """Session and connection of the last pass."""
        self._next_read = self._next_pass = 0.0
        """Monotonic times of the next reconciliation and of the next pass."""

    # --- in the event loop

    def set_kept(self, units: frozenset[str]) -> None:
        """Set the units with a polled but unregistered process. They stay here, because no other agent could discover
        the process."""
        if units != self._kept:
            self._kept = units
            self._wake.set()

    def released(self, unit: str) -> None:
        """Confirm that no process of a leaving unit is polled any more."""
        self._released.append(unit)
        self._wake.set()

    def holds_lease(self, unit: str) -> bool:
        """Return True if the lease is held and the session was confirmed recently enough."""
        session = self._session
        return session.trusted and self._session_number == session.ended_sessions and unit in self._leases.held

    def counts(self) -> dict[str, int]:
        """Return the number of agents, of leases held here, and of leases wanted here but held elsewhere."""
        return {
            "agents": max(1, self._election.agents),
            "held": len(self._leases.held),
            "elsewhere": len(self._leases.elsewhere),
        }

    @property
    def bad_nodes(self) -> dict[str, str]:
        """Znode -> error of its name, for present znodes."""
        return self._processes.bad_nodes

    # --- in the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self._turn())
            self._wake.wait(self._pause())

    def _turn(self) -> float:
        """Make a pass if it is time, and return the seconds until the next turn may begin."""
        try:
            self._session.revive()
            if self._session.connected:
                self._run_once(self._session.client)
        except Exception as error:  # the thread must survive any error of the client library
            self.failures += 1
            self._next_pass, self._connections = 0.0, -1  # what fired before the error is read again
            log.warning(
                "ZooKeeper at %s: %r; retrying, present polls continue",
                self._session.hosts,
                error,
                exc_info=not isinstance(error, ZOOKEEPER_ERRORS),
            )
            return ERROR_PAUSE_S
        return PAUSE_S

    def _run_once(self, client: Any) -> None:
        told = self._wake.is_set()
        self._wake.clear()
        self._session.confirm()
        if told or monotonic() >= self._next_pass:
            self._pass(client)

    def _pause(self) -> float:
        """Return the seconds until the next check of the session or the next pass."""
        if not self._session.connected:
            return 1.0
        return max(PAUSE_S, min(self._session.timeout_s / CHECKS_PER_SESSION, self._next_pass - monotonic()))

    def _pass(self, client: Any) -> None:
        session, leases = self._session, self._leases
        ended, connections = session.ended_sessions, session.connections
        if ended != self._session_number:  # a new session: nothing is held yet
            leases.reset()
            self._leaving, self._session_number = set(), ended
        if connections != self._connections:  # watches ended with the connection before
            self._election.reset()
            self._processes.reset()
            self._next_read, self._connections = 0.0, connections
        self._election.refresh(client)
        if leases.lost or monotonic() >= self._next_read:
            self._reconcile(client)
        elif self._addresses_changed:
            self._own |= self._read_addresses(client)
        for unit in drain(self._released):
            if unit in self._leaving:
                leases.release(client, [unit])
                self._leaving.discard(unit)
        contexts = self._processes.read_contexts(
            client, self._election.elected or any(map(address_of_unit, self._kept))
        )
        ours = self._own | self._election.assigned(contexts, self._own, leases.held.keys()) | self._kept
        self._leaving = (self._leaving | leases.held.keys() - ours) & leases.held.keys()
        leases.release(client, leases.abandoned(ours))
        unknown = leases.claim(client, ours, self._own)
        if unknown:
            self._wake.set()
        units = leases.held.keys() | unknown
        self._processes.read_hosts(client, {unit for unit in units if address_of_unit(unit) is None}, self._own)
        self._next_pass = min(self._next_read, self._election.next_deadline())
        if ended == session.ended_sessions:
            listing = self._processes.changes(units)
            if listing:
                self._in_loop(self._on_listed, listing)
            self._in_loop(self._on_assigned, frozenset(units - self._leaving), frozenset(self._leaving))

    def _reconcile(self, client: Any) -> None:
        """Find the host keys again, drop leases whose nodes were deleted, delete nodes of hosts without processes."""
        keys = frozenset(self._own_keys())
        self._own = keys | self._read_addresses(client)
        self._leases.verify(client)
        empty = {unit for unit in self._leases.held.keys() - keys if self._processes.is_empty(unit)}
        for host in empty & self._empty:
            self._forget(client, host)
        self._empty = empty
        self._next_read = monotonic() + self._reconcile_s

    def _forget(self, client: Any, host: str) -> None:
        """Delete the node of a host without processes, and the address if it is one of a network of this host."""
        network = network_of(host, self._networks) if host in self._addresses else None
        if delete_empty_host(client, host) and network is not None:
            self._own -= {host}  # or it would be made again
            with contextlib.suppress(NoNodeError):
                client.delete(f"{network_path(network)}/{host}")

    def _read_addresses(self, client: Any) -> frozenset[str]:
        """Read the host keys that are addresses in the networks of this host: those with a process. Watches them."""
        self._addresses_changed = False
        found = set[str]()
        for path in map(network_path, self._networks):
            try:
                found.update(client.get_children(path, watch=self._on_addresses))
            except NoNodeError:
                client.ensure_path(path)
                found.update(client.get_children(path, watch=self._on_addresses))
        self._addresses = frozenset(key for key in found if network_of(key, self._networks))
        return self._addresses

    def _on_addresses(self, _event: object) -> None:
        self._addresses_changed = True
        self._wake.set()
