"""Newest buckets of a query: the part of its grid that a client asks for which holds the rest of the answer."""

from __future__ import annotations

from dataclasses import replace

from query_dsl.evaluation.planner import Plan
from query_dsl.tree import nodes
from query_dsl.tree.calendar_units import CalendarGrid
from query_dsl.tree.nodes import Node

_LOCAL = (
    nodes.Scalar, nodes.Absent, nodes.Range, nodes.Between, nodes.At, nodes.Offset, nodes.Window,
    nodes.Bucketize, nodes.Point, nodes.Reduce, nodes.Binary, nodes.ToScalar, nodes.Unary, nodes.Named,
)  # fmt: skip
_LOCAL_STEPS = frozenset([("filter", "fits"), *(("transform", name) for name in ("shift", "relabel", "rename"))])
_RANKED = ("topk", "bottomk")
"""Reducers that choose members by a value over the whole range, unless they rank each step by itself. The newest value
of a member that has ended may be older than the newest buckets."""


def cut_to_newest(planned: Plan, tree: Node, newest: int | None) -> Plan:
    """Return the plan with the newest buckets of its grid only; as it is if their values depend on the others."""
    grid = planned.grid
    if newest is None or isinstance(grid, CalendarGrid) or newest >= grid.n:
        return planned
    if not all(map(_is_local, nodes.walk(tree))):
        return planned
    return replace(planned, grid=replace(grid, n=newest), is_cut=True)


def _is_local(node: Node) -> bool:
    """Return True if the value of a bucket depends on the samples of that bucket and of a window before it alone. A
    value that stands for a missing sample depends on the range: series without samples there are left out."""
    match node:
        case nodes.Clock():
            return node.reading == "time"
        case nodes.Fetch():
            return node.default is None
        case nodes.Window():
            return node.after_ms == 0
        case nodes.Reduce():
            is_ranked = node.function in _RANKED and dict(node.args).get("rank") != "each"
            return node.rules.nulls == "skip" and not is_ranked  # else members without a sample here count
        case nodes.Binary():
            return node.op != "set_or" and node.match.fill is None  # a value in place of a missing sample
        case nodes.Transform():
            return (node.family, node.function) in _LOCAL_STEPS and "max_gap" not in dict(node.args)
    return isinstance(node, _LOCAL)
