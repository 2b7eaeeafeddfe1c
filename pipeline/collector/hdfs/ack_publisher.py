"""Publishes in ZooKeeper how far each stream is durable; agents read their acks there (`/artimon/acks/<stream>`).

The node of a stream is created before the first answer is given, and has one writer. Every change names the version
that it saw, so a former owner never overwrites its successor, and learns that it lost the stream.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.model.ack_state import AckState
from artimon.model.clock import Clock
from artimon.model.znode import parse_json_object
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS, ZooKeeperWatcher

log = logging.getLogger(__name__)

PUBLISH_INTERVAL_S = 10.0
MIN_INTERVAL_S = 0.1
CALL_S = 5.0


class StreamTakenOverError(RuntimeError):
    """Another collector has taken this stream over."""


def ack_document(state: AckState, writer: str, closed: bool) -> bytes:
    """Return the content of the node: the state as agents read it, and its writer."""
    return json.dumps({**json.loads(state.to_json()), "writer": writer, "closed": closed}).encode()


class AckNode:
    """Node of one stream. Not thread-safe."""

    def __init__(self, client: KazooClient, stream: str, writer: str) -> None:
        self._client, self._writer = client, writer
        self._path = f"{ACKS_PATH}/{stream}"
        self._version: int | None = None

    def write(self, state: AckState, closed: bool = False) -> None:
        """Write the state. Raises StreamTakenOverError; `watcher.LOST` if the outcome is unknown, ValueError if the
        present content cannot be read."""
        data = ack_document(state, self._writer, closed)
        if self._version is None:
            self._adopt(data)
            return
        try:
            self._change(data, self._version)
        except NoNodeError:  # ZooKeeper was wiped or lost data
            self._create(data)

    def _adopt(self, data: bytes) -> None:
        """Create the node, or adopt it if an earlier attempt of ours created it."""
        try:
            found, stat = self._client.get_async(self._path).get(timeout=CALL_S)
        except NoNodeError:
            self._create(data)
            return
        if parse_json_object(found).get("writer") != self._writer:
            raise StreamTakenOverError(self._path)
        self._change(data, stat.version)

    def _change(self, data: bytes, version: int) -> None:
        self._version = None  # unknown until the answer arrives
        try:
            self._version = self._client.set_async(self._path, data, version).get(timeout=CALL_S).version
        except BadVersionError:
            raise StreamTakenOverError(self._path) from None

    def _create(self, data: bytes) -> None:
        try:
            self._client.create_async(self._path, data, makepath=True).get(timeout=CALL_S)
            self._version = 0
        except NodeExistsError:
            raise StreamTakenOverError(self._path) from None


class AckPublisher(ZooKeeperWatcher):
    """Publishes `state()` when woken, every 10 s, and once more at the end. If another collector took the stream over
    it calls `taken` and publishes nothing more."""

    def __init__(
        self, client: KazooClient, state: Callable[[], AckState], stream: str, taken: Callable[[], None], clock: Clock
    ) -> None:
        super().__init__(client, f"acks {stream}", PUBLISH_INTERVAL_S)
        self._state, self._on_taken_over, self._clock = state, taken, clock
        self._node = AckNode(client, stream, stream)
        self._lost = False
        self.published = threading.Event()
        """Set once the node exists: from then on positions may be given out."""
        self.problem = "not yet published"

    def _refresh(self) -> None:
        self._publish(closed=False)
        self._clock.wait(self._stop, MIN_INTERVAL_S)

    def _clean_up(self) -> None:
        """Publish the final state, if ZooKeeper answers."""
        if not self._lost:
            self._publish(closed=True)

    def _publish(self, closed: bool) -> None:
        if not self._client.connected:
            self.problem = "ZooKeeper is not reachable: files are written, acks wait"
            return
        try:
            self._node.write(self._state(), closed)
            self.published.set()
            self.problem = ""
        except StreamTakenOverError as error:
            log.error("%s was taken over: a new stream is begun", error)
            self.problem = "taken over"
            self._lost = True
            self._stop.set()
            self._on_taken_over()
        except (*ZOOKEEPER_ERRORS, ValueError) as error:
            self.problem = f"acks are not published: {type(error).__name__} {error}"
