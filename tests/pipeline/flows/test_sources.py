"""Sources that listen or run programs: netcat, syslog, HTTP, exec. With real sockets and processes."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from artimon.model.batch import BatchId
from artimon.model.event import MAX_BODY_BYTES
from artimon.model.event_codec import encode_events
from bookkeeper.rpc.framed_server import FramedClient
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, events_of
from pipeline.flows.registry import ComponentKind
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.sources.syslog_source import parse_message, split_frames
from pipeline.flows.sources.thrift_source import Calls, NumberUsed
from pipeline.flows.spi import ChannelFull
from pipeline.link.idl import collector_idl
from tests.pipeline.flows.events_client import EventsClient, EventsRefused
from tests.waiting import eventually


class Into:
    """Collects the puts of a source; refuses them as full on demand."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.event_batches: list[EventBatch] = []
        self.full = False
        self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, event_batches: Sequence[EventBatch]) -> None:
        with self._lock:
            self.calls += 1
            if self.full:
                raise ChannelFull("no room")
            self.event_batches += event_batches
            self.events += [event for event_batch in event_batches for event in events_of(event_batch)]

    @property
    def bodies(self) -> list[bytes]:
        return [event.body for event in self.events]

    def wait(self, count: int) -> list[bytes]:
        eventually(lambda: len(self.events) >= count, f"{count} events")
        return self.bodies


Made = Callable[..., Any]


@pytest.fixture
def into() -> Into:
    return Into()


@pytest.fixture
def source(tmp_path: Path, into: Into) -> Iterator[Made]:
    running: list[Any] = []

    def make(name: str, **options: Any) -> Any:
        registry = builtin_registry()
        component = registry.find(ComponentKind.SOURCE, name)
        made = component.build(component.options(**options), Context("a", "f", name, tmp_path, registry))
        made.start(into)
        running.append(made)
        return made

    yield make
    for one in running:
        one.stop(5.0)


def connect(source: Any) -> socket.socket:
    return socket.create_connection(("127.0.0.1", source.port), 10)


def test_lines_over_tcp_become_events(source: Made, into: Into) -> None:
    with connect(source("netcat", headers={"from": "nc"})) as sock:
        sock.sendall(b"one\ntwo\r\nthr")
        assert into.wait(2) == [b"one", b"two"]
        sock.sendall(b"ee")
    assert into.wait(3)[2] == b"three"  # the end of the connection ends it
    assert into.events[0].headers == {"from": "nc"}


def test_each_line_is_answered_with_its_outcome(source: Made, into: Into) -> None:
    with connect(source("netcat", answer=True)) as sock, sock.makefile("rb") as answers:
        sock.sendall(b"one\n")
        assert answers.readline() == b"OK\n"
        into.full = True
        sock.sendall(b"two\n")
        assert answers.readline() == b"full: no room\n"
    assert into.bodies == [b"one"]


def test_a_sender_is_held_back_while_there_is_no_room(source: Made, into: Into) -> None:
    into.full = True
    with connect(source("netcat", line_bytes=1000)) as sock:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.sendall((b"x" * 999 + b"\n") * 100_000)
        into.full = False
        into.wait(1)


def test_peers_without_data_or_line_ends_are_disconnected(source: Made, into: Into) -> None:
    netcat = source("netcat", idle_s=0.2, connections=2)
    with connect(netcat) as sock:
        assert sock.recv(1) == b""
    eventually(lambda: netcat.figures()["connections"] == 0, "it is gone")
    assert netcat.figures()["idle_connections"] == 1


def test_the_number_of_connections_is_limited(source: Made) -> None:
    netcat = source("netcat", connections=1)
    with connect(netcat) as first:
        first.sendall(b"x\n")
        eventually(lambda: netcat.figures()["connections"] == 1, "one connection")
        with connect(netcat) as second:
            assert second.recv(1) == b""
    assert netcat.figures()["connections_refused"] == 1


def test_a_port_in_use_is_named(source: Made) -> None:
    port = source("netcat").port
    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        source("netcat", port=port)


def test_syslog_over_udp_and_tcp_becomes_events(source: Made, into: Into) -> None:
    udp = source("syslog")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"<34>Oct 11 22:14:15 mymachine su[42]: 'su root' failed", ("127.0.0.1", udp.port))
    into.wait(1)
    with connect(source("syslog", transport="tcp")) as sock:
        sock.sendall(b"<13>one\n12 <14>app: two<15>a: three\n")
        into.wait(4)
    first = into.events[0]
    assert first.headers == {
        "facility": "auth",
        "severity": "crit",
        "time": "Oct 11 22:14:15",
        "host": "mymachine",
        "app": "su",
        "process": "42",
    }
    assert into.bodies == [b"'su root' failed", b"one", b"two", b"three"]


NEW = b'<165>1 2003-10-11T22:14:15.003Z host.example evntslog 17 ID47 [x@1 a="1\\"\\]" b="2"][y@2] \xef\xbb\xbfAn event'


def test_syslog_of_rfc_5424_is_parsed() -> None:
    event = parse_message(NEW)
    assert event.body == b"An event"
    assert event.headers == {
        "facility": "local4",
        "severity": "notice",
        "time": "2003-10-11T22:14:15.003Z",
        "time_ms": "1065910455003",
        "host": "host.example",
        "app": "evntslog",
        "process": "17",
        "id": "ID47",
        "data": '[x@1 a="1\\"\\]" b="2"][y@2]',
    }
    assert parse_message(b"<0>1 - - - - - - -").headers == {"facility": "kern", "severity": "emerg"}


@pytest.mark.parametrize("data", [b"", b"no priority", b"<192>x", b"<>", b"<13", b"\xff\xfe"])
def test_a_malformed_syslog_message_becomes_the_body(data: bytes) -> None:
    assert parse_message(data) == Event({"bad": "no syslog priority"}, data)


def test_a_huge_counted_message_ends_the_connection() -> None:
    with pytest.raises(ValueError, match="9999999 bytes"):
        list(split_frames(b"9999999 <1>x", 1000, False))
    assert list(split_frames(b"10 <1>x", 1000, False)) == []  # incomplete
    assert list(split_frames(b"5 <1>xy6 <1>abc", 1000, True)) == [(7, b"<1>xy"), (15, b"<1>abc")]


def post(source: Any, body: bytes, kind: str = "application/json", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", source.port, timeout=60)
    connection.request("POST", "/", body, {"Content-Type": kind, **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_events_over_http_are_accepted(source: Made, into: Into) -> None:
    web = source("http")
    assert post(web, json.dumps([{"headers": {"a": "1"}, "body": "x"}]).encode()) == (200, '{"events": 1}')
    assert post(web, b'{"headers": {}, "base64": "/w=="}\n', "application/x-ndjson")[0] == 200
    assert post(web, b"y\nz\n", "text/plain; charset=utf-8")[0] == 200
    assert into.bodies == [b"x", b"\xff", b"y", b"z"]
    assert into.events[0].headers == {"a": "1"}


def test_invalid_requests_are_refused_whole(source: Made, into: Into) -> None:
    web = source("http", bytes=1024)
    assert post(web, b"{}")[0] == 400
    assert post(web, b'[{"body": 1')[0] == 400
    assert post(web, b"[]", "image/png")[0] == 415
    assert post(web, b"x" * 2_000, "text/plain")[0] == 413
    into.full = True
    assert post(web, b"x", "text/plain") == (503, "full: no room")
    assert into.bodies == []


def test_a_body_beyond_the_batch_limit_is_refused(source: Made, into: Into) -> None:
    web = source("http")
    status, text = post(web, json.dumps([{"headers": {}, "body": "x" * (MAX_BODY_BYTES + 1)}]).encode())
    assert (status, "at most" in text) == (400, True)
    assert into.bodies == []


def test_an_ended_program_is_restarted(source: Made, into: Into) -> None:
    running = source("exec", command=["/bin/sh", "-c", "echo a; echo b >&2; exit 3"], headers={"p": "sh"})
    assert set(into.wait(2)) == {b"a"}
    eventually(lambda: "ended with 3: b" in "".join(running.figures()["problems"]), "its end is told")
    assert into.events[0].headers == {"p": "sh"}


def test_a_program_is_run_periodically(source: Made, into: Into) -> None:
    running = source("exec", command=["/bin/echo", "tick; not a shell"], every_s=0.2)
    assert set(into.wait(3)) == {b"tick; not a shell"}
    assert running.figures()["problems"] == []


def test_a_run_beyond_the_timeout_is_killed_with_its_children(source: Made, into: Into) -> None:
    running = source("exec", command=["/bin/sh", "-c", "echo a; sleep 600 & wait"], every_s=0.5, most_s=0.5)
    into.wait(2)
    assert running.figures()["overdue"] >= 1


def test_output_and_error_streams_are_read(source: Made, into: Into) -> None:
    source("exec", command=["/bin/sh", "-c", "echo a; echo b >&2"], errors=True, every_s=60)
    into.wait(2)
    assert {event.headers["stream"]: event.body for event in into.events} == {"output": b"a", "error": b"b"}


def test_a_missing_program_is_an_error(source: Made) -> None:
    running = source("exec", command=["/nowhere/at-all"])
    eventually(lambda: "No such file" in "".join(running.figures()["problems"]), "it is told")


def test_children_of_an_ended_program_end_with_the_source(source: Made, into: Into) -> None:
    running = source("exec", command=["/bin/sh", "-c", "sleep 600 & echo $!"])
    child = int(into.wait(1)[0])
    running.stop(6.0)
    assert not running._thread.is_alive()
    eventually(lambda: not Path(f"/proc/{child}").exists() or "Z" in _state(child), "it has ended")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_the_error_stream_waits_for_room_too(source: Made, into: Into) -> None:
    into.full = True
    running = source("exec", command=["/bin/sh", "-c", "echo late >&2"], errors=True, every_s=600)
    eventually(lambda: running.figures().get("refused", 0) >= 6, "it was refused for more than a second")
    into.full = False
    assert into.wait(1) == [b"late"]


def test_a_truncated_request_is_refused(source: Made, into: Into) -> None:
    web = source("http")
    with connect(web) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\none\ntw")
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100).startswith(b"HTTP/1.1 408 ")
    assert into.bodies == []


def test_a_request_beyond_the_memory_limit_is_refused(source: Made, into: Into) -> None:
    web = source("http")
    assert post(web, b"x\n" * 100_001, "text/plain")[0] == 400
    assert post(web, b"[" * 100_000)[0] == 400
    assert post(web, b'[{"body": "x"}]')[0] == 200  # an event without headers is valid
    assert into.bodies == [b"x"]


def test_open_connections_end_with_the_source(source: Made) -> None:
    web = source("http")
    with connect(web) as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        web.stop(5.0)
        while sock.recv(4096):
            pass


def test_a_failing_channel_ends_no_thread(source: Made, into: Into) -> None:
    udp, real = source("syslog"), into.event_batches

    class Broken:
        def __iadd__(self, _: Any) -> Any:
            raise KeyError("a defect")

    into.event_batches = Broken()  # type: ignore[assignment]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"<34>one", ("127.0.0.1", udp.port))
        eventually(lambda: udp.figures().get("lost") == 1, "it is counted")
        into.event_batches = real
        sock.sendto(b"<34>two", ("127.0.0.1", udp.port))
    assert into.wait(1) == [b"two"]


def test_simultaneous_datagrams_share_puts(source: Made, into: Into) -> None:
    udp = source("syslog")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, into._lock:
        for n in range(500):
            sock.sendto(b"<34>a: %d" % n, ("127.0.0.1", udp.port))
    assert into.wait(500) == [b"%d" % n for n in range(500)]
    assert into.calls < 50
    assert udp.figures().get("lost", 0) == 0


def test_syslog_with_too_many_headers_becomes_the_body() -> None:
    data = b'<165>1 - h a p i [x@1 a="' + b"x" * 40_000 + b'"] hello'
    event = parse_message(data)
    assert (event.body, "headers of" in event.headers["bad"]) == (data, True)


def test_a_long_counted_message_is_cut(source: Made, into: Into) -> None:
    with connect(source("syslog", transport="tcp", bytes=480)) as sock:
        sock.sendall(b"1900 <13>" + b"x" * 1896 + b"<13>y\n")
        assert [len(body) for body in into.wait(2)] == [476, 1]


def test_stop_kills_a_program_that_ignores_sigterm(source: Made, into: Into) -> None:
    running = source("exec", command=["/bin/sh", "-c", "trap '' TERM; echo a; while :; do sleep 1; done"])
    into.wait(1)
    running.stop(4.0)
    assert running._process is None


def test_thrift_events_arrive_once_in_spite_of_lost_replies(source: Made, into: Into) -> None:
    thrift = source("thrift")
    client = EventsClient("127.0.0.1", thrift.port, 5)
    client.send([Event({"a": "1"}, b"x"), Event({}, b"y")])
    before = [event_batch.id for event_batch in into.event_batches]
    client._sequence -= 1  # its reply was lost: the same call again
    client.send([Event({"a": "1"}, b"x"), Event({}, b"y")])
    assert [event_batch.id for event_batch in into.event_batches] == before * 2  # the channel knows it by this
    into.full = True
    with pytest.raises(EventsRefused, match="full: no room"):
        client.send([Event({}, b"z")], patience_s=0.2)
    with pytest.raises(EventsRefused, match=r"bad: .*at most"):
        client.send([Event({}, b"x" * (MAX_BODY_BYTES + 1))])
    client.close()
    assert thrift.figures()["refused"].keys() == {"full", "bad"}


def test_a_reused_number_with_other_events_is_refused(source: Made, into: Into) -> None:
    """The channel would drop them as a repeat. A call that was refused as full leaves its number free."""
    thrift = source("thrift")
    client = EventsClient("127.0.0.1", thrift.port, 5)
    into.full = True
    with pytest.raises(EventsRefused, match="full"):
        client.send([Event({}, b"never kept")], patience_s=0.1)
    into.full = False
    client._sequence = 0
    client.send([Event({}, b"first")])
    for wrong in (b"second", b"f"):
        client._sequence = 0
        with pytest.raises(EventsRefused, match="bad: number 0 was used before"):
            client.send([Event({}, wrong)])
    client.send([Event({}, b"second")])
    client.close()
    assert into.bodies == [b"first", b"second"]


def test_only_the_latest_calls_are_remembered() -> None:
    calls = Calls(most=2)
    assert [calls.claim(1, number, number) for number in (0, 1, 1, 2)] == [True, True, False, True]
    with pytest.raises(NumberUsed):
        calls.claim(1, 2, 7)
    assert calls.claim(1, 0, 7)
    calls.release(1, 0)
    assert calls.claim(1, 0, 8)


@pytest.mark.parametrize("name", ["thrift", "agent"])
def test_large_calls_wait_unread(source: Made, into: Into, name: str) -> None:
    """Of eight calls of 900 KiB the agent reads one, since `held_bytes` is 1 MiB."""
    server = source(name, held_bytes=1024 * 1024)
    with into._lock, ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(SEND[name], server.port, n) for n in range(8)]
        eventually(lambda: server._server.budget.waiting == 7, "all but one wait")
        assert server._server.budget.used < 2**20
        into._lock.release()
        try:
            assert all(one.result(30) for one in sent)
        finally:
            into._lock.acquire()
    assert sorted(body[:1] for body in into.bodies) == [b"%d" % n for n in range(8) for _ in range(4)]


def _by_thrift(port: int, n: int) -> bool:
    client = EventsClient("127.0.0.1", port, 30)
    client.send(_large(n))
    client.close()
    return True


def _by_hop(port: int, n: int) -> bool:
    client = FramedClient(collector_idl().Collector, "127.0.0.1", port, 30)
    answers = client.call(
        "send", [encode_events(BatchId("a", n, 0, at), "s", 1, [event]).data for at, event in enumerate(_large(n))]
    )
    client.close()
    return all(answer.ok for answer in answers)


def _large(n: int) -> list[Event]:
    """Four events of 225 KiB of incompressible bytes."""
    return [Event({}, b"%d" % n + random.Random(n).randbytes(225 * 1024)) for _ in range(4)]


SEND = {"thrift": _by_thrift, "agent": _by_hop}
