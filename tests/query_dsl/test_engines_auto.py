"""Memory and history side by side answer like one long memory, for every position of the seam."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.clock import ManualClock
from artimon.model.grid import Grid
from artimon.model.select import Buckets, Matcher, SelectError, SelectRequest, Series, Store
from artimon.model.values import Kind
from query_dsl import Matrix, QueryError, evaluate, parse
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.stores.levels import SETTLE_MS, StoreReach
from query_dsl.stores.partial_buckets import bucketize
from query_dsl.stores.query_limits import LimitExceeded, Limits
from query_dsl.stores.sample_rows import unify_types
from tests.query_dsl.engine_worlds import MINUTE, T, Told, rows_of, table_of, worlds
from tests.query_dsl.past_lists import PastLists
from tests.query_dsl.test_pushdown import fed_shards

NOW = T + SETTLE_MS
LEVELS = ((MINUTE, 10), (5 * MINUTE, 3))
TEXTS = [
    "fetch('{k=~\".*\",k!=\"\"}').range('28m')",
    "fetch('{k!=\"\"}').increase('5m').range('25m')",
    "fetch('{k!=\"\"}').rate('10m').range('20m')",
    "fetch('{k!=\"\"}').map('mean', '10m').sum(by=[]).range('30m')",
    "fetch('{k!=\"\"}').map('count', '5m').range('27m')",
    "fetch('{k!=\"\"}').bucketize('max', '10m').range('30m')",
    "fetch('{k!=\"\"}').map('delta', '5m').between(1799998500000, 1799999100000)",
]


@dataclass
class Long(EngineStore):
    """Store of all samples that answers any grid, with the levels of the short memory."""

    told: list[Told]
    engine: Any = "history"
    asked: list[Grid] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows, source = rows_of(self.told)
        self.rows, self.table = unify_types(rows, source).rows, table_of(self.told)

    def reach(self) -> StoreReach:
        return StoreReach(unbounded=True, engine=self.engine)

    def levels(self) -> tuple[tuple[int, int], ...]:
        return LEVELS

    def select(self, request: SelectRequest) -> Buckets:
        self.asked.append(request.grid)
        held = BucketAccumulator(len(self.table), request.grid, request.statistics)
        start, end = request.grid.start_ms, request.grid.end_ms
        inside = (self.rows.time_ms > start) & (self.rows.time_ms <= end)
        held.add(bucketize(self.rows.select(inside), request.grid))
        return held.buckets(request, self.table)

    def names(self) -> list[str]:
        return sorted({one.name for one in self.table})

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return ["k"]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return list(self.table)[:limit]


@dataclass
class Short:
    """Shards that serve only the range of the short levels."""

    store: Any
    asked: list[Grid] = field(default_factory=list)
    fails: SelectError | None = None

    def select(self, request: SelectRequest) -> Buckets:
        if self.fails is not None:
            raise self.fails
        step, count = next(level for level in LEVELS if level[0] == request.grid.step_ms)
        assert request.grid.start_ms >= T - (count + 17) * step
        self.asked.append(request.grid)
        found: Buckets = self.store.select(request)
        return found

    def levels(self) -> tuple[tuple[int, int], ...]:
        return LEVELS

    def names(self) -> list[str]:
        return list(self.store.names())

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        return list(self.store.label_values(label, limit))

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        return list(self.store.find(matchers, limit))


def outcome(text: str, store: Any) -> Matrix | str:
    try:
        return evaluate(parse(text), store, NOW)
    except QueryError as problem:
        return problem.message


def plain(found: Matrix | str) -> Any:
    """The answer without notes and without the sign of zero."""
    if isinstance(found, str):
        return found
    rows = [
        [0.0 if value == 0 and isinstance(value, float) else value for value in found.tolist(i)]
        for i in range(len(found))
    ]
    return found.series, found.grid, found.types.tolist(), repr(rows)


@settings(max_examples=30, deadline=None)
@given(told=worlds(), text=st.sampled_from(TEXTS))
def test_the_seam_is_not_to_be_seen(told: list[Told], text: str) -> None:
    memory, past = Short(fed_shards(told, 2)), Long(told)
    found = outcome(text, AutoStore(memory, lambda: past, ManualClock(NOW)))
    assert plain(found) == plain(outcome(text, Long(told)))


def auto(memory: Any, past: Any, now: int = NOW) -> AutoStore:
    return AutoStore(memory, lambda: past, ManualClock(now))


def counter(name: str = "c", start: int = T - 40 * MINUTE, until: int = T, step: int = MINUTE, first: int = 0) -> Told:
    """Counter that grows by its own number every step."""
    times = range(start, until + 1, step)
    samples = tuple((time, start, first + i) for i, time in enumerate(times))
    return Told(name, (("k", name),), Kind.COUNTER, samples, "s0", 0)


def test_history_is_not_opened_where_memory_reaches() -> None:
    def never() -> Store:
        raise AssertionError("opened")

    memory = Short(fed_shards([counter()], 1))
    found = evaluate(parse("fetch('c').increase('2m').range('8m')"), AutoStore(memory, never, ManualClock(NOW)), NOW)
    assert found.tolist(0) == [2] * 8
    assert found.origin is not None
    assert (found.origin.engine, found.origin.step_ms) == ("memory", MINUTE)
    assert found.notes == ()


def test_notes_and_origin_say_which_part_came_from_where() -> None:
    told = [counter()]
    found = evaluate(parse("fetch('c').range('30m')"), auto(Short(fed_shards(told, 1)), Long(told)), NOW)
    assert found.origin is not None
    assert found.origin.engine == "memory and history"
    parts = [(part.engine, part.start_ms, part.end_ms) for part in found.origin.fetched[0].parts]
    assert parts == [("history", T - 30 * MINUTE, T - 15 * MINUTE), ("memory", T - 15 * MINUTE, T)]
    assert "no level reaches back" in found.origin.why


def test_a_series_may_stand_on_one_side_only() -> None:
    gone, new = counter("c.gone", until=T - 25 * MINUTE), counter("c.new", start=T - 10 * MINUTE)
    memory, past = (
        Short(fed_shards([new], 1)),
        Long([gone, counter("c.new", start=T - 10 * MINUTE, until=T - 99 * MINUTE)]),
    )
    found = evaluate(parse("fetch('c.*').map('count', '5m').range('40m')"), auto(memory, past), NOW)
    assert found.names == ["c.gone", "c.new"]
    assert found.tolist(0) == [5, 5, 5, 0, 0, 0, 0, 0]
    assert found.tolist(1) == [0, 0, 0, 0, 0, 1, 5, 5]


def test_integer_that_is_double_in_memory_is_double() -> None:
    old, new = counter(), counter(start=T - 14 * MINUTE)
    turned = replace(new, samples=tuple((t, b, v + 0.5) for t, b, v in new.samples))  # type: ignore[operator]
    found = evaluate(
        parse("fetch('c').map('sum', '5m').range('30m')"), auto(Short(fed_shards([turned], 1)), Long([old])), NOW
    )
    assert found.tolist(0)[:2] == [65.0, 90.0]
    assert found.tolist(0)[-1] == sum(v + 0.5 for v in range(10, 15))


def test_text_in_history_and_number_in_memory_shows_memory_and_says_so() -> None:
    old = replace(counter(), samples=((T - 29 * MINUTE, 0, "text"),))
    found = evaluate(parse("fetch('c').range('30m')"), auto(Short(fed_shards([counter()], 1)), Long([old])), NOW)
    assert found.tolist(0)[:3] == [None] * 3
    assert found.tolist(0)[-1] == 40
    assert any("another type in the history" in note for note in found.notes)


def test_history_answers_last_seen_of_series_forgotten_by_memory() -> None:
    """Only if no series in memory matches: long-gone series are not stale for ever beside present ones."""
    gone, here = counter("c.gone", until=T - 25 * MINUTE), counter("c.here")
    store = auto(Short(fed_shards([here], 1)), PastLists([gone, here], LEVELS))
    seen = evaluate(parse("fetch('c.gone').last_seen().range('3m')"), store, NOW)
    assert (seen.series, seen.tolist(0)) == (['c.gone{k="c.gone"}'], [T - 25 * MINUTE] * 3)
    assert seen.origin is not None
    assert seen.origin.engine == "memory and history"
    assert evaluate(parse("fetch('c.gone').stale('5m').range('2m')"), store, NOW).tolist(0) == [True, True]
    assert evaluate(parse("fetch('c.gone').stale('27m').range('2m')"), store, NOW).tolist(0) == [False, False]
    assert evaluate(parse("fetch('c.*').last_seen().at('now')"), store, NOW).names == ["c.here"]
    with pytest.raises(QueryError, match=r"no variable is named 'c\.never'"):
        evaluate(parse("fetch('c.never').last_seen()"), store, NOW)
    with pytest.raises(QueryError, match="only the history knows"):
        evaluate(parse("fetch('c.gone').range('3m')"), store, NOW)


class Broken(Long):
    """A history that cannot be read."""

    def select(self, request: SelectRequest) -> Buckets:
        raise HistoryError("HDFS is gone")


def test_without_history_memory_answers_what_it_holds_and_says_so() -> None:
    found = evaluate(parse("fetch('c').range('30m')"), auto(Short(fed_shards([counter()], 1)), Broken([])), NOW)
    assert found.partial
    assert found.tolist(0) == [None, None, None, 30, 35, 40]
    assert any("HDFS is gone" in note and "data up to" in note for note in found.notes)


def test_history_that_cannot_be_read_is_an_error_where_all_lies_in_it() -> None:
    text = f"fetch('c').between({T - 40 * MINUTE}, {T - 30 * MINUTE})"
    with pytest.raises(HistoryError, match="HDFS is gone"):
        evaluate(parse(text), auto(Short(fed_shards([counter()], 1)), Broken([])), NOW)


def test_history_answers_alone_where_no_shard_does() -> None:
    class Down(SelectError):
        of_query = False

    memory = Short(fed_shards([counter()], 1), fails=Down("no shard answers"))
    found = evaluate(parse("fetch('c').range('30m')"), auto(memory, Long([counter()])), NOW)
    assert found.partial
    assert found.tolist(0) == [15, 20, 25, 30, 35, 40]
    assert any("no shard answers" in note for note in found.notes)


def test_a_long_range_gets_a_wide_step_joined_from_what_memory_holds() -> None:
    start = T - 5_100 * MINUTE
    memory, past = Short(fed_shards([counter(start=T - 20 * MINUTE, first=5_080)], 1)), Long([counter(start=start)])
    found = evaluate(parse("fetch('c').map('count').range('5050m')"), auto(memory, past), NOW)
    assert found.grid.step_ms == 30 * MINUTE
    assert found.tolist(0)[-1] == 30
    assert {grid.step_ms for grid in past.asked} == {30 * MINUTE}


def test_as_of_an_earlier_time_memory_is_asked_only_for_what_it_still_holds() -> None:
    told = [counter(start=T - 90 * MINUTE)]
    memory, past = Short(fed_shards(told, 1)), Long(told)
    found = evaluate(parse("fetch('c').range('5m')"), auto(memory, past), NOW - 60 * MINUTE)
    assert found.tolist(0) == [26, 27, 28, 29, 30]
    assert memory.asked == []


def test_raw_resolution_reads_the_history_only() -> None:
    memory, past = Short(fed_shards([counter()], 1)), Long([counter()])
    found = evaluate(parse("fetch('c', resolution=\"raw\").range('5m')"), auto(memory, past), NOW)
    assert found.tolist(0) == [36, 37, 38, 39, 40]
    assert (len(memory.asked), len(past.asked)) == (0, 1)
    with pytest.raises(QueryError, match="needs the history"):
        evaluate(parse("fetch('c', resolution=\"raw\").range('5m')"), memory, NOW)


def test_too_many_series_of_both_sides_together_are_refused() -> None:
    memory, past = Short(fed_shards([counter("c.a")], 1)), Long([counter("c.b")])
    with pytest.raises(LimitExceeded, match="2 series fit, at most 1"):
        evaluate(parse("fetch('c.*').range('30m')"), auto(memory, past), NOW, limits=Limits(series=1))
