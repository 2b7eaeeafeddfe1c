"""pipeline.connections, and what goes over them: nothing is left open, nothing goes unsecured, nothing is given up that
the disk still has."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from bookkeeper.rpc.framed_server import FramedServer
from bookkeeper.rpc.security import Security
from pipeline import connections
from pipeline.collector import Collector
from pipeline.collectors import Endpoint
from pipeline.connections import Connections, send
from pipeline.delivery.failover import FailoverLog
from pipeline.idl import collector_idl
from pipeline.sender import Sender
from pipeline.tracker import Tracker
from tests.pipeline.helpers import AGENT, FastFiles, Told, entry, open_log
from tests.pipeline.transit import Store
from tests.security.serving import tokens
from tests.waiting import eventually


@contextmanager
def serving(store: Store, security: Security | None = None) -> Iterator[tuple[FramedServer, Endpoint]]:
    server = FramedServer(collector_idl().Collector, Collector(store), "127.0.0.1", 0, security=security)
    try:
        yield server, Endpoint("127.0.0.1", server.start())
    finally:
        server.stop(2.0)


def test_what_led_to_a_collector_that_is_gone_is_closed_when_another_is_reached() -> None:
    made = Connections()
    with serving(Store()) as (_, first), serving(Store()) as (_, second), serving(Store()) as (_, third):
        known = {first, second}
        clients = [made.to(endpoint, lambda: known) for endpoint in (first, second)]
        for client in clients:
            send(client, [], 60.0)
        assert made.to(first, lambda: known) is clients[0]
        known = {second, third}
        send(made.to(third, lambda: known), [], 60.0)
        assert [client.connected for client in clients] == [False, True]
        made.close()
        assert not clients[1].connected


def test_disk_failover_shows_the_collector_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that all of it would go through the log."""
    secured = tokens(tmp_path / "tokens", "agent-1 0123456789abcdef0123456789abcdef")
    monkeypatch.setattr(connections, "security", lambda: secured)
    wal, store = open_log(tmp_path / "log"), Store()
    sender = Sender(wal, Tracker(), AGENT, 2, SYSTEM_CLOCK)
    failover = FailoverLog(wal, sender, SYSTEM_CLOCK)
    with serving(store, secured) as (_, endpoint):
        sender.update_collectors({"c": endpoint})
        failover.append([entry(wal, 0, 0)]).result(60)
        failover.stop()
    wal.close()
    assert failover.figures()["direct_batches"] == 1
    assert len(store.messages) == 1


class NoDescriptors(FastFiles):
    """While `count` lasts no file can be opened."""

    count = 0

    def open(self, path: Path) -> int:
        if self.count:
            self.count -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(path)


def test_a_batch_is_not_given_up_for_want_of_descriptors(tmp_path: Path) -> None:
    first = open_log(tmp_path)
    first.append([entry(first, 0, 0)]).result(60)
    first.close()
    files, store, tracker = NoDescriptors(), Store(), Tracker(ack_on_sent=True)
    wal = open_log(tmp_path, Told(), files)
    sender = Sender(wal, tracker, AGENT, 2, SYSTEM_CLOCK)
    sender.restore(wal.recovered, SYSTEM_CLOCK.now_ms(), True)
    files.count = 2
    with serving(store) as (_, endpoint):
        sender.start()
        sender.update_collectors({"c": endpoint})
        eventually(lambda: sender.figures()["pending_batches"] == 0, "it is acked")
        sender.stop(60.0)
    assert sender.figures()["damaged_batches"] == 0
    assert [id.sequence for id in store.ids()] == [0]
    wal.close()
