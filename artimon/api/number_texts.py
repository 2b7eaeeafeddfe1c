"""Rows of numbers as JSON writes them, many at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from artimon.model.values import ValueType
from query_dsl import Matrix
from query_dsl.results.cells import Bools, Floats

BLOCK_CELLS = 65_536
LEAST, MOST = 1e-4, 1e9
"""Between these Arrow writes a double that is not whole just as Python does, in a third of the time."""


def number_texts(matrix: Matrix) -> Iterator[str | None]:
    """For each series the list of its values, where all of them are finite numbers that are there; else None."""
    n = matrix.grid.n
    each = max(1, BLOCK_CELLS // n)
    for start in range(0, len(matrix.keys), each):
        rows = slice(start, start + each)
        types, full = matrix.types[rows], matrix.present[rows].all(axis=1)
        cells = np.ascontiguousarray(matrix.cells[rows])
        floats = cells.view(np.float64)
        real = full & (types == ValueType.DOUBLE)
        usual = real & _usual(floats)
        texts = iter(_by_arrow(floats[usual]))
        numbers = (real & np.isfinite(floats).all(axis=1)) | (full & (types == ValueType.INTEGER))
        for i, (arrow, plain) in enumerate(zip(usual.tolist(), numbers.tolist(), strict=True)):
            if arrow:
                yield f"[{next(texts)}]"
            else:
                yield repr((floats[i] if real[i] else cells[i]).tolist()) if plain else None


def _usual(values: Floats) -> Bools:
    """(series,) rows that Arrow writes as Python does."""
    with np.errstate(invalid="ignore"):
        size = np.abs(values)
        return np.asarray(((size >= LEAST) & (size < MOST) & (size != np.floor(size))).all(axis=1))


def _by_arrow(values: Floats) -> list[str]:
    """Values of each row, separated by commas."""
    if not values.size:
        return [""] * len(values)
    texts = pc.cast(pa.array(values.reshape(-1)), pa.utf8())
    bounds = pa.array(np.arange(0, values.size + 1, values.shape[1], dtype=np.int32))
    joined: list[str] = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), ", ").to_pylist()
    return joined
