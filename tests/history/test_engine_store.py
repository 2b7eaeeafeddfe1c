"""The history as a store on a real table: the buckets and answers of shards that were fed the same samples."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from pyspark.sql import SparkSession

from artimon.model.clock import ManualClock
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.grid import Grid
from artimon.model.select import NAME, Matcher, SelectError, SelectRequest
from artimon.session import Session
from query_dsl import NothingSelected, QueryError, evaluate, parse
from query_dsl.evaluation.evaluator import answer
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.sample_query import HistoryError, HistoryInterrupted
from query_dsl.stores.history_store import HistoryStore
from query_dsl.stores.query_limits import LimitExceeded, Limits, QueryCancelled
from query_dsl.tree.times import format_time
from tests.history.engine_world import file_of, put, some_series, text_of
from tests.history.world import HistoryWorld
from tests.query_dsl.engine_worlds import made_of, request_of
from tests.query_dsl.test_engines_auto import plain
from tests.query_dsl.test_pushdown import HOUR, MINUTE, NOW, T, Told, fed_shards
from tests.waiting import eventually

pytestmark = pytest.mark.stack
TOLD = some_series(7)
GRIDS = [Grid(T, MINUTE, 60), Grid(T - 5 * MINUTE, 5 * MINUTE, 12), Grid(T, 15 * MINUTE, 4)]
QUERIES = [
    "fetch('v0').range('20m')",
    "fetch('v1').increase('5m').range('40m')",
    "fetch('v0').rate('10m').sum(by=[\"rack\"]).range('30m')",
    "fetch('v5').map('delta', '3m').range('30m')",
    "fetch('{rack=\"r1\"}').map('count', '2m').range('30m')",
    "fetch('v6').map('max', '10m').range('30m')",
    "fetch('v2').mean(by=[]).range('30m')",
    "fetch('v3').range('30m') == \"a\"",
    "fetch('v4').bucketize('mean', '15m').range('45m')",
    "fetch('v9').increase('5m').offset('10m').range('20m')",
    "absent('v8{rack=\"r0\"}').range('20m')",
]


@pytest.fixture(scope="module")
def place(hdfs: str) -> str:
    made = HistoryWorld(f"{hdfs}/e{uuid.uuid4().hex[:10]}")
    put(made, TOLD)
    mine = signed(fingerprint('v0{k="0",rack="r0"}'))
    ids = made.sources.assign(["s0"])
    made.builder.append_tables([(T, "default", file_of([(ids["s0"], mine, T - 30_000, 0, 7)], future=True))])
    return made.hdfs


@pytest.fixture(scope="module")
def shards() -> Any:
    return fed_shards(TOLD, 2)


@pytest.fixture
def history_store(place: str) -> Iterator[HistoryStore]:
    with History(place) as history:
        yield HistoryStore(history, engine="local")


def upto_now(found: dict[int, Any]) -> dict[int, Any]:
    """The buckets without ends after the grid."""
    assert any(0 < made["ended"] <= T for made in found.values())
    return {print_: {**made, "ended": made["ended"] if made["ended"] <= T else 0} for print_, made in found.items()}


@pytest.mark.parametrize("grid", GRIDS)
def test_buckets_are_those_of_shards(history_store: HistoryStore, shards: Any, grid: Grid) -> None:
    request = request_of(["v.*"], grid)
    found, expected = made_of(history_store.select(request), lives=False), made_of(shards.select(request), lives=False)
    for made in (*found.values(), *expected.values()):
        made.pop("newest")  # what lies behind the grid is no matter of the history
    assert found == expected
    assert len(found) == 40


def test_lives_and_ends_are_those_of_shards(history_store: HistoryStore, shards: Any) -> None:
    request = request_of(["v.*"], GRIDS[0])
    assert upto_now(made_of(history_store.select(request))) == upto_now(made_of(shards.select(request)))


@pytest.mark.parametrize("text", QUERIES)
def test_answers_are_those_of_memory(history_store: HistoryStore, shards: Any, text: str) -> None:
    found = evaluate(parse(text), history_store, NOW)
    assert plain(found) == plain(evaluate(parse(text), shards, NOW))
    assert found.origin is not None
    assert found.origin.engine == "history"
    assert any(note.startswith("history: ") and "engine local" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.parametrize("text", QUERIES[:5])
def test_spark_answers_the_same(place: str, session: SparkSession, shards: Any, text: str) -> None:
    with History(place, spark=session) as history:
        found = evaluate(parse(text), HistoryStore(history, engine="spark"), NOW)
    assert plain(found) == plain(evaluate(parse(text), shards, NOW))
    assert any("engine spark" in note for note in found.notes)


class Running(threading.Event):
    """Event that is set as soon as Spark runs a task of the session."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__()
        self._tracker = session.sparkContext.statusTracker()

    def is_set(self) -> bool:
        stages = (self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds())
        if any(stage is not None and stage.numActiveTasks > 0 for stage in stages):
            self.set()
        return super().is_set()


def idle(session: SparkSession) -> bool:
    return not session.sparkContext.statusTracker().getActiveJobsIds()


def test_a_query_that_is_called_off_ends_its_jobs_in_spark(place: str, session: SparkSession) -> None:
    """A task that would never end: the query ends at once, its jobs soon, and the session answers the next one."""

    def hangs(batches: Iterator[Any]) -> Iterator[Any]:
        threading.Event().wait(120)
        yield from batches

    began = monotonic()
    with History(place, spark=session) as history:
        with pytest.raises(HistoryInterrupted):
            list(history.in_tasks(hangs, [b"one", b"two"], Running(session)))
        eventually(lambda: idle(session), "idle Spark")
        assert monotonic() - began < 100, "the task was waited for"
        history_store, stop = HistoryStore(history, engine="spark"), Running(session)
        with pytest.raises(QueryCancelled):
            evaluate(parse("fetch('{rack!=\"\"}').range('50m')"), history_store, NOW, stop=stop)
        eventually(lambda: idle(session), "idle Spark")
        assert len(evaluate(parse("fetch('v3').range('50m')"), history_store, NOW)) == 4


@pytest.mark.slow
def test_spark_cuts_as_shards_do(place: str, session: SparkSession, shards: Any) -> None:
    request = request_of(["v.*"], GRIDS[0])
    with History(place, spark=session) as history:
        found = HistoryStore(history, engine="spark").select(request)
    assert upto_now(made_of(found)) == upto_now(made_of(shards.select(request)))


def test_samples_are_those_that_were_sent(history_store: HistoryStore) -> None:
    found: Any = answer(parse(f"samples('v3').between({T - 40 * MINUTE}, {T})"), history_store, NOW)
    told = [one for one in TOLD if one.name == "v3"]
    assert found.series == sorted({f'v3{{k="{one.labels[0][1]}",rack="{one.labels[1][1]}"}}' for one in told})
    assert sum(found.counts) == sum(t > T - 40 * MINUTE and v is not None for one in told for t, _, v in one.samples)


def test_finding(history_store: HistoryStore) -> None:
    assert history_store.names() == [f"v{i}" for i in range(10)]
    assert history_store.label_values(None) == ["k", "rack"]
    assert history_store.label_values("rack") == ["r0", "r1", "r2", "r3"]
    assert [one.labels["k"] for one in history_store.find((Matcher(NAME, "=", "v3"),))] == ["13", "23", "3", "33"]
    assert len(history_store.find((), 5)) == 5
    with pytest.raises(NothingSelected, match="near: v1"):
        evaluate(parse("fetch('v11')"), history_store, NOW)


def newest_of(name: str, until: int) -> dict[int, int]:
    """Newest samples by fingerprint, from the test's own list."""
    found: dict[int, int] = {}
    for one in TOLD:
        times = [time for time, _, value in one.samples if one.name == name and value is not None and time <= until]
        if times:
            print_ = fingerprint(text_of(one))
            found[print_] = max(found.get(print_, 0), *times)
    return found


@pytest.mark.parametrize("until", [T, T - 20 * MINUTE, T - 2 * HOUR])
def test_newest_sample_of_each_series(history_store: HistoryStore, until: int) -> None:
    wanted = newest_of("v0", until)
    matchers = (Matcher(NAME, "=", "v0"),)
    assert history_store.newest(matchers, until) == wanted
    assert history_store.newest(matchers, until, list(wanted)[:1] or [5]) == dict(list(wanted.items())[:1])


def test_the_newest_sample_of_an_empty_range_is_noted(history_store: HistoryStore) -> None:
    newest = max(newest_of("v3", T).values())
    found = evaluate(parse("fetch('v3').range('10m')"), history_store, NOW + HOUR)
    assert any(f"the newest sample of all is of {format_time(newest)}" in note for note in found.notes), found.notes
    seen = evaluate(parse("fetch('v3').last_seen().at('now')"), history_store, NOW + 5 * HOUR)
    assert {values[-1] for _, values in seen} == set(newest_of("v3", T).values())


def test_too_many_series_are_refused(history_store: HistoryStore) -> None:
    with pytest.raises(SelectError, match="4 series fit, at most 3"):
        history_store.select(SelectRequest((Matcher(NAME, "=", "v3"),), GRIDS[0], ("last",), 3))


def test_limit_of_samples(history_store: HistoryStore) -> None:
    with pytest.raises(LimitExceeded, match=r"limit is 10 \(samples\)"):
        evaluate(parse("fetch('v3').range('40m')"), history_store, NOW, limits=Limits(samples=10))


def test_a_query_that_is_called_off_ends(history_store: HistoryStore) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(QueryCancelled):
        evaluate(parse("fetch('v3')"), history_store, NOW, stop=stop)


def test_a_check_that_raises_while_files_are_read_ends_the_reading(history_store: HistoryStore) -> None:
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) > 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(parse("fetch('{rack!=\"\"}').range('50m')"), history_store, NOW, check)


def test_no_history_yet_is_said(hdfs: str) -> None:
    with History(f"{hdfs}/none{uuid.uuid4().hex[:6]}") as history, pytest.raises(HistoryError, match="no history at"):
        evaluate(parse("fetch('v3')"), HistoryStore(history), NOW)


def test_the_end_of_appended_data_is_noted(history_store: HistoryStore) -> None:
    found = evaluate(parse("fetch('v3').range('5m')"), history_store, NOW + 10 * MINUTE)
    assert any("appended until" in note for note in found.notes)


def test_a_session_asks_whichever_engine(place: str, shards: Any) -> None:
    text = "fetch('v1').map('count').range('4d')"
    with Session(shards, "here", ManualClock(NOW), open_history=lambda: History(place)) as session:
        both, past = session.query(text), session.query(text, engine="history")
        assert both.origin is not None
        assert (both.origin.engine, both.grid.step_ms) == ("memory and history", 60 * MINUTE)
        assert plain(both) == plain(past)
        assert sum(both.tolist(0)[-2:]) > 0  # type: ignore[arg-type]
        near = session.query("fetch('v1').range('20m')")
        assert near.origin is not None
        assert near.origin.engine == "memory"
        told = session.fetch("v1").range("4d").explain(run=False)
        assert told.origin.engine == "memory and history"
        with pytest.raises(QueryError, match="use one of auto, memory, history"):
            session.query(text, engine="magic")


def test_told_is_told() -> None:
    assert {type(value) for one in TOLD for _, _, value in one.samples} == {int, float, bool, str, type(None)}
    assert len({one.source for one in TOLD if isinstance(one, Told)}) == 2
