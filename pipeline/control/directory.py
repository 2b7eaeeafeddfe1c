"""Groups: clients and servers name a group, never a host. Who is in it ZooKeeper says; without it the last known.

A server puts an ephemeral node under /artimon/groups/<group>/ while it serves; a client follows the groups it names.
Collectors stand in /artimon/collectors with their group among their data.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient

from artimon.runtime.zookeeper import Registration
from pipeline.control.tree import GROUPS, Tree, checked_name
from pipeline.link.endpoints import COLLECTORS_PATH, Endpoint

Members = Mapping[str, Mapping[str, Any]]
"""By name: {"host", "port", …}."""


class Directory:
    """The members of the groups that somebody asked for. Thread-safe; `refresh` alone talks to ZooKeeper.

    An empty group is not believed: its last known members are kept, since a server may serve while ZooKeeper has
    forgotten it; a member that fails is for the client to leave alone."""

    def __init__(self, client: KazooClient, known: Mapping[str, Members] | None = None) -> None:
        self._client, self._tree = client, Tree(client)
        self._lock = threading.Lock()
        """Guards the two below; no I/O under it."""
        self._known: dict[str, Members] = dict(known or {})
        self._followed: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a group is followed for the first time, so that it is looked at soon."""

    def members(self, group: str) -> dict[str, Endpoint]:
        """Where the members of a group listen, by name; {} while none is known. Follows the group from now on. Raises
        PlaneError for what is no name."""
        checked_name(group, "group")
        with self._lock:
            fresh = group not in self._followed
            self._followed.add(group)
            known = self._known.get(group, {})
        if fresh:
            self.on_change()
        return {name: Endpoint(str(one["host"]), int(one["port"])) for name, one in known.items()}

    def known(self) -> dict[str, Members]:
        """All that is known, to be kept on the disk."""
        with self._lock:
            return dict(self._known)

    def refresh(self, watch: Callable[[Any], None]) -> None:
        """Ask ZooKeeper about every followed group. Raises `watcher.LOST`."""
        with self._lock:
            followed = sorted(self._followed)
        for group in followed:
            found = self._tree.reports(path_of(group), watch)
            good = {name: one for name, one in found.items() if _is_member(one)}
            if good:
                with self._lock:
                    self._known[group] = good

    def follow(self, group: str) -> Followed:
        """A view of one group, for who does not share this object's life."""
        return Followed(self, group)

    def serve(self, group: str, name: str, endpoint: Endpoint, **more: Any) -> Registration:
        """Tell that `name`, which has no slash, serves the group at `endpoint`; the caller stops what is returned."""
        path = f"{path_of(checked_name(group, 'group'))}/{name}"
        data = json.dumps({"host": endpoint.host, "port": endpoint.port, **more}).encode()
        registration = Registration(self._client, path, data)
        registration.start()
        return registration


class Followed:
    """One group of a directory."""

    def __init__(self, directory: Directory, group: str) -> None:
        self._directory, self._group = directory, group

    @property
    def problem(self) -> str:
        return "" if self.found() else f"nobody is known in {path_of(self._group)}"

    def found(self) -> Mapping[str, Endpoint]:
        """The last known members, by name."""
        return self._directory.members(self._group)


def path_of(group: str) -> str:
    """Where the members of a group stand; "collectors" are the platform's own, of all groups."""
    return COLLECTORS_PATH if group == "collectors" else f"{GROUPS}/{group}"


def _is_member(found: Mapping[str, Any]) -> bool:
    port = found.get("port")
    return isinstance(found.get("host"), str) and isinstance(port, int) and 0 < port < 65_536
