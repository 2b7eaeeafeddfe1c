"""Publishes in ZooKeeper how far each stream is durable, where agents look for their acks (`/artimon/acks/<stream>`).

A stream's node is made before the first answer is given, and has one writer: every change names the version that it
saw, so whoever took a stream over is never written over, and its former owner learns that it lost it.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

from artimon.model.clock import Clock
from pipeline.acks import AckState
from pipeline.control import ACKS_PATH

log = logging.getLogger(__name__)

EVERY_S = 10.0
LEAST_S = 0.1
CALL_S = 5.0


class TakenOver(RuntimeError):
    """Somebody else has the last word on this stream now."""


def document(state: AckState, writer: str, closed: bool) -> bytes:
    """What the node holds: the state as agents read it, and who wrote it."""
    return json.dumps({**json.loads(state.to_json()), "writer": writer, "closed": closed}).encode()


class Node:
    """The node of one stream. Not thread-safe."""

    def __init__(self, client: KazooClient, stream: str, writer: str) -> None:
        self._client, self._writer = client, writer
        self._path = f"{ACKS_PATH}/{stream}"
        self._version: int | None = None

    def write(self, state: AckState, closed: bool = False) -> None:
        """Raises TakenOver; KazooException or TimeoutError if it is not known whether the node says it now."""
        data = document(state, self._writer, closed)
        if self._version is None:
            self._adopt(data)
            return
        version, self._version = self._version, None  # unknown until the answer is here
        try:
            stat = self._client.set_async(self._path, data, version).get(timeout=CALL_S)
            self._version = stat.version
        except BadVersionError:
            raise TakenOver(self._path) from None
        except NoNodeError:  # ZooKeeper was wiped, or lost what it had
            self._create(data)

    def _adopt(self, data: bytes) -> None:
        """Make the node, or find that an earlier try of ours made it."""
        try:
            found, stat = self._client.get_async(self._path).get(timeout=CALL_S)
        except NoNodeError:
            self._create(data)
            return
        if json.loads(found).get("writer") != self._writer:
            raise TakenOver(self._path)
        self._version = stat.version
        self.write_over(data)

    def write_over(self, data: bytes) -> None:
        version, self._version = self._version, None
        try:
            self._version = self._client.set_async(self._path, data, version or 0).get(timeout=CALL_S).version
        except BadVersionError:
            raise TakenOver(self._path) from None

    def _create(self, data: bytes) -> None:
        try:
            self._client.create_async(self._path, data, makepath=True).get(timeout=CALL_S)
            self._version = 0
        except NodeExistsError:
            raise TakenOver(self._path) from None


class Publisher:
    """One thread: publishes `state()` when woken and every 10 s, and calls `taken` when the stream was taken over."""

    def __init__(
        self, client: KazooClient, state: Callable[[], AckState], stream: str, taken: Callable[[], None], clock: Clock
    ) -> None:
        self._client, self._state, self._taken, self._clock = client, state, taken, clock
        self._node = Node(client, stream, stream)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"acks {stream}", daemon=True)
        self.published = threading.Event()
        """Set once the node is there: from then on positions may be given out."""
        self.problem = "not yet published"

    def start(self) -> None:
        self._client.add_listener(self._on_state)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Publish the last word if ZooKeeper answers; never longer than about `timeout_s`."""
        self._stop.set()
        self._wake.set()
        self._client.remove_listener(self._on_state)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _on_state(self, _state: Any) -> None:
        self._wake.set()

    def _run(self) -> None:
        while True:
            stopping = self._stop.is_set()
            self._wake.clear()
            if not self._turn(stopping) or stopping:
                return
            self._clock.wait(self._stop, LEAST_S)
            self._wake.wait(EVERY_S)

    def _turn(self, closed: bool) -> bool:
        """False once the stream is somebody else's."""
        if not self._client.connected:
            self.problem = "ZooKeeper is not reachable: files are written, acks wait"
            return True
        try:
            self._node.write(self._state(), closed)
            self.published.set()
            self.problem = ""
        except TakenOver as error:
            log.error("%s was taken over: a new stream is begun", error)
            self.problem = "taken over"
            self._taken()
            return False
        except (KazooException, OSError, TimeoutError, ValueError) as error:
            self.problem = f"acks are not published: {type(error).__name__} {error}"
        except Exception:  # acks that stop silently would fill the agents' disks
            log.exception("acks")
        return True
