"""Short conditions of `where`, and the correlation of two series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.regression import correlations
from query_dsl import QueryError, fetch, offline, parse

MINUTE = 60_000
STORE = offline({
    "load": [(i * MINUTE, i) for i in range(1, 6)],
    "name": [(i * MINUTE, "ab"[i % 2]) for i in range(1, 6)],
    "up": [(i * MINUTE, i % 2 == 0) for i in range(1, 6)],
})  # fmt: skip


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("fetch('load').where('> 3')", "fetch('load').where(fetch('load') > 3)"),
        ("fetch('load').where('<=-2.5e3')", "fetch('load').where(fetch('load') <= -2500.0)"),
        ("fetch('name').where('== \"a\"')", "fetch('name').where(fetch('name') == 'a')"),
        ("fetch('up').where('!= True')", "fetch('up').where(fetch('up') != True)"),
        ("fetch('load').where(value > 3)", "fetch('load').where(fetch('load') > 3)"),
        (
            "fetch('load').abs().where((value > 1) & (value < 4))",
            "fetch('load').abs().where((fetch('load').abs() > 1) & (fetch('load').abs() < 4))",
        ),
        (
            "fetch('load').where(fetch('load').abs().where(value > 2) < 9)",
            "fetch('load').where(fetch('load').abs().where(fetch('load').abs() > 2) < 9)",
        ),
        (
            "fetch('load').range('5m').where(value > 3)",
            "fetch('load').range('5m').where(fetch('load').range('5m') > 3)",
        ),
    ],
)
def test_short_conditions_are_those_spelled_out(short: str, long: str) -> None:
    query = parse(short)
    assert query.equals(parse(long))
    assert parse(str(query)).equals(query)
    assert repr(STORE.query(short)) == repr(STORE.query(long))


def test_python_has_them_too() -> None:
    assert fetch("load").where("> 3").equals(fetch("load").where(lambda value: value > 3))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fetch('load').where('3')", "where takes a condition, as in \"> 5\", not '3'"),
        ("fetch('load').where('> > 3')", "where takes a condition"),
        ("fetch('load').where('> " + "9" * 5_000 + "')", "where takes a condition"),
        ("fetch('load').filter('> 3')", 'write .where("> 5") to keep values'),
        ("value > 3", "unknown name 'value'"),
        ("fetch('load').where(value > 3) + value", "unknown name 'value'"),
    ],
)
def test_other_texts_are_refused(text: str, told: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert told in caught.value.message
    assert caught.value.position is not None


CELLS = st.none() | st.integers(-20, 20).map(float)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12), st.data())
def test_correlations_as_numpy(pairs: list[tuple[Any, Any]], data: Any) -> None:
    width = data.draw(st.integers(1, len(pairs)))
    x, y = (np.array([[math.nan if p[side] is None else p[side] for p in pairs]]) for side in (0, 1))
    got, known = correlations(x, y, ~np.isnan(x) & ~np.isnan(y), width)
    for i in range(len(pairs) - width + 1):
        both = [p for p in pairs[i : i + width] if None not in p]
        assert known[0, i] == (len(both) >= 2)
        if len(both) >= 2:
            with np.errstate(all="ignore"):
                expect = np.corrcoef(np.array(both, float).T)[0, 1]
            assert (np.isnan(expect) and np.isnan(got[0, i])) or math.isclose(got[0, i], expect, abs_tol=1e-9)


def test_correlation_of_partners() -> None:
    store = offline({
        'a{host="1"}': [(i * MINUTE, i) for i in range(1, 6)],
        'a{host="2"}': [(i * MINUTE, i) for i in range(1, 6)],
        'b{host="1",rack="x"}': [(i * MINUTE, -2 * i) for i in range(1, 6)],
    })  # fmt: skip
    found = store.query("fetch('a').corr(fetch('b'), '4m', on=['host']).at('now')")
    assert found.latest() == [-1.0]
    assert any('host="2"' in note for note in found.notes)
    rounded = store.query("fetch('a').corr(fetch('b'), '210s', on=['host']).at('now')")
    assert "corr: the window is rounded up to 4m, a multiple of the step" in rounded.notes
    with pytest.raises(QueryError, match="corr would read 1000000 buckets a series: use at most 20000"):
        store.query("fetch('a').corr(fetch('b'), '1000000m', on=['host']).at('now')")
