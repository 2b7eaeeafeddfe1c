"""Result of a query: series in canonical order on one grid, each value exact, present or missing. Immutable."""

from __future__ import annotations

from typing import Any

import numpy as np

from query_dsl.results.cells import Cells, Key
from query_dsl.results.matrix_values import MatrixValues
from query_dsl.results.plot import plot_matrix
from query_dsl.results.render import render_html, render_table


class Matrix(MatrixValues):
    """Series x buckets, with display as a table and as a line chart."""

    __slots__ = ()

    def plot(self, ax: Any = None, *, title: str | None = None, legend: int = 12, **line: Any) -> Any:
        """Draw a line per series, return matplotlib's Axes; missing values are gaps. See query_dsl/results/plot.py."""
        return plot_matrix(self, ax, title=title, legend=legend, **line)

    def __repr__(self) -> str:
        return render_table(self, sparks=True)

    def _repr_html_(self) -> str:
        return render_html(self)


def in_order(keys: list[Key], column: Cells) -> tuple[tuple[Key, ...], Cells]:
    """Sort keys and rows canonically."""
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.intp)
    return tuple(keys[i] for i in order), Cells(column.types[order], column.cells[order], column.present[order])
