"""PromQL over memory, over memory and history, in a session and on the command line."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest

from artimon.cli.query_output import QueryOptions, run_query
from artimon.model.clock import ManualClock
from artimon.model.select import SelectError, Store
from artimon.session import Session
from query_dsl import QueryError
from query_dsl.promql import PromqlResult, query_store
from query_dsl.promql.tree import PromqlError
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.engine_store import EngineStore, MemoryStore
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.stores.query_limits import LimitExceeded, Limits, QueryBudget, QueryCancelled, make_budget
from tests.query_dsl.plain_store import MINUTE, PlainStore

T = 1_700_000_040_000 // MINUTE * MINUTE
NOW = T + 20_000
HOUR = 60 * MINUTE


def minutely(values: list[Any], last: int = 0) -> list[tuple[int, Any]]:
    """Samples of the last minutes, each 20 s before the end of its minute; the newest `last` minutes ago."""
    return [(T - 20_000 - (len(values) - 1 - i + last) * MINUTE, value) for i, value in enumerate(values)]


def memory(store: PlainStore) -> EngineStore:
    """The store as memory that has no history and no raw samples."""
    made = MemoryStore(store)
    assert not made.has_history
    return made


def world() -> PlainStore:
    store = PlainStore()
    store.add("http.requests", {"route": "/"}, minutely([10 * i for i in range(50)]))
    store.add("http.requests", {"route": "/a"}, minutely([20 * i for i in range(50)]))
    store.add("heat", {"host": "a"}, minutely([20.5, 21.5, 22.5]))
    store.add("switch", {"host": "a"}, minutely([True, False, True]))
    store.add("colour", {"host": "a"}, minutely(["red", "blue", "red"]))
    store.add("big", {"host": "a"}, minutely([2**53 + 1]))
    store.add("gone", {"host": "a"}, minutely([1, 2, 3], last=2), ended=T - 90_000)
    store.add("silent", {"host": "a"}, minutely([1, 2, 3], last=7))
    return store


def ask(text: str, store: EngineStore | None = None, **options: Any) -> PromqlResult:
    return query_store(text, store or memory(world()), NOW, **options)


def values(found: PromqlResult) -> dict[str, list[float]]:
    return {json.dumps(labels): [value for _, value in points] for labels, points in found.series()}


def test_the_newest_sample_of_each_series() -> None:
    assert values(ask('{"http.requests"}')) == {
        '{"__name__": "http.requests", "route": "/"}': [490],
        '{"__name__": "http.requests", "route": "/a"}': [980],
    }
    assert values(ask("heat")) == {'{"__name__": "heat", "host": "a"}': [22.5]}
    assert values(ask("timestamp(heat)")) == {'{"host": "a"}': [(T - 20_000) / 1000]}


def test_booleans_are_1_and_0_and_texts_are_left_out() -> None:
    assert values(ask("sum_over_time(switch[3m])")) == {'{"host": "a"}': [2]}
    found = ask('{host="a", __name__=~"colour|heat"}')
    assert list(values(found)) == ['{"__name__": "heat", "host": "a"}']
    assert found.infos == ("series of texts are left out: PromQL has only numbers",)


@pytest.mark.parametrize("query", ["big", "big[5m]", "max_over_time(big[1m])", "big or heat"])
def test_integers_that_are_no_floats_are_said_to_be_rounded(query: str) -> None:
    found = ask(query)
    assert found.infos == ("some integers are beyond 2^53 and rounded: PromQL has only floats",)
    exact = PlainStore().add("big", {}, minutely([2**53, -(2**53), 2**60, -(2**63)])).add("small", {}, minutely([1.5]))
    assert ask(query, memory(exact)).infos == ()


def test_a_series_that_ended_is_not_looked_back_for_and_a_silent_one_is_for_five_minutes() -> None:
    assert values(ask("gone")) == {}
    assert values(ask("count_over_time(gone[10m])")) == {'{"host": "a"}': [3]}
    assert values(ask("silent")) == {}
    assert list(values(ask("silent", look_back_ms=10 * MINUTE)).values()) == [[3]]
    assert list(values(ask("gone", end_ms=T - 100_000)).values()) == [[3]]


def test_ranges_have_the_samples_as_polled() -> None:
    found = ask('rate({"http.requests"}[5m])', start_ms=T - 10 * MINUTE, end_ms=T, step_ms=MINUTE)
    assert [round(v, 9) for v in values(found)['{"route": "/"}']] == [round(10 / 60, 9)] * 11
    assert found.warnings == ()
    total = ask('sum(increase({"http.requests"}[10m]))')
    assert total.values[0, 0] == pytest.approx(300)


def test_beyond_memory_an_answer_without_history_is_partial() -> None:
    found = ask('count_over_time({"http.requests", route="/"}[2d])')
    assert values(found) == {'{"route": "/"}': [50]}
    (warning,) = found.warnings
    assert "memory holds raw samples since 2023-11-14T" in warning
    assert "partial" in warning


def test_memory_and_history_are_joined_without_a_seam() -> None:
    samples = [(T - 20_000 - i * MINUTE, 3_000 - i) for i in range(3_000)]
    store = PlainStore().add("c_total", {"i": "0"}, sorted(samples))
    auto = AutoStore(MemoryStore(store), lambda: store, ManualClock(NOW))
    found = query_store("increase(c_total[10m])", auto, NOW, start_ms=T - 4 * HOUR, end_ms=T, step_ms=5 * MINUTE)
    assert values(found) == {'{"i": "0"}': [pytest.approx(10)] * 49}
    assert found.warnings == ()
    assert values(query_store("count_over_time(c_total[1d])", auto, NOW, end_ms=T)) == {'{"i": "0"}': [1440]}


def test_several_samples_a_minute_are_said_to_be_approximate() -> None:
    store = PlainStore().add("x", {}, [(T - 50_000, 1), (T - 20_000, 2)])
    (warning,) = ask("count_over_time(x[5m])", memory(store)).warnings
    assert "several samples in a bucket" in warning


@pytest.mark.parametrize("error", [HistoryError, SelectError, OSError])
def test_a_history_that_does_not_answer_leaves_the_newest_sample_of_each_minute(error: type[Exception]) -> None:
    store = PlainStore().add("x", {}, [(T - 50_000, 1), (T - 20_000, 2)])

    def broken() -> Store:
        raise error("HDFS does not answer")

    auto = AutoStore(MemoryStore(store), broken, ManualClock(NOW))
    found = query_store("count_over_time(x[5m])", auto, NOW, end_ms=T + 1_000)
    assert values(found) == {"{}": [1]}
    assert "HDFS does not answer" in found.warnings[0]
    assert "several samples in a bucket" in found.warnings[1]


def test_a_partial_store_makes_a_warning() -> None:
    store = world()
    store.partial, store.notes = True, ("shard 3 does not answer",)
    assert ask("heat", memory(store)).warnings == ("the answer is partial; shard 3 does not answer",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_ms": T, "end_ms": T - 1, "step_ms": MINUTE}, "end must not be before the start"),
        ({"start_ms": T, "end_ms": T + 1, "step_ms": 0}, "step must be greater than 0"),
        ({"start_ms": 0, "end_ms": T, "step_ms": 1}, "more than 11,000 points"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PromqlError, match=message):
        ask("heat", **options)


def test_limits_and_cancelling_end_a_query() -> None:
    with pytest.raises(LimitExceeded, match="memory_bytes"):
        ask('{"http.requests"}', budget=QueryBudget(Limits(memory_bytes=10)))
    stop = threading.Event()
    stop.set()
    with pytest.raises(QueryCancelled):
        ask("heat", budget=make_budget(None, None, stop))
    with pytest.raises(PromqlError, match="subquery"):
        ask("max_over_time(heat[1y:1ms])")


def test_a_session_answers_with_a_matrix() -> None:
    session = Session(world(), "nowhere", ManualClock(NOW))
    found = session.promql('sum by (route) (rate({"http.requests"}[5m]))', start="now-10m", step="1m")
    assert found.tolist(0) == [pytest.approx(1 / 6)] * 11
    assert [key.labels for key in found.keys] == [(("route", "/"),), (("route", "/a"),)]
    assert len(found.to_pandas())
    assert session.promql("1 + 1").tolist(0) == [2]
    assert "2" in repr(session.promql("1 + 1"))
    with pytest.raises(QueryError, match="string"):
        session.promql('"text"')
    with pytest.raises(QueryError, match="partial_windows"):
        session.promql("1", partial_windows=True)


def test_the_command_line_takes_promql(capsys: pytest.CaptureFixture[str]) -> None:
    session, out = Session(world(), "nowhere", ManualClock(NOW)), io.StringIO()
    options = QueryOptions('sum({"http.requests"})', format="json", promql=True)
    assert run_query(session, options, out) == 0
    assert json.loads(out.getvalue())["series"][0]["values"] == [1470]
    ranged = QueryOptions("heat", format="csv", promql=True, start="now-2m", step="1m")
    assert run_query(session, ranged, out) == 0
    assert out.getvalue().count("heat{") == 3
    assert run_query(session, QueryOptions("sum(", promql=True), out) == 1
    assert "this '(' is not closed" in capsys.readouterr().err
