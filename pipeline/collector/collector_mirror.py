"""List of the collectors in ZooKeeper, watched by each collector for all of its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import xxhash
from kazoo.client import KazooClient

from artimon.runtime.zookeeper_client import read_children
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from pipeline.link.collector_choice import COLLECTORS_PATH, endpoint_text

CHECK_PERIOD_S = 60.0


class CollectorList(NamedTuple):
    """Data of the nodes by id, and a digest of the addresses: it does not change with the load."""

    nodes: Mapping[str, bytes] = {}
    digest: int = 0


class CollectorMirror(ZooKeeperWatcher):
    """Keeps the present list. `found` is replaced, never changed; empty while the list may be old."""

    def __init__(self, client: KazooClient) -> None:
        super().__init__(client, "collector mirror", CHECK_PERIOD_S)
        self._found = CollectorList()
        self.on_change: Callable[[], None] = lambda: None

    @property
    def found(self) -> CollectorList:
        return self._found if self._client.connected else CollectorList()

    def _on_state(self, state: str) -> None:
        self._found = CollectorList()
        super()._on_state(state)

    def _refresh(self) -> None:
        if not self._client.connected:
            return
        nodes = {name: data for name, data, _ in read_children(self._client, COLLECTORS_PATH, self._on_event)}
        text = "\n".join(f"{name} {endpoint_text(data)}" for name, data in sorted(nodes.items()))
        before, self._found = self._found, CollectorList(nodes, xxhash.xxh3_64_intdigest(text.encode()) >> 1 or 1)
        if self._found.digest != before.digest:
            self.on_change()
