"""A shard stops working on a query once the client has disconnected or the deadline has passed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest

from artimon.compute.aggregate import AggregateRequest
from artimon.compute.functions import FUNCTIONS
from artimon.compute.reduction import WindowPlan
from artimon.model.batch import BatchId
from artimon.model.grid import Grid
from artimon.model.select import NAME, Matcher, SelectRequest
from bookkeeper.rpc.framed_client import ConnectionLostError
from bookkeeper.rpc.framed_server import FramedClient, FramedServer
from tests.varstore.worlds import TestBatch, announce, print_of, range_of
from tests.waiting import eventually
from varstore.query import pushdown
from varstore.query import selection_parts as parts
from varstore.query.query_deadline import CallerDisconnected, DeadlinePassed, QueryDeadline
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService, idl

NOW = 1_800_000_000_000
MINUTE = 60_000
SERIES = 4_000
ALL = (Matcher(NAME, "prefix", "test."),)
GRID = Grid(NOW + 3 * MINUTE, MINUTE, 3)
PADDING = 15_000
BY_ROWS = WindowPlan("increase", GRID.n + PADDING, left=PADDING, max_gap_ms=MINUTE)
BY_CHUNKS = WindowPlan(next(name for name, function in FUNCTIONS.items() if function.rolling is None), GRID.n)


@pytest.fixture(scope="module")
def shard() -> Shard:
    made = Shard(capacity=2 * SERIES)
    announce(made, range(SERIES))
    rows = [(print_of(i), NOW + 500, NOW, 1.0) for i in range(SERIES)]
    made.feed(range_of([TestBatch(BatchId("a", 1, 0, 0), "s0", NOW + 1_000, rows)], 0, 1))
    return made


@pytest.fixture
def service(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> ShardService:
    """Service that needs far longer than a second for any query."""
    monkeypatch.setattr(parts, "PART", 64)
    monkeypatch.setattr(parts, "LEAST_PART", 64)
    monkeypatch.setattr(pushdown, "CHUNK_CELLS", 1)
    return ShardService(shard)


@pytest.fixture
def port(service: ShardService) -> Iterator[int]:
    server = FramedServer(idl().Shard, service, name="cancelling")
    yield server.start()
    server.stop()


def heavy(windows: WindowPlan) -> bytes:
    request = AggregateRequest(ALL, GRID, windows, "sum", ("part",), deadline_ms=60_000)
    return json.dumps(request.to_json()).encode()


@pytest.mark.parametrize("windows", [BY_ROWS, BY_CHUNKS], ids=["rows", "chunks"])
@pytest.mark.parametrize("way", ["abort", "close"])
def test_work_ends_when_the_client_goes_away(windows: WindowPlan, way: str, service: ShardService, port: int) -> None:
    client = FramedClient(idl().Shard, "127.0.0.1", port, 30.0)
    failed: list[Exception] = []

    def ask() -> None:
        try:
            client.call("aggregate", heavy(windows), timeout=1.0 if way == "close" else 30.0)
        except Exception as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: service.active == 1, "its work")
    if way == "abort":
        client.abort()
    asking.join(60.0)
    assert failed
    assert way == "close" or isinstance(failed[0], ConnectionLostError)
    eventually(lambda: service.query_counts()["cancelled"] == 1, "the end of it", 5.0)
    assert service.active == 0
    before = time.process_time()
    threading.Event().wait(0.3)
    assert time.process_time() - before < 0.15, "something still works"


def test_a_client_that_waits_gets_its_answer(service: ShardService, port: int) -> None:
    with FramedClient(idl().Shard, "127.0.0.1", port, 30.0) as client:
        for windows in (WindowPlan("increase", GRID.n, max_gap_ms=MINUTE), WindowPlan("last", GRID.n)):
            assert client.call("aggregate", heavy(windows))
        assert client.call("select", json.dumps(SelectRequest(ALL, GRID).to_json()).encode())
    assert service.query_counts()["cancelled"] == 0


def test_select_stops_if_the_caller_has_disconnected(shard: Shard) -> None:
    with pytest.raises(CallerDisconnected, match="closed the connection"):
        shard.select(SelectRequest(ALL, GRID), lambda: True)


def test_work_ends_at_the_deadline_of_the_request(service: ShardService, port: int) -> None:
    request = AggregateRequest(ALL, GRID, BY_ROWS, "sum", ("part",), deadline_ms=100)
    with FramedClient(idl().Shard, "127.0.0.1", port, 30.0) as client, pytest.raises(idl().ShardError, match="100 ms"):
        client.call("aggregate", json.dumps(request.to_json()).encode())
    assert service.query_counts()["cancelled"] == 1


def test_a_query_deadline_ends_by_disconnect_or_time() -> None:
    QueryDeadline().check()
    with pytest.raises(CallerDisconnected):
        QueryDeadline(lambda: True).check()
    with pytest.raises(DeadlinePassed):
        QueryDeadline(deadline_ms=-1).check()
