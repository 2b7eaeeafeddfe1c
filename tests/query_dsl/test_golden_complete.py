"""Every function has its ten golden cases in each of its families, or a reason for an exception."""

from __future__ import annotations

import re
from functools import cache

import pytest

from query_dsl import QueryError, parse
from query_dsl.functions.tables import TABLES
from query_dsl.tree import nodes
from tests.query_dsl.test_golden import CASES, Case

WANTED = (
    "empty", "one point", "NA inside", "NaN", "reset", "integer beyond 2^53", "STRING", "BOOLEAN", "min_count",
    "coarse level",
)  # fmt: skip
EXCEPTIONS: dict[tuple[str, str, str], str] = (
    {("transform", "corr", wanted): "random rows against numpy in test_short_conditions.py." for wanted in WANTED}
    | {("transform", "exact", wanted): "what it refuses, in test_types_and_overflow.py." for wanted in WANTED}
    | {("transform", "profile", wanted): "random rows against a loop in test_calendar_buckets.py." for wanted in WANTED}
    | {
        ("reduce", "histogram_fraction", wanted): "random histograms against a loop in test_reducers_against.py."
        for wanted in WANTED
    }
)
"""(family, function, case) -> reason for a missing case."""
FUNCTIONS = [(family, name) for family, table in TABLES.items() for name in table]


def family_of(node: nodes.Node) -> tuple[str, object]:
    """(family, function) of a node, ("", …) if it calls none."""
    match node:
        case nodes.Window(function=name) | nodes.Bucketize(function=name):
            return "window", name
        case nodes.Point(function=name):
            return "point", name
        case nodes.Reduce(function=name):
            return "reduce", name
        case nodes.Binary(op=name):
            return "operator", name
        case nodes.Transform(family=family, function=name):
            return family, name
    return "", ""


def calls(case: Case, family: str, name: str) -> bool:
    """True if the query of the case calls this function of this family, by its tree; for one that cannot be parsed
    (or whose tree has another name for it) the text."""
    try:
        tree = parse(case.query).node
    except QueryError:
        tree = None
    if tree is not None and any(family_of(node) == (family, name) for node in nodes.walk(tree)):
        return True
    if name == "fits":  # the one that is called without its name
        return ".filter('{" in case.query
    said = {"window": "map", "point": "map", "operator": "apply"}.get(family, family)
    return (tree is None or name == "resample") and bool(re.search(rf"{said}\(['\"]{name}['\"]|\.{name}\(", case.query))


@cache
def cases_of(title: str) -> tuple[Case, ...]:
    return tuple(case for case in CASES if case.name == title)


@pytest.mark.parametrize(("family", "name"), FUNCTIONS, ids=[f"{family}-{name}" for family, name in FUNCTIONS])
def test_every_function_has_its_golden_rows(family: str, name: str) -> None:
    missing = [
        wanted
        for wanted in WANTED
        if not any(calls(case, family, name) for case in cases_of(f"{name}: {wanted}"))
        and (family, name, wanted) not in EXCEPTIONS
    ]
    lines = "\n".join(f"case {name}: {wanted}" for wanted in missing)
    assert not missing, (
        f"add these cases of {name} ({family}) to a file of tests/golden/query (docs/testing.md):\n{lines}"
    )


def test_exceptions_are_needed_and_have_a_reason() -> None:
    for (family, name, wanted), reason in EXCEPTIONS.items():
        assert wanted in WANTED
        assert reason.endswith(".")
        assert not any(calls(case, family, name) for case in cases_of(f"{name}: {wanted}")), (name, wanted)
