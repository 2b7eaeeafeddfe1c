"""Values of ZooKeeper, watched by a collector for all of its agents: ack states, changes of the configuration, the list
of collectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import xxhash
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_client import is_trusted, read_children
from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS, ZooKeeperWatcher
from pipeline.link.collector_choice import (
    COLLECTORS_PATH,
    CollectorEndpoint,
    encode_collectors,
    endpoint_text,
    parse_collectors,
    parse_endpoints,
)
from pipeline.link.config_changes import CHANGES_PATH, ConfigChanges
from pipeline.link.idl import collector_idl

CHECK_PERIOD_S = 60.0
CALL_TIMEOUT_S = 5.0
T = TypeVar("T")


class ZooKeeperMirror(ZooKeeperWatcher, Generic[T]):
    """Keeps the present value, which any thread may read.

    Invariant: `_value` is replaced, never changed. It is None while it may be old: before the first read, without a
    session."""

    def __init__(self, client: KazooClient, name: str) -> None:
        super().__init__(client, name, CHECK_PERIOD_S)
        self._value: T | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def value(self) -> T | None:
        return self._value if self._client.connected else None

    def _on_state(self, state: str) -> None:
        self._value = None
        super()._on_state(state)

    def _refresh(self) -> None:
        if not self._client.connected:
            return
        found = self._read()
        before, self._value = self._value, found
        if found is not None and found != before:
            self.on_change()

    def _read(self) -> T | None:
        """Read and watch the value; None if it cannot be trusted. May raise."""
        raise NotImplementedError


class AckMirror(ZooKeeperMirror[Mapping[str, tuple[bytes, int]]]):
    """Keeps the ack states with their versions; None also if a node may be written by others."""

    def answer(self, versions: Mapping[str, int]) -> Any:
        """Return the AckDocuments of the IDL for an agent that has these versions."""
        states, idl = self.value, collector_idl()
        if states is None:
            return idl.AckDocuments(False, [], [])
        changed = [
            idl.AckDocument(topic_id, data, version)
            for topic_id, (data, version) in states.items()
            if versions.get(topic_id) != version
        ]
        return idl.AckDocuments(True, changed, list(states))

    def _read(self) -> Mapping[str, tuple[bytes, int]] | None:
        nodes = read_children(self._client, ACKS_PATH, self._on_event, watch_each=self._on_event)
        found = {topic_id: (data, stat.version) for topic_id, data, stat in nodes}
        return found if all(is_trusted(self._client, f"{ACKS_PATH}/{topic_id}") for topic_id in found) else None


class ChangeMirror(ZooKeeperMirror[ConfigChanges]):
    """Keeps the last changes of the configuration."""

    def _read(self) -> ConfigChanges:
        while True:
            try:
                data, _ = self._client.get_async(CHANGES_PATH, watch=self._on_event).get(timeout=CALL_TIMEOUT_S)
            except NoNodeError:
                exists = self._client.exists_async(CHANGES_PATH, watch=self._on_event).get(timeout=CALL_TIMEOUT_S)
                if exists is None:
                    return ConfigChanges()
                continue
            return ConfigChanges.from_json(data)


@dataclass(frozen=True, slots=True)
class CollectorList:
    """Data of the nodes by id, and a digest of the addresses, which alone is compared: it does not change with the
    load."""

    nodes: Mapping[str, bytes] = field(default_factory=dict, compare=False)
    digest: int = 0


class CollectorMirror(ZooKeeperMirror[CollectorList]):
    """Keeps the list of the collectors, and writes it into the parent of their nodes: an agent that starts makes one
    read, whatever their number."""

    def _read(self) -> CollectorList:
        while True:
            before = self._read_parent()
            nodes = {name: data for name, data, _ in read_children(self._client, COLLECTORS_PATH, self._on_event)}
            found = parse_endpoints(nodes.items())
            if not found or (before is not None and self._keep_list(*before, found)):
                break
        text = "\n".join(f"{name} {endpoint_text(data)}" for name, data in sorted(nodes.items()))
        return CollectorList(nodes, xxhash.xxh3_64_intdigest(text.encode()) >> 1 or 1)

    def _read_parent(self) -> tuple[bytes, Any] | None:
        try:
            found: tuple[bytes, Any] = self._client.get_async(COLLECTORS_PATH).get(timeout=CALL_TIMEOUT_S)
        except NoNodeError:
            return None
        return found

    def _keep_list(self, data: bytes, stat: Any, found: Mapping[str, CollectorEndpoint]) -> bool:
        """Write the list unless it is there; False if a collector came or went after `stat` was read, before the nodes:
        no event may follow, and the list would not count. Without the right to write, agents read the nodes."""
        if parse_collectors(data, stat.pzxid) == found:
            return True
        fresh = encode_collectors(found, stat.pzxid)
        try:
            written = self._client.set_async(COLLECTORS_PATH, fresh, stat.version).get(timeout=CALL_TIMEOUT_S)
        except ZOOKEEPER_ERRORS:  # another collector was first, or it is not permitted
            return True
        return bool(written.pzxid == stat.pzxid)
