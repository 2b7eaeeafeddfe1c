"""Two pollers of one process: who has to give way, and what one leaves for the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bookkeeper import Bookkeeper
from bookkeeper.rpc.framed_server import FramedClient
from bookkeeper.rpc.poll_service import MAX_MEMO, PollTurns, idl
from tests.bookkeeper.polling import connect, unpack
from tests.waiting import eventually

LONG_MS = 3_600_000


def test_a_sure_poller_takes_over_and_gets_the_memo_once() -> None:
    turns = PollTurns()
    assert turns.take("a", 0, b"of a") == ("a", None)
    assert turns.take("a", 0, None) == ("a", None)
    assert turns.take("b", 0, None) == ("b", b"of a")
    assert turns.take("b", 0, None) == ("b", None)
    assert turns.take("a", 0, None) == ("a", b"of a")


def test_a_poller_in_doubt_gives_way_to_a_recent_one() -> None:
    turns = PollTurns()
    assert turns.take("a", LONG_MS, None) == ("a", None), "nobody asked before"
    assert turns.take("b", LONG_MS, b"lost") == ("a", None)
    assert turns.take("a", LONG_MS, None) == ("a", None), "it asked last itself"
    assert turns.take("b", 0, None) == ("b", b"")
    assert turns.take("a", LONG_MS, None) == ("b", None)


def test_whoever_was_silent_for_long_loses_its_turn() -> None:
    turns = PollTurns()
    turns.take("a", 0, None)
    eventually(lambda: turns.take("b", 20, None)[0] == "b")


def test_a_memo_that_is_too_large_is_not_kept() -> None:
    turns = PollTurns()
    turns.take("a", 0, bytes(MAX_MEMO + 1))
    assert turns.take("b", 0, None) == ("b", b"")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FramedClient]:
    """A client of a real endpoint with one variable."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    book.add_to_integer_var("n", {}, 7)
    endpoint: Any = book.endpoint
    with connect(eventually(lambda: endpoint.server and endpoint.server.port)) as client:
        yield client
    book.close()


def poller(name: str, patience_ms: int = 0, memo: bytes | None = None) -> Any:
    return idl().Poller(name, patience_ms, memo)


def test_who_has_to_give_way_gets_no_values(calls: FramedClient) -> None:
    """And its question is no poll: the process has not handed over what it counted last."""
    memo = bytes(range(256)) * (MAX_MEMO // 256)
    first = calls.getColumns(b"", poller("a", memo=memo))
    assert (first.poller, first.memo, unpack(first, first.schema)) == ("a", None, {("n", "{}"): 7})
    refused = calls.getColumns(first.schema_id, poller("b", LONG_MS))
    assert (refused.poller, refused.values, refused.schema) == ("a", b"", None)
    assert refused.endpoint.uuid == first.endpoint.uuid
    taken = calls.getColumns(b"", poller("b"))
    assert (taken.poller, taken.memo, unpack(taken, taken.schema)) == ("b", memo, {("n", "{}"): 7})


def test_whoever_only_looks_takes_no_turn(calls: FramedClient) -> None:
    assert calls.getColumns(b"", None).poller is None
    assert calls.getColumns(b"", poller("a", LONG_MS)).poller == "a"
    assert calls.getColumns(b"", None).schema.names == ["n"]
    assert calls.getColumns(b"", poller("b", LONG_MS)).poller == "a"


def test_the_last_poll_is_one_that_got_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poller that has to give way does not release a process that waits for its last poll."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    book.add_to_integer_var("n", {}, 7)
    endpoint: Any = book.endpoint
    with connect(eventually(lambda: endpoint.server and endpoint.server.port)) as client:
        client.getColumns(b"", poller("a"))
        service = endpoint.service
        eventually(service.polled.is_set)
        service.close_soon()
        assert client.getColumns(b"", poller("b", LONG_MS)).poller == "a"
        assert not service.last_poll.is_set()
        client.getColumns(b"", poller("a"))
        eventually(service.last_poll.is_set)
    book.close()


def test_an_agent_that_confirms_releases_a_process_when_it_has_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer alone is not enough: the agent may die before it is on its disk."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    book.add_to_integer_var("n", {}, 7)
    endpoint: Any = book.endpoint
    question = poller("a")
    question.confirms = True
    with connect(eventually(lambda: endpoint.server and endpoint.server.port)) as client:
        before = client.getColumns(b"", question)
        service = endpoint.service
        service.close_soon()
        last = client.getColumns(b"", question)
        assert last.endpoint.time_ms > before.endpoint.time_ms  # also within one millisecond
        for kept_ms, released in ((before.endpoint.time_ms, False), (last.endpoint.time_ms, True)):
            question.kept_ms = kept_ms
            client.getColumns(b"", question)
            assert service.last_poll.is_set() == service.handed_over.is_set() == released
    book.close()
