"""The source's session with ZooKeeper, which discovery and leases share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from artimon.settings import zookeeper_auth
from bookkeeper.process.ephemeral_node import access, outlive_data

log = logging.getLogger(__name__)
STARTED_S = 5.0
"""So long a loop that was started may take to begin."""


class Session:
    """A client that goes on connecting for ever. Callbacks run in kazoo's threads and must not wait."""

    def __init__(self, hosts: str, timeout_s: float = 10.0) -> None:
        """Connects to nobody yet. Raises SettingsError."""
        self.hosts, self.timeout_s = hosts, timeout_s
        self.client: Any = KazooClient(
            hosts,
            timeout=timeout_s,
            handler=SequentialThreadingHandler(),
            connection_retry={"max_tries": -1, "max_delay": 5.0},
            command_retry={"max_tries": 2, "max_delay": 2.0},
            **access(zookeeper_auth()),
        )
        self.client.add_listener(self._changed)
        outlive_data(self.client)
        self.connected = False
        """There is a session, and the server answers."""
        self.lives = 0
        """How many sessions ended: what the session held is gone when this has changed."""
        self._told: list[Callable[[], None]] = []
        self._begun = 0.0

    def on_change(self, told: Callable[[], None]) -> None:
        """`told` is called whenever the session began, ended or is in doubt."""
        self._told.append(told)

    def start(self) -> None:
        """Begin, whether ZooKeeper is there or not."""
        self._begun = monotonic()
        self.client.start_async()

    def revive(self) -> None:
        """Begin again if kazoo's loop has ended by an error that it did not expect: it stays closed then."""
        ended = self.client._connection.connection_stopped.is_set()
        if ended and self._begun and monotonic() - self._begun > STARTED_S:
            log.warning("the connection to ZooKeeper at %s ended; beginning again", self.hosts)
            self.client.stop()
            self.start()

    def stop(self) -> None:
        """End the session, and with it every ephemeral node. Not to be called in the event loop."""
        self._begun = 0.0
        self.client.stop()
        self.client.close()

    def _changed(self, state: str) -> None:
        self.connected = state == "CONNECTED"
        self.lives += state == "LOST"
        log.info("ZooKeeper at %s: %s", self.hosts, state)
        for told in self._told:
            told()
