"""Rows of values as buckets of one sample each, windows over them, and answers of a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from artimon.compute.arrays import Arrays, Mapped
from artimon.compute.cells import Floats
from artimon.compute.function import mask_windows
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import bind_params
from artimon.compute.window_frames import WindowFrame
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE
from artimon.model.values import Value, ValueType, double_to_cell, type_of

STEP = 1_000
Row = Sequence[Value | None]


def arrays_of(rows: Sequence[Row], *, stored: bool = True, times: Sequence[Sequence[int]] | None = None) -> Arrays:
    """Bucket i ends at (i + 1) seconds and holds its sample there, or at `times`. STRING cells are positions in order
    of first use."""
    n, columns = len(rows), len(rows[0])
    types = np.array([_type(row) for row in rows], np.uint8)
    texts: list[str] = []
    cells = np.array([[_cell(v, t, texts) for v in row] for row, t in zip(rows, types, strict=True)], np.int64)
    present = np.array([[v is not None for v in row] for row in rows])
    grid = Grid(columns * STEP, STEP, columns)
    stats = dict.fromkeys(("last", "min", "max", "sum"), cells)
    stats["count"] = present.astype(np.int64)
    stats["last_time"] = np.where(present, grid.ends()[None, :] if times is None else np.array(times), 0)
    return Arrays(
        kinds=np.zeros(n, np.uint8),
        types=types,
        grid=grid,
        stats=stats,
        lives=np.zeros(0, INCARNATION_DTYPE),
        ended_ms=np.zeros(n, np.int64),
        stored=stored,
    )


def _type(row: Row) -> int:
    return next((int(type_of(v)) for v in row if v is not None), int(ValueType.DOUBLE))


def _cell(value: Value | None, kind: int, texts: list[str]) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        if value not in texts:
            texts.append(value)
        return texts.index(value)
    return double_to_cell(float(value)) if kind == ValueType.DOUBLE else int(value)


def trailing(data: Arrays, width: int, *, after: int = 0, gap_ms: int = 10**9) -> WindowFrame:
    """Windows of `width` columns, the last `after` of them after the time of the output, wherever all lie inside."""
    ends = np.arange(width - 1, data.grid.n)
    return WindowFrame(ends, width, data.grid.ends()[width - 1 :], width * STEP, gap_ms, after * STEP)


def mapped(name: str, data: Arrays, frame: WindowFrame, **args: Any) -> Mapped:
    function = FUNCTIONS[name]
    found = function.run(data, frame, bind_params(name, function.params, args.items()))
    return mask_windows(found, function, data, frame, None, False)


def values(name: str, rows: Sequence[Row], width: int, **args: Any) -> list[list[float | int | None]]:
    """Value of each output, None if it is missing."""
    data = arrays_of(rows)
    column = mapped(name, data, trailing(data, width), **args).column
    shown: list[list[float | int | None]] = []
    for kind, cells, there in zip(column.types, column.cells, column.present, strict=True):
        numbers = cells.view(np.float64) if kind == ValueType.DOUBLE else cells
        shown.append([v if p else None for v, p in zip(numbers.tolist(), there.tolist(), strict=True)])
    return shown


def random_rows(seed: int, series: int = 7, columns: int = 40, gaps: float = 0.25) -> list[list[float | None]]:
    """Random walks with gaps."""
    random = np.random.default_rng(seed)
    walk: Floats = np.cumsum(random.normal(size=(series, columns)), axis=1) * 10 + 1e6
    missing = random.random((series, columns)) < gaps
    return [
        [None if gone else float(v) for v, gone in zip(row, out, strict=True)]
        for row, out in zip(walk, missing, strict=True)
    ]
