"""ZooKeeper session of the source, shared by discovery and leases."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from artimon.runtime.zookeeper import close_client, zookeeper_client

log = logging.getLogger(__name__)
PAUSE_S = 5.0
"""Maximum seconds between attempts to connect, so that discovery resumes soon after an outage."""
STARTED_S = 5.0
"""Seconds that kazoo's loop may take to start; it is not restarted earlier."""


class Session:
    """Client that reconnects without end. Callbacks run in kazoo's threads and must not block."""

    def __init__(self, hosts: str, timeout_s: float = 10.0) -> None:
        """Create the client without connecting. Raises SettingsError."""
        self.hosts, self.timeout_s = hosts, timeout_s
        self.client: Any = zookeeper_client(hosts, timeout_s, PAUSE_S)
        self.client.add_listener(self._changed)
        self.connected = False
        """True while the session exists and the server answers."""
        self.lives = 0
        """Number of ended sessions. A change means that all ephemeral nodes of the session are gone."""
        self._told: list[Callable[[], None]] = []
        self._begun = 0.0

    def on_change(self, told: Callable[[], None]) -> None:
        """Register a callback for every start, suspension or end of the session."""
        self._told.append(told)

    def start(self) -> None:
        """Start connecting; ZooKeeper need not be reachable."""
        self._begun = monotonic()
        self.client.start_async()

    def revive(self) -> None:
        """Restart kazoo's loop if an unexpected error ended it; kazoo does not restart it itself."""
        ended = self.client._connection.connection_stopped.is_set()
        if ended and self._begun and monotonic() - self._begun > STARTED_S:
            log.warning("the connection to ZooKeeper at %s ended; restarting it", self.hosts)
            self.client.stop()
            self.start()

    def stop(self) -> None:
        """End the session and with it every ephemeral node. Do not call it in the event loop."""
        self._begun = 0.0
        close_client(self.client)

    def _changed(self, state: str) -> None:
        self.connected = state == "CONNECTED"
        self.lives += state == "LOST"
        log.info("ZooKeeper at %s: %s", self.hosts, state)
        for told in self._told:
            told()
