"""Explanations name the grid, engine, level and its reason, the store's computations, and the data read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from query_dsl import QueryError, offline, parse
from query_dsl.evaluation.evaluator import prepare
from query_dsl.evaluation.explain import explain
from query_dsl.evaluation.query_cost import estimate_cost
from query_dsl.stores.query_limits import make_budget
from tests.query_dsl.test_engines_auto import NOW, Long, Short, auto, counter
from tests.query_dsl.test_pushdown import MINUTE, T, fed_shards


def explained(text: str, store: Any, **options: Any) -> Any:
    return explain(parse(text), store, NOW, **options)


def test_the_plan_is_a_line_a_node() -> None:
    store = fed_shards([counter("a"), counter("b")], 1)
    found = explained(
        "(fetch('a').rate('5m').sum(by=[\"k\"]) / fetch('b').max(without=[])).range('10m')", store, run=False
    )
    assert [(line.depth, line.text) for line in found.lines] == [
        (0, ".range('10m')"),
        (1, "div"),
        (2, ".sum(by=['k'])"),
        (3, ".rate('5m')"),
        (4, "fetch('a')"),
        (2, ".max(without=[])"),
        (3, "fetch('b')"),
    ]
    about = {line.text: line.comment for line in found.lines}
    assert about[".sum(by=['k'])"] == "in the store, by class"
    assert about[".rate('5m')"] == "windows of 5m"
    assert about["fetch('b')"] == "memory, buckets of 1m"
    assert (found.grid.n, found.grid.end_ms) == (10, T)
    assert "finest level that covers the range" in str(found)


def test_without_a_run_nothing_is_asked() -> None:
    memory = Short(fed_shards([counter()], 1))
    found = explained("fetch('c').range('5m')", memory, run=False)
    assert (found.ran, found.origin.fetched, memory.asked) == (False, (), [])


def test_a_run_tells_what_was_read() -> None:
    found = explained("fetch('c').increase('2m').range('8m')", fed_shards([counter(), counter("d")], 1))
    (one,) = found.origin.fetched
    assert (one.selector, one.series, one.reduced) == ("c", 1, False)
    assert one.bytes == one.series * one.grid.n * len(one.statistics) * 8
    assert (found.series, found.points) == (1, 8)
    assert "c: 1 series x" in str(found)


def test_fetches_reduced_in_the_store_are_marked() -> None:
    found = explained("fetch('{k!=\"\"}').sum(by=[]).range('8m')", fed_shards([counter(), counter("d")], 2))
    assert [one.reduced for one in found.origin.fetched] == [True]
    assert "reduced in the store" in str(found)


def test_both_engines_are_named_with_their_times() -> None:
    tale = [counter()]
    found = explained("fetch('c').range('30m')", auto(Short(fed_shards(tale, 1)), Long(tale)))
    assert found.origin.engine == "memory and history"
    assert [part.engine for part in found.origin.fetched[0].parts] == ["history", "memory"]
    assert "no level reaches back to the range; 5m suits its length" in str(found)
    planned = explained("fetch('c').range('30m')", auto(Short(fed_shards(tale, 1)), Long(tale)), run=False)
    assert "engine  memory and history" in str(planned)


def test_json_is_whole() -> None:
    found = explained("fetch('c').range('5m')", fed_shards([counter()], 1))
    data = json.loads(found.to_json())
    assert data == json.loads(json.dumps(found.to_dict()))
    assert data["origin"]["fetched"][0]["series"] == 1
    assert data["grid"] == {"start_ms": T - 5 * MINUTE, "end_ms": T, "step_ms": MINUTE, "n": 5}


def test_raw_samples_are_explained() -> None:
    found = offline({"x": [(1, 1), (5, 2)]}).explain("samples('x').between(0, 10)")
    assert (found.series, found.points) == (1, 2)
    assert found.lines[-1].comment == "raw samples"


def test_errors_are_those_of_the_query() -> None:
    with pytest.raises(QueryError, match="no variable is named 'y'"):
        explained("fetch('y')", fed_shards([counter()], 1))


def test_a_long_sum_is_no_matter() -> None:
    text = " + ".join(["fetch('c')"] * 150)
    found = explained(text, fed_shards([counter()], 1), run=False)
    assert len(found.lines) == 299


def test_raw_samples_say_where_they_came_from() -> None:
    store = offline({"x": [(60_000, 1.0), (120_000, 4.0)]})
    found = store.query("samples('x').map('max', '2m').between(0, 120000)")
    assert found.origin is not None
    assert found.origin.engine == "samples"
    assert [(one.selector, one.samples) for one in found.origin.fetched] == [("x", 2)]


def test_the_cost_counts_series_and_buckets_without_reading_them() -> None:
    memory = Short(fed_shards([counter(), counter("d")], 1))
    evaluator = prepare(
        parse("(fetch('c').rate('5m') / fetch('d')).range('10m')"), memory, NOW, make_budget(None, None)
    )
    found = estimate_cost(evaluator, memory)
    assert (found.series, found.cells, found.engine, memory.asked) == (2, 2 * 15, "memory", [])
    assert str(found).splitlines() == [
        "2 series, 30 buckets of 1m, from memory",
        "  c: 1 series x 15 buckets",
        "  d: 1 series x 15 buckets",
    ]
    assert found.to_dict()["fetches"][0] == {"selector": "c", "series": 1, "buckets": 15}
    assert estimate_cost(prepare(parse("fetch('nothing')"), memory, NOW, make_budget(None, None)), memory).cells == 0


def test_a_cost_with_too_many_series_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("query_dsl.evaluation.query_cost.MAX_COUNTED", 1)
    memory = fed_shards([counter(), counter("d")], 1)
    found = estimate_cost(
        prepare(parse("fetch('{k!=\"\"}').range('10m')"), memory, NOW, make_budget(None, None)), memory
    )
    assert str(found) == "at least 1 series, 10 buckets of 1m, from memory"
