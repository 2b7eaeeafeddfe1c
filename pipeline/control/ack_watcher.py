"""Watcher of collectors and ack states in ZooKeeper. Without ZooKeeper the agent goes on with the last known state."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from kazoo.client import KazooClient

from artimon.model.ack_state import AckDecision, AckState, decide_acks
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.settings import zookeeper_auth
from artimon.runtime.zookeeper_client import read_children
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from pipeline.control.access import is_owned
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint, parse_endpoint

log = logging.getLogger(__name__)


class AckListener(Protocol):
    """Recipient of the state in ZooKeeper: a sender, or a mirror to another site."""

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None: ...

    def unacked(self) -> list[Any]: ...

    def apply_verdict(self, verdict: AckDecision[Any]) -> None: ...


class AckWatcher(ZooKeeperWatcher):
    """Reports the live collectors, and the verdicts of the ack states on sent batches, to one sender.

    Precondition of `decide_acks`: the sent batches are collected before the states are read."""

    def __init__(self, client: KazooClient, sender: AckListener, topic: str) -> None:
        super().__init__(client, "control")
        self._sender, self._topic = sender, topic
        self._untrusted = ""
        """Untrusted acks and the remedy, "" if none."""

    def _refresh(self) -> None:
        if not self._client.connected:
            self.problem = "ZooKeeper is not reachable: going on with the last known collectors"
            return
        self._sender.update_collectors(self._find_collectors())
        self._untrusted = ""
        self._follow_acks()
        self.problem = self._untrusted

    def _find_collectors(self) -> dict[str, CollectorEndpoint]:
        found = {}
        for name, data, _ in read_children(self._client, COLLECTORS_PATH, self._on_event):
            try:
                found[name] = parse_endpoint(data)
            except ValueError as error:
                log.warning("collector %s: %s", name, error)
        return found

    def _follow_acks(self) -> None:
        waiting = self._sender.unacked()
        states = self._read_states()
        if waiting and states:
            verdict = decide_acks(waiting, states, self._topic)
            if verdict.acked or verdict.resend or verdict.checked:
                self._sender.apply_verdict(verdict)

    def _read_states(self) -> dict[str, AckState]:
        states = {}
        for topic_id, data, stat in read_children(self._client, ACKS_PATH, self._on_event, watch_each=self._on_event):
            try:
                state = AckState.from_json(data, stat.version)
            except ValueError as error:
                log.error("%s/%s: %s", ACKS_PATH, topic_id, error)
                continue
            if state.topic_id == topic_id and self._may_trust(topic_id):
                states[topic_id] = state
        return states

    def _may_trust(self, topic_id: str) -> bool:
        path = f"{ACKS_PATH}/{topic_id}"
        if is_trusted(self._client, path):
            return True
        self._untrusted = (
            f"acks in {path} are not trusted, since others may write them: set ARTIMON_ZOOKEEPER_AUTH for Spark and "
            "run `artimon config secure`"
        )
        return False


def is_trusted(client: KazooClient, path: str) -> bool:
    """Return True if published acks in this node may delete data. A process with its own ZooKeeper user trusts only
    nodes that no other user may write. Raises KazooException, KazooTimeoutError."""
    digest = zookeeper_auth()
    return not digest or is_owned(client, path, digest)
