"""A batch with several samples of one series: they are joined cell by cell before they meet what cells hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from varstore.cells.dense import Part
from varstore.cells.ties import Bounds, Cells, ranks
from varstore.series.texts import Texts


def collapse(at: Cells, offset: Cells, cells: Cells, bounds: Bounds, texts: Texts) -> Part:
    """The part with one row for each distinct cell of `at`; rows of one cell have one class of value."""
    order = ranks(cells, bounds, texts)
    groups = [
        _class(at[rows], offset[rows], cells[rows], order[rows], dtype)
        for rows, dtype in (
            (slice(0, bounds.ints), np.int64),
            (slice(bounds.ints, bounds.doubles), np.float64),
            (slice(bounds.doubles, len(at)), np.int64),
        )
    ]
    ints = len(groups[0][0])
    columns = [np.concatenate(column) for column in zip(*groups, strict=True)]
    return Part(
        columns[0],
        columns[1].astype(np.uint32),
        columns[2],
        columns[3],
        columns[4],
        columns[5],
        columns[6],
        Bounds(ints, ints + len(groups[1][0])),
    )


def _class(at: Cells, offset: Cells, cells: Cells, rank: Cells, dtype: Any) -> tuple[Cells, ...]:
    """Columns at, count, offset, last, low, high, total of one class."""
    if not len(at):
        return (np.zeros(0, np.int64),) * 7
    order = np.lexsort((rank, offset, at))
    at, offset, cells = at[order], offset[order], cells[order]
    starts = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
    ends = np.append(starts[1:], len(at))
    values = cells.view(dtype)
    low, high, total = (f.reduceat(values, starts).view(np.int64) for f in (np.minimum, np.maximum, np.add))
    return at[starts], ends - starts, offset[ends - 1], cells[ends - 1], low, high, total
