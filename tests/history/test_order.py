"""Runs of samples are moved as wholes only where that gives the order that sorting gives."""

from __future__ import annotations

import numpy as np
import pytest

from query_dsl.history.result import RUN_ROWS, _order


@pytest.mark.parametrize("seed", range(60))
def test_as_sorting_does(seed: int) -> None:
    """Long and short runs, times that rise in a run or not, series in several runs, equal times."""
    random = np.random.default_rng(seed)
    rows, length = int(random.integers(0, 500)), (1, 3, RUN_ROWS + 1, 40)[seed % 4]
    number = np.repeat(random.integers(0, 6, rows // length + 1), length)[:rows]
    time = random.integers(0, 8 if seed % 2 else 10_000, rows)
    if seed % 3:
        run = np.cumsum(np.diff(number, prepend=-1) != 0) if seed % 5 else number
        time = time[np.lexsort((time, run))]
    birth = random.integers(0, 3, rows)
    found, plain = _order(number, time, birth), np.lexsort((birth, time, number))
    assert sorted(found.tolist()) == list(range(rows))
    for column in (number, time, birth):
        assert column[found].tolist() == column[plain].tolist()
