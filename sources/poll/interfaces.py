"""Addresses of this host from /proc; without /proc, the addresses of its name."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from pathlib import Path

from bookkeeper.process.addresses import source_address
from sources.poll.host_groups import Network

PROC = Path("/proc/net")
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")


def own_networks(zookeeper: str, more: Iterable[str] = (), proc: Path = PROC) -> frozenset[Network]:
    """Return the addresses of the interfaces, the local address towards ZooKeeper, and the networks `more`."""
    addresses = {*_ipv4(proc), *_ipv6(proc)} or set(_by_name())
    source = source_address(zookeeper)
    if source is not None:
        addresses.add(source)
    return frozenset(ipaddress.ip_network(one) for one in (*addresses, *more))


def _ipv4(proc: Path) -> list[str]:
    try:
        return _LOCAL.findall((proc / "fib_trie").read_text())
    except OSError:
        return []


def _ipv6(proc: Path) -> list[str]:
    try:
        lines = (proc / "if_inet6").read_text().splitlines()
    except OSError:
        return []
    return [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in lines]


def _by_name() -> list[str]:
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]).partition("%")[0] for *_, address in found]
