"""Watcher of collectors in ZooKeeper, and of ack states: asked of a collector, or read in ZooKeeper if none answers.
Without ZooKeeper the agent goes on with the last known collectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kazoo.client import KazooClient

from artimon.model.ack_state import AckDecision, AckState, decide_acks
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_access import is_trusted
from artimon.runtime.zookeeper_client import read_children
from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint, parse_endpoint

log = logging.getLogger(__name__)


COLLECTORS_CHECK_S = 300.0
"""Interval in seconds at which the collectors are read without an event."""
MIN_ASK_S, MAX_ASK_S = 1.0, 10.0
"""Interval in seconds at which a collector is asked for acks: doubled by an answer without changes, else halved."""
ASK_TIMEOUT_S = 5.0
UNANSWERED_S = 60.0
"""Seconds for which ZooKeeper is read after no collector answered, or one without this service."""
AckSource = Callable[[Mapping[str, int]], Any]
"""Asks a collector for the states of which it has another version; returns AckDocuments. Raises RuntimeError."""


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
        ask: AckSource | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`ask`: None if states come from ZooKeeper only."""
        super().__init__(client, "control")
        self._sender, self._topic, self._ask, self._clock = sender, topic, ask, clock
        self._collectors_due = self._ask_after = 0.0
        """Monotonic times."""
        self._ask_s = MIN_ASK_S
        self._waiting = False
        self._is_known = False
        """True if ZooKeeper listed a collector."""
        self._asking = False
        """True if a collector answered the last question."""
        self._told: dict[str, AckState] = {}
        """States of the collector that was asked last, by topic id."""
        self._untrusted = ""
        """Untrusted acks and the remedy, "" if none."""

    def _on_state(self, state: str) -> None:
        self._collectors_due = 0.0
        super()._on_state(state)

    def _on_collectors(self, _event: Any) -> None:
        self._collectors_due = 0.0
        self.wake()

    def _pause_s(self) -> float:
        if not self._asking:
            return super()._pause_s()
        return self._ask_s if self._waiting else MIN_ASK_S  # without waiting batches nothing is asked

    def _refresh(self) -> None:
        connected, now = self._client.connected, self._clock.monotonic()
        if connected and now >= self._collectors_due:
            self._collectors_due = now + self.collectors_check_s
            try:
                found = self._find_collectors()
                self._is_known = self._is_known or bool(found)
                self._sender.update_collectors(found)
            except BaseException:
                self._collectors_due = 0.0
                raise
        self._untrusted = ""
        self._follow_acks(connected)
        self.problem = (
            self._untrusted if connected else "ZooKeeper is not reachable: going on with the last known collectors"
        )

    def _find_collectors(self) -> dict[str, CollectorEndpoint]:
        found = {}
        for name, data, _ in read_children(self._client, COLLECTORS_PATH, self._on_collectors):
            try:
                found[name] = parse_endpoint(data)
            except ValueError as error:
                log.warning("collector %s: %s", name, error)
        return found

    def _follow_acks(self, connected: bool) -> None:
        waiting = self._sender.unacked()
        self._waiting = bool(waiting)
        states = self._ask_states() if waiting else None
        if states is None and connected and (waiting or self._ask is None):
            states = self._read_states()
        if waiting and states:
            verdict = decide_acks(waiting, states, self._topic)
            if verdict.acked or verdict.resend or verdict.checked:
                self._sender.apply_verdict(verdict)

    def _ask_states(self) -> dict[str, AckState] | None:
        """Return the states that a collector tells; None if ZooKeeper must be read."""
        if self._ask is None or not self._is_known or self._clock.monotonic() < self._ask_after:
            return None
        try:
            answer = self._ask({topic_id: state.version for topic_id, state in self._told.items()})
            if not answer.known:
                raise RuntimeError("it has no states")
        except RuntimeError as error:
            log.info("acks are read in ZooKeeper, no collector tells them: %s", error)
            self._told, self._asking = {}, False
            self._ask_after = self._clock.monotonic() + UNANSWERED_S
            return None
        self._asking = True
        changed = {one.topic_id: self._parse(one.topic_id, one.data, one.version) for one in answer.changed}
        self._ask_s = max(self._ask_s / 2, MIN_ASK_S) if changed else min(2 * self._ask_s, MAX_ASK_S)
        now = {topic_id: changed.get(topic_id, self._told.get(topic_id)) for topic_id in answer.topics}
        self._told = {topic_id: state for topic_id, state in now.items() if state is not None}
        return self._told

    def _parse(self, topic_id: str, data: bytes, version: int) -> AckState | None:
        """Return the state in a node, None if it is invalid."""
        try:
            state = AckState.from_json(data, version)
        except ValueError as error:
            log.error("%s/%s: %s", ACKS_PATH, topic_id, error)
            return None
        return state if state.topic_id == topic_id else None

    def _read_states(self) -> dict[str, AckState]:
        states = {}
        for topic_id, data, stat in read_children(self._client, ACKS_PATH, self._on_event, watch_each=self._on_event):
            state = self._parse(topic_id, data, stat.version)
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
