"""Sharing of processes among agents, as far as it can be computed: pure. Who really does is for a lease to say.

A *group* is the processes of one context at one address. They stay together, so that the poller sees when two of them
have the same name, and a restarted one goes on with what is remembered of its predecessor.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import xxhash

from sources.base.endpoint_address import EndpointAddress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class HostGroup(NamedTuple):
    """What one lease is for."""

    context: str
    ip: str

    @property
    def key(self) -> str:
        """The name of its lease; an address has no comma, whatever a context has."""
        return f"{self.ip},{self.context}"


def group_of(endpoint: EndpointAddress) -> HostGroup:
    return HostGroup(endpoint.context, endpoint.ip)


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The agents there are, by name; of each the addresses and networks of its own host."""

    networks: Mapping[str, frozenset[Network]]

    def near(self, ip: str) -> list[str]:
        """The agents on the host of an address; every agent is on that of a loopback address, for there nobody else
        could reach it."""
        address = ipaddress.ip_address(ip)
        if address.is_loopback:
            return list(self.networks)
        alone = ipaddress.ip_network(address)
        return [name for name, own in self.networks.items() if alone in own or any(address in net for net in own)]


class Sharing:
    """Answers which agent should poll a group; remembers what is near an address."""

    def __init__(self, members: GroupMembers) -> None:
        self.members = members
        self._near: dict[str, list[str]] = {}

    def near(self, ip: str) -> list[str]:
        """As of the members."""
        if ip not in self._near:
            self._near[ip] = self.members.near(ip)
        return self._near[ip]

    def poller(self, group: HostGroup) -> str:
        """An agent on its host, if there is one, else any; of several the one whose hash with the group is greatest, so
        that an agent that comes or goes moves no other's groups. "" if there are none."""
        able: Iterable[str] = self.near(group.ip) or self.members.networks
        return max(able, key=lambda name: (_weight(name, group), name), default="")


def _weight(name: str, group: HostGroup) -> int:
    return int(xxhash.xxh3_64_intdigest(f"{name}\n{group.key}".encode()))
