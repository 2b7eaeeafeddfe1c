"""Notices for the agents of a collector: acks, changes of the configuration, the list of collectors. A call of an agent
waits until there is a notice."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient

from artimon.model.clock import Clock
from pipeline.collector.server_connection import LongCall
from pipeline.collector.zookeeper_mirrors import (
    AckMirror,
    ChangeMirror,
    CollectorList,
    CollectorMirror,
    ZooKeeperMirror,
)
from pipeline.link.idl import collector_idl

HOLD_S = 60.0
"""Longest time in seconds for which a call waits; the shortest is half of it, so that calls spread."""


class _Waiter(NamedTuple):
    known: Any
    call: LongCall
    until: float


class NoticeBoard:
    """Calls that wait for a notice, at most one answer each. `expire` must be called about once a second.

    Locks: `_lock` guards `_waiting`; no call is answered under it."""

    def __init__(self, client: KazooClient, clock: Clock) -> None:
        """The caller starts and stops `client`."""
        self.acks = AckMirror(client, "ack mirror")
        self._changes = ChangeMirror(client, "configuration mirror")
        self._collectors = CollectorMirror(client, "collector mirror")
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[LongCall, _Waiter] = {}
        self._mirrors: tuple[ZooKeeperMirror[Any], ...] = (self.acks, self._changes, self._collectors)
        for mirror in self._mirrors:
            mirror.on_change = self.publish

    def start(self) -> None:
        """Begin to watch ZooKeeper."""
        for mirror in self._mirrors:
            mirror.start()

    def stop(self) -> None:
        """End watching."""
        for mirror in self._mirrors:
            mirror.stop(1.0)

    def watch(self, known: Any) -> LongCall:
        """Return the future of a Notice of the IDL."""
        call = LongCall()
        now = self._clock.monotonic()
        waiter = _Waiter(known, call, now + random.uniform(HOLD_S / 2, HOLD_S))
        with self._lock:
            self._waiting[call] = waiter
        call.add_done_callback(self._forget)
        self._tell([waiter])  # after the call was added: what changes meanwhile is told by `publish`
        return call

    def publish(self) -> None:
        """Answer the calls for which there is a notice."""
        with self._lock:
            waiting = list(self._waiting.values())
        self._tell(waiting)

    def expire(self) -> None:
        """Answer the calls that have waited long enough."""
        now = self._clock.monotonic()
        with self._lock:
            due = [waiter for waiter in self._waiting.values() if waiter.until <= now]
        for waiter in due:
            _answer(waiter.call, self._notice(waiter.known))

    @property
    def waiting(self) -> int:
        """Number of calls that wait."""
        with self._lock:
            return len(self._waiting)

    def _tell(self, waiting: Sequence[_Waiter]) -> None:
        for waiter in waiting:
            notice = self._notice(waiter.known)
            if _is_news(waiter.known, notice):
                _answer(waiter.call, notice)

    def _notice(self, known: Any) -> Any:
        acks, changes, idl = self.acks.answer(known.acks or {}), self._changes.value, collector_idl()
        listed = self._collectors.value or CollectorList()
        nodes = {} if listed.digest == known.collectors else listed.nodes
        collectors = [idl.Registered(id, data) for id, data in nodes.items()]
        if changes is None:
            return idl.Notice(acks, False, "", 0, [], listed.digest, collectors)
        scopes = changes.since(known.lineage or "", known.change or 0, known.scopes or ())
        return idl.Notice(acks, True, changes.lineage, changes.number, scopes, listed.digest, collectors)

    def _forget(self, call: Any) -> None:
        with self._lock:
            self._waiting.pop(call, None)


def _is_news(known: Any, notice: Any) -> bool:
    """Return True if the agent must be told at once. An item that this collector does not know yet does not count."""
    gone = notice.acks.known and not set(known.acks or ()) <= set(notice.acks.topics)
    return bool(notice.acks.changed or gone or notice.collectors or (notice.known and notice.scopes))


def _answer(call: LongCall, notice: Any) -> None:
    with suppress(InvalidStateError):  # answered by another thread, or its connection ended
        call.set_result(notice)
