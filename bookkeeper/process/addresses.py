"""Choice of the address to listen on and of the one to advertise in ZooKeeper."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

LOOPBACK = "127.0.0.1"


class Addresses(NamedTuple):
    """`bind`: candidate addresses of the listener, tried in order, with `bind_port` (0: any free port). `advertise`: IP
    address that pollers connect to, with `advertise_port` (0: the port of the listener)."""

    bind: list[str]
    advertise: str
    bind_port: int = 0
    advertise_port: int = 0
    ignored: str = ""
    """Host that was configured to be advertised but has no usable address; "" for none."""


def choose_addresses(zookeeper: str, advertise: str | None, bind: str | None) -> Addresses:
    """Choose the advertised address: `advertise`, else the source address of the route to ZooKeeper, else the address
    of the host name.

    Names are resolved here, because pollers may be unable to (names of pods do not resolve elsewhere). A name without
    an address and a wildcard (0.0.0.0) count as unset. The process listens on the advertised address alone (127.0.0.1
    if ZooKeeper is on this machine). If that is not an address of this host (a router or a container translates it),
    it listens on the source address of the route to ZooKeeper. `bind` overrides both. `advertise` and `bind` may be
    host:port; the host is optional."""
    host, advertise_port = split_host_port(advertise or "", 0)
    own, bind_port = split_host_port(bind or "", 0)
    source = source_address(zookeeper)
    named = address_of(host) if host else None
    told = named or source or address_of(socket.gethostname()) or LOOPBACK
    ignored = host if named is None else ""
    return Addresses([own] if own else [told, source or LOOPBACK], told, bind_port, advertise_port, ignored)


def address_of(name: str) -> str | None:
    """First IP address of a name or address; None if there is none, or if it is unspecified or multicast."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        address = ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])
    except (OSError, UnicodeError, ValueError):
        return None
    return None if address.is_unspecified or address.is_multicast else str(address)


def source_address(zookeeper: str) -> str | None:
    """Source address of the route to ZooKeeper; None without a route. Sends nothing."""
    for host, port in zookeeper_hosts(zookeeper):
        try:
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                found = _source(family, address)
                if found is not None:
                    return found
        except (OSError, UnicodeError):
            continue
    return None


def _source(family: int, address: tuple[object, ...]) -> str | None:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            return str(sock.getsockname()[0]).partition("%")[0]
    except OSError:  # a name may have IPv6 addresses although this host has no IPv6 route
        return None


def is_reachable(zookeeper: str, timeout_s: float) -> bool:
    """Return True if a server accepts a connection; each gets `timeout_s` seconds."""
    for host in zookeeper_hosts(zookeeper):
        try:
            with socket.create_connection(host, timeout_s):
                return True
        except (OSError, ValueError):
            continue
    return False


def zookeeper_hosts(zookeeper: str) -> list[tuple[str, int]]:
    """Servers of `host:port,host:port/chroot`; the default port is 2181."""
    found = []
    for part in zookeeper.partition("/")[0].split(","):
        host, port = split_host_port(part.strip(), 2181)
        if host:
            found.append((host, port))
    return found


def split_host_port(text: str, port: int) -> tuple[str, int]:
    """Split host:port into the host without brackets and the port; `port` is the default. An IPv6 address needs
    brackets if a port follows."""
    host, colon, number = text.rpartition(":")
    bare = ":" in host and not host.endswith("]")  # the whole text is an IPv6 address
    if not colon or bare or text.endswith("]") or not number.isdecimal() or int(number) > 65_535:
        return _unbracketed(text), port
    return _unbracketed(host), int(number)


def _unbracketed(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def bracket_ipv6(host: str) -> str:
    """Put an IPv6 address into brackets; return other hosts unchanged."""
    return f"[{host}]" if ":" in host else host
