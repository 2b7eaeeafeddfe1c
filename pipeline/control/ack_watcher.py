"""Watcher of collectors in ZooKeeper, and of ack states. A collector sends the ack states; without such a collector
they are read in ZooKeeper. Without ZooKeeper the agent goes on with the last known collectors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from artimon.model.ack_state import AckDecision, AckState, decide_acks
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_client import child_names, is_trusted, read_children
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from pipeline.control.collector_notices import parse_state
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint, parse_collectors, parse_endpoints

log = logging.getLogger(__name__)


COLLECTORS_CHECK_S = 300.0
"""Interval in seconds at which the collectors are read without an event."""
TOLD_CHECK_S = 10.0
"""Interval in seconds at which waiting batches are compared with what the collector told."""


class AckNotices(Protocol):
    """Ack states and addresses that a collector sends (pipeline/control/collector_notices.py)."""

    @property
    def is_active(self) -> bool: ...

    @property
    def acks(self) -> Mapping[str, AckState] | None: ...

    @property
    def collectors(self) -> Mapping[str, CollectorEndpoint] | None: ...


class AckListener(Protocol):
    """Recipient of the state in ZooKeeper: a sender, or a mirror to another site."""

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None: ...

    def unacked(self) -> list[Any]: ...

    def apply_verdict(self, verdict: AckDecision[Any]) -> None: ...


class AckWatcher(ZooKeeperWatcher):
    """Reports the live collectors, and the verdicts of the ack states on sent batches, to one sender.

    Precondition of `decide_acks`: the sent batches are collected before the states are read."""

    collectors_check_s = COLLECTORS_CHECK_S

    def __init__(
        self,
        client: KazooClient,
        sender: AckListener,
        topic: str,
        notices: AckNotices | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`notices`: None if states come from ZooKeeper only."""
        super().__init__(client, "control")
        self._sender, self._topic, self._notices, self._clock = sender, topic, notices, clock
        self._collectors_due = 0.0
        """Monotonic time."""
        self._is_watching = False
        """True if the list of collectors was read with a watch: else a collector is expected to tell it."""
        self._untrusted = ""
        """Untrusted acks and the remedy, "" if none."""

    def _on_state(self, state: str) -> None:
        self._collectors_due = 0.0
        super()._on_state(state)

    def _on_collectors(self, _event: Any) -> None:
        self._collectors_due = 0.0
        self.wake()

    def _pause_s(self) -> float:
        return TOLD_CHECK_S if self._is_told else super()._pause_s()

    def _refresh(self) -> None:
        connected, now = self._client.connected, self._clock.monotonic()
        told = self._notices.collectors if self._notices is not None else None
        if told is not None:
            self._sender.update_collectors(dict(told))
            self._collectors_due = 0.0
        elif connected and (now >= self._collectors_due or not (self._is_watching or self._is_told)):
            self._collectors_due = now + self.collectors_check_s
            try:
                self._sender.update_collectors(self._find_collectors())
            except BaseException:
                self._collectors_due = 0.0
                raise
        self._untrusted = ""
        self._follow_acks(connected)
        self.problem = (
            self._untrusted if connected else "ZooKeeper is not reachable: going on with the last known collectors"
        )

    @property
    def _is_told(self) -> bool:
        """True if a collector sends the list of collectors, or is expected to send it."""
        return self._notices is not None and self._notices.is_active

    def _find_collectors(self) -> dict[str, CollectorEndpoint]:
        """Read the collectors. They are watched unless one of them sends changes of the list: then one read suffices if
        the parent of their nodes has the list, too."""
        expected = self._is_told
        watch = None if expected else self._on_collectors
        self._is_watching = not expected
        if expected and (listed := self._read_list()):
            return listed
        found = parse_endpoints((name, data) for name, data, _ in read_children(self._client, COLLECTORS_PATH, watch))
        if expected and not found:
            self._is_watching = True
            if child_names(self._client, COLLECTORS_PATH, self._on_collectors):
                self._on_collectors(None)
        return found

    def _read_list(self) -> dict[str, CollectorEndpoint]:
        """Return the list in the parent node, {} if there is none or a collector came or went after it was written."""
        try:
            data, stat = self._client.get_async(COLLECTORS_PATH).get()
        except NoNodeError:
            return {}
        return parse_collectors(data, stat.pzxid)

    def _follow_acks(self, connected: bool) -> None:
        waiting = self._sender.unacked()
        if self._notices is not None and self._is_told:
            states = self._notices.acks or {}
        elif connected and (waiting or self._notices is None):
            states = self._read_states()
        else:
            states = {}
        if waiting and states:
            verdict = decide_acks(waiting, states, self._topic)
            if verdict.acked or verdict.resend or verdict.checked:
                self._sender.apply_verdict(verdict)

    def _read_states(self) -> dict[str, AckState]:
        states = {}
        for topic_id, data, stat in read_children(self._client, ACKS_PATH, self._on_event, watch_each=self._on_event):
            state = parse_state(topic_id, data, stat.version)
            if state is not None and self._may_trust(topic_id):
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
