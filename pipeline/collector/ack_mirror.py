"""Ack states of ZooKeeper, watched by a collector for all of its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient

from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_access import is_trusted
from artimon.runtime.zookeeper_client import read_children
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from pipeline.link.idl import collector_idl

CHECK_PERIOD_S = 60.0


class AckMirror(ZooKeeperWatcher):
    """Keeps the present ack states. `answer` may be called from any thread.

    Invariant: `_states` is replaced, never changed. It is None while some state may be missing or old: without a
    session, or if a node may be written by others."""

    def __init__(self, client: KazooClient) -> None:
        super().__init__(client, "ack mirror", CHECK_PERIOD_S)
        self._states: Mapping[str, tuple[bytes, int]] | None = None
        self.on_change: Callable[[], None] = lambda: None

    def answer(self, versions: Mapping[str, int]) -> Any:
        """Return the AckDocuments of the IDL for an agent that has these versions."""
        states = self._states if self._client.connected else None
        idl = collector_idl()
        if states is None:
            return idl.AckDocuments(False, [], [])
        changed = [
            idl.AckDocument(topic_id, data, version)
            for topic_id, (data, version) in states.items()
            if versions.get(topic_id) != version
        ]
        return idl.AckDocuments(True, changed, list(states))

    def _on_state(self, state: str) -> None:
        self._states = None
        super()._on_state(state)

    def _refresh(self) -> None:
        if not self._client.connected:
            return
        found = {
            topic_id: (data, stat.version)
            for topic_id, data, stat in read_children(
                self._client, ACKS_PATH, self._on_event, watch_each=self._on_event
            )
        }
        trusted = all(is_trusted(self._client, f"{ACKS_PATH}/{topic_id}") for topic_id in found)
        before, self._states = self._states, found if trusted else None
        if self._states is not None and self._states != before:
            self.on_change()
