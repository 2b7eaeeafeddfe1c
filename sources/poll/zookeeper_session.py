"""The source's session with ZooKeeper, which discovery and leases share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from artimon.runtime.zookeeper import close_client, zookeeper_client

log = logging.getLogger(__name__)
PAUSE_S = 5.0
"""Longest pause between attempts to connect: processes are found again soon after an outage."""
STARTED_S = 5.0
"""So long a loop that was started may take to begin."""


class Session:
    """A client that goes on connecting for ever. Callbacks run in kazoo's threads and must not wait."""

    def __init__(self, hosts: str, timeout_s: float = 10.0) -> None:
        """Connects to nobody yet. Raises SettingsError."""
        self.hosts, self.timeout_s = hosts, timeout_s
        self.client: Any = zookeeper_client(hosts, timeout_s, PAUSE_S)
        self.client.add_listener(self._changed)
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
        close_client(self.client)

    def _changed(self, state: str) -> None:
        self.connected = state == "CONNECTED"
        self.lives += state == "LOST"
        log.info("ZooKeeper at %s: %s", self.hosts, state)
        for told in self._told:
            told()
