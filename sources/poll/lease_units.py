"""Units of leases and the host keys of an agent: pure but for `own_networks` and `own_host_keys`.

A unit is a host key, with all processes registered below `/artimon/hosts/<key>`; or, for processes of older libraries
below `/artimon/contexts`, the processes of one context at one address. A unit stays together, so that one agent detects
two processes of the same name, and a restarted process continues the state of its predecessor.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

import psutil

from bookkeeper.process.addresses import source_address
from bookkeeper.process.host_key import fit_host_key

CONTEXTS = "/artimon/contexts"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_address_in(key: str, networks: Iterable[Network]) -> bool:
    """Return True for a host key that is an address in one of these networks."""
    try:
        address = ipaddress.ip_address(key)
    except ValueError:
        return False
    return any(address in network for network in networks)


def address_of_unit(unit: str) -> str | None:
    """Return the address of a unit of a context, `<ip>,<context>`; None for a host key."""
    ip, comma, _ = unit.partition(",")
    return ip if comma else None


def own_networks(zookeeper: str, more: Iterable[str] = ()) -> frozenset[Network]:
    """Return the addresses of the interfaces, the local address towards ZooKeeper, and the networks `more`."""
    here = (one for many in psutil.net_if_addrs().values() for one in many)
    addresses = {one.address.partition("%")[0] for one in here if one.family in (socket.AF_INET, socket.AF_INET6)}
    source = source_address(zookeeper)
    return frozenset(ipaddress.ip_network(one) for one in (*addresses, *([source] if source else []), *more))


def own_host_keys(zookeeper: str, host: str = "") -> tuple[str, ...]:
    """Return the host keys that applications on this host use: `host` (ARTIMON_HOST) first, and the local address
    towards ZooKeeper. Not the addresses of all interfaces: those of bridges are the same on many hosts."""
    keys = fit_host_key(host), fit_host_key(source_address(zookeeper) or "")
    return tuple(dict.fromkeys(key for key in keys if key)) or (fit_host_key(socket.gethostname()) or "host",)
