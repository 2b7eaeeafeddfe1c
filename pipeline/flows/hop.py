"""What both ends of a hop between agents share: where the members of a group stand in ZooKeeper, identities as text."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from kazoo.client import KazooState
from kazoo.exceptions import KazooException, NoNodeError

from artimon.model.batch import BatchId
from artimon.model.registration import zookeeper_client
from pipeline.collectors import COLLECTORS_PATH, Endpoint, parse_endpoint

log = logging.getLogger(__name__)

FLOWS_PATH = "/artimon/groups"
_POLL_S = 5.0


def parse_id(text: str) -> BatchId | None:
    """Inverse of `str(id)`; None for anything else."""
    try:
        agent, epoch, lane, sequence = text.rsplit("/", 3)
        return BatchId(agent, int(epoch, 16), int(lane), int(sequence))
    except ValueError:
        return None


def parse_endpoint_text(text: str) -> Endpoint:
    """HOST:PORT, [IPv6]:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return Endpoint(host.strip("[]"), int(port))


class Discovery:
    """The members of a group, as ZooKeeper lists them; the last known ones when it is gone. One thread."""

    def __init__(self, address: str, group: str) -> None:
        """`group` "collectors" is the platform's own."""
        self._client: Any = zookeeper_client(address)
        self._path = COLLECTORS_PATH if group == "collectors" else f"{FLOWS_PATH}/{group}"
        self._lock = threading.Lock()
        self._found: dict[str, Endpoint] = {}
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"find {group}", daemon=True)
        self.problem = ""

    def start(self) -> None:
        self._client.add_listener(self._on_state)
        self._client.start_async()
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join(deadline_s)
        self._client.stop()
        self._client.close()

    def found(self) -> Mapping[str, Endpoint]:
        """By name; empty until ZooKeeper has answered once."""
        with self._lock:
            return dict(self._found)

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self._look()
            self._wake.wait(_POLL_S)

    def _look(self) -> None:
        if not self._client.connected:
            self.problem = "ZooKeeper is not reachable: going on with the last known members of the group"
            return
        try:
            names = self._client.get_children(self._path, watch=lambda _: self._wake.set())
            found = {name: endpoint for name in names if (endpoint := self._read(name)) is not None}
            self.problem = "" if found else f"nobody is registered under {self._path}"
            if found:  # an empty list is not believed: who was there may serve while ZooKeeper forgets it
                with self._lock:
                    self._found = found
        except NoNodeError:
            self.problem = f"nobody is registered under {self._path}"
        except (KazooException, OSError, TimeoutError) as error:
            self.problem = f"ZooKeeper: {type(error).__name__} {error}"
        except Exception:  # a thread that dies would freeze the list silently
            log.exception("group %s", self._path)

    def _read(self, name: str) -> Endpoint | None:
        try:
            return parse_endpoint(self._client.get(f"{self._path}/{name}")[0])
        except (NoNodeError, ValueError):
            return None
