"""Set operators: against plain loops, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import Matrix, QueryError, evaluate, parse
from query_dsl.functions.join import classifier
from query_dsl.results.result_cells import DOUBLE, STRING, SeriesKey
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree import nodes
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.query_dsl.reducing import VALUES, all_near, joined, key, matrices, matrix, table

PROFILE = settings(max_examples=200, deadline=None)
NUMBERS = {kind: strategy for kind, strategy in VALUES.items() if kind is not str}
MATCHES = st.sampled_from([{}, {"on": ("a",)}, {"ignoring": ("a",)}, {"ignoring": ("a", "b", "c")}])


def plain(op: str, left: Matrix, right: Matrix, match: dict[str, Any]) -> dict[SeriesKey, list[Any]]:
    """Series -> values, one value at a time."""
    classify = classifier(match.get("on"), match.get("ignoring"))
    out: dict[SeriesKey, list[Any]] = {}

    def there(side: Matrix, one: SeriesKey, step: int) -> bool:
        return any(
            side.tolist(row)[step] is not None for row, k in enumerate(side.keys) if classify(k) == classify(one)
        )

    for row, one in enumerate(left.keys):
        values = left.tolist(row)
        if op != "set_or":
            values = [v if there(right, one, i) == (op == "set_and") else None for i, v in enumerate(values)]
        out[one] = values
    for row, one in enumerate(right.keys):
        if op == "set_or":
            values = [None if there(left, one, i) else v for i, v in enumerate(right.tolist(row))]
            mine = out.get(one, [None] * left.grid.n)
            out[one] = [b if a is None else a for a, b in zip(mine, values, strict=True)]
    return {one: values for one, values in out.items() if any(v is not None for v in values)}


@PROFILE
@given(matrices(NUMBERS, n=2), matrices(NUMBERS, n=2), MATCHES, st.sampled_from(["set_and", "set_or", "set_unless"]))
def test_sets_are_those_of_a_plain_loop(left: Matrix, right: Matrix, match: dict[str, Any], op: str) -> None:
    if "on" in match and not any(one.get("a") for one in (*left.keys, *right.keys)):
        return
    found, expect = joined(op, left, right, **match), plain(op, left, right, match)
    assert list(found.keys) == sorted(expect)
    for i, one in enumerate(found.keys):
        wanted = [float(v) if v is not None and found.types[i] == DOUBLE else v for v in expect[one]]
        assert all_near(found.tolist(i), wanted, 0)


def one(name: str, *values: Any, kind: type = int, **labels: str) -> Any:
    return (key(name, **labels), kind, list(values))


def test_step_by_step() -> None:
    left = matrix([one("l", 1, 2, None, h="1"), one("l", 4, None, None, h="2")])
    right = matrix([one("r", None, 20, 30, h="1"), one("r", None, None, None, h="2")])
    assert table(joined("set_and", left, right)) == {'l{h="1"}': [None, 2, None]}
    assert table(joined("set_unless", left, right)) == {'l{h="1"}': [1, None, None], 'l{h="2"}': [4, None, None]}
    assert table(joined("set_or", left, right)) == {
        'l{h="1"}': [1, 2, None],
        'l{h="2"}': [4, None, None],
        'r{h="1"}': [None, None, 30],
    }


def test_any_partner_will_do() -> None:
    left = matrix([one("l", 1, 2, 3, h="1", v=v) for v in "ab"])
    right = matrix([one("r", 1, None, None, h="1", i="1"), one("r", None, 1, None, h="1", i="2")])
    assert table(joined("set_and", left, right, on=("h",))) == {
        'l{h="1",v="a"}': [1, 2, None],
        'l{h="1",v="b"}': [1, 2, None],
    }


def test_equal_series_become_one() -> None:
    left, right = matrix([one("x", 1, None, 3)]), matrix([one("x", 9.0, 8.5, 7.0, kind=float)])
    found = joined("set_or", left, right)
    assert (table(found), found.types.tolist()) == ({"x": [1.0, 8.5, 3.0]}, [DOUBLE])
    same = joined("set_or", left, matrix([one("x", None, 2**53 + 1, None)]))
    assert table(same) == {"x": [1, 2**53 + 1, 3]}


def test_texts_of_both_sides() -> None:
    left = matrix([one("v", "a", None, kind=str), one("w", "c", "c", kind=str)])
    right = matrix([one("v", "x", "b", kind=str), one("z", "d", "e", kind=str)])
    found = joined("set_or", left, right, ignoring=())
    assert table(found) == {"v": ["a", None], "w": ["c", "c"]}  # all have no labels: w is always there
    found = joined("set_or", matrix([one("v", "a", None, kind=str)]), right)
    assert table(found) == {"v": ["a", "b"], "z": [None, "e"]}
    assert found.types.tolist() == [STRING, STRING]
    with pytest.raises(QueryError, match="or: v is STRING on one side and a number on the other"):
        joined("set_or", matrix([one("v", None, 1)]), right)


@pytest.mark.parametrize("argument", [{"group_left": ()}, {"group_right": ()}, {"fill": 0}, {"unmatched": "error"}])
def test_no_grouping(argument: dict[str, Any]) -> None:
    side = matrix([one("x", 1)])
    with pytest.raises(QueryError, match=f"and takes on= or ignoring=, and not {next(iter(argument))}="):
        joined("set_and", side, side, **argument)


def test_both_sides_are_series() -> None:
    with pytest.raises(QueryError, match="unless takes series on both sides"):
        joined("set_unless", matrix([one("x", 1)]), nodes.Scalar(1))


def test_labels_that_nobody_has_are_an_error() -> None:
    side = matrix([one("x", 1, host="a")])
    with pytest.raises(QueryError, match=r"'hots' of on=\['hots'\]; near: host"):
        joined("set_and", side, side, on=("hots",))


def test_sets_with_an_empty_side() -> None:
    side, nothing = matrix([one("x", 1)]), matrix([], 1)
    assert table(joined("set_or", nothing, side)) == table(joined("set_or", side, nothing)) == {"x": [1]}
    assert table(joined("set_unless", side, nothing)) == {"x": [1]}
    assert len(joined("set_and", side, nothing)) == len(joined("set_and", nothing, side)) == 0


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("fetch('load').and_(fetch('up'), on=['host'])", {'load{core="1",host="a"}': [1, 2]}),
        ("fetch('load').unless(fetch('up'), on=['host'])", {'load{core="1",host="b"}': [3, 4]}),
        ("fetch('up').or_(fetch('load'), on=['host'])", {'up{host="a"}': [1, 1], 'load{core="1",host="b"}': [3, 4]}),
    ],
)
def test_from_text_to_answer(text: str, expect: dict[str, list[int]]) -> None:
    store = PlainStore(level_table=((10, 100),))
    store.add("load", {"host": "a", "core": "1"}, [(10, 1), (20, 2)]).add("up", {"host": "a"}, [(10, 1), (20, 1)])
    store.add("load", {"host": "b", "core": "1"}, [(10, 3), (20, 4)])
    query = parse(f"{text}.between(0, 20)")
    assert parse(str(query)).equals(query)
    assert table(evaluate(query, store, 20 + SETTLE_MS)) == expect


def test_operators_sort_by_name_again() -> None:
    """An order that `sort` gave does not outlive them, whether they keep names or not. Minus is none of them."""
    store = PlainStore()
    for host, value in (("a", 3), ("b", 1), ("c", 2)):
        store.add("x", {"host": host}, [(MINUTE, value)])
    ranked = "fetch('x').sort()"
    for text in (f"{ranked}.and_(fetch('x'))", f"{ranked}.unless(fetch('x').filter('max', '>', 9))", f"{ranked} + 1"):
        found = evaluate(parse(f"({text}).at({MINUTE})"), store, MINUTE + SETTLE_MS)
        assert [key.get("host") for key in found.keys] == ["a", "b", "c"], text
    negative = evaluate(parse(f"(-{ranked}).at({MINUTE})"), store, MINUTE + SETTLE_MS)
    assert [(name, row) for name, row in negative] == [
        *(('x{host="b"}', [-1.0]), ('x{host="c"}', [-2.0]), ('x{host="a"}', [-3.0]))
    ]
