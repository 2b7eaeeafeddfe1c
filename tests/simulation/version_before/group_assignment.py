"""Assignment of processes to agents, pure. It is a preference only: the lease decides.

A *group* is the processes of one context at one address. They stay together, so that one agent detects two processes of
the same name, and a restarted process continues the state of its predecessor.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import xxhash

from sources.base.endpoint_address import EndpointAddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class HostGroup(NamedTuple):
    """Unit of a lease: the processes of one context at one address."""

    context: str
    ip: str

    @property
    def key(self) -> str:
        """Name of its lease. Unambiguous, because an address contains no comma."""
        return f"{self.ip},{self.context}"


def group_of(endpoint: EndpointAddress) -> HostGroup:
    return HostGroup(endpoint.context, endpoint.ip)


class GroupAssignment:
    """Preferred agent of each group. `networks`: agents by name, with the addresses and networks of each one's host."""

    def __init__(self, networks: Mapping[str, frozenset[Network]]) -> None:
        self.networks = networks
        self._near: dict[str, list[str]] = {}

    def near(self, ip: str) -> list[str]:
        """Return the agents on the host of an address, cached. For a loopback address these are all agents: a process
        there can only be reached from its own host."""
        if ip not in self._near:
            address, alone = ipaddress.ip_address(ip), ipaddress.ip_network(ip)
            self._near[ip] = [
                name
                for name, own in self.networks.items()
                if address.is_loopback or alone in own or any(address in net for net in own)
            ]
        return self._near[ip]

    def poller(self, group: HostGroup) -> str:
        """Return the preferred agent of a group: one on its host if there is any, else any; "" without agents.

        Rendezvous hashing: an agent that joins or leaves moves no groups between other agents."""
        able: Iterable[str] = self.near(group.ip) or self.networks
        return max(able, key=lambda name: (_weight(name, group), name), default="")


def _weight(name: str, group: HostGroup) -> int:
    return int(xxhash.xxh3_64_intdigest(f"{name}\n{group.key}".encode()))
