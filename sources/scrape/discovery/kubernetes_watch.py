"""Objects of one resource of a Kubernetes API server, kept up to date by list and watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sources.base.source_errors import PollError
from sources.scrape.discovery.discovery import FAILURES, MAX_FOUND, RETRY_S, log, parsed_json
from sources.scrape.discovery.http_endpoint import HttpEndpoint, query_of

PAGE = 500
"""Objects of one answer to a list."""
LIST_S = 60.0
"""Timeout of one page in seconds."""
WATCH_S = 300
"""Seconds after which the server ends a watch; it continues with another."""
_SLACK_S = 30.0


@dataclass(frozen=True, slots=True)
class Resource:
    """Path of a resource, and the parts of its objects that are kept."""

    name: str
    root: str
    keep: Callable[[Any], Any]

    def path(self, namespace: str) -> str:
        return f"{self.root}/namespaces/{namespace}/{self.name}" if namespace else f"{self.root}/{self.name}"


class ResourceWatch:
    """Objects by namespace/name. A failed watch begins again with a list; until then the objects stay.

    `changed` is called with the namespace of each change, "" for all; `failed` after a failure. Event loop only."""

    def __init__(
        self,
        server: HttpEndpoint,
        resource: Resource,
        namespace: str,
        selectors: Mapping[str, str],
        changed: Callable[[str], None],
        failed: Callable[[], None],
    ) -> None:
        self._server, self._resource, self._changed, self._failed = server, resource, changed, failed
        self._path, self._selectors = resource.path(namespace), dict(selectors)
        self.objects: dict[str, Any] = {}
        self.problem, self.ready = "", False
        self._version, self._healthy = "", False

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except FAILURES as error:
                self._version, self.problem = "", f"{self._resource.name}: {error or type(error).__name__}"
                log.warning("Kubernetes at %s: %s", self._server, self.problem)
                self._failed()
                pause_s = min(1.0, RETRY_S) if self._healthy else RETRY_S  # a watch may end at any time
                self._healthy = False
                await asyncio.sleep(pause_s)

    async def _list(self) -> None:
        found: dict[str, Any] = {}
        more = ""
        while True:
            query = query_of({**self._selectors, "limit": str(PAGE), "continue": more})
            async with asyncio.timeout(LIST_S):
                page = parsed_json((await self._server.get(self._path + query)).body)
            found |= {key_of(one): self._resource.keep(one) for one in page["items"]}
            self._check(len(found))
            more = page["metadata"].get("continue", "")
            if not more:
                break
        self.objects, self._version = found, str(page["metadata"]["resourceVersion"])
        self.problem, self.ready, self._healthy = "", True, True
        self._changed("")

    async def _watch(self) -> None:
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_S)}
        path = self._path + query_of({**self._selectors, **query, "resourceVersion": self._version})
        async with asyncio.timeout(WATCH_S + _SLACK_S), self._server.lines(path) as lines:
            async for line in lines:
                if line.strip():
                    self._take(parsed_json(line))

    def _take(self, event: Any) -> None:
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise PollError("http status", f"the watch ended: {found.get('message', found)!r:.200}")
        self._version = str(found["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return
        key = key_of(found)
        if kind == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = self._resource.keep(found)
            self._check(len(self.objects))
        self._changed(key.rpartition("/")[0])

    def _check(self, count: int) -> None:
        if count > MAX_FOUND:
            raise PollError("answer too large", f"more than {MAX_FOUND:,} objects: select fewer, by namespace or label")


def key_of(found: Any) -> str:
    """Return namespace/name of an object, /name without a namespace."""
    return f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"
