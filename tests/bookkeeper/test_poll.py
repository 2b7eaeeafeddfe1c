"""Polls through a real socket: rows and columns say the same, and the schema travels only when it must."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pytest
import thriftpy2.rpc

from bookkeeper import Bookkeeper
from bookkeeper.rpc.poll_service import idl
from tests.bookkeeper.polling import columns, connect, rows, unpack
from tests.waiting import eventually


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bookkeeper]:
    """A Bookkeeper with a real endpoint and no ZooKeeper behind it."""
    monkeypatch.setenv("ARTIMON_RUN", str(tmp_path))
    book = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    yield book
    book.close()


def port(book: Bookkeeper) -> int:
    """The port of its server, once it listens."""
    book.start()
    endpoint = book.endpoint
    assert endpoint is not None
    return int(eventually(lambda: endpoint.server.port if endpoint.server else None))


def fill(book: Bookkeeper) -> dict[tuple[str, str], object]:
    """Variables of all types, with the values that are hard to carry."""
    book.add_to_integer_var("n", {"ü": "x"}, 1)  # refused
    book.set_integer_var("big", {}, (1 << 53) + 1)
    book.set_integer_var("least", {}, -(1 << 63))
    book.add_to_double_var("d", {"a": 'q"\\\n'}, 0.1)
    book.set_double_var("inf", {}, -math.inf)
    book.set_boolean_var("t", {}, True)
    book.set_boolean_var("f", {}, False)
    book.set_string_var("s", {"a": "1"}, "größe 大")
    book.set_string_var("s", {"a": "2"}, "")
    book.set_string_var("s", {"a": "3"}, "größe 大")
    return {
        ("bookkeeper.refused", '{"reason": "labels"}'): 1,
        ("big", "{}"): (1 << 53) + 1,
        ("least", "{}"): -(1 << 63),
        ("d", json.dumps({"a": 'q"\\\n'})): 0.1,
        ("inf", "{}"): -math.inf,
        ("t", "{}"): True,
        ("f", "{}"): False,
        ("s", '{"a": "1"}'): "größe 大",
        ("s", '{"a": "2"}'): "",
        ("s", '{"a": "3"}'): "größe 大",
    }


def test_rows_and_columns_agree(book: Bookkeeper) -> None:
    """All types, values beyond 2^53, unicode, empty strings."""
    expected = fill(book)
    by_row, by_column = rows(port(book)), columns(port(book))
    assert by_row[1] == by_column[1] == expected
    assert by_row[0].uuid == by_column[0].uuid
    assert len(by_row[0].uuid) == 16
    assert (by_row[0].context, by_row[0].instance, by_row[0].version) == ("test", "0", 1)
    assert 0 < by_row[0].birth_ms <= by_row[0].time_ms <= by_column[0].time_ms


def test_not_a_number_arrives(book: Bookkeeper) -> None:
    """NaN is a value, not an absence."""
    book.set_double_var("d", {}, math.nan)
    assert all(math.isnan(poll(port(book))[1]["d", "{}"]) for poll in (rows, columns))


def test_the_schema_travels_only_when_it_changed(book: Bookkeeper) -> None:
    """Values change: same id, no schema. A variable, kind, type or description changes: another id and a schema."""
    fill(book)
    with connect(port(book)) as calls:
        first = calls.getColumns(b"", None)
        known, schema = first.schema_id, first.schema
        assert len(known) == 16

        def poll() -> bool:
            nonlocal known, schema
            answer = calls.getColumns(known, None)
            changed = answer.schema is not None
            assert changed == (answer.schema_id != known)
            known, schema = answer.schema_id, answer.schema or schema
            assert unpack(answer, schema) == rows(port(book))[1]
            return changed

        assert not poll()
        book.set_integer_var("big", {}, 5)
        book.set_string_var("s", {"a": "2"}, "now with text")
        assert not poll()
        book.add_to_integer_var("new", {}, 1)
        assert poll()
        book.add_to_integer_var("new", {}, -1)
        assert poll()
        book.set_double_var("new", {}, 0.5)
        assert poll()
        book.describe("new", help="what it is", unit="s")
        assert poll()
        assert (schema.help, schema.units) == ({"new": "what it is"}, {"new": "s"})
        book.remove_double_var("new", {})
        assert poll()
        assert not poll()


def test_equal_sets_of_variables_have_equal_ids(book: Bookkeeper) -> None:
    """The order in which a program made them does not matter, so a poller's cache survives a restart."""
    port(book)  # so that it has the number 0
    other = Bookkeeper(context="test", zookeeper="127.0.0.1:1")
    try:
        for one, names in ((book, "abc"), (other, "cab")):
            for name in names:
                one.add_to_integer_var(name, {"x": "y", "a": "b"} if one is book else {"a": "b", "x": "y"}, 1)
        with connect(port(book)) as a, connect(port(other)) as b:
            assert a.getColumns(b"", None).schema_id == b.getColumns(b"", None).schema_id
        with connect(port(other)) as b:
            assert b.getVars().endpoint.instance == "1"  # two live endpoints of one context on a host
    finally:
        other.close()


def test_any_thrift_client_can_poll(book: Bookkeeper) -> None:
    """thriftpy2's own framed client, not ours."""
    fill(book)
    from thriftpy2.transport import TFramedTransportFactory

    with thriftpy2.rpc.client_context(
        idl().Bookkeeper, "127.0.0.1", port(book), trans_factory=TFramedTransportFactory()
    ) as calls:
        assert len(calls.getVars().variables) == 10
        assert calls.getColumns(b"", None).schema.names[0] == "big"


def test_polls_during_writes_are_whole(book: Bookkeeper) -> None:
    """Counters never fall from one poll to the next while threads add and other variables come and go."""
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            book.add_to_integer_var("n", {}, 1)
            book.set_string_var("s", {"i": str(n % 5)}, str(n))
            if n % 3 == 0:
                book.remove_string_var("s", {"i": str(n % 5)})

    book.add_to_integer_var("n", {}, 1)
    threads = [threading.Thread(target=write, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    last = 0
    for i in range(40):
        value = (rows if i % 2 else columns)(port(book))[1]["n", "{}"]
        assert value >= last
        last = value
    stop.set()
    for thread in threads:
        thread.join(60)
    assert last > 1


def test_a_process_with_many_variables_is_polled_quickly(book: Bookkeeper) -> None:
    """1,500 variables, schema known: the aim is 1 ms; the test allows for a loaded machine."""
    for i in range(1500):
        book.add_to_integer_var(f"n{i % 3}", {"i": str(i), "zone": "a"}, i)
    with connect(port(book)) as calls:
        known = calls.getColumns(b"", None).schema_id
        times = []
        for _ in range(30):
            started = perf_counter()
            answer = calls.getColumns(known, None)
            times.append(perf_counter() - started)
    assert answer.schema is None
    assert len(answer.values) == 8 * 1500
    assert min(times) < 0.01
