"""The thread that watches ZooKeeper, tested without one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from artimon.runtime.zookeeper_watcher import ZooKeeperWatcher
from tests.waiting import eventually

HOUR_S = 3_600.0


class CountingWatcher(ZooKeeperWatcher):
    """Counts its checks; each calls `act`."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        super().__init__(KazooClient("127.0.0.1:1"), "counting", HOUR_S)
        self.looks, self.left = 0, 0
        self._act = act

    def _refresh(self) -> None:
        self.looks += 1
        self._act()
        self.problem = ""

    def _clean_up(self) -> None:
        self.left += 1


class LateEvent(threading.Event):
    """Event that calls `stop` just before the thread clears it."""

    stop: threading.Event

    def clear(self) -> None:
        self.stop.set()
        self.set()
        super().clear()


def test_the_watcher_checks_on_every_event_and_leaves_once() -> None:
    watcher = CountingWatcher()
    watcher.start()

    def session(state: str) -> None:
        for listener in watcher._client.state_listeners:
            listener(state)

    happenings: list[Callable[[], None]] = [
        lambda: None,
        watcher.wake,
        lambda: watcher._on_event(None),
        lambda: session(KazooState.CONNECTED),
        lambda: session(KazooState.SUSPENDED),
    ]
    for looks, happens in enumerate(happenings, start=1):
        happens()
        eventually(partial(lambda wanted: watcher.looks == wanted, looks), f"look {looks}")
    watcher.stop(60.0)
    assert (watcher.looks, watcher.left) == (5, 1)
    assert not watcher._client.state_listeners


def test_a_stop_while_the_wake_event_is_cleared_is_not_missed() -> None:
    watcher = CountingWatcher()
    watcher._wake = late = LateEvent()
    late.stop = watcher._stop
    watcher.start()
    watcher._thread.join(60.0)
    assert not watcher._thread.is_alive()
    assert watcher.left == 1


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        pytest.param(ConnectionLoss("gone"), "ZooKeeper: ConnectionLoss gone", id="connection_lost"),
        pytest.param(KazooTimeoutError(), "ZooKeeper: KazooTimeoutError ", id="no_answer_in_time"),
        pytest.param(ZeroDivisionError("x"), "counting: ZeroDivisionError('x')", id="anything_else"),
    ],
)
def test_a_failed_check_is_reported_and_the_next_one_follows(error: Exception, problem: str) -> None:
    faults = [error]

    def act() -> None:
        if faults:
            raise faults.pop()

    watcher = CountingWatcher(act)
    watcher.refresh()
    assert watcher.problem == problem
    watcher.refresh()
    assert watcher.problem == ""
    assert watcher.looks == 2


def test_a_watcher_that_was_never_started_stops_at_once() -> None:
    watcher = CountingWatcher()
    watcher.stop()
    assert watcher.left == 0
