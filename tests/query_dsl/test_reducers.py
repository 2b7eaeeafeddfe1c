"""Reducers by hand: types, edges, notes and errors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from query_dsl import QueryError, evaluate, parse
from query_dsl.results.result_cells import BOOLEAN, DOUBLE, INTEGER, STRING
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore
from tests.query_dsl.reducing import context, key, matrix, reduce_, table

BIG = 2**53
NAN, INF = math.nan, math.inf


def members(*values: Any) -> Any:
    """A matrix of one bucket, a series for each value, called x{i="0"}, x{i="1"}, …"""
    return matrix([(key("x", i=str(i)), type(v) if v is not None else float, [v]) for i, v in enumerate(values)])


def test_integers_beyond_2_to_the_53_stay_exact() -> None:
    found = members(BIG + 1, BIG + 3, BIG)
    assert reduce_(found, "first").tolist(0) == [BIG + 1]
    assert reduce_(found, "last").tolist(0) == [BIG]
    assert reduce_(found, "range").tolist(0) == [3]
    assert table(reduce_(found, "topk", k=1)) == {'x{i="1"}': [BIG + 3]}
    assert reduce_(found, "argmax", label="i").tolist(0) == ["1"]
    assert reduce_(found, "argmin", label="i").tolist(0) == ["2"]
    assert table(reduce_(found, "count_values", label="v"))[f'{{v="{BIG + 3}"}}'] == [1]


def test_integers_and_doubles_are_ranked_exactly() -> None:
    """2^53 + 1 is more than the double 2^53, which is the nearest one to it."""
    found = members(float(BIG), BIG + 1, BIG)
    assert reduce_(found, "argmax", label="i").tolist(0) == ["1"]
    assert reduce_(found, "argmin", label="i").tolist(0) == ["0"]
    found = members(2.0**63, 2**63 - 1, -(2**63), -(2.0**63))
    assert table(reduce_(found, "topk", k=1)) == {'x{i="0"}': [2.0**63]}
    assert table(reduce_(found, "bottomk", k=2)) == {'x{i="2"}': [-(2**63)], 'x{i="3"}': [-(2.0**63)]}


def test_a_range_that_int64_cannot_hold_is_missing() -> None:
    assert reduce_(members(-(2**63), 2**63 - 1), "range").tolist(0) == [None]
    assert reduce_(members(0, 2**63 - 1), "range").tolist(0) == [2**63 - 1]


@pytest.mark.parametrize(
    ("values", "kind", "first", "span"),
    [
        ((1, 2), INTEGER, 1, INTEGER),
        ((True, False), BOOLEAN, True, DOUBLE),
        ((True, 2), DOUBLE, 1.0, DOUBLE),
        ((1, 2.5), DOUBLE, 1.0, DOUBLE),
    ],
)
def test_types_are_those_of_the_members(values: tuple[Any, ...], kind: int, first: Any, span: int) -> None:
    found = reduce_(members(*values), "first")
    assert (found.types.tolist(), found.tolist(0)) == ([kind], [first])
    assert reduce_(members(*values), "range").types.tolist() == [span]


def test_a_member_without_values_counts_for_the_type() -> None:
    """The type does not depend on the values present."""
    rows = [(key("x", i="0"), int, [7]), (key("x", i="1"), float, [None])]
    assert reduce_(matrix(rows), "first").tolist(0) == [7.0]


def test_text_is_first_and_last_and_counted() -> None:
    found = members("v1", "v2", "v1")
    assert reduce_(found, "first").tolist(0) == ["v1"]
    assert reduce_(found, "first").types.tolist() == [STRING]
    assert reduce_(found, "group").tolist(0) == [1]
    assert table(reduce_(found, "count_values", label="version")) == {'{version="v1"}': [2], '{version="v2"}': [1]}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("median", {}), ("sd", {"ddof": 1}), ("range", {}), ("argmax", {"label": "i"}), ("topk", {"k": 1}),
        ("mad", {}), ("histogram_quantile", {"q": 0.5, "le": "i"}),
    ],
)  # fmt: skip
def test_text_is_left_out_and_said_so(name: str, args: dict[str, Any]) -> None:
    asked = context()
    reduce_(members(1.0, "a", 2.0), name, asked=asked, **args)
    assert f"{name}: 1 STRING series left out" in asked.notes
    with pytest.raises(QueryError, match=f"{name} cannot take STRING series, and there are no others: x"):
        reduce_(members("a", "b"), name, **args)


def test_text_beside_numbers_in_a_class_is_left_out() -> None:
    """Only there: a class of nothing but text keeps it."""
    rows = [(key("x", c="1", i="0"), str, ["a"]), (key("x", c="1", i="1"), int, [1]), (key("x", c="2"), str, ["b"])]
    asked = context()
    assert table(reduce_(matrix(rows), "first", ("c",), asked=asked)) == {'{c="1"}': [1], '{c="2"}': ["b"]}
    assert asked.notes == ["first: 1 STRING series left out, in classes that have numbers too"]


@pytest.mark.parametrize(
    ("name", "expect"), [("median", NAN), ("quantile", NAN), ("sd", NAN), ("mad", NAN), ("range", NAN), ("first", NAN)]
)
def test_nan_is_a_value(name: str, expect: float) -> None:
    args: dict[str, Any] = {"q": 0.5} if name == "quantile" else {}
    assert repr(reduce_(members(NAN, 1.0, 2.0), name, **args).tolist(0)) == repr([expect])


def test_nan_ranks_below_every_number_and_above_nothing() -> None:
    found = members(NAN, 1.0, None, NAN, -INF)
    assert list(table(reduce_(found, "topk", k=2))) == ['x{i="1"}', 'x{i="4"}']
    assert list(table(reduce_(found, "bottomk", k=3))) == ['x{i="0"}', 'x{i="1"}', 'x{i="4"}']
    assert list(table(reduce_(found, "topk", k=9))) == ['x{i="0"}', 'x{i="1"}', 'x{i="3"}', 'x{i="4"}']
    assert reduce_(members(NAN, None, NAN), "argmin", label="i").tolist(0) == ["0"]
    assert reduce_(members(NAN, 3.0), "argmin", label="i").tolist(0) == ["1"]


def test_zeros_of_both_signs_are_equal() -> None:
    assert reduce_(members(-0.0, 0.0), "argmax", label="i").tolist(0) == ["0"]
    assert table(reduce_(members(-0.0, 0.0), "count_values", label="v")) == {'{v="0.0"}': [2]}


def test_infinities_make_no_nan_of_their_own() -> None:
    assert reduce_(members(INF, INF), "median").tolist(0) == [INF]
    assert reduce_(members(1.0, INF), "quantile", q=0.0).tolist(0) == [1.0]
    assert reduce_(members(1.0, 2.0, INF), "mad").tolist(0) == [1.0]


def test_the_k_best_of_each_step() -> None:
    rows = [
        (key("x", i="0"), int, [1, 5, None]),
        (key("x", i="1"), int, [2, 4, None]),
        (key("x", i="2"), int, [0, 0, None]),
    ]
    found = reduce_(matrix(rows), "topk", k=1, rank="each")
    assert table(found) == {'x{i="0"}': [None, 5, None], 'x{i="1"}': [2, None, None]}  # i="2" is never among them


@pytest.mark.parametrize(("rank", "best"), [("last", "1"), ("mean", "2"), ("max", "0"), ("min", "2")])
def test_ranks_over_the_range(rank: str, best: str) -> None:
    rows = [
        (key("x", i="0"), int, [9, -9, 1]),
        (key("x", i="1"), int, [0, 0, 7]),
        (key("x", i="2"), int, [6, None, None]),
    ]
    assert list(table(reduce_(matrix(rows), "topk", k=1, rank=rank))) == [f'x{{i="{best}"}}']


def test_members_keep_their_names_and_labels_in_canonical_order() -> None:
    rows = [
        (key("b", c="1"), float, [5.0]), (key("a", c="2"), int, [1]), (key("b", c="2"), bool, [True]),
        (key("a", c="1"), float, [9.0]),
    ]  # fmt: skip
    found = reduce_(matrix(rows), "topk", ("c",), k=5)
    assert found.series == ['a{c="1"}', 'a{c="2"}', 'b{c="1"}', 'b{c="2"}']
    assert found.types.tolist() == [DOUBLE, INTEGER, DOUBLE, BOOLEAN]


def test_min_count_and_nulls_hold_for_members_too() -> None:
    rows = [(key("x", i="0"), int, [1, 5]), (key("x", i="1"), int, [2, None])]
    assert table(reduce_(matrix(rows), "topk", k=1, min_count=2)) == {'x{i="0"}': [1, None]}
    assert table(reduce_(matrix(rows), "topk", k=1, rank="each", nulls="propagate")) == {'x{i="1"}': [2, None]}
    with pytest.raises(QueryError, match=r'topk: x\{i="1"\} has no value at 1970-01-01T16:40:00Z, and nulls="error"'):
        reduce_(matrix(rows), "topk", k=1, nulls="error")


def test_counts_of_values_are_missing_where_nobody_has_it() -> None:
    rows = [(key("x", i="0"), int, [1, 2, None]), (key("x", i="1"), int, [1, 1, None])]
    assert table(reduce_(matrix(rows), "count_values", label="v")) == {
        '{v="1"}': [2, 1, None],
        '{v="2"}': [None, 1, None],
    }


def test_equal_texts_of_several_types_are_one_value() -> None:
    assert table(reduce_(members(5, "5", 5.0, True, "true"), "count_values", label="v")) == {
        '{v="5"}': [2],
        '{v="5.0"}': [1],
        '{v="true"}': [2],
    }


def test_too_many_values_are_refused() -> None:
    rows = [(key("x", i=str(i)), int, list(range(i * 400, i * 400 + 400))) for i in range(26)]
    with pytest.raises(QueryError, match="more than 10000 series: 10400 values in 1 classes"):
        reduce_(matrix(rows), "count_values", label="v")


@pytest.mark.parametrize(
    ("name", "args", "by", "message"),
    [
        ("count_values", {"label": "i"}, ("i",), "the classes have the label 'i' already"),
        ("count_values", {"label": "__name__"}, (), "labels that begin with __ are reserved"),
        ("argmax", {"label": "hots"}, (), "no selected series has the label 'hots' of label='hots'; near: host"),
        ("histogram_quantile", {"q": 0.5}, (), "no selected series has the label 'le' of le='le'"),
        (
            "histogram_quantile",
            {"q": 0.5, "le": "i"},
            ("i",),
            "by= must not contain i, by which the members of a class differ",
        ),
        ("median", {}, ("hots",), r"no selected series has the label 'hots' of by=\['hots'\]; near: host"),
    ],
)
def test_errors_name_the_label(name: str, args: dict[str, Any], by: tuple[str, ...], message: str) -> None:
    found = matrix([(key("x", i="1", host="a"), float, [1.0])])
    with pytest.raises(QueryError, match=message):
        reduce_(found, name, by, **args)


def test_series_without_a_label_are_a_class_and_reported() -> None:
    asked = context()
    found = matrix([(key("x", i="1"), int, [1]), (key("y"), int, [2]), (key("z"), int, [4])])
    assert table(reduce_(found, "range", ("i",), asked=asked)) == {"{}": [2], '{i="1"}': [0]}
    assert asked.notes == ["2 series without i: they form the class in which it is absent"]


HISTOGRAM = {"0.1": 10, "0.5": 40, "1": 90, "+Inf": 100}


def histogram(**counts: Any) -> Any:
    return matrix([(key("b", le=le), int, [count]) for le, count in (HISTOGRAM | counts).items()])


@pytest.mark.parametrize(
    ("q", "expect"),
    [
        (0.05, 0.05), (0.1, 0.1), (0.25, 0.3), (0.65, 0.75), (0.9, 1.0), (0.95, 1.0), (1.0, 1.0),
    ],
)  # fmt: skip
def test_values_lie_evenly_in_a_bucket(q: float, expect: float) -> None:
    assert reduce_(histogram(), "histogram_quantile", q=q).tolist(0) == [pytest.approx(expect, abs=1e-15)]


def test_buckets_that_fall_are_raised() -> None:
    """A count below the one before it is taken as that one."""
    assert reduce_(histogram(**{"0.5": 5}), "histogram_quantile", q=0.5).tolist(0) == [0.75]


def test_buckets_without_an_end_are_nan_and_named() -> None:
    asked = context()
    rows = [(key("b", le=le, host="a"), float, [1.0]) for le in ("1", "2")]
    assert repr(table(reduce_(matrix(rows), "histogram_quantile", None, (), q=0.5, asked=asked))) == (
        "{'{host=\"a\"}': [nan]}"
    )
    assert asked.notes == ['histogram_quantile: 1 classes without a bucket le="+Inf" are NaN, such as {host="a"}']


def test_buckets_without_a_number_are_left_out() -> None:
    asked = context()
    rows = [(key("b", le=le), float, [float(i)]) for i, le in enumerate(["x", "1", "+Inf"])]
    assert reduce_(matrix(rows), "histogram_quantile", q=1.0, asked=asked).tolist(0) == [1.0]
    assert asked.notes == ['histogram_quantile: 1 series without a number in le left out, such as b{le="x"}']


def test_a_first_bucket_at_or_below_zero_gives_its_bound() -> None:
    rows = [(key("b", le=le), float, [c]) for le, c in (("-1", 5.0), ("1", 9.0), ("+Inf", 10.0))]
    assert reduce_(matrix(rows), "histogram_quantile", q=0.3).tolist(0) == [-1.0]


def test_trifles_between_buckets_are_none() -> None:
    """Sums of rates are not exact: 3e-15 more in a bucket is no observation in it."""
    rows = [(key("b", le=le), float, [c]) for le, c in (("1", 1.0), ("2", 1.0 + 3e-15), ("4", 1.0), ("+Inf", 1.0))]
    assert reduce_(matrix(rows), "histogram_quantile", q=1.0).tolist(0) == [1.0]


def test_no_series_gives_no_series() -> None:
    for name, args in (("median", {}), ("topk", {"k": 1}), ("count_values", {"label": "v"}), ("first", {})):
        assert len(reduce_(matrix([], 2), name, **args)) == 0


def example_store(text: bool = False) -> PlainStore:
    """The three series of E11, or of E12."""
    out = PlainStore(level_table=((10, 100),))
    rows = [
        dict.fromkeys(range(10, 70, 10), 1),
        dict.fromkeys((10, 20, 30), 5),
        dict.fromkeys((10, 20, 30), 10),
    ]
    if text:
        rows = [rows[0], {10: 5, 20: 5}, {30: 10, 40: 10}, {60: 20}]
    for i, row in enumerate(rows):
        out.add("x", {"label0": "1", "i": str(i)}, list(row.items()))
    return out


@pytest.mark.parametrize(
    ("rules", "expect"),
    [
        ("", [16 / 3] * 3 + [1.0] * 3),
        (', nulls="propagate"', [16 / 3] * 3 + [None] * 3),
        (", min_count=3", [16 / 3] * 3 + [None] * 3),
    ],
)
def test_worked_example_e11(rules: str, expect: list[float | None]) -> None:
    found = evaluate(parse(f"fetch('x').mean(by=[]{rules}).between(0, 60)"), example_store(), 60 + SETTLE_MS)
    assert found.tolist(0) == expect


@pytest.mark.parametrize(("by", "series"), [("[]", "{}"), ('["label0"]', '{label0="1"}')])
def test_worked_example_e12(by: str, series: str) -> None:
    found = evaluate(parse(f"fetch('x').mean(by={by}).between(0, 60)"), example_store(True), 60 + SETTLE_MS)
    assert table(found) == {series: [3.0, 3.0, 5.5, 5.5, 1.0, 10.5]}


@pytest.mark.parametrize(
    "text",
    [
        "fetch('x').topk(2, by=['label0']).between(0, 60)",
        "fetch('x').quantile(0.9, by=[]).between(0, 60)",
        "fetch('x').map('max', '20ms').median(without=['i']).between(0, 60)",
        "fetch('x').reduce('range', by=[]).topk(1, rank='mean', by=[]).between(0, 60)",
        "fetch('x').argmax('i', by=['label0']).between(0, 60)",
        "fetch('x').count_values('v', by=[]).sum(by=['v']).between(0, 60)",
        "fetch('x').group(by=['i']).sum(by=[]).between(0, 60)",
    ],
)
def test_from_text_to_answer(text: str) -> None:
    query = parse(text)
    assert parse(str(query)).equals(query)
    assert len(evaluate(query, example_store(), 60 + SETTLE_MS)) > 0
