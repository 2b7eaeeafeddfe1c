"""Units of leases, host keys of an agent, networks of hosts: pure but for `own_networks` and `own_host_keys`.

A unit is a host key, with all processes registered below `/artimon/hosts/<key>`; or, for processes of older libraries
below `/artimon/contexts`, the processes of one context at one address. A unit stays together, so that one agent detects
two processes of the same name, and a restarted process continues the state of its predecessor.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Collection, Iterable

import psutil

from bookkeeper.process.addresses import source_address
from bookkeeper.process.host_key import fit_host_key

CONTEXTS = "/artimon/contexts"
NETWORKS = "/artimon/polling/networks"
"""Children: the networks of `--own-network` of all agents; below each its addresses that are host keys."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def network_path(network: Network) -> str:
    """Return the node of a network."""
    return f"{NETWORKS}/{str(network).replace('/', '_')}"


def parse_networks(names: Iterable[str]) -> frozenset[Network]:
    """Return the networks of the children of NETWORKS; other names are left out."""
    found = set[Network]()
    for name in names:
        with contextlib.suppress(ValueError):
            found.add(ipaddress.ip_network(name.replace("_", "/")))
    return frozenset(found)


def network_of(key: str, networks: Collection[Network]) -> Network | None:
    """Return the narrowest of these networks that contains a host key; None for a name, or an address of no network."""
    try:
        address = ipaddress.ip_address(key)
    except ValueError:
        return None
    lengths = range(address.max_prefixlen, -1, -1) if networks else ()
    wider = (ipaddress.ip_network((address, length), strict=False) for length in lengths)
    return next((network for network in wider if network in networks), None)


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
