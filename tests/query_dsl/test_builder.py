"""Expressions in Python: immutable, without a truth value, and usable with Python's built-in functions."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from query_dsl import QueryError, apply, fetch, parse


def test_operators_build_what_text_says() -> None:
    a, b = fetch("a"), fetch("b")
    pairs = [
        (1 + a - b * 2 / b, "1 + fetch('a') - fetch('b') * 2 / fetch('b')"),
        ((a > 1) & ~(b <= 2) | (a == 1), "(fetch('a') > 1) & ~(fetch('b') <= 2) | (fetch('a') == 1)"),
        (2 - -a, "2 - -fetch('a')"),
        ((a - (b - a)), "fetch('a') - (fetch('b') - fetch('a'))"),
        (apply(operator.sub, a, b, on=["h"]), "apply('sub', fetch('a'), fetch('b'), on=['h'])"),
        (apply(operator.truediv, a, 8), "fetch('a') / 8"),
        (a.map(max, "5m"), "fetch('a').map('max', '5m')"),
        (a.map(np.mean, "5m"), "fetch('a').map('mean', '5m')"),
        (a.reduce(sum, by=[]), "fetch('a').sum(by=[])"),
        (a + np.float64(1.5), "fetch('a') + 1.5"),
        (np.int64(3) * a, "3 * fetch('a')"),
        (a.range(timedelta(minutes=5)), "fetch('a').range('5m')"),  # type: ignore[arg-type]
        (a.at(datetime(2026, 11, 21, 13, tzinfo=UTC)), "fetch('a').at('2026-11-21T13:00:00Z')"),
    ]
    for built, text in pairs:
        assert str(built) == text
        assert parse(text).equals(built)


def test_an_expression_has_no_truth_value_and_no_elements() -> None:
    query = fetch("a") > 1
    with pytest.raises(QueryError, match="neither true nor false"):
        bool(query)
    with pytest.raises(QueryError, match="no elements"):
        list(query)
    with pytest.raises(QueryError, match="neither true nor false"):
        assert 0 < fetch("a") < 1


def test_methods_leave_the_expression_as_it_was() -> None:
    query = fetch("a")
    query.rate("5m").sum(by=["h"])
    assert str(query) == "fetch('a')"
    with pytest.raises(AttributeError):
        query.node.selector = None  # type: ignore[attr-defined]


def test_wrong_arguments_are_refused_with_a_reason() -> None:
    with pytest.raises(QueryError, match="takes a query, a number or a text"):
        apply("add", fetch("a"), [1])
    with pytest.raises(QueryError, match="clamp needs high"):
        fetch("a").map("clamp", 1)
    with pytest.raises(QueryError, match="takes no max_gap"):
        fetch("a").map("mean", "5m", max_gap="5m")
