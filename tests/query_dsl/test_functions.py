"""Every registered function runs its own example, and its printed example parses."""

from __future__ import annotations

import math

import pytest

from query_dsl import evaluate, parse
from query_dsl.cells import Example
from query_dsl.mappers import MAPPERS, Mapper
from query_dsl.names import read_only_table
from query_dsl.operators import OPERATORS, Operator
from query_dsl.planner import SETTLE_MS
from query_dsl.points import CASE_ARGUMENTS, POINTS, PointFunction
from query_dsl.reducers import REDUCERS, Reducer
from tests.query_dsl.plain_store import PlainStore


def answer(text: str, case: Example) -> list[float | None]:
    """The one series of a query over the rows of an example, a bucket of 10 ms each."""
    store = PlainStore(level_table=((10, 100),))
    end = 0
    for i, row in enumerate(case.given):
        points = [(10 * (j + 1), v) for j, v in enumerate(row) if v is not None]
        store.add("x", {"i": str(i)}, points, birth=-(10**9))  # so old that nothing counts from 0
        end = 10 * len(row)
    matrix = evaluate(parse(f"({text}).between(0, {end})"), store, end + SETTLE_MS)
    return [None if v is None else float(v) for v in matrix.tolist(0)]


def check(got: list[float | None], expect: tuple[float | None, ...]) -> None:
    assert len(got) == len(expect)
    for a, b in zip(got, expect, strict=True):
        assert a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b)), (got, expect)


@pytest.mark.parametrize("mapper", MAPPERS.values(), ids=MAPPERS)
def test_mapper(mapper: Mapper) -> None:
    check(answer(f"fetch('x').map('{mapper.name}', '20ms')", mapper.case), mapper.case.expect)


@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
def test_reducer(reducer: Reducer) -> None:
    check(answer(f"fetch('x').reduce('{reducer.name}', by=[])", reducer.case), reducer.case.expect)


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_point(point: PointFunction) -> None:
    arguments = ", ".join([repr(point.name), *(str(CASE_ARGUMENTS[a]) for a in point.arguments)])
    check(answer(f"fetch('x').map({arguments})", point.case), point.case.expect)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_operator(operator: Operator) -> None:
    left, right = """fetch('x{i="0"}')""", """fetch('x{i="1"}')"""
    if operator.family == "logic":
        left, right = f"({left} > 0)", f"({right} > 0)"
    check(answer(f"apply({operator.name!r}, {left}, {right}, ignoring=['i'])", operator.case), operator.case.expect)


@pytest.mark.parametrize("entry", [*MAPPERS.values(), *REDUCERS.values(), *POINTS.values(), *OPERATORS.values()])
def test_printed_example_parses(entry: Mapper | Reducer | PointFunction | Operator) -> None:
    """What the documentation shows can be typed."""
    query = parse(entry.example)
    assert parse(str(query)).equals(query)
    assert entry.summary.endswith(".")


def test_a_name_registered_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        read_only_table(MAPPERS["mean"], MAPPERS["mean"])


@pytest.mark.parametrize(
    ("text", "expect"),
    [("fetch('b').map('abs')", 2**53 + 1), ("fetch('b').floor()", -(2**53) - 1), ("(-fetch('s')).map('abs')", 3.0)],
)
def test_whole_numbers_stay_exact(text: str, expect: float) -> None:
    store = PlainStore(level_table=((10, 10),)).add("b", {}, [(10, -(2**53) - 1)]).add("s", {}, [(10, 3)])
    assert evaluate(parse(f"({text}).at(10)"), store, 10 + SETTLE_MS).latest() == [expect]


def test_abs_of_the_least_integer_saturates() -> None:
    store = PlainStore(level_table=((10, 10),)).add("b", {}, [(10, -(2**63))])
    assert evaluate(parse("fetch('b').abs().at(10)"), store, 10 + SETTLE_MS).latest() == [2**63 - 1]
