"""Values of nodes: series on a grid, raw series, plain values, and plain values that change with time."""

from __future__ import annotations

from dataclasses import dataclass

from artimon.model.grid import Grid
from query_dsl.results.cells import Cells
from query_dsl.results.irregular import Irregular
from query_dsl.results.matrix import Matrix
from query_dsl.tree import nodes
from query_dsl.tree.errors import QueryError


@dataclass(frozen=True, slots=True)
class TimedScalar:
    """One value for each bucket of `grid`: `column` has one row. It pairs with every series."""

    grid: Grid
    column: Cells
    strings: tuple[str, ...] = ()


Value = Matrix | nodes.Scalar | TimedScalar
"""Operands of operators."""
Answer = Matrix | Irregular
"""The two kinds of series: on a grid, and raw."""


def to_scalar(found: Matrix) -> TimedScalar:
    """Return the only series of a matrix. Raises QueryError if there is none or more than one."""
    if len(found) != 1:
        shown = f", such as {', '.join(found.series[:3])}" if len(found) else ""
        raise QueryError(f"scalar wants exactly one series and got {len(found)}{shown}: reduce with by=[] before")
    return TimedScalar(found.grid, found.column, found.strings)
