"""Queries of all kinds, each asked of memory (shards that push down) and of the history (a real table): equal answers
over the same grid: series, types, values, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.session import Session
from query_dsl import Matrix, QueryError
from query_dsl.stores.history.engine import History
from tests.history.test_engine_store import place, shards
from tests.query_dsl.asking import agree
from tests.query_dsl.plain_store import PlainStore
from tests.query_dsl.test_pushdown import MINUTE, NOW, T

__all__ = ["place", "shards"]
pytestmark = pytest.mark.stack
WINDOWS = [
    "last", "first", "min", "max", "sum", "mean", "count", "increase", "delta", "rate", "irate", "changes", "resets",
    "median", "sd", "var", "mad", "zscore", "derivative",
]  # fmt: skip
ALL = "fetch('{rack=~\"r.*\"}')"
QUERIES = [
    *(f"{ALL}.map('{name}', '5m').range('20m')" for name in WINDOWS),
    *(f"{ALL}.bucketize('{name}', '5m').range('30m')" for name in ("mean", "max", "count", "rate", "last")),
    *(
        f"{ALL}.reduce('{name}', by=['rack']).range('20m')"
        for name in ("sum", "mean", "min", "max", "count", "median", "sd", "range", "group", "first", "last")
    ),
    f"{ALL}.map('quantile', '10m', q=0.9).range('20m')",
    f"{ALL}.map('ewma', '10m', alpha=0.3).range('20m')",
    f"{ALL}.map('holt', '10m', alpha=0.3, beta=0.2).range('20m')",
    f"{ALL}.map('predict_linear', '10m', horizon='1h').range('20m')",
    f"{ALL}.reduce('quantile', 0.9, by=['rack']).range('20m')",
    f"{ALL}.reduce('topk', 2, by=['rack']).range('20m')",
    f"{ALL}.reduce('bottomk', 1, rank='mean', by=[]).range('20m')",
    f"{ALL}.reduce('argmax', 'k', by=['rack']).range('20m')",
    f"{ALL}.filter('max', '>', 100).range('20m')",
    f"{ALL}.filter('size', '>=', 5).range('20m')",
    f"{ALL}.filter('top', 3).range('20m')",
    f"{ALL}.fill('previous', max_gap='3m').range('20m')",
    f"{ALL}.fill('linear').range('20m')",
    f"{ALL}.transform('shift', '3m').range('20m')",
    f"{ALL}.integrate().range('20m')",
    f"{ALL}.map('abs').range('20m')",
    f"{ALL}.map('to_string').range('10m')",
    f"{ALL}.offset('10m').range('20m')",
    f"({ALL} > 10).range('20m')",
    "(fetch('v0') - fetch('v0').offset('5m')).range('20m')",
    "apply(div, fetch('v0').sum(by=['rack']), fetch('v2').sum(by=['rack']), on=['rack']).range('20m')",
    "fetch('v0').where(fetch('v0') > 5).range('20m')",
    f"{ALL}.rate('10m').sum(by=['rack']).range('40m')",
    f"{ALL}.unless({ALL}.filter('size', '>', 3)).range('20m')",
    "absent('v8{rack=\"r9\"}').range('20m')",
    f"{ALL}.increase('10m').range('2h')",
    f"{ALL}.map('median', '15m').range('2h')",
    f"{ALL}.map('last', '4m').offset('12m').range('10m')",
    f"{ALL}.increase('5m').between({T - 30 * MINUTE}, {T - 18 * MINUTE})",
    f"{ALL}.last_seen().range('20m')",
    f"{ALL}.stale('3m').offset('10m').range('20m')",
    f"{ALL}.sort('max', descending=True).range('20m')",
]


@pytest.fixture(scope="module")
def session(place: str, shards: Any) -> Iterator[Session]:
    with Session(shards, "here", ManualClock(NOW), open_history=lambda: History(place)) as made:
        yield made


def test_series_are_listed_from_the_chosen_engine(place: str) -> None:
    """Memory is the default; the history knows every past series."""
    memory = PlainStore().add("only.memory", {}, [(NOW - MINUTE, 1)])
    with Session(memory, "here", ManualClock(NOW), open_history=lambda: History(place)) as session:
        assert session.names() == ["only.memory"]
        past = session.names(engine="history")
        assert {"v0", "v1"} <= set(past)
        assert "only.memory" not in past
        assert session.names(engine="auto") == sorted(["only.memory", *past])
        assert len(session.find("v0")) == 0
        assert len(session.find("v0", engine="auto")) == len(session.find("v0", engine="history")) > 1
        assert session.find("v0", 1, engine="auto").more
        with pytest.raises(QueryError, match="use one of auto, memory, history"):
            session.find("v0", engine="spark")


def outcome(session: Session, text: str, engine: str) -> Matrix | str:
    try:
        return session.query(text, engine=engine)
    except QueryError as problem:
        return str(problem)


@pytest.mark.parametrize("text", QUERIES)
def test_memory_and_history_agree(session: Session, text: str) -> None:
    memory, history = outcome(session, text, "memory"), outcome(session, text, "history")
    if isinstance(memory, str) or isinstance(history, str):
        assert memory == history
        return
    assert (memory.series, memory.times, memory.types.tolist()) == (
        history.series, history.times, history.types.tolist()
    )  # fmt: skip
    for i, name in enumerate(memory.series):
        for time, a, b in zip(memory.times, memory.tolist(i), history.tolist(i), strict=True):
            assert agree(a, b), (name, time, a, b)
    assert len(memory), "an empty answer compares nothing"
