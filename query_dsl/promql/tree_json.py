"""Syntax tree of PromQL as the JSON of Prometheus' `parse_query`."""

from __future__ import annotations

from typing import Any

import numpy as np
import promql_parser

from artimon.model.select import NAME
from query_dsl.promql.tree import (
    Aggregation,
    At,
    Binary,
    Call,
    Matching,
    Negation,
    Node,
    Number,
    Paren,
    Selector,
    Subquery,
    Text,
    value_type,
)

_SET_OPERATORS = ("and", "or", "unless")
_CARDS = {"": "one-to-one", "left": "many-to-one", "right": "one-to-many"}


def to_json(node: Node) -> dict[str, Any]:
    """Return the tree below a node."""
    match node:
        case Number(value):
            return {"type": "numberLiteral", "val": _number(value)}
        case Text(value):
            return {"type": "stringLiteral", "val": value}
        case Paren(child):
            return {"type": "parenExpr", "expr": to_json(child)}
        case Negation(child):
            return {"type": "unaryExpr", "op": "-", "expr": to_json(child)}
        case Selector():
            return _selector(node)
        case Subquery(child):
            fixed = {"range": node.range_ms, "offset": node.offset_ms, "step": node.step_ms, **_at(node.at)}
            return {"type": "subquery", "expr": to_json(child), **fixed}
        case Call(function, args):
            return {"type": "call", "func": _signature(function, args), "args": [to_json(one) for one in args]}
        case Aggregation():
            return {
                "type": "aggregation",
                "op": node.function,
                "expr": to_json(node.child),
                "param": None if node.param is None else to_json(node.param),
                "grouping": list(node.labels),
                "without": node.without,
            }
        case Binary():
            return {
                "type": "binaryExpr",
                "op": node.op,
                "lhs": to_json(node.left),
                "rhs": to_json(node.right),
                "matching": _matching(node, node.matching),
                "bool": node.bool_modifier,
            }


def _selector(node: Selector) -> dict[str, Any]:
    first = node.matchers[0] if node.matchers else None
    name = first.value if first is not None and (first.label, first.op) == (NAME, "=") else ""
    fixed = {
        "name": name,
        "offset": node.offset_ms,
        "matchers": [{"name": one.label, "type": one.op, "value": one.value} for one in node.matchers],
        **_at(node.at),
    }
    if node.range_ms:
        return {"type": "matrixSelector", "range": node.range_ms, **fixed}
    return {"type": "vectorSelector", **fixed}


def _at(at: At | None) -> dict[str, Any]:
    return {"timestamp": None if at is None else at.time_ms, "startOrEnd": (at.edge or None) if at else None}


def _matching(node: Binary, found: Matching) -> dict[str, Any] | None:
    if "scalar" in (value_type(node.left), value_type(node.right)):
        return None
    card = "many-to-many" if node.op in _SET_OPERATORS else _CARDS[found.group]
    return {"card": card, "labels": list(found.labels), "on": found.on, "include": list(found.include)}


def _number(value: float) -> str:
    named = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value))
    return named or str(np.format_float_positional(value, trim="-"))


def _signature(function: str, args: tuple[Node, ...]) -> dict[str, Any]:
    """Return the signature of a function from the library, which gives it only with a parsed call."""
    texts = {"scalar": "1", "string": '""', "vector": "x", "matrix": "x[1m]"}
    found: Any = promql_parser.parse(f"{function}({', '.join(texts[value_type(one)] for one in args)})")
    types = [_type(one) for one in found.func.arg_types]
    return {
        "name": function,
        "argTypes": types,
        "variadic": found.func.variadic,
        "returnType": _type(found.func.return_type),
    }


def _type(one: Any) -> str:
    return str(one).rpartition(".")[2].lower()
