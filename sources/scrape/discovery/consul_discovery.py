"""Targets from the services of a Consul catalogue, followed by blocking queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from sources.base.schedule import end_tasks
from sources.scrape.discovery.discovery import FAILURES, RETRY_S, Discovery, DiscoveryConfig, parsed_json
from sources.scrape.discovery.http_endpoint import HttpEndpoint, query_of
from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup, sanitized
from sources.targets.http_target import join_host_port

_META = "__meta_consul_"
WAIT_S = 120
"""Longest time in seconds that Consul holds a query open."""
_DEADLINE_S = WAIT_S + 15.0
_BY_SEVERITY = ("maintenance", "critical", "warning")
MAX_SERVICES = 1_000
"""Limit of the services that are followed; each has one open query."""


@dataclass(frozen=True, slots=True)
class ConsulConfig(DiscoveryConfig):
    """One of `consul_sd_configs`."""

    server: HttpEndpoint
    datacenter: str = ""
    namespace: str = ""
    partition: str = ""
    tag_separator: str = ","
    services: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    node_meta: Mapping[str, str] = field(default_factory=dict)
    allow_stale: bool = True
    refresh_s: float = 30.0

    def make(self, changed: Callable[[], None]) -> Discovery:
        return ConsulDiscovery(self, changed)


class ConsulDiscovery(Discovery):
    """Discovery with a group for each service. One task follows the catalogue; each service has a task of its own."""

    def __init__(self, config: ConsulConfig, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._config, self._datacenter = config, config.datacenter
        self._found: dict[str, DiscoveredGroup] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        try:
            await self._repeat("", self._read_datacenter)
            if self._config.services and not self._config.tags:
                self._follow(self._config.services)
                await asyncio.Event().wait()
            await self._watch("", self._services_path, self._read_services)
        finally:
            await end_tasks(list(self._tasks.values()))

    # --- queries

    async def _repeat(self, about: str, call: Callable[[], Any]) -> None:
        """Repeat a call until it succeeds."""
        while True:
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    await call()
                self._clear(about)
                return
            except FAILURES as error:
                self._note(about, error)
                await asyncio.sleep(min(RETRY_S, self._config.refresh_s))

    async def _watch(self, about: str, path: Callable[[int], str], read: Callable[[Any], None]) -> None:
        """Repeat a blocking query for ever; `read` gets each new answer."""
        last = 0

        async def ask() -> None:
            nonlocal last
            asked, last = last, 0  # after a failure it asks for the present state, not for a change
            answer = await self._config.server.get(path(asked))
            index = int(answer.headers.get(b"x-consul-index", b"0"))
            if index != asked or not asked:
                read(parsed_json(answer.body))
            last = index if index >= asked else 0  # an index that fell begins again, as Consul advises

        while True:
            await self._repeat(about, ask)
            await asyncio.sleep(self._config.refresh_s)

    def _query(self, index: int, *more: tuple[str, str]) -> str:
        config = self._config
        named = {"dc": self._datacenter, "ns": config.namespace, "partition": config.partition}
        pairs = [*named.items(), *more, *(("node-meta", f"{name}:{value}") for name, value in config.node_meta.items())]
        if index:
            pairs += [("index", str(index)), ("wait", f"{WAIT_S}s")]
        return query_of([*pairs, ("stale", "true" if config.allow_stale else "")])

    async def _read_datacenter(self) -> None:
        if not self._datacenter:
            told = parsed_json((await self._config.server.get("/v1/agent/self")).body)
            self._datacenter = str(_field(_field(told, "Config"), "Datacenter"))

    # --- catalogue

    def _services_path(self, index: int) -> str:
        return f"/v1/catalog/services{self._query(index)}"

    def _read_services(self, found: Any) -> None:
        wanted, tags = self._config.services, set(self._config.tags)
        names = [
            name
            for name, given in _checked(found, dict).items()
            if (not wanted or name in wanted) and tags <= set(given or ())
        ]
        if len(names) > MAX_SERVICES:
            raise ValueError(
                f"{len(names):,} services: at most {MAX_SERVICES:,}, select them by `services:` or `tags:`"
            )
        self._follow(names)
        for gone in self._tasks.keys() - found.keys():
            self._tasks.pop(gone).cancel()
            self._found.pop(gone, None)
            self._problems.pop(gone, None)
        self._publish()

    def _follow(self, names: Any) -> None:
        for name in names:
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._follow_service(name), name=f"consul {name}")

    async def _follow_service(self, name: str) -> None:
        tags = [("tag", tag) for tag in self._config.tags]
        path = f"/v1/health/service/{quote(name, safe='')}"

        def read(found: Any) -> None:
            targets = tuple(self._labels(one) for one in _checked(found, list))
            labels = {f"{_META}service": name, f"{_META}dc": self._datacenter}
            self._found[name] = DiscoveredGroup(targets, labels)
            self._publish()

        await self._watch(name, lambda index: path + self._query(index, *tags), read)

    def _publish(self) -> None:
        """Publish the groups once every service has been read."""
        if self._tasks.keys() <= self._found.keys():
            self.publish(dict(self._found))
            self.problem = "; ".join(list(self._problems.values())[:5])

    def _note(self, about: str, error: Exception) -> None:
        self.fail(error)
        self._problems[about] = f"{about or 'catalogue'}: {self.problem}"

    def _clear(self, about: str) -> None:
        self._problems.pop(about, None)
        self.problem = "; ".join(list(self._problems.values())[:5])

    def _labels(self, entry: Any) -> dict[str, str]:
        node, service = _field(entry, "Node"), _field(entry, "Service")
        port, separator = int(service.get("Port") or 0), self._config.tag_separator
        own = {
            "address": node.get("Address"),
            "node": node.get("Node"),
            "namespace": service.get("Namespace"),
            "partition": service.get("Partition"),
            "tags": separator + separator.join(service.get("Tags") or ()) + separator,
            "service_address": service.get("Address"),
            "service_port": str(port),
            "service_id": service.get("ID"),
            "health": aggregated_status(entry.get("Checks") or ()),
        }
        for prefix, given in (
            ("metadata_", node.get("Meta")),
            ("service_metadata_", service.get("Meta")),
            ("tagged_address_", node.get("TaggedAddresses")),
        ):
            own |= {prefix + sanitized(name): value for name, value in (given or {}).items()}
        labels = {_META + name: str(value) for name, value in own.items() if value}
        return {**labels, ADDRESS: join_host_port(service.get("Address") or node.get("Address") or "", port)}

    def __str__(self) -> str:
        return f"Consul at {self._config.server}"


def aggregated_status(checks: Any) -> str:
    """Return the worst status of the checks of an instance, "" if one has a status that Consul does not define."""
    states = set()
    for one in checks:
        name = str(one.get("CheckID", ""))
        is_maintenance = name == "_node_maintenance" or name.startswith("_service_maintenance:")
        states.add("maintenance" if is_maintenance else one.get("Status"))
    if not states <= {*_BY_SEVERITY, "passing"}:
        return ""
    return next((state for state in _BY_SEVERITY if state in states), "passing")


def _checked(found: Any, kind: type) -> Any:
    if not isinstance(found, kind):
        raise ValueError(f"the answer is no {kind.__name__}: is it a Consul server?")
    return found


def _field(found: Any, name: str) -> Any:
    """Return a member of an object. Raises ValueError if it is absent."""
    if not isinstance(found, dict) or name not in found:
        raise ValueError(f"the answer has no {name}: is it a Consul server?")
    return found[name]
