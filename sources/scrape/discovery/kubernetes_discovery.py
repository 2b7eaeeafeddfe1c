"""Targets from the objects of a Kubernetes cluster: pods, services, endpoints, endpoint slices, nodes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sources.base.schedule import end_tasks
from sources.scrape.discovery import kubernetes_labels as labels
from sources.scrape.discovery.discovery import FAILURES, Discovery, DiscoveryConfig
from sources.scrape.discovery.http_endpoint import HttpEndpoint
from sources.scrape.discovery.kubernetes_watch import Resource, ResourceWatch
from sources.scrape.discovery.target_group import DiscoveredGroup
from sources.targets.credentials import CredentialFiles

_CORE, _SLICES = "/api/v1", "/apis/discovery.k8s.io/v1"
RESOURCES: Mapping[str, Resource] = {
    "pod": Resource("pods", _CORE, labels.keep_pod),
    "service": Resource("services", _CORE, labels.keep_service),
    "node": Resource("nodes", _CORE, labels.keep_node),
    "endpoints": Resource("endpoints", _CORE, labels.keep_endpoints),
    "endpointslice": Resource("endpointslices", _SLICES, labels.keep_slice),
}
NEEDED: Mapping[str, tuple[str, ...]] = {
    "pod": ("pod",),
    "service": ("service",),
    "node": ("node",),
    "endpoints": ("endpoints", "service", "pod"),
    "endpointslice": ("endpointslice", "service", "pod"),
}
"""Roles, and the resources that each follows."""
SETTLE_S = 1.0
"""Seconds in which changes are collected before the groups are built again."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Files that Kubernetes mounts into each pod."""


@dataclass(frozen=True, slots=True)
class KubernetesConfig(DiscoveryConfig):
    """One of `kubernetes_sd_configs`. `server` None: that of the cluster in which the agent runs."""

    role: str
    server: HttpEndpoint | None = None
    namespaces: tuple[str, ...] = ()
    own_namespace: bool = False
    selectors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Resource -> `labelSelector` and `fieldSelector`."""
    with_nodes: bool = False

    def make(self, changed: Callable[[], None]) -> Discovery:
        return KubernetesDiscovery(self, changed)


def own_cluster() -> HttpEndpoint | None:
    """Return the API server of the cluster in which the agent runs, None outside of a pod."""
    access = CredentialFiles(ca=ACCOUNT / "ca.crt", bearer_token_file=ACCOUNT / "token")
    return HttpEndpoint("https", "kubernetes.default.svc", 443, "", access) if ACCOUNT.is_dir() else None


class KubernetesDiscovery(Discovery):
    """Discovery with a group for each object of the role."""

    def __init__(self, config: KubernetesConfig, changed: Callable[[], None]) -> None:
        super().__init__(changed)
        self._config = config
        self._watches: dict[tuple[str, str], ResourceWatch] = {}
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()
        self._failure = ""
        self._built: dict[str, tuple[Any, DiscoveredGroup]] = {}

    async def run(self) -> None:
        server = self._config.server or own_cluster()
        if server is None:
            self.problem = "no `api_server:`, and the agent does not run in a pod of Kubernetes"
            return
        for kind, namespace in await self._resources():
            resource = RESOURCES[kind]
            selectors = self._config.selectors.get(kind, {})
            watch = ResourceWatch(server, resource, namespace, selectors, self._on_change, self._report)
            self._watches[kind, namespace] = watch
        tasks = [asyncio.create_task(one.run(), name=f"kubernetes {kind}") for (kind, _), one in self._watches.items()]
        try:
            await self._build_forever()
        finally:
            await end_tasks(tasks)

    async def _resources(self) -> list[tuple[str, str]]:
        """Return the resources to follow and their namespaces, "" for all."""
        config = self._config
        namespaces = set(config.namespaces)
        if config.own_namespace:
            namespaces.add((await asyncio.to_thread((ACCOUNT / "namespace").read_text)).strip())
        found = {
            (kind, "" if kind == "node" else namespace)
            for kind in NEEDED[config.role]
            for namespace in namespaces or {""}
        }
        return sorted(found | ({("node", "")} if config.with_nodes else set()))

    def _on_change(self, namespace: str) -> None:
        self._dirty.add(namespace)
        self._woken.set()

    def _report(self) -> None:
        """Report the present problems of all resources, and of the last build."""
        problems = [one.problem for one in self._watches.values()]
        self.problem = "; ".join(filter(None, [*problems, self._failure]))

    async def _build_forever(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            if all(one.ready for one in self._watches.values()):
                try:
                    self._build()
                    self._failure = ""
                except FAILURES as error:
                    self.fail(error)
                    self._failure = self.problem
                self._report()
            await asyncio.sleep(SETTLE_S)

    def _build(self) -> None:
        """Build the groups of the namespaces that changed, of all after a list or a change of a node."""
        dirty, self._dirty = self._dirty, set()
        objects: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for (kind, _), watch in self._watches.items():
            objects[kind] |= watch.objects
        role, built = self._config.role, {}
        for key, found in objects[role].items():
            known = self._built.get(key)
            keeps = known is not None and known[0] is found
            if known is None or not keeps or self._depends(dirty, key):
                built[key] = found, self._group(role, found, objects)
            else:
                built[key] = known
        self._built = built
        self.publish({f"{role}/{key}": group for key, (_, group) in built.items()})

    def _depends(self, dirty: set[str], key: str) -> bool:
        """Return True if the group of an object depends on others that changed."""
        if self._config.role not in ("endpoints", "endpointslice") and not self._config.with_nodes:
            return False
        return "" in dirty or key.rpartition("/")[0] in dirty

    def _group(self, role: str, found: Any, objects: Mapping[str, Mapping[str, Any]]) -> DiscoveredGroup:
        nodes = objects["node"] if self._config.with_nodes else {}
        match role:
            case "pod":
                return labels.pod_group(found, nodes.get(f"/{found['spec'].get('nodeName')}"))
            case "service":
                return labels.service_group(found)
            case "node":
                return labels.node_group(found)
            case "endpoints":
                return labels.endpoints_group(found, objects["pod"].get, objects["service"].get, nodes.get)
        return labels.slice_group(found, objects["pod"].get, objects["service"].get, nodes.get)

    def __str__(self) -> str:
        return f"Kubernetes {self._config.role} at {self._config.server or 'its own cluster'}"
