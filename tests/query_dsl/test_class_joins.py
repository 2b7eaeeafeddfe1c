"""Operators as methods, joins with the class, places of members in their class, and names from labels."""

from __future__ import annotations

from typing import Any

import pytest

from query_dsl import Expr, QueryError, apply, evaluate, fetch, offline, parse
from query_dsl.tree import nodes
from tests.query_dsl.reducing import all_near, table

MINUTE = 60_000
X = fetch("x")


def store() -> Any:
    """Two racks of two hosts, and one host without a rack; a limit for each rack."""
    values = {("r1", "a"): 1, ("r1", "b"): 3, ("r2", "c"): 10, ("r2", "d"): 30, ("", "e"): 7}
    rows = {
        "x{" + (f'rack="{rack}",' if rack else "") + f'host="{host}"}}': [(MINUTE, v)]
        for (rack, host), v in values.items()
    }
    return offline({**rows, 'limit{rack="r1"}': [(MINUTE, 2)], 'limit{rack="r2"}': [(MINUTE, 20)]})


def asked(query: str | Expr) -> dict[str, Any]:
    """host -> value; the whole text of the series if it has no host."""
    expr = parse(query) if isinstance(query, str) else query
    assert parse(str(expr)).equals(expr), str(expr)
    found = evaluate(expr.at(MINUTE), store(), MINUTE + 15_000)
    return {
        dict(key.labels).get("host", text): value
        for key, (text, (value,)) in zip(found.keys, table(found).items(), strict=True)
    }


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("fetch('x') - fetch('x').mean(by=['rack'])", {"a": -1.0, "b": 1.0, "c": -10.0, "d": 10.0, "e": 0.0}),
        ("fetch('x').mean(by=['rack']) - fetch('x')", {"a": 1.0, "b": -1.0, "c": 10.0, "d": -10.0, "e": 0.0}),
        ("fetch('x') / fetch('x').max(by=[])", {"a": 1 / 30, "b": 0.1, "c": 1 / 3, "d": 1.0, "e": 7 / 30}),
        ("fetch('x') - fetch('x').mean(without=['host'])", {"a": -1.0, "b": 1.0, "c": -10.0, "d": 10.0, "e": 0.0}),
        (
            "fetch('x') > fetch('x').mean(by=['rack']) + 0.5 * fetch('x').sd(by=['rack'])",
            {"a": False, "b": True, "c": False, "d": True},
        ),
        ("fetch('x').where(fetch('x').mean(by=['rack']) > 5)", {"a": None, "b": None, "c": 10, "d": 30, "e": 7}),
        ("fetch('x').and_(fetch('x').filter('last', '>', 9).max(by=['rack']))", {"c": 10, "d": 30}),
        (
            "fetch('x').sum(by=['rack']) / fetch('x').sum(by=[])",
            {"{}": 7 / 51, '{rack="r1"}': 4 / 51, '{rack="r2"}': 40 / 51},
        ),
        ("fetch('x').sub(fetch('limit'), on=['rack'], group_left=[])", {"a": -1.0, "b": 1.0, "c": -10.0, "d": 10.0}),
        ("fetch('x').gt(fetch('limit').max(by=['rack']))", {"a": False, "b": True, "c": False, "d": True}),
        ("fetch('x').share(by=['rack'])", {"a": 0.25, "b": 0.75, "c": 0.25, "d": 0.75, "e": 1.0}),
        ("fetch('x').rank(by=['rack'])", {"a": 2, "b": 1, "c": 2, "d": 1, "e": 1}),
        ("fetch('x').rank(ascending=True, by=[])", {"a": 1, "b": 2, "e": 3, "c": 4, "d": 5}),
        ("fetch('x').running_sum(by=[])", {"d": 30.0, "c": 40.0, "e": 47.0, "b": 50.0, "a": 51.0}),
        ("fetch('x').running_sum(share=True, by=['rack'])", {"a": 1.0, "b": 0.75, "c": 1.0, "d": 0.75, "e": 1.0}),
        (
            "fetch('x').standardize(ddof=0, by=['rack']).filter('size', '>', 0)",
            {"a": -1.0, "b": 1.0, "c": -1.0, "d": 1.0},
        ),
        ("fetch('x').zscore(by=['rack'], ddof=0)", {"a": -1.0, "b": 1.0, "c": -1.0, "d": 1.0}),
        ("fetch('x').mul(2).eq(14)", {"a": False, "b": False, "c": False, "d": False, "e": True}),
        ("fetch('x').min(fetch('x').mean(by=['rack']))", {"a": 1.0, "b": 2.0, "c": 10.0, "d": 20.0, "e": 7.0}),
    ],
)
def test_answers(text: str, expect: dict[str, Any]) -> None:
    found = asked(text)
    found = {host: value for host, value in found.items() if host in expect or (value is not None and value == value)}
    assert found.keys() == expect.keys()
    assert all_near([found[host] for host in expect], list(expect.values()))


@pytest.mark.parametrize(
    ("method", "same"),
    [
        (X.sub(X.mean(by=["rack"])), X - X.mean(by=["rack"])),
        (X.add(X, on=["host"]), apply("add", X, X, on=["host"])),
        (X.max(X, ignoring=["rack"]), apply("max", X, X, ignoring=["rack"])),
        (X.add(1), X.map("add", 1)),
        (X.add(number=1), X.map("add", 1)),
        (X.max(by=[]), X.reduce("max", by=[])),
        (X.ge(3), X >= 3),
        (X.ne(other="a"), X != "a"),
        (X.pow(X), X**X),
    ],
)
def test_methods_are_operators(method: Expr, same: Expr) -> None:
    assert method.equals(same)
    assert parse(str(method)).equals(method)


def test_a_class_join_prints_as_it_was_written() -> None:
    for text in (
        "fetch('x') - fetch('x').mean(by=['rack'])",
        "fetch('x').and_(fetch('x').mean(by=['rack']))",
        "apply('max', fetch('x'), fetch('x').mean(by=['rack']))",
    ):
        assert str(parse(text)) == text
        node = parse(text).node
        assert isinstance(node, nodes.Binary)
        assert node.match.on == ("rack",)


@pytest.mark.parametrize(
    "text",
    [
        "fetch('x') - fetch('y')",
        "fetch('x').mean(by=['rack']) - fetch('x').max(by=['rack'])",
        "fetch('x').mean(by=['rack']) - fetch('x').max(by=['host'])",
        "fetch('x') - fetch('x').topk(1, by=['rack'])",
        "fetch('x') - fetch('x').sum(by=[]).scalar()",
        "2 * fetch('x').mean(by=['rack'])",
        "fetch('x') - fetch('x').mean(by=['__name__', 'rack'])",
        "fetch('x').or_(fetch('x').mean(by=['rack']))",
    ],
)
def test_other_operands_pair_by_all_labels(text: str) -> None:
    node = parse(text).node
    assert isinstance(node, nodes.Binary)
    assert node.match == nodes.LabelMatching()


def test_names_from_labels() -> None:
    found = evaluate(parse("fetch('x').named('{rack}/{host}').at(60000)"), store(), MINUTE + 15_000)
    assert [key.name for key in found.keys] == ["/e", "r1/a", "r1/b", "r2/c", "r2/d"]
    assert all("host" in dict(key.labels) for key in found.keys)
    found = evaluate(
        parse("fetch('x{host=\"a\"}').named('{{{__name__}}} of {host}').at(60000)"), store(), MINUTE + 15_000
    )
    assert [key.name for key in found.keys] == ["{x} of a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fetch('x').named('{hots}')", "no selected series has the label 'hots' of named('{hots}'); near: host"),
        ("fetch('x').named('{host')", "named: write a label in braces, as in {host}, or {{ and }} for braces"),
        ("fetch('x').named('a}')", "named: write a label in braces"),
        ("fetch('x').named('{host.a}')", "named: write a label in braces"),
        ("fetch('x').add(2, on=['host'])", "arguments pair series, but one operand is a plain value"),
        ("fetch('x').sub()", "it needs number"),
        ("fetch('x').gt()", "it needs other"),
        ("fetch('x').gt(fetch('x'), fetch('x'))", "too many arguments"),
        ("fetch('x').max('5m')", 'over time it is .map("max", "5m")'),
        ("fetch('x').pareto()", "running_sum(share=True"),
        ("fetch('x').rank(by=['hots'])", "near: host"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        asked(text)
    assert message in str(caught.value)
