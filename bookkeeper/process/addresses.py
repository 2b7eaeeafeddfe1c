"""Choice of the address to listen on and of the one to advertise in ZooKeeper."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

LOOPBACK = "127.0.0.1"


class Addresses(NamedTuple):
    """`bind`: addresses to listen on, the first that works, at `bind_port` (0: a free one). `advertise`: the IP address
    that pollers connect to, at `advertise_port` (0: the port of the listener)."""

    bind: list[str]
    advertise: str
    bind_port: int = 0
    advertise_port: int = 0
    ignored: str = ""
    """What was set to be advertised and has no address."""


def choose(zookeeper: str, advertise: str | None, bind: str | None) -> Addresses:
    """Advertised: what was set, else the source address of the way to ZooKeeper, else that of the host's name.

    A name is looked up here, since pollers may not know it (those of pods do not resolve elsewhere); one without an
    address, and one that says no particular host (0.0.0.0), count as not set. Listens on the advertised address alone
    (127.0.0.1 if ZooKeeper is on this machine); where that is not an address of this host (a router or a container's
    mapped port translates it), on the source address of the way to ZooKeeper. `bind` overrides that.
    Both may be host:port, where the host may be left out."""
    host, advertise_port = split(advertise or "", 0)
    own, bind_port = split(bind or "", 0)
    source = source_address(zookeeper)
    named = address_of(host) if host else None
    told = named or source or address_of(socket.gethostname()) or LOOPBACK
    ignored = host if named is None else ""
    return Addresses([own] if own else [told, source or LOOPBACK], told, bind_port, advertise_port, ignored)


def address_of(name: str) -> str | None:
    """The IP address of a name or of itself, of several the first; None for one that names no particular host."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        address = ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])
    except (OSError, UnicodeError, ValueError):
        return None
    return None if address.is_unspecified or address.is_multicast else str(address)


def source_address(zookeeper: str) -> str | None:
    """This host's address on the way to ZooKeeper, None if there is no way. Sends nothing."""
    for host, port in hosts(zookeeper):
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
    except OSError:  # a name may have IPv6 addresses where there is no way by IPv6
        return None


def reachable(zookeeper: str, timeout_s: float) -> bool:
    """Whether one of the servers takes a connection, each within `timeout_s`."""
    for host in hosts(zookeeper):
        try:
            with socket.create_connection(host, timeout_s):
                return True
        except (OSError, ValueError):
            continue
    return False


def hosts(zookeeper: str) -> list[tuple[str, int]]:
    """The servers of `host:port,host:port/chroot`; port 2181 where none is given."""
    found = []
    for part in zookeeper.partition("/")[0].split(","):
        host, port = split(part.strip(), 2181)
        if host:
            found.append((host, port))
    return found


def split(text: str, port: int) -> tuple[str, int]:
    """Host, without brackets, and port of host:port; `port` where none is given. An IPv6 address with a port stands in
    brackets; without one it need not."""
    host, colon, number = text.rpartition(":")
    bare = ":" in host and not host.endswith("]")  # an IPv6 address, all of it
    if not colon or bare or text.endswith("]") or not number.isdecimal() or int(number) > 65_535:
        return _unbracketed(text), port
    return _unbracketed(host), int(number)


def _unbracketed(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def bracketed(host: str) -> str:
    """An IPv6 address in brackets, anything else as it is."""
    return f"[{host}]" if ":" in host else host
