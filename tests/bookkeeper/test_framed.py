"""The framed server and client, with peers that do everything wrong."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import thriftpy2
from hypothesis import given, settings
from hypothesis import strategies as st
from thriftpy2.thrift import TApplicationException

from bookkeeper.rpc.framed_client import CallTimeoutError, ConnectionLostError
from bookkeeper.rpc.framed_server import FramedClient, FramedServer, FrameError, decode_reply, encode_call
from bookkeeper.rpc.thrift_messages import HEADER, encode_message, parse_message
from tests.waiting import eventually

IDL = """
exception Bad { 1: string why }
struct Node { 1: string name, 2: list<Node> children, 3: map<string, i64> sizes, 4: list<double> values }
service Echo {
  Node echo(1: Node node) throws (1: Bad bad),
  i64 fail(1: string how) throws (1: Bad bad),
  binary blob(1: i32 size),
  map<i64, string> numbers(1: map<i64, string> given),
  void nothing(),
  oneway void note(1: string text),
}
"""


@pytest.fixture(scope="module")
def idl(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with every shape that the decoder knows."""
    path = tmp_path_factory.mktemp("idl") / "echo.thrift"
    path.write_text(IDL)
    return thriftpy2.load(str(path), module_name="echo_thrift")


class Handler:
    """Answers, fails in each way, or waits for `gate`."""

    def __init__(self, idl: Any) -> None:
        self.idl, self.gate, self.noted = idl, threading.Event(), threading.Event()

    def echo(self, node: Any) -> Any:
        return node

    def fail(self, how: str) -> Any:
        if how == "declared":
            raise self.idl.Bad("as agreed")
        if how == "wait":
            self.gate.wait(20)
            return 1
        return {"none": None, "type": "text"}[how]

    def blob(self, size: int) -> bytes:
        return b"x" * size

    def numbers(self, given: Any) -> Any:
        return given

    def nothing(self) -> None:
        return None

    def note(self, text: str) -> None:
        self.noted.set()


@contextmanager
def serving(idl: Any, **options: Any) -> Iterator[tuple[FramedServer, Handler]]:
    handler = Handler(idl)
    server = FramedServer(idl.Echo, handler, **options)
    server.start()
    try:
        yield server, handler
    finally:
        handler.gate.set()
        server.stop()


@pytest.fixture
def server(idl: Any) -> Iterator[FramedServer]:
    """A server with small limits."""
    with serving(idl, max_frame=100_000, idle_timeout=20.0, request_timeout=0.3) as (server, _):
        yield server


def client(server: FramedServer, timeout: float = 5.0) -> FramedClient:
    return FramedClient(server.service, "127.0.0.1", server.port, timeout)


def raw(server: FramedServer) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def test_values_of_all_shapes(idl: Any, server: FramedServer) -> None:
    """Values survive a round trip, nested and empty ones too, on one connection."""
    node = idl.Node("ü", [idl.Node("a"), idl.Node("b", [], {"x": -(1 << 63)}, [1.5, float("inf")])], {}, [])
    with client(server) as calls:
        assert calls.echo(node) == node
        assert calls.numbers({1: "a", -1: ""}) == {1: "a", -1: ""}
        assert calls.nothing() is None
        assert calls.blob(0) == b""
        assert calls.call("blob", 50_000) == b"x" * 50_000
    assert server.accepted == 1


def test_errors_of_a_handler_leave_the_connection_alive(idl: Any, server: FramedServer) -> None:
    """Declared exceptions come as themselves, others as TApplicationException, and the next call works."""
    with client(server) as calls:
        with pytest.raises(idl.Bad, match="as agreed"):
            calls.fail("declared")
        with pytest.raises(TApplicationException, match="KeyError"):
            calls.fail("unknown")
        with pytest.raises(TApplicationException, match="returned nothing"):
            calls.fail("none")
        with pytest.raises(TApplicationException, match="Field 'success"):
            calls.fail("type")
        calls.nothing()
    assert server.accepted == 1


def test_oneway_calls(idl: Any) -> None:
    """No reply, and the next call is not confused."""
    with serving(idl) as (server, handler), client(server) as calls:
        assert calls.note("x") is None
        assert handler.noted.wait(60)
        assert calls.blob(1) == b"x"


def test_wrong_calls_do_not_reach_the_network(idl: Any, server: FramedServer) -> None:
    """Unknown methods and wrong numbers of arguments are the caller's mistakes."""
    with client(server) as calls:
        with pytest.raises(AttributeError):
            calls.missing()
        with pytest.raises(TypeError, match="takes 1 arguments"):
            calls.echo()
        with pytest.raises(TypeError, match="no method"):
            calls.call("missing")


def test_unknown_method_is_answered(idl: Any, server: FramedServer) -> None:
    """A caller with a newer IDL learns what is wrong."""
    with raw(server) as sock:
        sock.sendall(encode_message("newer", 1, 7, idl.Echo.nothing_args()))
        size = HEADER.unpack(sock.recv(4))[0]
        message = parse_message(sock.recv(size))
    assert (message.method, message.kind, message.seqid) == ("newer", 3, 7)


ATTACKS = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 60,
    "giant_length": b"\x7f\xff\xff\xff" + b"x" * 100,
    "negative_length": b"\xff\xff\xff\xff",
    "zero_length": b"\0\0\0\0",
    "unframed": b"\x80\x01\x00\x01\x00\x00\x00\x04blob\x00\x00\x00\x01\x00",
    "not_strict": HEADER.pack(17) + b"\x00\x00\x00\x04blob\x01\x00\x00\x00\x01\x00\x00\x00\x00",
    "long_name": HEADER.pack(16) + b"\x80\x01\x00\x01\x7f\xff\xff\xffxxxxxxxx",
    "reply_kind": HEADER.pack(17) + b"\x80\x01\x00\x02\x00\x00\x00\x04blob\x00\x00\x00\x01\x00",
    "no_arguments": HEADER.pack(16) + b"\x80\x01\x00\x01\x00\x00\x00\x04blob\x00\x00\x00\x01",
    "trailing": HEADER.pack(18) + b"\x80\x01\x00\x01\x00\x00\x00\x04blob\x00\x00\x00\x01\x00x",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_garbage_costs_one_connection(idl: Any, server: FramedServer, attack: str) -> None:
    """The attacker is cut off, another client on another connection notices nothing."""
    with client(server) as calls, raw(server) as sock:
        calls.nothing()
        sock.sendall(ATTACKS[attack])
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass
        calls.nothing()
    assert server.accepted == 2


def echo_body(body: bytes, method: bytes = b"echo") -> bytes:
    message = b"\x80\x01\x00\x01" + struct.pack(">i", len(method)) + method + b"\x00\x00\x00\x01" + body
    return HEADER.pack(len(message)) + message


ARGUMENT = b"\x0c\x00\x01"  # field 1 of the arguments, a struct: Node
BOMBS = {
    "list_of_structs": ARGUMENT + b"\x0f\x00\x02\x0c\x7f\xff\xff\xff",
    "list_of_doubles": ARGUMENT + b"\x0f\x00\x04\x04\x7f\xff\xff\xff",
    "negative_list": ARGUMENT + b"\x0f\x00\x04\x04\xff\xff\xff\xff\x00\x00",
    "map": ARGUMENT + b"\x0d\x00\x03\x0b\x0a\x7f\xff\xff\xff",
    "string": ARGUMENT + b"\x0b\x00\x01\x7f\xff\xff\xff",
    "negative_string": ARGUMENT + b"\x0b\x00\x01\xff\xff\xff\xff\x00\x00",
    "unknown_field": ARGUMENT + b"\x0f\x00\x63\x0f\x7f\xff\xff\xff",
    "unknown_type": ARGUMENT + b"\x10\x00\x01\x00\x00\x00\x01a\x00\x00",
    "zero_sized_elements": ARGUMENT + b"\x0f\x00\x63\x00\x00\x00\xff\xff" + b"\x00" * 70_000,
    "deep": ARGUMENT + b"\x0f\x00\x02\x0c\x00\x00\x00\x01" * 5000,
    "many_tiny_structs": ARGUMENT + b"\x0f\x00\x02\x0c\x00\x01\x80\x00" + b"\x00" * 50_000,
    "bad_utf8": ARGUMENT + b"\x0b\x00\x01\x00\x00\x00\x02\xff\xfe\x00\x00",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_small_frames_cannot_declare_much(idl: Any, server: FramedServer, bomb: str) -> None:
    """Lengths that point outside their frame never reach the decoder."""
    started = perf_counter()
    with raw(server) as sock:
        sock.sendall(echo_body(BOMBS[bomb]))
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass
    assert perf_counter() - started < 15.0
    eventually(lambda: server.broken == 1)
    with client(server) as calls:
        calls.nothing()


def test_text_in_a_map_of_numbers(idl: Any, server: FramedServer) -> None:
    """thriftpy2 would read the text's bytes as numbers and lose its place."""
    body = b"\x0d\x00\x01\x0b\x0b\x00\x00\x00\x01\x00\x00\x00\x01a\x00\x00\x00\x01b\x00"
    with raw(server) as sock:
        sock.sendall(echo_body(body, b"numbers"))
        assert sock.recv(1) == b""


def test_half_a_frame_is_closed_at_its_deadline(idl: Any, server: FramedServer) -> None:
    """Trickling does not extend it: the deadline is for the whole request."""
    call = encode_call(idl.Echo, "numbers", (dict.fromkeys(range(200), "x"),), 1)
    with raw(server) as sock:
        started = perf_counter()
        pause = threading.Event()
        try:
            for i in range(len(call) - 1):
                sock.sendall(call[i : i + 1])
                pause.wait(0.1)
                if perf_counter() - started > 30.0:
                    break
        except OSError:
            pass
        assert perf_counter() - started < 15.0
    with client(server) as calls:
        calls.nothing()


def test_idle_connections_are_closed(idl: Any) -> None:
    """A peer that says nothing holds its place for `idle_timeout` only."""
    with serving(idl, idle_timeout=0.1) as (server, _), raw(server) as sock:
        assert sock.recv(1) == b""


def test_a_full_server_gives_the_place_of_the_longest_idle(idl: Any) -> None:
    """Idle connections cannot lock the poller out; running requests are never cut."""
    with (
        serving(idl, max_connections=3) as (server, handler),
        client(server) as busy,
        raw(server) as first,
        raw(server) as second,
    ):
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(busy.fail("wait")))
        waiting.start()
        eventually(lambda: server.accepted == 3 and sum(not c.idle for c in server._connections) == 1)
        with client(server) as calls:
            assert calls.blob(1) == b"x"
            assert first.recv(1) == b""
        handler.gate.set()
        waiting.join(60)
        assert answers == [1]
        second.settimeout(0.05)
        with pytest.raises(TimeoutError):
            second.recv(1)


def test_a_client_never_reads_the_answer_to_an_older_call(idl: Any) -> None:
    """After a timeout the connection is closed; the next call has one of its own."""
    with serving(idl) as (server, handler), client(server) as calls:
        with pytest.raises(CallTimeoutError):
            calls.call("fail", "wait", timeout=0.1)
        handler.gate.set()
        assert calls.blob(2) == b"xx"
    assert server.accepted == 2


def test_a_client_finds_a_server_that_came_back(idl: Any) -> None:
    """Idle connections that the server closed are noticed before anything is sent."""
    with serving(idl) as (server, _), client(server) as calls:
        calls.nothing()
        port = server.port
        server.stop()
        with pytest.raises(ConnectionLostError, match=r"Echo\.nothing"):
            calls.nothing()
        with serving(idl, port=port):
            calls.nothing()


@pytest.mark.parametrize("reply", [b"", b"\0\0", HEADER.pack(10) + b"short", HEADER.pack(1 << 30), b"HTTP/1.1 400\r\n"])
def test_bad_replies(idl: Any, reply: bytes) -> None:
    """A server that sends garbage or hangs up gives a typed error, quickly."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises((ConnectionLostError, FrameError)):
            FramedClient(idl.Echo, "127.0.0.1", listener.getsockname()[1], 5.0).nothing()
        thread.join(60)


def test_a_reply_that_is_too_long(idl: Any) -> None:
    """The caller learns why; the connection lives on."""
    with serving(idl, max_reply=1000) as (server, _), client(server) as calls:
        with pytest.raises(TApplicationException, match="at most 1000"):
            calls.blob(2000)
        calls.nothing()


def test_stop_is_bounded_and_waits_for_running_requests(idl: Any) -> None:
    """A request that ends in time is answered; one that does not is cut at the deadline."""
    with serving(idl) as (server, handler), client(server) as calls:
        answers: list[int] = []
        waiting = threading.Thread(target=lambda: answers.append(calls.fail("wait")))
        waiting.start()
        eventually(lambda: any(not c.idle for c in server._connections))
        threading.Timer(0.1, handler.gate.set).start()
        server.stop(timeout=5.0)
        waiting.join(60)
        assert answers == [1]
    with serving(idl) as (server, _), client(server) as calls:
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                calls.fail("wait")
            except ConnectionLostError as error:
                failed.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: any(not c.idle for c in server._connections))
        started = perf_counter()
        server.stop(timeout=0.1)
        assert perf_counter() - started < 15.0
        waiting.join(60)
        assert failed


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_replies_never_decode_silently(data: st.DataObject, idl: Any) -> None:
    """Cut off or longer frames are always refused, flipped bytes give a FrameError or a well-formed value."""
    node = idl.Node("name", [idl.Node("a", [], {"x": 1}, [1.0, 2.0])], {"k": 5}, [3.0])
    result = idl.Echo.echo_result(success=node)
    frame = encode_message("echo", 2, 9, result)[4:]
    assert decode_reply(idl.Echo, "echo", frame, 9) == node
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(FrameError):
        decode_reply(idl.Echo, "echo", frame[:cut], 9)
    with pytest.raises(FrameError):
        decode_reply(idl.Echo, "echo", frame + data.draw(st.binary(min_size=1, max_size=4)), 9)
    at = data.draw(st.integers(0, len(frame) - 1))
    flipped = frame[:at] + bytes([frame[at] ^ data.draw(st.integers(1, 255))]) + frame[at + 1 :]
    try:
        decode_reply(idl.Echo, "echo", flipped, 9)
    except (FrameError, TApplicationException, idl.Bad):
        pass


@given(st.binary(max_size=200))
def test_random_bytes_never_decode(idl: Any, frame: bytes) -> None:
    """Arbitrary bytes raise FrameError."""
    with pytest.raises(FrameError):
        decode_reply(idl.Echo, "echo", frame, 1)


def test_the_idl_of_the_package_is_beside_it() -> None:
    """Other languages read the same file."""
    import bookkeeper

    assert (Path(bookkeeper.__file__).parent / "bookkeeper.thrift").is_file()
