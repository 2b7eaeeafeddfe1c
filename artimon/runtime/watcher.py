"""A thread that looks whenever ZooKeeper may say something new. ZooKeeper may be absent at any time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

log = logging.getLogger(__name__)

LOST = (KazooException, KazooTimeoutError, OSError)
"""What a call to ZooKeeper raises that did not go through, or did not answer in time."""
POLL_S = 5.0


class Watcher:
    """Looks at start, when a watch fires, when the session comes or goes, when woken, and every `every_s` seconds in
    any case (watches get lost). What there is to look at a subclass says, by `_look`.

    Threads: one, which alone calls `_look` and `_leave`, and alone talks to ZooKeeper. kazoo's own thread must not
    block: all that it does is to wake this one."""

    def __init__(self, client: KazooClient, name: str, every_s: float = POLL_S) -> None:
        """`client` is started and stopped by somebody else. `name`: of the thread."""
        self._client, self._every_s = client, every_s
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.problem = ""
        """Why the last look failed, "" if it did not."""

    def start(self) -> None:
        """Begin to look; returns at once."""
        self._client.add_listener(self._on_state)
        self._thread.start()

    def stop(self, timeout_s: float = 3.0) -> None:
        """End the thread; one that hangs in ZooKeeper for longer than `timeout_s` is left behind."""
        self._stop.set()
        self._wake.set()
        self._client.remove_listener(self._on_state)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def wake(self) -> None:
        """Look soon."""
        self._wake.set()

    def look(self) -> None:
        """Once, now. What fails is told in `problem`, and tried again at the next look."""
        self._guarded(self._look)

    def _look(self) -> None:
        """What there is to do at a look; may raise."""
        raise NotImplementedError

    def _leave(self) -> None:
        """The last thing to do, once `stop` was called; may raise."""

    def _pause_s(self) -> float:
        """How long until the next look, if nothing wakes it."""
        return self._every_s

    def _on_state(self, _state: str) -> None:
        self.wake()

    def _on_event(self, _event: Any) -> None:
        """To be given to kazoo as a watch."""
        self.wake()

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before `_stop` is asked: a wake that comes with it must not be taken away again
            if self._stop.is_set():
                break
            self.look()
            self._wake.wait(self._pause_s())
        self._guarded(self._leave)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except LOST as error:
            problem = f"ZooKeeper: {type(error).__name__} {error}"
            if problem != self.problem:
                log.info("%s: %s", self._thread.name, problem)
            self.problem = problem
        except Exception as error:  # the thread must outlive whatever it meets
            log.exception("%s", self._thread.name)
            self.problem = f"{self._thread.name}: {error!r}"
