"""Moving whole runs of samples gives the same order as sorting."""

from __future__ import annotations

import numpy as np
import pytest

from query_dsl.stores.history.row_layout import SLICED_ROWS, RowLayout, runs_of
from tests.seeds import fixed_and_drawn


@pytest.mark.parametrize("seed", fixed_and_drawn(range(20), "layout", 20))
def test_layout_equals_sorting(seed: int) -> None:
    """Long and short runs, in one batch or several, times that rise in a run or not, series in several runs, equal
    times."""
    random = np.random.default_rng(seed)
    rows, length = int(random.integers(1, 900)), (1, 3, SLICED_ROWS + 1, 2 * SLICED_ROWS)[seed % 4]
    number = np.repeat(random.integers(0, 6, rows // length + 1), length)[:rows]
    time = random.integers(0, 8 if seed % 2 else 10_000, rows)
    if seed % 3:
        run = np.cumsum(np.diff(number, prepend=-1) != 0) if seed % 5 else number
        time = time[np.lexsort((time, run))]
    birth = random.integers(0, 3, rows)
    cuts = np.sort(random.integers(0, rows, seed % 5)).tolist()
    batches = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, rows], strict=True)]

    layout = RowLayout([runs_of(number[batch], time[batch]) for batch in batches])
    placed, seen = np.zeros((3, rows), np.int64), np.zeros(rows, np.bool_)
    for n, batch in enumerate(batches):
        places = layout.places(n)
        places.mark(seen)
        for out, values in zip(placed, (np.arange(rows), time, birth), strict=True):
            places.put(out, values[batch])
    moves = layout.moves(placed[1], placed[2])
    if moves is not None:
        moves.apply(placed[0])

    assert seen.all()
    found, plain = placed[0], np.lexsort((birth, time, number))
    assert sorted(found.tolist()) == list(range(rows))
    for column in (number, time, birth):
        assert column[found].tolist() == column[plain].tolist()
    assert np.repeat(layout.number, layout.length).tolist() == number[plain].tolist()


def test_only_series_that_are_out_of_order_are_sorted() -> None:
    """Part of series 1 came late; the other series are not moved."""
    number, time = np.array([0, 0, 1, 1, 2, 2, 1]), np.array([5, 9, 1, 8, 2, 3, 4])
    layout = RowLayout([runs_of(number, time)])
    placed = np.zeros(7, np.int64)
    layout.places(0).put(placed, time)
    moves = layout.moves(placed, np.zeros(7, np.int64))
    assert moves is not None
    assert moves.to.tolist() == [2, 3, 4]
    moves.apply(placed)
    assert placed.tolist() == [5, 9, 1, 4, 8, 2, 3]


def test_ordered_rows_need_no_moves() -> None:
    number, time = np.array([0, 0, 1, 1, 0]), np.array([5, 9, 1, 8, 12])
    layout = RowLayout([runs_of(number[:3], time[:3]), runs_of(number[3:], time[3:])])
    placed = np.zeros(5, np.int64)
    layout.places(0).put(placed, time[:3])
    layout.places(1).put(placed, time[3:])
    assert placed.tolist() == [5, 9, 12, 1, 8]
    assert layout.moves(placed, np.zeros(5, np.int64)) is None


def test_an_empty_layout_has_no_rows() -> None:
    layout = RowLayout([])
    assert (layout.rows, len(layout.number)) == (0, 0)
    nothing = np.zeros(0, np.int64)
    assert layout.moves(nothing, nothing) is None
    assert layout.moves(nothing, nothing) is None
    assert len(runs_of(nothing, nothing).number) == 0
