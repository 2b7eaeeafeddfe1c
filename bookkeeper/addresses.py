"""Which address to listen on and which one to tell ZooKeeper."""

from __future__ import annotations

import socket
from typing import NamedTuple


class Addresses(NamedTuple):
    """`bind`: addresses to listen on, the first that works; `advertise`: what pollers connect to."""

    bind: list[str]
    advertise: str


def choose(zookeeper: str, advertise: str | None, bind: str | None) -> Addresses:
    """Advertised: what was set, else the source address of the way to ZooKeeper, else the host's name.

    Listens on the advertised address alone (127.0.0.1 if ZooKeeper is on this machine); where that is not an address
    of this host (a router translates it), on the source address of the way to ZooKeeper. `bind` overrides that."""
    source = source_address(zookeeper)
    told = advertise or source or socket.gethostname()
    candidates = [bind] if bind else [told, source or "127.0.0.1"]
    return Addresses([_unbracketed(one) for one in candidates], _unbracketed(told))


def source_address(zookeeper: str) -> str | None:
    """This host's address on the way to ZooKeeper, None if there is no way. Sends nothing."""
    for host, port in hosts(zookeeper):
        try:
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                with socket.socket(family, socket.SOCK_DGRAM) as sock:
                    sock.connect(address)
                    return str(sock.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
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
        host, port = _split(part.strip())
        if host:
            found.append((host, port))
    return found


def _split(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or not port.isdigit():
        return _unbracketed(text), 2181
    return _unbracketed(host), int(port)


def _unbracketed(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def bracketed(host: str) -> str:
    """An IPv6 address in brackets, anything else as it is."""
    return f"[{host}]" if ":" in host else host
