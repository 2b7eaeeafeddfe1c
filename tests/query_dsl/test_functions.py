"""Every registered function runs its own example, and its printed example parses."""

from __future__ import annotations

import math

import pytest

from query_dsl import evaluate, parse
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.operators import Operator
from query_dsl.functions.reducers import Reducer
from query_dsl.functions.registry import Entry, PointFunction
from query_dsl.functions.tables import MAPPERS, OPERATORS, POINTS, REDUCERS, TABLES
from query_dsl.results.result_cells import Example
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree.entry_table import read_only_table
from tests.query_dsl.plain_store import PlainStore

ENTRIES = [(family, entry) for family, table in TABLES.items() for entry in table.values()]


def said(entry: Entry) -> str:
    return f", {entry.case_args}" if entry.case_args else ""


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
    check(answer(f"fetch('x').map('{mapper.name}', '20ms'{said(mapper)})", mapper.case), mapper.case.expect)


@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
def test_reducer(reducer: Reducer) -> None:
    check(answer(f"fetch('x').reduce('{reducer.name}'{said(reducer)}, by=[])", reducer.case), reducer.case.expect)


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_point(point: PointFunction) -> None:
    check(answer(f"fetch('x').map('{point.name}'{said(point)})", point.case), point.case.expect)


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_operator(operator: Operator) -> None:
    left, right = """fetch('x{i="0"}')""", """fetch('x{i="1"}')"""
    if operator.family == "logic":
        left, right = f"({left} > 0)", f"({right} > 0)"
    if operator.family == "mask":
        right = f"({right} > 2)"
    check(answer(f"apply({operator.name!r}, {left}, {right}, ignoring=['i'])", operator.case), operator.case.expect)


@pytest.mark.parametrize("entry", [entry for _, entry in ENTRIES], ids=[f"{f}-{e.name}" for f, e in ENTRIES])
def test_printed_example_parses(entry: Entry) -> None:
    """Examples of the documentation can be typed."""
    query = parse(entry.example)
    assert parse(str(query)).equals(query)
    assert entry.summary.endswith(".")
    assert all(argument.summary for argument in entry.arguments)
    assert entry.unit
    for argument in entry.arguments:
        assert argument.unit or argument.kind not in ("number", "integer"), f"{entry.name}: {argument.name} has no unit"


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


def test_abs_of_the_least_integer_is_missing() -> None:
    """Values beyond 64 bits are not replaced by a wrong neighbour."""
    store = PlainStore(level_table=((10, 10),)).add("b", {}, [(10, -(2**63))]).add("b", {"i": "1"}, [(10, 1 - 2**63)])
    assert evaluate(parse("fetch('b').abs().at(10)"), store, 10 + SETTLE_MS).latest() == [None, 2**63 - 1]
