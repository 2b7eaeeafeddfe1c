"""ZooKeeper session of the source, proof that it is alive, and the base of a thread that uses it."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from artimon.runtime.zookeeper_client import close_client, zookeeper_client

log = logging.getLogger(__name__)
PAUSE_S = 5.0
"""Maximum seconds between attempts to connect, so that discovery resumes soon after an outage."""
START_TIMEOUT_S = 5.0
"""Seconds that kazoo's loop may take to start; it is not restarted earlier."""
STOP_S = 1.0
CALL_TIMEOUT_S = 10.0
CONCURRENT_CALLS = 500
TRUSTED_PART = 0.8
"""Part of the session timeout after which an unconfirmed session is not trusted."""
PROVEN_PART = 0.5
"""Part of the session timeout after which a session without an answered ping is confirmed by a read."""
Item = TypeVar("Item")


class PingMonitor(threading.Event):
    """Flag of kazoo for a ping without an answer, which notes when the last answered ping was sent."""

    def __init__(self) -> None:
        super().__init__()
        self._sent_at = 0.0
        self.answered_at = float("-inf")
        """Monotonic time."""

    def set(self) -> None:
        self._sent_at = monotonic()
        super().set()

    def clear(self) -> None:
        if self.is_set():
            self.answered_at = self._sent_at
        super().clear()


class ZooKeeperSession:
    """Client that reconnects without end. Callbacks run in kazoo's threads and must not block."""

    def __init__(self, hosts: str, timeout_s: float = 10.0) -> None:
        """Create the client without connecting. Raises SettingsError."""
        self.hosts, self.timeout_s = hosts, timeout_s
        self.client: Any = zookeeper_client(hosts, timeout_s, PAUSE_S)
        self.client.add_listener(self._changed)
        self._pings = self.client._connection.ping_outstanding = PingMonitor()
        self._confirmed_at = float("-inf")
        self.connected = False
        """True while the session exists and the server answers."""
        self.ended_sessions = 0
        """Number of ended sessions. A change means that all ephemeral nodes of the session are gone."""
        self.connections = 0
        """Number of connections. A change means that all watches are gone."""
        self.told: list[Callable[[], None]] = []
        """Callbacks for every start, suspension or end of the session."""
        self._started_at = 0.0

    @property
    def trusted(self) -> bool:
        """True if the session was confirmed recently enough. After a pause of the process or the machine, ZooKeeper
        reports the end of the session with a delay."""
        return self.connected and self._unconfirmed_s() < TRUSTED_PART * self.timeout_s

    def confirm(self) -> None:
        """Confirm the session by a read, unless it began lately or a ping of kazoo was answered. Raises
        ZOOKEEPER_ERRORS."""
        if self._unconfirmed_s() > PROVEN_PART * self.timeout_s:
            asked = monotonic()
            self.client.exists_async("/").get(timeout=CALL_TIMEOUT_S)
            self._confirmed_at = asked

    def _unconfirmed_s(self) -> float:
        return monotonic() - max(self._pings.answered_at, self._confirmed_at)

    def start(self) -> None:
        """Start connecting; ZooKeeper need not be reachable."""
        self._started_at = monotonic()
        self.client.start_async()

    def revive(self) -> None:
        """Restart kazoo's loop if an unexpected error ended it; kazoo does not restart it itself."""
        ended = self.client._connection.connection_stopped.is_set()
        if ended and self._started_at and monotonic() - self._started_at > START_TIMEOUT_S:
            log.warning("the connection to ZooKeeper at %s ended; restarting it", self.hosts)
            self.client.stop()
            self.start()

    def stop(self) -> None:
        """End the session and with it every ephemeral node. Do not call it in the event loop."""
        self._started_at = 0.0
        close_client(self.client)

    def _changed(self, state: str) -> None:
        self.connected = state == "CONNECTED"
        if self.connected:  # the server took the session after that time; the answer may have waited here
            self._confirmed_at = max(self._confirmed_at, self._started_at)
        self.connections += self.connected
        self.ended_sessions += state == "LOST"
        log.info("ZooKeeper at %s: %s", self.hosts, state)
        for told in self.told:
            told()


def pipelined(items: Iterable[Item], call: Callable[[Item], Any]) -> Iterator[tuple[Item, Callable[[], Any]]]:
    """Make an asynchronous call for each item, many at a time; yield the item with a function that waits for the
    answer."""
    rest = list(items)
    for at in range(0, len(rest), CONCURRENT_CALLS):
        calls = [(item, call(item)) for item in rest[at : at + CONCURRENT_CALLS]]
        for item, answer in calls:
            yield item, partial(answer.get, timeout=CALL_TIMEOUT_S)


def drain(queue: deque[str]) -> Iterator[str]:
    """Remove and yield the entries added by other threads."""
    while queue:
        yield queue.popleft()


class SessionThread(ABC):
    """Thread that calls ZooKeeper and passes results to the event loop. `_wake` is set when the session changes and at
    the end, `_stop` only at the end."""

    def __init__(self, session: ZooKeeperSession, name: str) -> None:
        self._session = session
        self._wake, self._stop = threading.Event(), threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.failures = 0
        session.told.append(self._wake.set)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; ZooKeeper need not be reachable."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread within STOP_S, or when the session stops, which also ends the leases. Do not call it in the
        event loop."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    @abstractmethod
    def _run(self) -> None:
        """Work until `_stop` is set."""

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        """Schedule a call in the event loop."""
        if self._loop is None or self._stop.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed: the source has stopped
            self._stop.set()
