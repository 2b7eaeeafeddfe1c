"""Explanation of a query: plan, engine, level, and parts that the store computes; after a run also reads and times."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from artimon.model.grid import Grid
from artimon.model.select import Store
from query_dsl.evaluation.evaluator import QueryEvaluator, prepare
from query_dsl.evaluation.execution import NodeCost, QueryExecution
from query_dsl.evaluation.pushed_reduction import may_push
from query_dsl.language.expression import Expr
from query_dsl.language.printer import print_node
from query_dsl.results.provenance import Origin, StoreRequest
from query_dsl.results.raw_series import RawSeries
from query_dsl.stores.query_limits import Limits, make_budget
from query_dsl.tree import nodes
from query_dsl.tree.calendar_units import grid_fields, step_text
from query_dsl.tree.times import format_duration, format_time

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One node of the plan: its depth in the tree, its text without operands, and a comment. `cost`: None if the query
    did not run, or if the node was computed in the store, as part of the node above it."""

    depth: int
    text: str
    comment: str
    cost: NodeCost | None = None
    own_ms: float = 0.0
    """Milliseconds in the node without those below it."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that is ready for JSON."""
        found: dict[str, Any] = {"depth": self.depth, "text": self.text, "about": self.comment}
        if self.cost is not None:
            found |= {"ms": round(self.cost.ms, 3), "own_ms": round(self.own_ms, 3)}
            found |= {"series": self.cost.series, "points": self.cost.points}
        return found

    def __str__(self) -> str:
        if self.cost is None:
            return self.comment
        size = f"{self.cost.series:,} series, {self.cost.points:,} points, {self.own_ms:,.1f} ms"
        return f"{self.comment}; {size}" if self.comment else size


@dataclass(frozen=True, slots=True)
class Explanation:
    """Plan of a query. `origin.fetched` is empty if it did not run; `series` and `points` are those of the answer."""

    query: str
    grid: Grid
    origin: Origin
    lines: tuple[PlanLine, ...]
    notes: tuple[str, ...] = ()
    ran: bool = False
    series: int = 0
    points: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that is ready for JSON."""
        return {
            "query": self.query,
            "grid": grid_fields(self.grid),
            "plan": [line.to_dict() for line in self.lines],
            "origin": self.origin.to_dict(),
            "notes": list(self.notes),
            "ran": self.ran,
            "series": self.series,
            "points": self.points,
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return a frame with a row for each node: its text, milliseconds with and without the nodes below, series and
        points."""
        import pandas as pd

        texts = [f"{'  ' * line.depth}{line.text}" for line in self.lines]
        rows = [
            {name: line.to_dict().get(name) for name in ("ms", "own_ms", "series", "points")} for line in self.lines
        ]
        return pd.DataFrame(rows, index=pd.Index(texts, name="node"))

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def __str__(self) -> str:
        grid, origin = self.grid, self.origin
        head = [
            f"grid    {grid.n:,} x {step_text(grid)}, {_span(grid.start_ms, grid.end_ms)}",
            f"engine  {origin.engine}",
            f"level   {format_duration(origin.step_ms)}: {origin.why}",
        ]
        width = min(WIDTH, max(2 * line.depth + len(line.text) for line in self.lines))
        plan = [f"{'  ' * line.depth + line.text:<{width}}  {line}".rstrip() for line in self.lines]
        parts = [*head, "", *plan]
        if self.ran:
            parts += ["", *(_fetched(one) for one in origin.fetched)]
            parts.append(f"answer  {self.series:,} series, {self.points:,} points, {origin.ms:,.1f} ms in all")
        return "\n".join([*parts, *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__


def _fetched(one: StoreRequest) -> str:
    how = "reduced in the store" if one.reduced else " ".join(one.statistics)
    lines = [
        f"fetch   {one.selector}: {one.series:,} series x {one.grid.n:,} x {format_duration(one.grid.step_ms)}, {how},"
        f" {one.bytes:,} bytes, {one.ms:,.1f} ms"
    ]
    for part in one.parts:
        what = [f"{part.samples:,} samples"] if part.samples else []
        what += [part.detail] if part.detail else []
        said = f": {', '.join(what)}" if what else ""
        lines.append(f"          {part.engine} {_span(part.start_ms, part.end_ms)}{said}")
    return "\n".join(lines)


def _span(start_ms: int, end_ms: int) -> str:
    return f"({format_time(start_ms)} .. {format_time(end_ms)}]"


def explain(
    query: str | Expr,
    store: Store,
    now_ms: int,
    run: bool = True,
    *,
    limits: Limits | None = None,
    check: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    partial_windows: bool = False,
) -> Explanation:
    """Explain how `store` answers the query at `now_ms`; with `run` (the default) the query runs and is measured.

    Raises as `evaluate`."""
    return explain_prepared(prepare(query, store, now_ms, make_budget(limits, check, stop), partial_windows), run)


def explain_prepared(evaluator: QueryEvaluator, run: bool = True) -> Explanation:
    series = points = 0
    notes = tuple(evaluator.notes)
    if run:
        evaluator.costs = {}
        found = evaluator.answer()
        notes, series = found.notes, len(found)
        points = found.samples if isinstance(found, RawSeries) else int(found.present.sum())
    tree, grid = evaluator.tree, evaluator.plan.grid
    lines = _lines(tree, evaluator)
    return Explanation(print_node(tree), grid, evaluator.origin(), lines, notes, run, series, points)


def _lines(tree: nodes.Node, execution: QueryExecution) -> tuple[PlanLine, ...]:
    """Return a line for every node, parents before children."""
    lines, costs = [], execution.costs or {}
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        cost = costs.get(id(node))
        below = sum(costs[id(child)].ms for child in nodes.children(node) if id(child) in costs)
        own_ms = max(0.0, cost.ms - below) if cost else 0.0
        lines.append(PlanLine(depth, _text(node), _comment(node, execution), cost, own_ms))
        waiting.extend((child, depth + 1) for child in reversed(nodes.children(node)))
    return tuple(lines)


def _text(node: nodes.Node) -> str:
    """Text of the node without its operands."""
    if isinstance(node, nodes.Binary):
        return node.op
    whole, below = print_node(node), nodes.children(node)
    if below:
        first = print_node(below[0])
        if whole.startswith(first):
            whole = whole[len(first) :]
        elif whole.startswith(f"({first})"):
            whole = whole[len(first) + 2 :]
        else:
            whole = type(node).__name__.lower()
    return whole if len(whole) <= WIDTH else whole[: WIDTH - 3] + "..."


def _comment(node: nodes.Node, execution: QueryExecution) -> str:
    plan = execution.plan
    if isinstance(node, nodes.Reduce):
        grid = plan.grid
        return "in the store, by class" if may_push(node, grid, execution) else "by class"
    if isinstance(node, nodes.Window):
        if node.since is not None:
            return f"windows since the start of {node.since} in {node.since.zone}"
        return f"windows of {format_duration((node.before_ms or plan.grid.step_ms) + node.after_ms)}"
    if isinstance(node, nodes.Bucketize):
        return f"from buckets of {format_duration(plan.base_step_ms)}"
    if isinstance(node, nodes.Samples):
        return "raw samples"
    if isinstance(node, nodes.Fetch | nodes.Absent):
        raw = isinstance(node, nodes.Fetch) and node.resolution is not None
        return f"{'history' if raw else plan.engine}, buckets of {format_duration(plan.base_step_ms)}"
    return ""
