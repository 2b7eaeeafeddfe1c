"""What both ends of a hop between agents share: where the members of a group stand in ZooKeeper, identities as text."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from kazoo.exceptions import NoNodeError

from artimon.model.batch import BatchId
from artimon.model.registration import zookeeper_client
from artimon.model.watcher import Watcher
from artimon.runtime.text import parse_address
from pipeline.collectors import COLLECTORS_PATH, Endpoint, parse_endpoint

FLOWS_PATH = "/artimon/groups"


def parse_id(text: str) -> BatchId | None:
    """Inverse of `str(id)`; None for anything else."""
    try:
        agent, epoch, lane, sequence = text.rsplit("/", 3)
        return BatchId(agent, int(epoch, 16), int(lane), int(sequence))
    except ValueError:
        return None


def parse_endpoint_text(text: str) -> Endpoint:
    """HOST:PORT, [IPv6]:PORT. Raises ValueError."""
    return Endpoint(*parse_address(text))


class Discovery(Watcher):
    """The members of a group, as ZooKeeper lists them; the last known ones when it is gone. Has a session of its own.

    Locks: `_lock` guards `_found`."""

    def __init__(self, address: str, group: str) -> None:
        """`group` "collectors" is the platform's own."""
        super().__init__(zookeeper_client(address), f"find {group}")
        self._path = COLLECTORS_PATH if group == "collectors" else f"{FLOWS_PATH}/{group}"
        self._lock = threading.Lock()
        self._found: dict[str, Endpoint] = {}

    def start(self) -> None:
        """Begin to look; returns at once."""
        self._client.start_async()
        super().start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the thread, or leave it behind after `timeout_s`, and the session."""
        super().stop(timeout_s)
        self._client.stop()
        self._client.close()

    def found(self) -> Mapping[str, Endpoint]:
        """By name; empty until ZooKeeper has answered once."""
        with self._lock:
            return dict(self._found)

    def _look(self) -> None:
        if not self._client.connected:
            self.problem = "ZooKeeper is not reachable: going on with the last known members of the group"
            return
        try:
            names = self._client.get_children(self._path, watch=self._on_event)
        except NoNodeError:
            names = []
        found = {name: endpoint for name in names if (endpoint := self._read(name)) is not None}
        self.problem = "" if found else f"nobody is registered under {self._path}"
        if found:  # an empty list is not believed: who was there may serve while ZooKeeper forgets it
            with self._lock:
                self._found = found

    def _read(self, name: str) -> Endpoint | None:
        try:
            return parse_endpoint(self._client.get(f"{self._path}/{name}")[0])
        except (NoNodeError, ValueError):
            return None
