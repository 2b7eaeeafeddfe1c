"""Query of a rule without the values of labels that it selects, and without the constants it is combined with at last.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from artimon.model.select import NAME, Matcher
from query_dsl import Expr
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Node

_ONE_CHILD = (
    nodes.Range, nodes.Between, nodes.At, nodes.Offset, nodes.Window, nodes.Bucketize, nodes.Point, nodes.Unary,
    nodes.Named, nodes.Reduce,
)  # fmt: skip
"""Nodes with one operand; all but `Reduce` make each series from the one with the same labels."""

_TIMES = (nodes.Range, nodes.Between, nodes.At)
LabelValues = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleShape:
    """Query without the matchers that compare a label with a value, and what they select."""

    text: str
    query: Expr
    labels: tuple[str, ...]
    """Sorted names of these labels; each series of the answer has them."""
    values: LabelValues
    operators: tuple[nodes.Binary, ...] = ()
    """Operators above the query of the shape, the innermost first; the other operand of each is a plain number."""


def shape_of(query: Expr) -> RuleShape | None:
    """Return the shape of a query; None if its answer is not the part of the shape's with these values."""
    below, operators = _without_operators(query.node)
    fetch = _only_fetch(below)
    if fetch is None:
        return None
    kept, freed = divide_matchers(fetch.selector.matchers)
    labels = tuple(sorted(freed))
    if not (labels or operators) or not all(_keeps(node, labels) for node in nodes.walk(query.node)):
        return None
    whole_variable = replace(fetch, selector=replace(fetch.selector, matchers=kept))
    node = nodes.map_leaves(below, lambda leaf: whole_variable if leaf is fetch else leaf) if labels else below
    whole = Expr(node, query.depth, parts=query.parts)
    return RuleShape(str(whole), whole, labels, tuple(freed[label] for label in labels), operators)


def _without_operators(node: Node) -> tuple[Node, tuple[nodes.Binary, ...]]:
    """Return the tree below the operators at its top that combine it with a number, and these operators. Nodes that
    only choose the time stay above the tree."""
    if isinstance(node, _TIMES):
        below, operators_below = _without_operators(node.child)
        return replace(node, child=below), operators_below
    operators: list[nodes.Binary] = []
    while isinstance(node, nodes.Binary) and node.match == nodes.LabelMatching():
        if _is_number(node.right):
            below = node.left
        elif _is_number(node.left):
            below = node.right
        else:
            break
        operators.append(node)
        node = below
    return node, tuple(reversed(operators))


def _is_number(node: Node) -> bool:
    return isinstance(node, nodes.Scalar) and not isinstance(node.value, str)


def _only_fetch(node: Node) -> nodes.Fetch | None:
    """Return the fetch below nodes of one operand; None if there is another kind of node."""
    while not isinstance(node, nodes.Fetch):
        if isinstance(node, _ONE_CHILD):
            node = node.child
        elif isinstance(node, nodes.Binary) and isinstance(node.right, nodes.Scalar):
            node = node.left
        elif isinstance(node, nodes.Binary) and isinstance(node.left, nodes.Scalar):
            node = node.right
        else:
            return None
    return node if node.resolution is None and node.default is None else None


def _keeps(node: Node, labels: Sequence[str]) -> bool:
    """Return False for a reduction whose classes differ in other labels than these."""
    if isinstance(node, nodes.Reduce):
        return node.by is not None and isinstance(node.function, str) and set(labels) <= set(node.by)
    return not isinstance(getattr(node, "function", ""), nodes.UserFunction)


def divide_matchers(matchers: Sequence[Matcher]) -> tuple[tuple[Matcher, ...], Mapping[str, str]]:
    """Return the matchers of a shape, and the labels that must have a value; ((), {}) if they select by no name."""
    counts = Counter(one.label for one in matchers)
    if not any(one.label == NAME and one.op == "=" for one in matchers):
        return (), {}
    freed = {
        one.label: one.value
        for one in matchers
        if one.op == "=" and one.value and one.label != NAME and counts[one.label] == 1
    }
    return tuple(one for one in matchers if one.label not in freed), freed
