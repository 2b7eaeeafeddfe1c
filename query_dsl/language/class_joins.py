"""Joins of series with a reduction of their class: `x - x.mean(by=["rack"])` pairs by the labels of the class."""

from __future__ import annotations

from dataclasses import replace

from artimon.model.select import NAME
from query_dsl.functions.tables import OPERATORS, REDUCERS
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Binary, LabelMatching, Node

ClassLabels = tuple[str, frozenset[str], tuple[str, ...]]
"""(by, without, or series; the labels as a set, and as written)."""
SERIES: ClassLabels = ("series", frozenset(), ())
"""Series with labels of their own."""
_SAME_LABELS = (
    nodes.Range,
    nodes.Between,
    nodes.At,
    nodes.Offset,
    nodes.Window,
    nodes.Bucketize,
    nodes.Point,
    nodes.Unary,
    nodes.Named,
)
_SAME_LABELS_STEPS = frozenset({"shift", "clip", "sort", "limit", "integrate"})


def match_classes(op: str, left: Node, right: Node, match: LabelMatching) -> LabelMatching:
    """Return the matching of an operator without on= or ignoring=. If one operand is a reduction by fewer labels than
    the other has, many series of the other pair with one of it by these labels."""
    if (match.on, match.ignoring, match.group_left, match.group_right) != (None, None, None, None) or op == "set_or":
        return match
    mine, theirs = labels_of(left), labels_of(right)
    if mine is None or theirs is None:
        return match
    if _is_finer(mine, theirs):
        return _pair_by(theirs, match, "" if OPERATORS[op].family in ("set", "mask") else "group_left")
    if _is_finer(theirs, mine) and OPERATORS[op].family not in ("set", "mask"):
        return _pair_by(mine, match, "group_right")
    return match


def _pair_by(found: ClassLabels, match: LabelMatching, group: str) -> LabelMatching:
    kind, _, labels = found
    match = replace(match, on=labels) if kind == "by" else replace(match, ignoring=labels)
    if not group:
        return match
    return replace(match, group_left=()) if group == "group_left" else replace(match, group_right=())


def _is_finer(one: ClassLabels, other: ClassLabels) -> bool:
    """Return True if several series of `one` can belong to a class of `other`."""
    if other == SERIES:
        return False
    if one == SERIES:
        return True
    if one[0] != other[0]:
        return False
    return one[1] > other[1] if one[0] == "by" else one[1] < other[1]


def labels_of(node: Node) -> ClassLabels | None:
    """Return the labels of the series of a node; None for a plain value."""
    while isinstance(node, _SAME_LABELS) or (isinstance(node, nodes.Transform) and keeps_labels(node)):
        node = node.child
    match node:
        case nodes.Reduce(function=function, by=by, without=without):
            if isinstance(function, str) and not REDUCERS[function].one_per_class:
                return SERIES
            labels = (by if by is not None else without) or ()
            if NAME in labels:  # operators drop the name
                return SERIES
            return ("by" if by is not None else "without", frozenset(labels), labels)
        case Binary():
            return _of_chain(node)
        case nodes.Fetch() | nodes.Absent() | nodes.Transform() | nodes.Apply():
            return SERIES
    return None


def keeps_labels(node: nodes.Transform) -> bool:
    """Return True if the series have the labels of those below."""
    return node.family in ("fill", "filter", "map") or node.function in _SAME_LABELS_STEPS


def _of_chain(node: Binary) -> ClassLabels | None:
    """Combine the labels of a chain of left operands in a loop."""
    chain = [node]
    while isinstance(chain[-1].left, Binary):
        chain.append(chain[-1].left)
    found = labels_of(chain[-1].left)
    for link in reversed(chain):
        found = _of_binary(link, found, labels_of(link.right))
    return found


def _of_binary(node: Binary, left: ClassLabels | None, right: ClassLabels | None) -> ClassLabels | None:
    if left is None or right is None:
        return left if right is None else right
    if OPERATORS[node.op].family in ("set", "mask") or node.match.group_left == ():
        return left
    if node.match.group_right == ():
        return right
    if node.match.on is not None and node.match.group_left is None and node.match.group_right is None:
        return "by", frozenset(node.match.on), node.match.on
    return left if left == right else SERIES
