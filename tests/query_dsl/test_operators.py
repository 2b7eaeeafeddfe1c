"""Operators between operands: arithmetic, exactness, texts, masks, values that change with time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import Matrix, QueryError, evaluate, parse
from query_dsl.evaluation.execution import TimedScalar, to_scalar
from query_dsl.functions.tables import OPERATORS
from query_dsl.results.result_cells import BOOLEAN, DOUBLE, INTEGER
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree import nodes
from tests.query_dsl.plain_store import PlainStore
from tests.query_dsl.reducing import VALUES, all_near, binary, context, joined, key, matrices, matrix, table

PROFILE = settings(max_examples=150, deadline=None)
NUMBERS = {kind: strategy for kind, strategy in VALUES.items() if kind is not str}
BIG = 2**53


def plain(op: str, a: Any, b: Any) -> Any:
    """One value, by Python alone."""
    if a is None or b is None:
        return None
    x, y = float(a), float(b)
    match op:
        case "add" | "sub" | "mul":
            return {"add": x + y, "sub": x - y, "mul": x * y}[op]
        case "div":
            return x / y if y else math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * _sign(y)
        case "mod":
            return float(np.fmod(x, y)) if y == 0 or not (math.isfinite(x) and math.isfinite(y)) else x % y
        case "min" | "max":
            return _extreme(op, a, b)
        case _:
            exact = not isinstance(a, float) and not isinstance(b, float)
            left, right = (a, b) if exact else (x, y)
            return {
                "eq": left == right, "ne": left != right, "lt": left < right, "le": left <= right,
                "gt": left > right, "ge": left >= right,
            }[op]  # fmt: skip


def _sign(value: float) -> float:
    return math.copysign(1.0, value)


def _extreme(op: str, a: Any, b: Any) -> Any:
    if any(isinstance(v, float) and math.isnan(v) for v in (a, b)):
        return math.nan
    if isinstance(a, float) or isinstance(b, float):
        return (min if op == "min" else max)(float(a), float(b))
    return int((min if op == "min" else max)(a, b))


@PROFILE
@given(
    matrices(NUMBERS, names=("x",), n=3),
    st.data(),
    st.sampled_from(["add", "sub", "mul", "div", "min", "max", "eq", "ne", "lt", "le", "gt", "ge"]),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_are_those_of_python(left: Matrix, data: Any, op: str) -> None:
    rows = []
    for one in left.keys:
        kind = data.draw(st.sampled_from([int, float, bool]))
        rows.append(
            (key("y", **dict(one.labels)), kind, data.draw(st.lists(st.none() | NUMBERS[kind], min_size=3, max_size=3)))
        )
    right = matrix(rows)
    found = joined(op, left, right)
    assert len(found) == len(left)
    for i, one in enumerate(found.keys):
        a, b = left.tolist(left.find(**_all(one))), right.tolist(right.find(**_all(one)))
        expect = [plain(op, x, y) for x, y in zip(a, b, strict=True)]
        assert all_near(found.tolist(i), expect, 0), (op, a, b)


def _all(one: Any) -> dict[str, str]:
    """Every label, absent ones as ""."""
    return {label: one.get(label) for label in ("a", "b", "c")}


def pairs(*values: tuple[Any, Any]) -> tuple[Matrix, Matrix]:
    """Two matrices of one bucket, a series a pair."""
    left = [(key("l", i=str(i)), type(a), [a]) for i, (a, _) in enumerate(values)]
    right = [(key("r", i=str(i)), type(b), [b]) for i, (_, b) in enumerate(values)]
    return matrix(left), matrix(right)


def results(op: str, *values: tuple[Any, Any]) -> list[Any]:
    found = joined(op, *pairs(*values))
    return [found.tolist(i)[0] for i in range(len(found))]


def test_remainders_have_the_sign_of_the_divisor() -> None:
    assert results("mod", (7, 3), (-7, 3), (7, -3), (-7, -3), (5.5, 2)) == [1.0, 2.0, -2.0, -1.0, 1.5]
    assert all_near(results("mod", (1, 0), (math.inf, 2.0), (3.0, math.inf)), [math.nan, math.nan, 3.0])


def test_powers() -> None:
    assert results("pow", (2, 10), (9.0, 0.5), (2, -1), (0, 0)) == [1024.0, 3.0, 0.5, 1.0]
    assert all_near(results("pow", (-8.0, 1 / 3), (0.0, -1)), [math.nan, math.inf])


def test_division_by_zero_is_no_error() -> None:
    assert all_near(results("div", (1, 0), (-1, 0), (0, 0)), [math.inf, -math.inf, math.nan])


def test_extremes_of_integers_are_exact() -> None:
    found = joined("max", *pairs((BIG + 1, BIG), (True, 3), (BIG + 1, 1.0)))
    assert [found.tolist(i) for i in range(3)] == [[BIG + 1], [3], [float(BIG)]]
    assert found.types.tolist() == [INTEGER, INTEGER, DOUBLE]
    assert all_near(results("min", (math.nan, 1.0), (1, math.nan)), [math.nan, math.nan])


def test_comparison_of_integers_is_exact() -> None:
    assert results("gt", (BIG + 1, BIG), (float(BIG), BIG + 1)) == [True, False]
    assert results("eq", (1, 1.0), (True, 1), ("a", "a")) == [True, True, True]
    assert results("ne", ("a", "b"), (math.nan, math.nan)) == [True, True]


@pytest.mark.parametrize(
    ("op", "left", "right", "expect"),
    [  # E14 and E15
        ("sub", (46.5, 23.0), (4.5, -19.0), [42.0, 42.0]),
        ("mul", (21, 14), (2, 3), [42.0, 42.0]),
        ("mul", (2.0, 0.5), (21.1, 84.1), [42.2, 42.05]),
        ("div", (126, 84), (3, 2), [42.0, 42.0]),
        ("div", (14.0, 21.0), (0.33, 0.5), [42.42424242424242, 42.0]),
        ("lt", (46, 5), (2, 42), [False, True]),
        ("ge", (46, 5), (46, 42), [True, False]),
        ("ne", (46.5, 5.0), (46.5, 42.0), [False, True]),
        ("and", (False, True), (True, True), [False, True]),
        ("or", (False, True), (True, True), [True, True]),
    ],
)
def test_worked_examples(op: str, left: tuple[Any, Any], right: tuple[Any, Any], expect: list[Any]) -> None:
    a = matrix([(key("a", h="1"), type(left[0]), list(left))])
    b = matrix([(key("b", h="1"), type(right[0]), list(right))])
    assert table(joined(op, a, b)) == {'{h="1"}': expect}


def e13() -> PlainStore:
    store = PlainStore(level_table=((5, 100),))
    store.add("l", {"label0": "42"}, [(10, 46.5), (20, 23.0), (30, 42.0)])
    store.add("l", {"label0": "53"}, [(10, -42.0), (20, 42.0)])
    store.add("r", {"label0": "42"}, [(10, -4.5), (15, 2.0), (20, 19.0)])
    store.add("r", {"label0": "53"}, [(10, 0.0), (20, 0.0)])
    store.add("r", {"label0": "4253"}, [(10, 1.0)])
    return store


def test_worked_example_e13() -> None:
    text = "apply(add, fetch('l'), fetch('r'), on=['label0']{}).between(0, 30)"
    with pytest.raises(QueryError, match=r'1 series have no partner; the first is r\{label0="4253"\} on the right'):
        evaluate(parse(text.format(', unmatched="error"')), e13(), 30 + SETTLE_MS)
    found = evaluate(parse(text.format("")), e13(), 30 + SETTLE_MS)
    assert found.notes == ('add: left out 1 series on the right without a partner on the left: {label0="4253"}',)
    assert table(found) == {
        '{label0="42"}': [None, 42.0, None, 42.0, None, None],
        '{label0="53"}': [None, -42.0, None, 42.0, None, None],
    }


def flags(*values: Any, **labels: str) -> Any:
    return (key("up", **labels), bool, list(values))


def test_masks_keep_the_left_side() -> None:
    """Name, labels, type and texts; nothing where the right is missing."""
    left = matrix([(key("v", h="1"), str, ["a", "b", "c", None]), (key("x", h="2"), int, [BIG + 1, 2, 3, 4])])
    right = matrix([flags(True, False, None, True, h="1"), flags(True, True, False, None, h="2")])
    assert table(joined("mask", left, right)) == {
        'v{h="1"}': ["a", None, None, None],
        'x{h="2"}': [BIG + 1, 2, None, None],
    }
    assert table(joined("negmask", left, right)) == {
        'v{h="1"}': [None, "b", None, None],
        'x{h="2"}': [None, None, 3, None],
    }
    assert joined("mask", left, right).types.tolist() == left.types.tolist()


def test_many_on_the_left_share_a_mask() -> None:
    left = matrix([(key("used", h="1", v=v), int, [i]) for i, v in enumerate("ab")])
    right = matrix([flags(True, h="1")])
    assert table(joined("mask", left, right, on=("h",))) == {'used{h="1",v="a"}': [0], 'used{h="1",v="b"}': [1]}
    with pytest.raises(QueryError, match="on the right two series have the same key"):
        joined("mask", right, matrix([flags(True, h="1", v=v) for v in "ab"]), on=("h",))


@pytest.mark.parametrize("match", [{"group_left": ()}, {"group_right": ("a",)}, {"fill": 1}])
def test_masks_take_no_grouping(match: dict[str, Any]) -> None:
    one = matrix([flags(True, h="1")])
    with pytest.raises(QueryError, match="mask keeps names and labels of its left operand"):
        joined("mask", one, one, **match)


def test_masks_with_plain_values() -> None:
    left = matrix([(key("x", h="1"), int, [1, 2])])
    assert table(joined("mask", left, nodes.Scalar(True))) == {'x{h="1"}': [1, 2]}
    assert table(joined("negmask", left, nodes.Scalar(True))) == {'x{h="1"}': [None, None]}
    with pytest.raises(QueryError, match="mask needs BOOLEAN on the right"):
        joined("mask", left, nodes.Scalar(1))
    with pytest.raises(QueryError, match="mask keeps series of its left operand, but that is a plain value"):
        joined("mask", nodes.Scalar(1), left)


def test_logic_leaves_out_series_that_are_not_boolean() -> None:
    left = matrix([flags(True, h="1"), (key("up", h="2"), int, [1]), (key("up", h="3"), str, ["x"])])
    asked = context()
    assert table(joined("and", left, left, asked)) == {'{h="1"}': [True]}
    assert asked.notes == ["and: 2 series that are not BOOLEAN left out"]
    with pytest.raises(QueryError, match=r"& needs BOOLEAN on both sides: compare first, as in \(a > 1\) & \(b > 1\)"):
        joined("and", *pairs((1, 2), (3, 4)))
    asked = context()
    right = matrix([flags(True, h="1"), (key("up", h="2"), int, [1])])
    assert table(joined("mask", left, right, asked)) == {'up{h="1"}': [True]}
    assert "mask: 1 series that are not BOOLEAN left out" in asked.notes


def test_text_is_left_out_of_arithmetic() -> None:
    left = matrix([(key("x", h="1"), int, [1]), (key("x", h="2"), str, ["a"])])
    asked = context()
    assert table(joined("add", left, nodes.Scalar(1), asked)) == {'{h="1"}': [2.0]}
    assert asked.notes == ["add: 1 STRING series left out"]
    with pytest.raises(QueryError, match=r"\+ cannot take the text 'a'"):
        joined("add", left, nodes.Scalar("a"))
    with pytest.raises(QueryError, match="min cannot take the text 'a'"):
        joined("min", left, nodes.Scalar("a"))


# --- values that change with time ---


def timed(kind: type, *values: Any) -> TimedScalar:
    return to_scalar(matrix([(key("s", h="9"), kind, list(values))]))


def test_a_scalar_goes_with_every_series_and_drops_the_name() -> None:
    left = matrix([(key("x", h="1"), int, [1, 2, 3]), (key("x", h="2"), int, [4, None, 6])])
    assert table(joined("sub", left, timed(int, 1, 1, None))) == {
        '{h="1"}': [0.0, 1.0, None],
        '{h="2"}': [3.0, None, None],
    }
    assert table(joined("lt", timed(float, 2.0, 2.0, 2.0), left)) == {
        '{h="1"}': [False, False, True],
        '{h="2"}': [True, None, True],
    }
    assert table(joined("max", left, timed(int, BIG + 1, 0, 0)))['{h="1"}'] == [BIG + 1, 2, 3]


def test_scalars_of_text_and_of_booleans() -> None:
    left = matrix([(key("v", h="1"), str, ["a", "b"])])
    assert table(joined("eq", left, timed(str, "a", "a"))) == {'{h="1"}': [True, False]}
    assert table(joined("mask", left, timed(bool, True, False))) == {'v{h="1"}': ["a", None]}
    with pytest.raises(QueryError, match=r"\* cannot take a scalar of STRING"):
        joined("mul", matrix([(key("x"), int, [1, 2])]), timed(str, "a", "a"))


def test_scalars_among_themselves_stay_scalars() -> None:
    found = binary("add", timed(int, 1, None, 3), timed(float, 0.5, 0.5, 0.5))
    assert isinstance(found, TimedScalar)
    left = matrix([(key("x"), int, [10, 10, 10])])
    assert table(joined("mul", left, found)) == {"{}": [15.0, None, 35.0]}
    doubled = binary("mul", nodes.Scalar(2), timed(int, 1, 2, 3))
    assert isinstance(doubled, TimedScalar)
    assert table(joined("add", left, doubled)) == {"{}": [12.0, 14.0, 16.0]}
    assert binary("mod", nodes.Scalar(7), nodes.Scalar(4)) == nodes.Scalar(3.0)
    assert binary("max", nodes.Scalar(7), nodes.Scalar(4)) == nodes.Scalar(7)
    with pytest.raises(QueryError, match="cannot take a text"):
        binary("add", timed(str, "a"), nodes.Scalar(1))


@pytest.mark.parametrize(
    ("hosts", "message"),
    [("", "got 0"), ("1234", r'got 4, such as x\{h="1"\}, x\{h="2"\}, x\{h="3"\}: reduce with by=\[\] before')],
)
def test_scalar_wants_exactly_one_series(hosts: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        to_scalar(matrix([(key("x", h=h), int, [1]) for h in hosts], 1))


def test_scalars_take_no_labels() -> None:
    left = matrix([(key("x", h="1"), int, [1])])
    with pytest.raises(QueryError, match="arguments pair series, but one operand is a plain value"):
        joined("add", left, timed(int, 1), on=("h",))


def test_scalars_from_text() -> None:
    text = "(fetch('l') / fetch('l').max(by=[]).scalar() * 100).between(0, 30)"
    query = parse(text)
    assert parse(str(query)).equals(query)
    found = evaluate(query, e13(), 30 + SETTLE_MS)
    assert table(found)['{label0="42"}'] == [None, 100.0, None, 23 / 42 * 100, None, 100.0]


def test_more_than_two_operands_fold_from_the_left() -> None:
    found = evaluate(
        parse("apply('max', fetch('l'), 0, fetch('l').mean(by=[]).scalar()).between(0, 20)"), e13(), 20 + SETTLE_MS
    )
    assert table(found)['{label0="53"}'] == [None, 2.25, None, 42.0]


def test_every_operator_has_its_own_words() -> None:
    assert [o.name for o in OPERATORS.values() if o.symbol] == [
        "add", "sub", "mul", "div", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and", "or",
    ]  # fmt: skip
    assert {o.name: o.method for o in OPERATORS.values() if o.method} == {
        "mask": "where", "set_and": "and_", "set_or": "or_", "set_unless": "unless",
    }  # fmt: skip
    assert BOOLEAN not in (DOUBLE, INTEGER)
