"""Deviation from the same hours of the weeks before."""

from __future__ import annotations

import math
from typing import Any

import pytest

from query_dsl import QueryError, parse
from query_dsl.evaluation.offline import offline
from query_dsl.functions import seasonal_deviation as deviation

HOUR = 3_600_000
WEEK = 168 * HOUR
NOW = 10 * WEEK + 12 * HOUR


def asked(text: str, **series: list[float | None]) -> Any:
    """Values of `text` at NOW; each series one value an hour ago-this-week, the week before, and so on."""
    samples = {
        name: [(NOW - week * WEEK - 60_000, v) for week, v in reversed(list(enumerate(row))) if v is not None]
        for name, row in series.items()
    }
    store = offline(samples, step="1h")
    return store.query(f"({text}).at({NOW})", at=NOW + 15_000)


def value(text: str, *row: float | None) -> Any:
    return asked(text, x=list(row)).tolist(0)[0]


def test_against_four_weeks() -> None:
    # the weeks before: mean 13, sum of squares 9 + 1 + 1 + 9
    assert value("fetch('x').deviation()", 20.0, 10.0, 12.0, 14.0, 16.0) == pytest.approx(7 / math.sqrt(20 / 3))


def test_robust() -> None:
    # median 13, distances 3 1 1 3
    assert value("fetch('x').deviation(robust=True)", 20.0, 10.0, 12.0, 14.0, 16.0) == pytest.approx(0.6745 * 7 / 2)


def test_weeks_without_a_value_are_left_out() -> None:
    assert value("fetch('x').deviation()", 5.0, None, 1.0, None, 3.0) == pytest.approx(3 / math.sqrt(2))
    assert value("fetch('x').deviation()", 5.0, None, 1.0, None, None) is None
    assert value("fetch('x').deviation(robust=True)", 5.0, None, None, None, None) is None


def test_weeks_limits_the_compared_weeks() -> None:
    assert value("fetch('x').deviation(weeks=2)", 5.0, 1.0, 3.0, 100.0, 100.0) == pytest.approx(3 / math.sqrt(2))
    assert value("fetch('x').deviation(weeks=1)", 5.0, 1.0) is None


def test_equal_weeks() -> None:
    assert value("fetch('x').deviation()", 0.2, 0.1, 0.1, 0.1, 0.1) == math.inf
    assert math.isnan(value("fetch('x').deviation()", 0.1, 0.1, 0.1, 0.1, 0.1))
    assert math.isnan(value("fetch('x').deviation(robust=True)", 0.1, 0.1, 0.1, 0.1, 0.1))


def test_nan_poisons() -> None:
    for robust in (True, False):
        assert math.isnan(value(f"fetch('x').deviation(robust={robust})", 1.0, math.nan, 2.0, 3.0, 4.0))


def test_the_mean_of_the_window() -> None:
    """All samples of the window count, in each week."""
    rows = [(t - week * WEEK, float(v + week)) for week in (3, 2, 1, 0) for t, v in ((NOW - HOUR, 1), (NOW, 5))]
    store = offline({"x": rows}, step="1h")
    matrix = store.query(f"fetch('x').deviation(window='2h', weeks=3).at({NOW})", at=NOW + 15_000)
    assert matrix.tolist(0) == [-2.0]  # 3 against 4 5 6


def test_of_computed_values() -> None:
    assert value("(fetch('x') * 2).deviation(weeks=2)", 5.0, 1.0, 3.0) == pytest.approx(3 / math.sqrt(2))


def test_series_that_came_later() -> None:
    rows: dict[str, list[float | None]] = {'x{i="a"}': [5.0, 1.0, 3.0], 'x{i="b"}': [7.0]}
    matrix = asked("fetch('x').deviation(weeks=2)", **rows)
    assert matrix.series == ['x{i="a"}', 'x{i="b"}']
    assert matrix.tolist(0) == [pytest.approx(3 / math.sqrt(2))]
    assert matrix.tolist(1) == [None]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("deviation(weeks=0)", "at least 1"),
        ("deviation(weeks=53)", "at most 52"),
        ("deviation(weeks=1.5)", "whole number"),
        ("deviation(robust=1)", "True or False"),
        ("deviation(window=5)", "duration"),
    ],
)
def test_wrong_arguments_are_named(call: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        parse(f"fetch('x').{call}")


def test_deviation_prints_and_parses() -> None:
    query = parse("fetch('x').map('deviation', '2h', 3, robust=True)")
    assert parse(str(query)).equals(query)
    assert str(parse("fetch('x').deviation(window='1h', weeks=4)")) == str(parse("fetch('x').deviation()"))


def test_a_step_that_no_week_holds() -> None:
    store = offline({"x": [(NOW, 1.0)]}, step="5h")
    with pytest.raises(QueryError, match="a week is not a multiple of the step 5h"):
        store.query("fetch('x').deviation(window='5h').range('5h')")


def test_not_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviation, "MAX_CELLS", 3)
    with pytest.raises(QueryError, match="select fewer series"):
        value("fetch('x').deviation()", 5.0, 1.0)
