"""Groups of servers: clients and servers name a group, never a host. The members are in ZooKeeper, or the last known.

A server puts an ephemeral node under /artimon/groups/<group>/ while it serves; a client follows the groups it names.
Collectors register in /artimon/collectors and name their group in their data.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient

from artimon.runtime.zookeeper_client import EphemeralNode
from pipeline.control.control_tree import GROUPS, ControlTree, validate_name
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint

Members = Mapping[str, Mapping[str, Any]]
"""By name: {"host", "port", …}."""


class GroupDirectory:
    """Members of the followed groups. Thread-safe; only `refresh` talks to ZooKeeper.

    An empty group keeps its last known members, since a server may serve while ZooKeeper has forgotten it; clients
    avoid members that fail."""

    def __init__(self, client: KazooClient, known: Mapping[str, Members] | None = None) -> None:
        self._client, self._tree = client, ControlTree(client)
        self._lock = threading.Lock()
        """Guards the two below; no I/O under it."""
        self._known: dict[str, Members] = dict(known or {})
        self._groups: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a group is followed for the first time, so that it is read soon."""

    def members(self, group: str) -> dict[str, CollectorEndpoint]:
        """Return the addresses of the members of a group, by name; {} while none is known. Follows the group from now
        on. Raises ControlPlaneError for an invalid name."""
        validate_name(group, "group")
        with self._lock:
            fresh = group not in self._groups
            self._groups.add(group)
            known = self._known.get(group, {})
        if fresh:
            self.on_change()
        return {name: CollectorEndpoint(str(one["host"]), int(one["port"])) for name, one in known.items()}

    def known(self) -> dict[str, Members]:
        """Return all known members, to be saved on disk."""
        with self._lock:
            return dict(self._known)

    def refresh(self, watch: Callable[[Any], None]) -> None:
        """Ask ZooKeeper about every followed group. Raises `watcher.LOST`."""
        with self._lock:
            followed = sorted(self._groups)
        for group in followed:
            found = self._tree.reports(path_of(group), watch)
            good = {name: one for name, one in found.items() if _is_member(one)}
            if good:
                with self._lock:
                    self._known[group] = good

    def problem(self, group: str) -> str:
        """Return the message for an operator while no member is known, else ""."""
        return "" if self.members(group) else f"no member is known in {path_of(group)}"

    def register(self, group: str, name: str, endpoint: CollectorEndpoint, **more: Any) -> EphemeralNode:
        """Register `name`, which has no slash, as server of the group at `endpoint`; the caller stops the result."""
        path = f"{path_of(validate_name(group, 'group'))}/{name}"
        data = json.dumps({"host": endpoint.host, "port": endpoint.port, **more}).encode()
        registration = EphemeralNode(self._client, path, data)
        registration.start()
        return registration


def path_of(group: str) -> str:
    """Return the path of the members of a group; "collectors" are the platform's own, of all groups."""
    return COLLECTORS_PATH if group == "collectors" else f"{GROUPS}/{group}"


def _is_member(found: Mapping[str, Any]) -> bool:
    port = found.get("port")
    return isinstance(found.get("host"), str) and isinstance(port, int) and 0 < port < 65_536
