"""Flows over several agents: client -> agent -> agent -> sink, with real sockets and logs."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.model.batch import BatchId
from artimon.model.event_codec import encode_events
from bookkeeper.rpc.framed_server import FramedClient
from pipeline.flows.encodings import ArrowCodec
from pipeline.flows.event import EventBatch
from pipeline.flows.lifecycle import LifecycleState
from pipeline.flows.runtime.flow import Flow
from pipeline.flows.sinks.agent_sink import AgentSink, AgentSinkOptions
from pipeline.flows.sources.agent_source import parse_id
from pipeline.flows.spi import ChannelFull, SinkFailed
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.collector_client import CollectorCallError, Reply
from pipeline.link.idl import collector_idl
from pipeline.rolling_files.file_store import open_store
from tests.faults.namenode_proxy import NameNodeProxy
from tests.pipeline.flows.parts import Sinks, context, event, event_batch, eventually_has, flow, numbers_of, until_full
from tests.waiting import eventually

TIER = """
[[flow]]
name = "{name}"
put_s = 0.3
[flow.source]
type = "agent"
port = {port}
[flow.channel]
type = "file"
quota_bytes = 65536
[flow.sink]
{sink}
"""
LAST = 'type = "list"'
ARROW = ArrowCodec()


def tier(folder: Path, sinks: Sinks, agent: str, sink: str = LAST, port: int = 0) -> Flow:
    """Agent with one flow that listens."""
    running = flow(TIER.format(name="tier", port=port, sink=sink), folder / agent, sinks, agent)
    running.start()
    assert running.state is LifecycleState.RUNNING, running.problem
    return running


def port_of(running: Flow) -> int:
    return int(running.figures()["source"]["port"])


def to(running: Flow, more: str = "") -> str:
    return f'type = "agent"\nto = ["127.0.0.1:{port_of(running)}"]\nleast_s = 20\n{more}'


def message(n: int, size: int = 2000) -> bytes:
    """Message of a client: incompressible, with a unique identity."""
    body = random.Random(n).randbytes(size)
    return encode_events(BatchId("client", 1, 0, n), "c", 1, [event(n).__class__({"n": str(n)}, body)]).data


class Client:
    """Sends one message after another and keeps refused ones."""

    def __init__(self, running: Flow) -> None:
        self._client = FramedClient(collector_idl().Collector, "127.0.0.1", port_of(running))
        self.next = 0

    def send(self) -> str:
        """Send the next message. Returns "" or the reason of the refusal; a refused message is sent again."""
        (answer,) = self._client.call("send", [message(self.next)], timeout=30.0)
        if answer.ok:
            self.next += 1
        return "" if answer.ok else str(answer.reason)


def test_tiers_fill_from_the_end_and_drain_in_order(tmp_path: Path) -> None:
    """Without the last link the second tier fills, then the first, then the client is refused. After its repair every
    event arrives in order, once, with the bytes of the client. Scenario 31 over three agents."""
    sinks = Sinks()
    sinks["one"].down("the last link is cut")
    second = tier(tmp_path, sinks, "agent-2")
    first = tier(tmp_path, sinks, "agent-1", to(second))
    client = Client(first)
    for _ in range(5):
        assert client.send() == ""
    eventually(lambda: second.waiting == 5, "the second tier has them")
    eventually(lambda: first.waiting == 0, "and the first has forgotten them")

    def fill() -> str:
        """Send until the client is refused; return the reason once the second tier is full, too."""
        while not (reason := client.send()):
            assert client.next < 200
        full = second.figures()["channel"]
        is_full = full["log_bytes"] > full["quota_bytes"] * 0.75 and min(first.waiting, second.waiting) > 15
        return reason if is_full else ""

    assert eventually(fill, "both tiers are full").startswith("full: quota")  # and nothing of the call is kept
    refused_at = client.next
    assert second.waiting + first.waiting >= refused_at  # some are in both: accepted there, not yet deleted here
    eventually(lambda: any("full" in text for text in first.figures()["problems"]), "the first tier says so")
    assert sinks["one"].numbers == []

    sinks["one"].up()
    while client.next < refused_at + 20:
        client.send()
    eventually_has(sinks["one"], range(client.next), seconds=60)
    assert [p.data for p in sinks["one"].event_batches] == [message(n) for n in range(client.next)]
    eventually(lambda: first.waiting == second.waiting == 0, "empty")
    assert first.stop() == []
    assert second.stop() == []


@pytest.mark.stack
def test_tiers_fill_and_drain_into_hdfs(tmp_path: Path, hdfs: str) -> None:
    """The same with HDFS at the end; its NameNode is unreachable at first."""
    proxy = NameNodeProxy()
    folder = f"hdfs://127.0.0.1:{proxy.port}/tiers-{tmp_path.name}"
    end = f'type = "files"\nuri = "{folder}"\npath = ""\nroll_s = 1.0\nencoding = "arrow"'
    second = tier(tmp_path, Sinks(), "agent-2", end)
    first = tier(tmp_path, Sinks(), "agent-1", to(second))
    client = Client(first)
    while not (reason := client.send()):
        assert client.next < 200
    assert reason.startswith("full: quota")
    assert min(first.waiting, second.waiting) > 15
    proxy.aim(int(hdfs.rsplit(":", 1)[1]))
    for _ in range(20):
        while client.send():
            pass
    eventually(lambda: first.waiting == second.waiting == 0, "everything is delivered")
    assert first.stop() == []
    assert second.stop() == []
    store = open_store(folder)
    found = [
        int(e.headers["n"])
        for stored in sorted(store.list_folder(""))
        for e in ARROW.decode(store.read(stored.path))
        if not stored.path.startswith(".")
    ]
    proxy.close()
    assert found == list(range(client.next))


def test_tiers_survive_restarts_in_the_middle(tmp_path: Path) -> None:
    sinks = Sinks()
    second = tier(tmp_path, sinks, "agent-2")
    port = port_of(second)
    first = tier(tmp_path, sinks, "agent-1", to(second))
    client = Client(first)
    for _ in range(5):
        client.send()
    second.stop()
    for _ in range(5):
        assert client.send() == ""
    first.stop()
    sinks["one"].down()
    second = tier(tmp_path, sinks, "agent-2", port=port)
    first = tier(tmp_path, sinks, "agent-1", to(second))
    eventually(lambda: first.waiting == 0, "over the hop")
    second.stop()
    sinks["one"].up()
    second = tier(tmp_path, sinks, "agent-2", port=port)
    eventually_has(sinks["one"], range(10), seconds=60)
    first.stop()
    second.stop()


@contextmanager
def lossy(target: int, replies_to_lose: int) -> Iterator[tuple[int, dict[str, int]]]:
    """Proxy in front of `target` that forwards requests and closes the connection instead of returning the first
    replies to batches: the calls take effect, their results are lost."""
    counts = {"lost": 0}
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(near: socket.socket) -> None:
        carries_batches = threading.Event()
        with near, socket.create_connection(("127.0.0.1", target)) as far:
            threading.Thread(target=_pump, args=(near, far, carries_batches), daemon=True).start()
            while data := far.recv(65536):
                if carries_batches.is_set() and counts["lost"] < replies_to_lose:
                    counts["lost"] += 1
                    near.shutdown(socket.SHUT_RDWR)
                    return
                near.sendall(data)

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(near,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1], counts
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


SEND = b"\0\0\0\4send"
"""Name of the method in a request that carries batches."""


def _pump(source: socket.socket, target: socket.socket, carries_batches: threading.Event) -> None:
    try:
        while data := source.recv(65536):
            if SEND in data:
                carries_batches.set()
            target.sendall(data)
    except OSError:
        pass


@pytest.mark.parametrize("delivery", ["end-to-end", "disk-failover", "best-effort"])
def test_scenario_33_a_lost_reply_stores_nothing_twice(tmp_path: Path, delivery: str) -> None:
    """Fault 26: the next agent has committed, the answer is lost, and the event batches are sent again under the same
    identity, from any kind of channel."""
    sinks = Sinks()
    second = tier(tmp_path, sinks, "agent-2")
    with lossy(port_of(second), replies_to_lose=3) as (port, counts):
        text = f"""
[[flow]]
name = "first"
delivery = "{delivery}"
[flow.source]
type = "api"
[flow.sink]
type = "agent"
to = ["127.0.0.1:{port}"]
"""
        first = flow(text, tmp_path / "agent-1", sinks, "agent-1")
        first.start()
        for n in range(5):
            first.put([event_batch(n)])
        eventually(lambda: first.waiting == 0, "all over the hop")
        assert counts["lost"] == 3
        eventually_has(sinks["one"], range(5))
        first.stop()
    assert second.figures()["channel"]["repeats"] > 0
    assert sinks["one"].numbers == list(range(5))
    second.stop()


def test_scenario_34_a_peer_without_answer_costs_one_timeout(tmp_path: Path) -> None:
    """The first address accepts connections and never answers; the call times out, the connection is closed, and the
    other address is tried."""
    sinks = Sinks()
    second = tier(tmp_path, sinks, "agent-2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = [f"127.0.0.1:{silent.getsockname()[1]}", f"127.0.0.1:{port_of(second)}"]
        text = TIER.format(name="first", port=0, sink=f'type = "agent"\nto = {addresses}\nleast_s = 0.5\nmost_s = 5')
        first = flow(text, tmp_path / "agent-1", sinks, "agent-1")
        first.start()
        client = Client(first)
        for _ in range(10):
            assert client.send() == ""
        eventually_has(sinks["one"], range(10), seconds=60)
        eventually(lambda: first.figures()["sinks"]["sink"]["sent"] == 10, "ten acked")
        first.stop()
    second.stop()


def test_scenario_35_retries_of_a_dead_peer_back_off(tmp_path: Path) -> None:
    """Fault 24: the pause grows up to its cap, never over it, never to 0, for any number of failures."""
    from pipeline.flows.groups.choice_group import MAX_PAUSE_S, SinkHealth

    standing, now, pauses = SinkHealth("primary"), 0.0, []
    while now < 3600:
        assert standing.is_due(now)
        standing.record_failure(now)
        pauses.append(standing.not_before - now)
        now = standing.not_before
    assert pauses[0] > 0
    assert max(pauses) == MAX_PAUSE_S
    assert pauses == sorted(pauses)
    for _ in range(2000):
        standing.record_failure(now)
    assert standing.not_before - now == MAX_PAUSE_S


def test_terminal_acks_wait_for_the_last_sink(tmp_path: Path) -> None:
    """`ack = "terminal"`: the first agent keeps its event batches until the sink behind the second agent has them."""
    sinks = Sinks()
    sinks["one"].down()
    second = tier(tmp_path, sinks, "agent-2")
    first = tier(tmp_path, sinks, "agent-1", to(second, 'ack = "terminal"'))
    client = Client(first)
    client.send()
    eventually(lambda: second.waiting == 1, "taken by the second")
    assert first.waiting == 1
    sinks["one"].up()
    eventually(lambda: first.waiting == 0, "acked by the end")
    assert sinks["one"].numbers == [0]
    first.stop()
    second.stop()


def test_event_batches_damaged_in_transit_are_refused_with_the_reason(tmp_path: Path) -> None:
    sinks = Sinks()
    running = tier(tmp_path, sinks, "agent-1")
    client = FramedClient(collector_idl().Collector, "127.0.0.1", port_of(running))
    good, bad = message(0), bytearray(message(1))
    bad[-1] ^= 1
    answers = client.call("send", [good, bytes(bad), b"no batch"], timeout=30.0)
    assert [a.ok for a in answers] == [True, False, False]
    assert all(a.reason.startswith("damaged:") for a in answers[1:])
    eventually_has(sinks["one"], [0])
    running.stop()


def test_the_sink_reports_problems_of_its_peers(tmp_path: Path) -> None:
    about = context(tmp_path, Sinks())
    sink = AgentSink(AgentSinkOptions(to=["127.0.0.1:1"]), about)
    sink.start()
    one = EventBatch((), BatchId("client", 1, 0, 0), message(0))
    with pytest.raises(SinkFailed, match=r"127\.0\.0\.1:1"):
        sink.deliver([one])
    with pytest.raises(SinkFailed, match="no next agent can be reached"):
        sink.deliver([one])
    sink.stop(1.0)


def test_retries_send_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink encodes event batches of a memory channel once."""
    calls: list[list[bytes]] = []

    def send(messages: Sequence[bytes]) -> Reply:
        calls.append(list(messages))
        raise CollectorCallError("no answer", CollectorEndpoint("127.0.0.1", 1))

    sink = AgentSink(AgentSinkOptions(to=["127.0.0.1:1"]), context(tmp_path, Sinks()))
    monkeypatch.setattr(sink._client, "send", send)
    sink.start()
    one = EventBatch(event_batch(1).events, BatchId("client", 1, 0, 0))
    for _ in range(2):
        with pytest.raises(SinkFailed, match="no answer"):
            sink.deliver([one])
    assert calls[0] == calls[1]
    sink.stop(1.0)


def test_ids_survive_a_round_trip_as_text() -> None:
    id = BatchId("host/with/slashes", 2**64 - 1, 3, 2**63)
    assert parse_id(str(id)) == id
    assert parse_id("nonsense") is None
    assert parse_id("a/b/c/d") is None


def test_a_full_flow_refuses_puts_of_its_own_program(tmp_path: Path) -> None:
    sinks = Sinks()
    sinks["one"].down()
    running = tier(tmp_path, sinks, "agent-1")
    count = until_full(lambda n: running.put([EventBatch((), BatchId("client", 1, 0, n), message(n))]))
    with pytest.raises(ChannelFull, match="quota"):
        running.put([EventBatch((), BatchId("client", 1, 0, count), message(count))])
    sinks["one"].up()
    eventually_has(sinks["one"], range(count), seconds=60)
    assert numbers_of(sinks["one"].event_batches) == list(range(count))
    running.stop()
