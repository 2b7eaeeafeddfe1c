"""Targets from a list that an HTTP server answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sources.base.source_errors import PollError
from sources.scrape.discovery.discovery import Discovery, DiscoveryConfig, Groups, RefreshedDiscovery, parsed_json
from sources.scrape.discovery.http_endpoint import HttpEndpoint
from sources.scrape.discovery.target_group import DiscoveredGroup, group_of

_JSON = re.compile(rb'application/json(;\s*charset="?utf-8"?)?', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HttpConfig(DiscoveryConfig):
    """One of `http_sd_configs`."""

    url: str
    server: HttpEndpoint
    refresh_s: float = 60.0

    def make(self, changed: Callable[[], None]) -> Discovery:
        return HttpDiscovery(self, changed)


class HttpDiscovery(RefreshedDiscovery):
    """Groups of one URL."""

    def __init__(self, config: HttpConfig, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._config, self.refresh_s = config, config.refresh_s

    async def refresh(self) -> Groups:
        server = self._config.server
        told = {"X-Prometheus-Refresh-Interval-Seconds": f"{self.refresh_s:g}"}
        answer = await server.get("" if server.path else "/", told)
        kind = answer.headers.get(b"content-type", b"")
        if not _JSON.fullmatch(kind.strip()):
            raise PollError("garbage", f"Content-Type {kind[:40]!r}: want application/json")
        found = parsed_json(answer.body)
        if not isinstance(found, list):
            raise ValueError("want a JSON list of target groups")
        url = self._config.url
        groups = [group_of(one) for one in found]
        return {
            f"{url}:{at}": DiscoveredGroup(one.targets, {**one.labels, "__meta_url": url})
            for at, one in enumerate(groups)
        }

    def __str__(self) -> str:
        return f"list at {self._config.server}"
