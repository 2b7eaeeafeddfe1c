"""Each filter, filler, transform and presence function passes the case of its entry."""

from __future__ import annotations

import pytest

from query_dsl import Matrix, parse
from query_dsl.evaluation.evaluator import answer
from query_dsl.functions.step import Step
from query_dsl.functions.tables import STEPS
from query_dsl.results.raw_series import RawSeries
from tests.query_dsl.plain_store import MINUTE, PlainStore

OTHERS = {"join_labels": 'fetch(\'b\'), on=["i"], labels=["v"]', "corr": "fetch('x') * 2, '3m'"}
ENTRIES = [
    pytest.param(entry, id=f"{family} {entry.name}")
    for family in ("filter", "fill", "transform", "presence")
    for entry in STEPS[family].values()
]


def loaded(entry: Step) -> PlainStore:
    """The given rows, one value a minute from the first minute on."""
    store = PlainStore().add("b", {"i": "0", "v": "1"}, [(MINUTE, 1)])
    for i, row in enumerate(entry.case.given):
        points = [((at + 1) * MINUTE, value) for at, value in enumerate(row) if value is not None]
        store.add("x", {"i": str(i)} if len(entry.case.given) > 1 or entry.operands else {}, points)
    return store


def asked(entry: Step, source: str) -> str:
    args = OTHERS.get(entry.name, entry.case_args)
    call = f".{entry.name}({args})" if entry.family == "presence" else f'.{entry.family}("{entry.name}"'
    if entry.family != "presence":
        call += f", {args})" if args else ")"
    return f"{source}('x'){call}"


def row_of(found: Matrix | RawSeries, columns: int) -> tuple[float | None, ...]:
    if isinstance(found, RawSeries):
        values = dict(found.tolist(0))
        return tuple(values.get((at + 1) * MINUTE) for at in range(columns))  # type: ignore[misc]
    return tuple(found.tolist(0)) if len(found) else ()  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_case_of_an_entry(entry: Step) -> None:
    columns = len(entry.case.given[0])
    if entry.name == "resample":
        query = 'samples(\'x\').transform("resample", "1m")'
    elif entry.run is None:
        query = asked(entry, "samples")
    else:
        query = asked(entry, "fetch")
    found = answer(parse(f"{query}.between(0, {columns * MINUTE})"), loaded(entry), 10 * MINUTE)
    assert row_of(found, columns) == entry.case.expect


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_example_is_read_back(entry: Step) -> None:
    query = parse(entry.example)
    assert parse(str(query)).equals(query)
    assert entry.summary.endswith(".")
