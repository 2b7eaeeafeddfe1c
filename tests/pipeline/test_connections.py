"""Connections: none is leaked, none is unsecured, and no batch that is still on the disk is given up."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from pipeline.collector import collector_process
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import CollectorConfig, server_of
from pipeline.collector.link_server import LinkServer
from pipeline.delivery.failover_log import FailoverLog
from pipeline.delivery.sender import CollectorRoute, Sender
from pipeline.delivery.tracker import Tracker
from pipeline.link import link_connections
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.collector_client import CollectorCallError, CollectorClient, Reply
from pipeline.link.collector_link import CollectorLink
from pipeline.link.credits import MIN_CREDIT_BYTES
from tests.pipeline.helpers import AGENT, FastFiles, RecordingListener, entry, open_log
from tests.pipeline.test_scenarios import batch
from tests.pipeline.transit import Store
from tests.security.serving import tokens
from tests.waiting import eventually


@contextmanager
def serving(store: Store) -> Iterator[tuple[LinkServer, CollectorEndpoint]]:
    server = server_of(Collector(store), CollectorConfig("c", "", ""))
    try:
        yield server, CollectorEndpoint("127.0.0.1", server.start())
    finally:
        server.stop(2.0)


def client_of(*endpoints: CollectorEndpoint) -> CollectorClient:
    """Client that knows these endpoints and tries them in the given order."""
    client = CollectorClient(CollectorLink.of("a", 60.0), SYSTEM_CLOCK)
    client.update({str(endpoint.port): endpoint for endpoint in endpoints})
    return client


def test_a_client_sends_what_the_credit_allows_and_at_least_one_message() -> None:
    store = Store()
    with serving(store) as (_, endpoint):
        client = client_of(endpoint)
        messages = [batch(n) for n in range(5)]
        client.link.credits.settle(endpoint, 0, len(messages[0]) * 2)
        first = client.send(messages)
        assert first.endpoint == endpoint
        assert [answer.position is not None for answer in first.answers] == [True] * 2
        assert client.link.credits.room(endpoint) > MIN_CREDIT_BYTES, "the credit of the answer"
        assert len(client.send(messages[2:]).answers) == 3
        client.link.credits.settle(endpoint, 0, 1)
        assert len(client.send(messages).answers) == 1, "nothing is in flight: one message may go"
        assert client.link.bytes_in_flight == 0
        client.close()
    assert [id.sequence for id in store.ids()] == [0, 1, 2, 3, 4, 0]


def test_the_error_names_the_unreachable_endpoints() -> None:
    client = client_of()
    with pytest.raises(CollectorCallError, match="no collector is known") as nobody:
        client.send([batch(0)])
    assert nobody.value.endpoint is None
    dead = CollectorEndpoint("127.0.0.1", 1)
    client.update({"dead": dead})
    with pytest.raises(CollectorCallError, match=r"127\.0\.0\.1:1") as failed:
        client.send([batch(0)])
    assert failed.value.endpoint == dead
    assert client.link.carried_bytes == 0, "there was no connection"
    assert client.link.unanswered_calls == {"broken": 1}
    with pytest.raises(CollectorCallError, match="no collector can be reached"):
        client.send([batch(0)])
    client.close()


def test_calls_that_wait_for_credit_go_once_it_is_granted() -> None:
    with serving(Store()) as (_, endpoint):
        client = client_of(endpoint)
        with client.cond:
            flight = client.link.reserve(endpoint, MIN_CREDIT_BYTES, 0.0)
        with pytest.raises(CollectorCallError, match="grants no credit"):
            client.send([batch(0)], within_s=0.05)
        sent: list[Reply] = []
        waiting = threading.Thread(target=lambda: sent.append(client.send([batch(0)])))
        waiting.start()
        with client.cond:
            client.link.cancel(flight)
            client.cond.notify_all()
        waiting.join(60)
        assert len(sent[0].answers) == 1
        client.close()


def test_disk_failover_authenticates_to_the_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the agent's token every batch would go through the log."""
    secured = tokens(tmp_path / "tokens", "agent-1 0123456789abcdef0123456789abcdef")
    monkeypatch.setattr(link_connections, "security", lambda: secured)
    monkeypatch.setattr(collector_process, "security", lambda: secured)
    wal, store = open_log(tmp_path / "log"), Store()
    sender = Sender(wal, Tracker(), AGENT, SYSTEM_CLOCK)
    failover = FailoverLog(wal, CollectorRoute(sender, SYSTEM_CLOCK), SYSTEM_CLOCK)
    with serving(store) as (_, endpoint):
        sender.update_collectors({"c": endpoint})
        failover.append([entry(wal, 0, 0)]).result(60)
        failover.stop()
    wal.close()
    assert failover.figures()["direct_batches"] == 1
    assert len(store.messages) == 1


class NoDescriptors(FastFiles):
    """File opens fail while `count` lasts."""

    count = 0

    def open(self, path: Path) -> int:
        if self.count:
            self.count -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(path)


def test_a_batch_is_kept_when_file_descriptors_run_out(tmp_path: Path) -> None:
    first = open_log(tmp_path)
    first.append([entry(first, 0, 0)]).result(60)
    first.close()
    files, store, tracker = NoDescriptors(), Store(), Tracker(ack_on_sent=True)
    wal = open_log(tmp_path, RecordingListener(), files)
    sender = Sender(wal, tracker, AGENT, SYSTEM_CLOCK)
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
