"""Name of an endpoint's znode: `<context>:<ip>:<port>:<uuid>` below a host key, or `<ip>:<port>:<uuid>` below a context
(libraries of older versions); IPv6 in brackets."""

from __future__ import annotations

import ipaddress
import re
import uuid
from typing import NamedTuple

from artimon.runtime.text import parse_address
from bookkeeper.process.addresses import bracket_ipv6
from sources.base.source_errors import AddressError

_CONTEXT_AND_ADDRESS = re.compile(r"(.+):((?:\[[^\]]*\]|[^:\]]*):[^:]*:[^:]*)", re.DOTALL)
"""A context may contain colons, the other parts may not, except in brackets."""


class EndpointAddress(NamedTuple):
    """Address of one process, parsed from its znode."""

    context: str
    ip: str
    """Without brackets."""
    port: int
    uuid: bytes
    """16 bytes."""
    host: str = ""
    """Host key of its registration; "" if it registered below its context."""

    @property
    def unit(self) -> str:
        """Unit of its lease: the host key, or address and context, separated by a comma."""
        return self.host or f"{self.ip},{self.context}"

    @property
    def address(self) -> str:
        """`ip:port`, IPv6 in brackets."""
        return f"{bracket_ipv6(self.ip)}:{self.port}"

    def __str__(self) -> str:
        return f"{self.context} at {self.address} ({uuid.UUID(bytes=self.uuid)})"


def parse_host_endpoint(host: str, node: str) -> EndpointAddress:
    """Parse the name of a znode under a host key. Raises AddressError."""
    found = _CONTEXT_AND_ADDRESS.fullmatch(node)
    if found is None:
        raise AddressError(f"znode {node!r} of host {host}: want <context>:<ip>:<port>:<uuid>")
    return parse_endpoint(found[1], found[2])._replace(host=host)


def parse_endpoint(context: str, node: str) -> EndpointAddress:
    """Parse the name of a znode under `context`. Raises AddressError."""
    address, _, name = node.rpartition(":")
    try:
        host, port = parse_address(address)
        ip = ipaddress.ip_address(host)
        process = uuid.UUID(name).bytes
    except ValueError as error:
        raise AddressError(f"znode {node!r} of {context}: want <ip>:<port>:<uuid>: {error}") from error
    if address.startswith("[") != (ip.version == 6):
        raise AddressError(f"znode {node!r} of {context}: write IPv6 addresses, and only those, in brackets")
    reserved = ip.version == 4 and ip.is_reserved  # is_reserved is true even for ::1 in IPv6
    if ip.is_multicast or ip.is_unspecified or ip.is_link_local or reserved:
        raise AddressError(f"znode {node!r} of {context}: {ip} cannot belong to a single process and is not polled")
    return EndpointAddress(context, str(ip), port, process)
