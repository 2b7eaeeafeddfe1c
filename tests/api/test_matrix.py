"""The Thrift service over a real shard: exact, bounded, and deaf to nonsense."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from artimon.api.api_limits import ApiLimits
from artimon.api.matrix_service import answer_size, idl, to_thrift
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import ValueType
from bookkeeper.rpc.framed_server import FramedClient
from bookkeeper.rpc.thrift_messages import encode_call, encode_message
from query_dsl import Matrix, evaluate, parse
from tests.api import memcached
from tests.api.serving import NOW, Client, served
from tests.api.test_formats import mixed_store
from tests.api.test_limits import HeldStore
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.varstore.worlds import range_of
from tests.waiting import eventually
from varstore.shard.shard import Shard

QUESTION = "fetch('memcached.*{dc=\"jb\"}').range('600000ms')"


def cached_shard() -> Shard:
    """A shard that holds the variables of the seed's question."""
    shard = Shard(capacity=100)
    shard.announce(memcached.blocks("s0"))
    batches = memcached.log("s0", NOW // MINUTE * MINUTE - MINUTE)
    shard.feed(range_of(batches, 0, len(batches)))
    return shard


@pytest.fixture(scope="module")
def shard() -> Shard:
    return cached_shard()


@pytest.fixture(scope="module")
def cached(shard: Shard) -> Iterator[Client]:
    with served(shard) as client:
        yield client


def call(client: Client, method: str, *args: object) -> Any:
    with FramedClient(idl().Matrix, "127.0.0.1", client.thrift_port, 20) as thrift:
        return thrift.call(method, *args)


def values(row: Any) -> list[Any]:
    """Values of a row, None where missing."""
    found = [row.integers, row.doubles, row.booleans, row.strings]
    assert [one is not None for one in found] == [i == row.type for i in range(4)]
    return [v if p else None for v, p in zip(found[row.type], row.present, strict=True)]


def same(answer: Any, matrix: Matrix) -> bool:
    """Return True if a Thrift answer equals the matrix bit by bit."""
    grid = answer.grid
    assert (grid.start_ms, grid.end_ms, grid.step_ms, grid.n) == (
        matrix.grid.start_ms,
        matrix.grid.end_ms,
        matrix.grid.step_ms,
        matrix.grid.n,
    )
    assert answer.notes == list(matrix.notes)
    assert (answer.complete, answer.partial) == (matrix.complete, matrix.partial)
    assert [row.series for row in answer.rows] == matrix.series
    assert [row.labels for row in answer.rows] == matrix.labels
    assert [row.name for row in answer.rows] == matrix.names
    assert [row.type for row in answer.rows] == matrix.types.tolist()
    return [repr(values(row)) for row in answer.rows] == [repr(matrix.tolist(i)) for i in range(len(matrix))]


def test_the_seeds_question_is_answered_exactly(cached: Client, shard: Shard) -> None:
    answer = call(cached, "fetch", "memcached.*", {"dc": "jb"}, 600_000)
    matrix = evaluate(parse(QUESTION), shard, NOW)
    assert same(answer, matrix)
    assert {row.type for row in answer.rows} == {int(kind) for kind in ValueType if kind != ValueType.ENDED}
    assert answer.grid.n == 10
    items = next(row for row in answer.rows if row.series == 'memcached.items{dc="jb",host="a"}')
    assert values(items)[-1] == memcached.BIG + 11
    assert None in values(items)


def test_a_question_in_the_language_and_its_time(cached: Client, shard: Shard) -> None:
    text = "fetch('memcached.items').sum(by=['dc']).range('5m')"
    assert same(call(cached, "query", text, 0), evaluate(parse(text), shard, NOW))
    then = NOW - 5 * MINUTE
    assert same(call(cached, "query", text, then), evaluate(parse(text), shard, then))


def test_every_value_crosses_unchanged() -> None:
    with served(mixed_store()) as client:
        text = "fetch('t.*').map(last, '1m').range('4m')"
        assert same(call(client, "query", text, 0), evaluate(parse(text), mixed_store(), NOW))


@pytest.mark.parametrize(
    ("text", "position", "told"),
    [
        ("fetch('memcached.items').raet()", 25, "rate"),
        ("(" * 200, None, "nest"),
        ("fetch('memcached.item')", None, "memcached.items"),
    ],
)
def test_a_wrong_question_has_its_place(cached: Client, text: str, position: int | None, told: str) -> None:
    with pytest.raises(idl().Refused) as caught:
        call(cached, "query", text, 0)
    assert told in caught.value.message
    assert caught.value.reason == "bad"
    assert 0 <= caught.value.position <= len(text)
    assert caught.value.length >= 1
    if position is not None:
        assert abs(caught.value.position - position) <= 1


@pytest.mark.parametrize(
    ("method", "args", "told"),
    [
        ("query", (None, None), "q is missing"),
        ("query", ("fetch('memcached.items')", -1), "time_ms"),
        ("query", ("fetch('memcached.items')", 2**62), "time_ms"),
        ("fetch", (None, None, None), "name"),
        ("fetch", ("memcached.items", {}, 0), "last_ms"),
        ("fetch", ("memcached.items", {}, -5), "last_ms"),
        ("fetch", ("memcached.items", {}, 2**62), "range"),
        ("fetch", ("memcached.items{dc='jb'}", {}, 1000), "name"),
        ("fetch", ("memcached.items", {'dc="jb",host': "a"}, 60_000), "label"),
        ("fetch", ("*", {}, 60_000), "name"),
    ],
)
def test_bad_arguments_are_refused(cached: Client, method: str, args: tuple[object, ...], told: str) -> None:
    with pytest.raises(idl().Refused) as caught:
        call(cached, method, *args)
    assert told in caught.value.message
    assert (caught.value.reason, caught.value.position < 0) in {("bad", True), ("bad", False)}


def test_label_values_are_never_syntax() -> None:
    store = PlainStore()
    nasty = 'a"}).sum() \\ \n\r é'
    store.add("t", {"v": nasty}, [(NOW - 2 * MINUTE, 1)])
    store.add("t", {"v": "plain"}, [(NOW - 2 * MINUTE, 2)])
    with served(store) as client:
        assert [row.labels for row in call(client, "fetch", "t", {"v": nasty}, 300_000).rows] == [{"v": nasty}]


def test_what_is_too_large_is_told_with_the_limit() -> None:
    store = PlainStore()
    for i in range(100):
        store.add("wide", {"i": str(i)}, [(NOW - 2 * MINUTE, i)])
    with served(store, replace(ApiLimits(), thrift_answer_bytes=20_000, series=150)) as client:
        with pytest.raises(idl().Refused) as caught:
            call(client, "fetch", "wide", {}, 3_600_000)
        assert caught.value.reason == "large"
        for word in ("20000", "thrift_answer_bytes", "reduce"):
            assert word in caught.value.message
        assert len(call(client, "query", "fetch('wide').sum(by=[])", 0).rows) == 1
        assert client.desk is not None
        assert client.desk.budget.used < 20_000


def test_the_size_is_known_before() -> None:
    for text in ("fetch('t.*').range('60m')", "fetch('t.text')", "fetch('t.int') + 1"):
        matrix = evaluate(parse(text), mixed_store(), NOW)
        reply = encode_message("query", 2, 1, idl().Matrix.query_result(success=to_thrift(matrix)))
        assert 0 <= answer_size(matrix) - len(reply) <= 300 + 100 * len(matrix)
    assert ApiLimits().thrift_answer_bytes + 1_000 < 16_384_000


def test_a_slow_question_is_late_and_frees_its_turn() -> None:
    store = HeldStore()
    with served(store, replace(ApiLimits(), query_s=0.3, running=1)) as client:
        with pytest.raises(idl().Refused) as caught:
            call(client, "query", "fetch('http.requests')", 0)
        assert caught.value.reason == "late"
        assert client.get("/api/names").status == 200
        store.release.set()
        assert call(client, "query", "fetch('http.requests')", 0).rows


def reply_to(client: Client, *sent: bytes) -> bytes:
    """Return the bytes until the server closes, or until a second passes without a byte."""
    found = b""
    with socket.create_connection(("127.0.0.1", client.thrift_port), timeout=20) as connection:
        for part in sent:
            connection.sendall(part)
        connection.settimeout(1)
        try:
            while more := connection.recv(65536):
                found += more
        except TimeoutError:
            return found + b"still open"
        except ConnectionResetError:
            pass
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 1 << 30) + b"x",
        struct.pack(">I", 70_000) + b"x" * 70_000,
        struct.pack(">I", 20) + b"\x80\x01\x00\x01" + b"\xff" * 16,
        encode_call(idl().Matrix, "query", ("AAAA", 0), 1).replace(b"AAAA", b"\xff\xfe\xfd\xfc"),
    ],
    ids=["http", "gigabyte", "long", "garbage", "no utf-8"],
)
def test_nonsense_closes_its_connection_and_no_other(cached: Client, sent: bytes) -> None:
    assert reply_to(cached, sent) == b""
    assert call(cached, "query", QUESTION, 0).rows


def test_an_unknown_method_is_said_to_be_one(cached: Client) -> None:
    sent = encode_call(idl().Matrix, "query", ("a", 0), 1)
    answer = reply_to(cached, sent.replace(b"query", b"quark"))
    assert b"\x80\x01\x00\x03" in answer  # an exception of Thrift's own
    assert b"no method" in answer
    assert answer.endswith(b"still open")


def test_half_a_frame_and_silence_are_cut() -> None:
    limits = replace(ApiLimits(), write_s=0.3, thrift_idle_s=0.3)
    with served(limits=limits) as client:
        half = encode_call(idl().Matrix, "query", ("a", 0), 1)[:-3]
        for sent in (half, b"\0", b""):
            began = SYSTEM_CLOCK.monotonic()
            assert reply_to(client, sent) == b""
            assert 0.2 < SYSTEM_CLOCK.monotonic() - began < 20


def test_who_does_not_read_is_cut_and_its_room_given_back() -> None:
    store = PlainStore()
    for i in range(7_000):
        store.add("wide", {"host": f"{i}-{'x' * 900}"}, [(NOW - 2 * MINUTE, i)])
    with served(store, replace(ApiLimits(), write_s=0.5)) as client:
        assert client.desk is not None
        purse = client.desk.budget
        with socket.create_connection(("127.0.0.1", client.thrift_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            connection.sendall(encode_call(idl().Matrix, "query", ("fetch('wide')", 0), 1))
            assert connection.recv(1)
            assert purse.used > 8_000_000
            assert call(client, "query", "fetch('wide').sum(by=[])", 0).rows  # others are served meanwhile
            eventually(lambda: not purse.used, "who does not read is closed")


def test_a_defect_is_no_secret_told() -> None:
    class Broken(PlainStore):
        def select(self, request: Any) -> Any:
            raise RuntimeError("secret path")

    with served(Broken([])) as client:
        with pytest.raises(idl().Refused) as caught:
            call(client, "query", "fetch('a')", 0)
        assert caught.value.reason == "defect"
        assert "secret" not in caught.value.message
