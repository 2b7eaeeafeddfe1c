"""Texts that are no PromQL, that are too deep or too long, and their errors."""

from __future__ import annotations

from typing import Any

import pytest

from query_dsl.promql import NotSupported, PromqlError, format_text, instant_query, parse
from query_dsl.promql.scripted_samples import LiteralSamples
from query_dsl.promql.tree import Selector, value_type


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1" + "+1" * 5_000, "more than 250 operators"),
        ("-" * 5_000 + "1", "more than 250 operators"),
        ("abs(" * 3_000 + "x" + ")" * 3_000, "nest more than 100 deep"),
        ("(" * 6_000, "nest more than 100 deep"),
        ("x and " * 1_000 + "x", "more than 250 operators"),
        ("x" * 20_000, "use at most 16384"),
        ("", "the query is empty"),
        ("  # only a comment", "no expression|empty|unexpected"),
        ("sum(x", "is not closed"),
        ("sum(x))", "has no opening bracket"),
        ("sum(x]", "has no opening bracket"),
        ('x{a="b}', "no closing quote"),
        (r'x{a="b\xff"}', r"\\xff is a byte"),
        (r"x{a='\377'}", r"\\377 is a byte"),
        ("unknown(x)", "unknown function"),
        ("rate(x)", "expected type range vector|expected type matrix"),
        ("x + ", "."),
        ("{}", "at least one"),
        ("x @ 1e300", "time after @ is out of range|invalid|timestamp"),
        ("x @ -9e15", "time after @ is out of range"),
    ],
)
def test_errors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(PromqlError, match=message):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["info(x)", "rate(x[5m] smoothed)", "rate(x[5m*2])", "limit_ratio(0.5, x)", "x offset step()", "x + fill(0) y"],
)
def test_experimental_parts_are_named(text: str) -> None:
    with pytest.raises(NotSupported, match="experimental"):
        parse(text)


def test_limits_let_usual_texts_through() -> None:
    assert isinstance(parse("(" * 99 + "x" + ")" * 99), object)
    assert value_type(parse("1" + "+1" * 240).node) == "scalar"
    assert instant_query("1" + "+1" * 240, 0, LiteralSamples()).values[0, 0] == 241


def test_places_are_those_of_the_text() -> None:
    text = 'sum by (rate) (rate(x{a="rate("}[5m])) + sum(rate(y[5m])) # rate('
    root: Any = parse(text).node
    calls = [root.left, root.left.child, root.right, root.right.child]
    assert [one.function for one in calls] == ["sum", "rate", "sum", "rate"]
    assert [text[one.position :].startswith(one.function) for one in calls] == [True] * 4
    assert sorted(one.position for one in calls) == [one.position for one in calls]


def test_texts_are_laid_out() -> None:
    assert format_text("sum  by(a)(rate(x[5m]))") == "sum by (a) (rate(x[5m]))"


def test_selectors_keep_offsets_and_times() -> None:
    tree = parse('{"http.requests", a=~"b"}[5m] offset -1m30s @ 12.345').node
    assert isinstance(tree, Selector)
    assert (tree.range_ms, tree.offset_ms, tree.at is not None and tree.at.time_ms) == (300_000, -90_000, 12_345)
    assert [(one.label, one.op, one.value) for one in tree.matchers] == [
        ("__name__", "=", "http.requests"),
        ("a", "=~", "b"),
    ]
