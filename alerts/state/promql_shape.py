"""Query in PromQL without the values of labels that it selects, and without the constants it is combined with at last.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alerts.state.rule_shape import LabelValues, divide_matchers
from query_dsl.promql import Query
from query_dsl.promql.tree import Aggregation, Binary, Call, Negation, Node, Number, Selector, without_parens
from query_dsl.promql.vector_operators import COMPARISONS, SETS, compute
from query_dsl.results.result_cells import SeriesKey

EACH_SERIES = frozenset(
    (
        *(
            "abs",
            "ceil",
            "floor",
            "round",
            "sqrt",
            "exp",
            "ln",
            "log2",
            "log10",
            "sgn",
            "clamp",
            "clamp_min",
            "clamp_max",
        ),
        *("rate", "increase", "irate", "delta", "idelta", "deriv", "changes", "resets", "predict_linear", "timestamp"),
        *(f"{name}_over_time" for name in ("avg", "min", "max", "sum", "count", "last", "stddev", "stdvar", "present")),
    )
)
"""Functions that make each series from the one with the same labels."""
EACH_CLASS = frozenset(("sum", "min", "max", "avg", "count", "group", "stddev", "stdvar", "quantile"))
"""Aggregations whose classes depend on their own series only."""
Points = list[tuple[SeriesKey, float]]


@dataclass(frozen=True, slots=True)
class NumberOperator:
    """Operator that combines a vector with a number; `swapped`: the number is on the left."""

    op: str
    number: float
    swapped: bool
    as_bool: bool

    def apply(self, points: Points) -> Points:
        """Return the series and values of the result, as PromQL has them."""
        values, number = np.array([value for _, value in points]), np.array([self.number])
        made = compute(self.op, *((number, values) if self.swapped else (values, number)))
        if self.op in COMPARISONS and not self.as_bool:
            return [point for point, holds in zip(points, made.tolist(), strict=True) if holds]
        return [(key._replace(name=""), value) for (key, _), value in zip(points, made.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class PromqlShape:
    """Query without the matchers that compare a label with a value, and what they select."""

    node: Node
    labels: tuple[str, ...]
    """Sorted names of these labels; each series of the answer has them."""
    values: LabelValues
    operators: tuple[NumberOperator, ...]
    """Operators above the query, the innermost first."""

    @property
    def query(self) -> Query:
        """Query of the shape."""
        return Query("", self.node)

    def apply_operators(self, points: Points) -> Points:
        """Return what the operators make of an answer."""
        for one in self.operators:
            points = one.apply(points) if points else points
        return points


def promql_shape_of(query: Query) -> PromqlShape | None:
    """Return the shape of a query; None if its answer is not the part of the shape's with these values."""
    node, operators = _without_operators(query.node)
    selector = _only_selector(node)
    if selector is None:
        return None
    kept, freed = divide_matchers(selector.matchers)
    labels = tuple(sorted(freed))
    if not (labels or operators) or not _keeps(node, labels):
        return None
    shape = _replaced(node, replace(selector, matchers=kept)) if labels else _replaced(node, selector)
    return PromqlShape(shape, labels, tuple(freed[label] for label in labels), operators)


def _number(node: Node) -> float | None:
    node = without_parens(node)
    if isinstance(node, Negation):
        child = without_parens(node.child)
        return -child.value if isinstance(child, Number) else None
    return node.value if isinstance(node, Number) else None


def _without_operators(node: Node) -> tuple[Node, tuple[NumberOperator, ...]]:
    """Return the tree below the operators at its top that combine it with a number, and these operators."""
    operators: list[NumberOperator] = []
    node = without_parens(node)
    while isinstance(node, Binary) and node.op not in SETS:
        right, left = _number(node.right), _number(node.left)
        if right is not None:
            operators.append(NumberOperator(node.op, right, False, node.bool_modifier))
            node = without_parens(node.left)
        elif left is not None:
            operators.append(NumberOperator(node.op, left, True, node.bool_modifier))
            node = without_parens(node.right)
        else:
            break
    return node, tuple(reversed(operators))


def _child(node: Call | Aggregation) -> Node | None:
    """Return the only operand that is not a number; None if there is another."""
    if isinstance(node, Aggregation):
        return node.child if node.param is None or _number(node.param) is not None else None
    others = [one for one in node.args if _number(one) is None]
    return others[0] if len(others) == 1 else None


def _only_selector(node: Node | None) -> Selector | None:
    """Return the selector below functions and aggregations of one operand; None if there is another kind of node."""
    node = None if node is None else without_parens(node)
    if isinstance(node, Selector):
        return node if node.at is None else None
    return _only_selector(_child(node)) if isinstance(node, Call | Aggregation) else None


def _keeps(node: Node, labels: Sequence[str]) -> bool:
    """Return True if each series of the result has these labels, and depends only on series that have the same."""
    node = without_parens(node)
    if isinstance(node, Call):
        return node.function in EACH_SERIES and _keeps(_child(node) or node, labels)
    if isinstance(node, Aggregation):
        is_by = node.function in EACH_CLASS and not node.without and set(labels) <= set(node.labels)
        return is_by and _keeps(_child(node) or node, labels)
    return True


def _replaced(node: Node, selector: Selector) -> Node:
    """Return the tree with another selector, without positions in the text."""
    node = without_parens(node)
    match node:
        case Selector():
            return selector
        case Call(args=args):
            made = tuple(one if _number(one) is not None else _replaced(one, selector) for one in args)
            return replace(node, args=made, position=0)
        case Aggregation(child=child):
            return replace(node, child=_replaced(child, selector), position=0)
    return node
