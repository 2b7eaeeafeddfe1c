"""Result of a query: series in canonical order on one grid, each value exact, present or missing. Immutable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from artimon.model.grid import Grid
from query_dsl.results.matrix_values import MatrixValues
from query_dsl.results.plot import plot_matrix
from query_dsl.results.render import render_html, render_table
from query_dsl.results.result_cells import Cells, SeriesKey, canonical_order, take


class Matrix(MatrixValues):
    """Series x buckets, with display as a table and as a line chart."""

    __slots__ = ()

    @classmethod
    def in_order(cls, keys: Sequence[SeriesKey], grid: Grid, column: Cells, strings: tuple[str, ...] = ()) -> Matrix:
        """Make a matrix of series that are in any order."""
        ordered, sorted_column = sort_rows(keys, column)
        return cls(ordered, grid, sorted_column, strings)

    def plot(self, ax: Any = None, *, title: str | None = None, legend: int = 12, **line: Any) -> Any:
        """Draw a line per series, return matplotlib's Axes; missing values are gaps. See query_dsl/results/plot.py."""
        return plot_matrix(self, ax, title=title, legend=legend, **line)

    def __repr__(self) -> str:
        return render_table(self, sparks=True)

    def _repr_html_(self) -> str:
        return render_html(self)


def sort_rows(keys: Sequence[SeriesKey], column: Cells) -> tuple[tuple[SeriesKey, ...], Cells]:
    """Sort keys and rows canonically."""
    order = canonical_order(keys)
    return tuple(map(keys.__getitem__, order.tolist())), take(column, order)
