"""Targets from DNS records: SRV, A, AAAA, MX."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sources.base.source_errors import PollError
from sources.scrape.discovery.discovery import Discovery, DiscoveryConfig, Groups, RefreshedDiscovery
from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup
from sources.targets.http_target import join_host_port

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

RecordType = Literal["SRV", "A", "AAAA", "MX"]
_META = "__meta_dns_"
_QUERY_S = 10.0
"""Timeout of one name in seconds, all its servers and search domains included."""


@dataclass(frozen=True, slots=True)
class DnsConfig(DiscoveryConfig):
    """One of `dns_sd_configs`. `port` of the targets, unless SRV records have it."""

    names: tuple[str, ...]
    type: RecordType = "SRV"
    port: int = 0
    refresh_s: float = 30.0

    def make(self, changed: Callable[[], None]) -> Discovery:
        return DnsDiscovery(self, changed)


def system_resolver() -> Resolver:
    """Return a resolver with the servers and search domains of the system. Raises ValueError."""
    import dns.asyncresolver  # imported only where there is such a discovery: 4 MiB
    import dns.exception

    try:
        return dns.asyncresolver.Resolver()
    except dns.exception.DNSException as error:
        raise ValueError(f"resolv.conf: {error}") from error


class DnsDiscovery(RefreshedDiscovery):
    """Discovery with a group for each name. A name that could not be resolved keeps its group; one that does not exist
    has none."""

    def __init__(
        self, config: DnsConfig, changed: Callable[[], None], resolver: Callable[[], Resolver] = system_resolver
    ) -> None:
        super().__init__(changed)
        self._config, self._resolver, self.refresh_s = config, resolver, config.refresh_s

    async def refresh(self) -> Groups:
        resolver = await asyncio.to_thread(self._resolver)
        names = self._config.names
        answers = await asyncio.gather(*(self._group(resolver, name) for name in names), return_exceptions=True)
        known = self.groups()
        found: dict[str, DiscoveredGroup] = {}
        problems = []
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, DiscoveredGroup):
                found[name] = answer
            elif isinstance(answer, PollError):
                problems.append(str(answer))
                found |= {name: known[name]} if name in known else {}
            elif answer is not None:
                raise answer
        if problems:
            if found:
                self.publish(found)
            raise PollError("network", "; ".join(problems[:5]))
        return found

    async def _group(self, resolver: Resolver, name: str) -> DiscoveredGroup:
        import dns.exception
        import dns.resolver

        try:
            answer = await resolver.resolve(
                name, self._config.type, search=True, raise_on_no_answer=False, lifetime=_QUERY_S
            )
        except dns.resolver.NXDOMAIN:
            return DiscoveredGroup()
        except dns.exception.DNSException as error:
            raise PollError("network", f"{name}: {error}") from error
        return DiscoveredGroup(tuple(self._labels(name, record) for record in answer))

    def _labels(self, name: str, record: Any) -> dict[str, str]:
        labels = {f"{_META}name": name}
        port = self._config.port
        match self._config.type:
            case "SRV":
                host, port = record.target.to_text(), record.port
                labels |= {f"{_META}srv_record_target": host, f"{_META}srv_record_port": str(port)}
            case "MX":
                host = record.exchange.to_text()
                labels[f"{_META}mx_record_target"] = host
            case _:
                host = record.address
        return {**labels, ADDRESS: join_host_port(host.rstrip("."), port)}

    def __str__(self) -> str:
        return f"DNS {self._config.type} {', '.join(self._config.names)}"
