"""Outline of a query in our language."""

from __future__ import annotations

from query_dsl.functions.mappers import ENTRIES
from query_dsl.functions.tables import OPERATORS, REDUCERS
from query_dsl.language.class_joins import keeps_labels
from query_dsl.lint.outline import Grouped, Joined, Other, Part, Selection, Windowed, combined
from query_dsl.tree import nodes

_FILTERS = ("set", "mask")
_SAME_LABELS = (nodes.Range, nodes.Between, nodes.At, nodes.Point, nodes.Unary, nodes.Named)


def outline(node: nodes.Node) -> Part:
    """Return the outline of a tree."""
    match node:
        case nodes.Fetch(selector=selector) | nodes.Samples(selector=selector):
            return Selection(selector.matchers, node.span)
        case nodes.Window(function=str(name), before_ms=width_ms):
            return _windowed(node.child, name, width_ms, node.span)
        case nodes.Bucketize(function=str(name), step_ms=width_ms):
            return _windowed(node.child, name, width_ms, node.span)
        case nodes.Reduce(function=function, by=by, without=without):
            name = function if isinstance(function, str) else function.name
            keeps = isinstance(function, str) and not REDUCERS[function].one_per_class
            return Grouped(outline(node.child), name, by, without, keeps, node.span)
        case nodes.Binary():
            return _joined(node)
        case nodes.Transform():
            below = tuple(map(outline, nodes.children(node)))
            return Other(below, _keeps_series(node), node.function == "shift")
        case nodes.Offset(child=child):
            return Other((outline(child),), True, reads_raw=True)
        case nodes.Window(child=child) | nodes.Bucketize(child=child):
            return Other((outline(child),), True, reads_raw=True)
        case nodes.Apply(operands=operands):
            return Other(tuple(map(outline, operands)), reads_raw=True)
    return Other(tuple(map(outline, nodes.children(node))), isinstance(node, _SAME_LABELS))


def _keeps_series(node: nodes.Transform) -> bool:
    """Return True if every series below is there afterwards, with its labels."""
    return keeps_labels(node) and node.family != "filter" and node.function != "limit"


def _windowed(child: nodes.Node, name: str, width_ms: int | None, span: nodes.Span | None) -> Part:
    entry = ENTRIES[name]
    return Windowed(outline(child), name, width_ms, entry.counter, 1 + entry.pair, span)


def _joined(node: nodes.Binary) -> Part:
    left, right = outline(node.left), outline(node.right)
    plain = not (nodes.selects_series(node.left) and nodes.selects_series(node.right))
    if plain or node.op == "set_or" or any(isinstance(side, nodes.ToScalar) for side in (node.left, node.right)):
        return combined(left, right)
    family, symbol = OPERATORS[node.op].family, OPERATORS[node.op].symbol or node.op
    return Joined(symbol, left, right, node.match, family in _FILTERS, family == "arithmetic", node.span)
