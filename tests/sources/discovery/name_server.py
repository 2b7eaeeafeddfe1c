"""Small name server over UDP and TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dns.asyncresolver
from dnslib import QTYPE, RCODE, RR
from dnslib.server import DNSServer


class Zone:
    """Answers of a name server: name and type -> data of records or whole records, or a code."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Any] = {}

    def resolve(self, request: Any, handler: Any) -> Any:
        reply = request.reply()
        name, kind = str(request.q.qname), QTYPE[request.q.qtype]
        found = self.records.get((name, kind), RCODE.NXDOMAIN)
        if isinstance(found, int):
            reply.header.rcode = found
        else:
            for data in found:
                reply.add_answer(data if isinstance(data, RR) else RR(name, getattr(QTYPE, kind), rdata=data, ttl=0))
        return reply


def _servers(zone: Zone, port: int) -> list[DNSServer]:
    """Return a server for UDP and one for TCP on one port; 0: a port that is free for UDP and TCP."""
    for _ in range(20):
        server = DNSServer(zone, "127.0.0.1", port)
        try:
            return [server, DNSServer(zone, "127.0.0.1", server.server.server_address[1], tcp=True)]
        except OSError:
            server.server.server_close()
    raise OSError("no port is free for UDP and TCP")


@contextmanager
def name_server(zone: Zone, port: int = 0) -> Iterator[Callable[[], dns.asyncresolver.Resolver]]:
    """Serve a zone on loopback; yields a function that makes a resolver for it."""
    servers = _servers(zone, port)
    port = servers[0].server.server_address[1]
    for one in servers:
        one.start_thread()

    def resolver() -> dns.asyncresolver.Resolver:
        made = dns.asyncresolver.Resolver(configure=False)
        made.nameservers, made.port, made.search = ["127.0.0.1"], port, []
        return made

    try:
        yield resolver
    finally:
        for one in servers:
            one.stop()
            one.server.server_close()
