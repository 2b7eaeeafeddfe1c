"""Faults planted into the product's coordination, each of which the simulated fleet must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from bookkeeper.process.host_key import HOSTS
from sources.poll import unit_leases
from sources.poll.agent_election import AgentElection
from sources.poll.host_coordinator import HostCoordinator
from sources.poll.unit_leases import UnitLeases, _is_ours

Patch = Callable[[], Any]


def _claims_without_waiting(self: UnitLeases, _client: Any, created: dict[str, str]) -> None:
    self.held.update(created)


def _believes_what_it_holds(self: HostCoordinator, unit: str) -> bool:
    return unit in self._leases.held


def _keeps_leases(self: UnitLeases, _client: Any, units: Any) -> None:
    for unit in units:
        self.held.pop(unit, None)


def _reads_leases_once(self: UnitLeases, _client: Any) -> None:
    self.lost = False


def _takes_predecessors_node(_client: Any, stat: Any) -> bool:
    return stat is not None


def _watches_every_host(self: HostCoordinator, client: Any) -> frozenset[str]:
    client.get_children(HOSTS, watch=self._on_addresses)
    return READ_ADDRESSES(self, client)


READ_ADDRESSES = HostCoordinator._read_addresses
FAULTS: dict[str, tuple[str, Patch]] = {
    "claims without waiting": (
        "an agent polls its host although an elected one still has the lease",
        lambda: mock.patch.object(UnitLeases, "_confirm", _claims_without_waiting),
    ),
    "believes what it holds": (
        "a lease counts without a session that was confirmed lately",
        lambda: mock.patch.object(HostCoordinator, "holds_lease", _believes_what_it_holds),
    ),
    "lease not given back": (
        "the node of a lease stays although nobody polls by it",
        lambda: mock.patch.object(UnitLeases, "release", _keeps_leases),
    ),
    "deleted node not noticed": (
        "nobody checks that the nodes of leases exist",
        lambda: mock.patch.object(UnitLeases, "verify", _reads_leases_once),
    ),
    "node of a predecessor taken": (
        "a node counts as ours, whatever session owns it",
        lambda: mock.patch(f"{UnitLeases.__module__}.{_is_ours.__name__}", _takes_predecessors_node),
    ),
    "no agent is elected": (
        "free slots are not taken",
        lambda: mock.patch.object(AgentElection, "_take_slot", return_value=False),
    ),
    "leases in another place": (
        "leases are at a path where agents of the version before do not look",
        lambda: mock.patch.object(unit_leases, "LEASES", "/artimon/polling/leases2"),
    ),
    "every agent watches all hosts": (
        "the start of a process costs messages on every host",
        lambda: mock.patch.object(HostCoordinator, "_read_addresses", _watches_every_host),
    ),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant one fault."""
    with FAULTS[name][1]():
        yield
