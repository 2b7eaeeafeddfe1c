"""Numbers of an answer are those of the matrix, bit by bit, by whatever way they are written."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from artimon.api.formats import json_pieces
from artimon.model.grid import Grid
from query_dsl import Matrix
from query_dsl.results.result_cells import DOUBLE, INTEGER, Bools, Cells, Floats, SeriesKey
from tests.seeds import fixed_and_drawn

STEP = 60_000


def matrix_of(values: Floats, present: Bools | None = None) -> Matrix:
    keys = tuple(SeriesKey("a", (("i", f"{i:07}"),)) for i in range(len(values)))
    present = np.ones(values.shape, np.bool_) if present is None else present
    types = np.full(len(values), DOUBLE, np.uint8)
    return Matrix(keys, Grid(STEP * 1000, STEP, values.shape[1]), Cells(types, values.view(np.int64), present))


def written(matrix: Matrix) -> Any:
    """The answer as a client reads it; numbers in the form that tells all of them apart (-0.0 and 0.0, 1 and 1.0)."""
    return json.loads(b"".join(json_pieces(matrix)), parse_float=lambda text: repr(float(text)))


def meant(matrix: Matrix) -> Any:
    return json.loads(matrix.to_json(), parse_float=lambda text: repr(float(text)))


@pytest.mark.parametrize("seed", fixed_and_drawn([5], "texts of doubles"))
def test_doubles_of_all_sizes(seed: int) -> None:
    random = np.random.default_rng(seed)
    edges = [1e-4, 1e9, 1e-5, 1e16, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 999_999_999.9999999, 0.1, 12.0, 1e8]
    edges += [float("nan"), float("inf"), -float("inf")]
    drawn = 10.0 ** random.uniform(-6, 18, 90_000) * random.choice([-1, 1], 90_000)
    usual = random.uniform(0.001, 1e6, 30_000)
    values = np.concatenate([np.repeat(edges, 2), drawn, usual])
    values = values[: len(values) // 3 * 3].reshape(-1, 3)
    found = matrix_of(np.ascontiguousarray(values))
    assert written(found) == meant(found)
    assert written(matrix_of(np.asfortranarray(values))) == meant(found)


def test_missing_values_and_integers() -> None:
    values = np.array([[0.25, 0.5], [0.75, 1.5]])
    found = matrix_of(values, np.array([[True, False], [True, True]]))
    assert '"values": [0.25, null]' in b"".join(json_pieces(found)).decode()
    types = np.array([INTEGER, DOUBLE], np.uint8)
    cells = np.array([[2**53 + 1, -(2**63)], [0, 0]])
    mixed = Matrix(found.keys, found.grid, Cells(types, cells, np.ones((2, 2), np.bool_)))
    assert written(mixed) == meant(mixed)
    nothing = Matrix((), found.grid, Cells(types[:0], cells[:0], cells[:0] > 0))
    assert written(nothing) == meant(nothing)
