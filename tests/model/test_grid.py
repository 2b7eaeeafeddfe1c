"""Grid of buckets: a bucket is named by its end e and covers (e - step, e]."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.grid import DEFAULT_LEVELS, Grid, GridError, Level, bucket_end, bucket_ends

TIMES = st.integers(-(10**15), 10**15)
STEPS = st.sampled_from([60_000, 300_000, 900_000, 3_600_000, 7])


@given(TIMES, STEPS)
def test_a_time_is_in_the_bucket_that_ends_at_or_after_it(time: int, step: int) -> None:
    end = bucket_end(time, step)
    assert end % step == 0
    assert end - step < time <= end
    assert bucket_ends(np.array([time], np.int64), step).tolist() == [end]


@given(TIMES, STEPS, st.integers(1, 50), st.integers(0, 10))
def test_the_ends_of_a_grid_are_consecutive(end: int, step: int, n: int, before: int) -> None:
    grid = Grid(end, step, n)
    ends = grid.ends().tolist()
    assert len(ends) == n
    assert ends[-1] == end
    assert ends[0] - step == grid.start_ms
    assert grid.widen(before).ends().tolist()[before:] == ends


def test_default_levels_are_unchanged() -> None:
    assert [(level.step_s, level.count) for level in DEFAULT_LEVELS] == [(60, 60), (300, 48), (900, 96), (3600, 72)]
    assert DEFAULT_LEVELS[3].span_ms == 72 * 3_600_000


@pytest.mark.parametrize(("step", "n"), [(0, 1), (-1, 1), (1, 0)])
def test_an_invalid_grid_is_refused(step: int, n: int) -> None:
    with pytest.raises(GridError):
        Grid(0, step, n)
    with pytest.raises(GridError):
        Level(step, n)
