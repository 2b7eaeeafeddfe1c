"""The tree of a query as Prometheus' `parse_query` returns it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from query_dsl.promql import parse, to_json

X: dict[str, Any] = {
    "type": "vectorSelector",
    "name": "x",
    "offset": 0,
    "matchers": [{"name": "__name__", "type": "=", "value": "x"}],
    "timestamp": None,
    "startOrEnd": None,
}
RANGE = {**X, "type": "matrixSelector", "range": 300_000}
ONE_TO_ONE = {"card": "one-to-one", "labels": [], "on": False, "include": []}


def number(text: str) -> dict[str, Any]:
    return {"type": "numberLiteral", "val": text}


def binary(op: str, matching: dict[str, Any] | None, right: dict[str, Any] = X, bool_: bool = False) -> dict[str, Any]:
    return {"type": "binaryExpr", "op": op, "lhs": X, "rhs": right, "matching": matching, "bool": bool_}


def call(name: str, types: list[str], args: list[Any], variadic: int = 0, returns: str = "vector") -> dict[str, Any]:
    func = {"name": name, "argTypes": types, "variadic": variadic, "returnType": returns}
    return {"type": "call", "func": func, "args": args}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1e6", number("1000000")),
        ("Inf", number("+Inf")),
        ("0.5", number("0.5")),
        ('"a"', {"type": "stringLiteral", "val": "a"}),
        ("(x)", {"type": "parenExpr", "expr": X}),
        ("-x", {"type": "unaryExpr", "op": "-", "expr": X}),
        ("x offset -1m", {**X, "offset": -60_000}),
        ("x @ 1.5", {**X, "timestamp": 1500}),
        ("x @ end()", {**X, "startOrEnd": "end"}),
        ('{a=~"b"}', {**X, "name": "", "matchers": [{"name": "a", "type": "=~", "value": "b"}]}),
        ("rate(x[5m])", call("rate", ["matrix"], [RANGE])),
        ("round(x, 2)", call("round", ["vector", "scalar"], [X, number("2")], 1)),
        ("time()", call("time", [], [], returns="scalar")),
        (
            "x[5m:1m] offset 1s",
            {
                "type": "subquery",
                "expr": X,
                "range": 300_000,
                "offset": 1000,
                "step": 60_000,
                "timestamp": None,
                "startOrEnd": None,
            },
        ),
        ("x + x", binary("+", ONE_TO_ONE)),
        ("x > bool 1", binary(">", None, number("1"), True)),
        ("x and x", binary("and", {**ONE_TO_ONE, "card": "many-to-many"})),
        (
            "x * on (a) group_left (b) x",
            binary("*", {"card": "many-to-one", "labels": ["a"], "on": True, "include": ["b"]}),
        ),
        (
            "topk without (a) (3, x)",
            {
                "type": "aggregation",
                "op": "topk",
                "expr": X,
                "param": number("3"),
                "grouping": ["a"],
                "without": True,
            },
        ),
    ],
)
def test_trees(text: str, tree: dict[str, Any]) -> None:
    assert to_json(parse(text).node) == tree
    json.dumps(tree)
