"""Choice of the engine that answers over HTTP, and the effects of an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic

import pytest

from artimon.api.api_limits import ApiLimits
from artimon.model.select import Buckets, SelectRequest, Store
from query_dsl import offline
from query_dsl.stores.engine_store import ForwardingStore
from tests.api.serving import NOW, Client, served
from tests.query_dsl.plain_store import MINUTE

DAY = 24 * 60 * MINUTE


def past() -> Store:
    """A history of ten days, a sample an hour."""
    return offline({"http.requests{route='/'}": [(NOW - i * 60 * MINUTE, i) for i in range(240)]}, step="1h")


@pytest.fixture(scope="module")
def both() -> Iterator[Client]:
    with served(history=past) as client:
        yield client


def test_memory_answers_where_it_reaches(both: Client) -> None:
    found = both.ask("fetch('http.requests').range('20m')")
    assert (found.status, found.headers["x-artimon-engine"]) == (200, "memory")


def test_history_answers_beyond(both: Client) -> None:
    found = both.ask("fetch('http.requests').map('count').range('9d')")
    assert (found.status, found.headers["x-artimon-engine"]) == (200, "memory and history")
    row = found.json["series"][0]
    assert (row["labels"], len(row["values"]), row["values"][-100]) == ({"route": "/"}, 216, 1)


def test_promql_says_which_engines_answered(both: Client) -> None:
    """The history of this test calls itself "samples"."""
    for span, engine in ((600_000, "memory"), (5 * DAY, "samples and memory")):
        times = {"start": (NOW - span) / 1000, "end": NOW / 1000, "step": 60}
        found = both.get("/api/v1/query_range", query='{"http.requests"}', **times)
        assert (found.status, found.headers["x-artimon-engine"]) == (200, engine)
    assert "x-artimon-engine" not in both.get("/api/v1/query", query="1+1", time=4).headers


def test_engines_by_name(both: Client) -> None:
    text = "fetch('http.requests').map('count').range('9d')"
    assert both.ask(text, engine="history").status == 200
    refused = both.ask(text, engine="magic")
    assert (refused.status, refused.error) == (400, "unknown engine 'magic': use one of auto, memory, history")
    assert both.ask("fetch('http.requests').range('20m')", engine="memory").headers["x-artimon-engine"] == "memory"


def test_partial_windows_are_answered_on_request(client: Client) -> None:
    text = "fetch('http.requests').map('count', '5d').range('2h')"
    assert client.ask(text).json["series"] == [] or client.ask(text).json["series"][0]["values"] == [None] * 2
    for flag in ("1", "true"):
        assert client.ask(text, partial_windows=flag).json["series"][0]["values"][-1] > 0
    wrong = client.ask(text, partial_windows="some")
    assert wrong.status in (400, 422)


def test_without_a_history_it_is_refused(client: Client) -> None:
    refused = client.ask("fetch('http.requests')", engine="history")
    assert refused.status == 400
    assert "has no history" in refused.error
    raw = client.ask("fetch('http.requests', resolution=\"raw\")")
    assert raw.status == 400
    assert "history" in raw.error


def test_raw_samples_are_taken_from_the_history(both: Client) -> None:
    found = both.ask("samples('http.requests').bucketize('count', '1d').range('5d')")
    assert (found.status, found.json["series"][0]["values"]) == (200, [24] * 5)


def test_raw_samples_without_a_grid_are_refused_with_the_way_out(both: Client) -> None:
    refused = both.ask("samples('http.requests').range('5d')")
    assert refused.status == 400
    assert '.bucketize("last", "1m")' in refused.error


def test_explain_tells_in_place_of_the_answer(both: Client) -> None:
    text = "fetch('http.requests').rate('5m').sum(by=[]).range('20m')"
    for found in (both.ask(text, explain=1), both.send("POST", "/api/query", f"q={text}&explain=1".encode(), FORM)):
        assert found.status == 200
        assert found.json["origin"]["engine"] == "memory"
        assert found.json["plan"][0]["text"] == ".range('20m')"
        assert found.json["origin"]["fetched"][0]["series"] == 2


FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_limit_of_samples_read_is_413() -> None:
    store = past()
    with served(history=lambda: store, limits=ApiLimits(samples_read=10)) as client:
        refused = client.ask("samples('http.requests').bucketize('count', '1d').range('5d')")
    assert refused.status == 413
    assert "(samples)" in refused.error


def test_a_history_that_hangs_ends_with_the_time_of_the_query() -> None:
    go = threading.Event()

    class Hangs(ForwardingStore):
        def select(self, request: SelectRequest) -> Buckets:
            go.wait(20)
            return self.store.select(request)

    hangs = Hangs(past())
    with served(history=lambda: hangs, limits=ApiLimits(query_s=0.5)) as client:
        began = monotonic()
        late = client.ask("fetch('http.requests').range('9d')", engine="history")
        assert (late.status, monotonic() - began < 10) == (504, True)
        go.set()
