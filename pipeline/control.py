"""The agent's eyes on ZooKeeper: collectors and ack states. Everything goes on with the last known state without it."""

from __future__ import annotations

import logging
import threading
from typing import Any, Protocol

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NoNodeError

from pipeline.acks import AckState, Verdict, judge
from pipeline.collectors import COLLECTORS_PATH, Endpoint, parse_endpoint

log = logging.getLogger(__name__)

ACKS_PATH = "/artimon/acks"
_POLL_S = 5.0


class Informed(Protocol):
    """Who is told what ZooKeeper says: a sender, or a hand-over to another site."""

    def update_collectors(self, found: dict[str, Endpoint]) -> None: ...

    def sent(self) -> list[Any]: ...

    def judged(self, verdict: Verdict[Any]) -> None: ...


class Control:
    """One thread: it looks whenever a watch fires or a session begins, and every 5 s in any case (watches get lost).

    Precondition of `judge`: what waits is collected before the states are read."""

    def __init__(self, client: KazooClient, sender: Informed, topic: str, poll_s: float = _POLL_S) -> None:
        self._client, self._sender, self._topic, self._poll_s = client, sender, topic, poll_s
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self.problem = ""

    def start(self) -> None:
        self._client.add_listener(self._on_state)
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """End the thread; one that hangs in ZooKeeper is left behind."""
        self._stop.set()
        self._wake.set()
        self._client.remove_listener(self._on_state)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._wake.set()

    def _on_event(self, _event: Any) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.look()
            self._wake.wait(self._poll_s)

    def look(self) -> None:
        """Once: at the collectors, and at what the acks say of what waits for one. What fails is tried again."""
        if not self._client.connected:
            self.problem = "ZooKeeper is not reachable: going on with the last known collectors"
            return
        try:
            self._sender.update_collectors(self._find_collectors())
            self._follow_acks()
            self.problem = ""
        except (KazooException, OSError, TimeoutError) as error:
            self.problem = f"ZooKeeper: {type(error).__name__} {error}"
        except Exception:  # acks that stop silently would fill the disk
            log.exception("control")

    def _find_collectors(self) -> dict[str, Endpoint]:
        found = {}
        for name in self._children(COLLECTORS_PATH):
            try:
                data, _ = self._client.get(f"{COLLECTORS_PATH}/{name}")
                found[name] = parse_endpoint(data)
            except NoNodeError:
                continue
            except ValueError as error:
                log.warning("collector %s: %s", name, error)
        return found

    def _follow_acks(self) -> None:
        waiting = self._sender.sent()
        states = self._read_states()
        if waiting and states:
            verdict = judge(waiting, states, self._topic)
            if verdict.acked or verdict.resend or verdict.looked:
                self._sender.judged(verdict)

    def _read_states(self) -> dict[str, AckState]:
        states = {}
        for topic_id in self._children(ACKS_PATH):
            try:
                data, stat = self._client.get(f"{ACKS_PATH}/{topic_id}", watch=self._on_event)
                state = AckState.from_json(data, stat.version)
            except NoNodeError:
                continue
            except ValueError as error:
                log.error("%s/%s: %s", ACKS_PATH, topic_id, error)
                continue
            if state.topic_id == topic_id:
                states[topic_id] = state
        return states

    def _children(self, path: str) -> list[str]:
        try:
            return list(self._client.get_children(path, watch=self._on_event))
        except NoNodeError:
            self._client.exists(path, watch=self._on_event)
            return []
