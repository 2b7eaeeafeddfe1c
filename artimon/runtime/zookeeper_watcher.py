"""Thread that polls ZooKeeper whenever it may have changed. ZooKeeper may be unavailable at any time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

log = logging.getLogger(__name__)

ZOOKEEPER_ERRORS = (KazooException, KazooTimeoutError, OSError)
"""Errors of a call to ZooKeeper that failed or timed out."""
POLL_PERIOD_S = 5.0


class ZooKeeperWatcher:
    """Calls `_look` of a subclass at start, when a watch fires, when the session state changes, after `wake`, and every
    `every_s` seconds (watches get lost).

    Threads: only its own thread calls `_look`, `_leave` and ZooKeeper. kazoo's thread must not block, so it only wakes
    that one."""

    def __init__(self, client: KazooClient, name: str, every_s: float = POLL_PERIOD_S) -> None:
        """The caller starts and stops `client`. `name` is that of the thread."""
        self._client, self._every_s = client, every_s
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.problem = ""
        """Reason of the last failure; subclasses set "" on success."""

    def start(self) -> None:
        """Start the thread."""
        self._client.add_listener(self._on_state)
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the thread; abandon it if it hangs in ZooKeeper for more than `timeout_s`."""
        self._stop.set()
        self._wake.set()
        self._client.remove_listener(self._on_state)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def wake(self) -> None:
        """Trigger `_look` soon."""
        self._wake.set()

    def refresh(self) -> None:
        """Call `_look` now. An error is stored in `problem` and retried at the next call."""
        self._call_guarded(self._refresh)

    def _refresh(self) -> None:
        """Read or update ZooKeeper; may raise."""
        raise NotImplementedError

    def _clean_up(self) -> None:
        """Clean up after `stop` was called; may raise."""

    def _pause_s(self) -> float:
        """Seconds until the next `_look` without a wake-up."""
        return self._every_s

    def _on_state(self, _state: str) -> None:
        self.wake()

    def _on_event(self, _event: Any) -> None:
        """Callback for kazoo's watches."""
        self.wake()

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before the check of `_stop`, so as not to clear the wake-up that comes with it
            if self._stop.is_set():
                break
            self.refresh()
            self._wake.wait(self._pause_s())
        self._call_guarded(self._clean_up)

    def _call_guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except ZOOKEEPER_ERRORS as error:
            problem = f"ZooKeeper: {type(error).__name__} {error}"
            if problem != self.problem:
                log.info("%s: %s", self._thread.name, problem)
            self.problem = problem
        except Exception as error:  # the thread must survive any error
            log.exception("%s", self._thread.name)
            self.problem = f"{self._thread.name}: {error!r}"
