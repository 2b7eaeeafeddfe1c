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
    from dns.name import Name

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


def names_to_try(resolver: Resolver, text: str) -> list[Name]:
    """Return the absolute names that a name may stand for, in the order of resolv.conf(5). Raises DNSException."""
    import dns.name

    name, absolute = dns.name.from_text(text, None), dns.name.from_text(text)
    if name.is_absolute():
        return [absolute]
    domains = resolver.search or ([resolver.domain] if resolver.domain != dns.name.root else [])
    searched = [name.concatenate(domain) for domain in domains]
    return [absolute, *searched] if len(name) > (resolver.ndots or 1) else [*searched, absolute]


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
        """Return the records of the first of the names to try that exists, as Prometheus does. Raises PollError if none
        exists and one could not be resolved."""
        import dns.exception
        import dns.resolver

        problem = ""
        try:
            async with asyncio.timeout(_QUERY_S):
                for full in names_to_try(resolver, name):
                    try:
                        answer = await resolver.resolve(
                            full, self._config.type, search=False, raise_on_no_answer=False, lifetime=_QUERY_S
                        )
                    except dns.resolver.NXDOMAIN:
                        continue
                    except dns.exception.DNSException as error:
                        problem = problem or str(error)
                        continue
                    return DiscoveredGroup(tuple(self._labels(name, record) for record in answer))
        except TimeoutError:
            problem = problem or f"no answer in {_QUERY_S:g} s"
        except dns.exception.DNSException as error:  # the name itself
            problem = str(error)
        if problem:
            raise PollError("network", f"{name}: {problem}")
        return DiscoveredGroup()

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
