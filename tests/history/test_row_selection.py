"""Selection of rows against a loop over single rows."""

from __future__ import annotations

import numpy as np
import pytest

from artimon.compute.bucketizer import run_starts
from query_dsl.stores.history.file_pruning import RowFilter
from tests.seeds import fixed_and_drawn


@pytest.mark.parametrize("seed", fixed_and_drawn(range(12), "wanted rows", 12))
def test_selection_equals_a_loop_over_rows(seed: int) -> None:
    """Sorted and unsorted rows, long and short runs, sources and series that are not selected."""
    random = np.random.default_rng(seed)
    wanted_pairs = {(int(a), int(b)) for a, b in random.integers(-3, 4, (int(random.integers(1, 12)), 2))}
    source, series = (np.array(column) for column in zip(*wanted_pairs, strict=True))
    wanted = RowFilter(source, series, 2, 9 if seed % 2 else 20)
    length = (1, 7)[seed % 2]
    pairs = np.repeat(random.integers(-3, 4, (int(random.integers(0, 30)), 2)), length, axis=0)
    if seed % 3:
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    if seed % 4 == 0:
        pairs = pairs[[tuple(pair) in wanted_pairs for pair in pairs.tolist()]]
    time = random.integers(3_000 if seed % 4 == 0 else 0, 12_000, len(pairs))
    rows, numbers = wanted.match(pairs[:, 0], pairs[:, 1], time)
    order = {(int(wanted.source[n]), int(wanted.series[n])): n for n in range(len(wanted))}
    plain = [
        (at, order[tuple(pair)])
        for at, pair in enumerate(pairs.tolist())
        if tuple(pair) in wanted_pairs and wanted.after_us < time[at] <= wanted.until_us
    ]
    given = range(len(pairs)) if rows is None else rows.tolist()
    assert list(zip(given, numbers.tolist(), strict=True)) == plain


def test_starts_of_runs() -> None:
    a, b = np.array([1, 1, 1, 2, 2]), np.array([5, 5, 6, 6, 6])
    assert run_starts(a).tolist() == [0, 3]
    assert run_starts(a, b).tolist() == [0, 2, 3]
    assert run_starts(a[:1], b[:1]).tolist() == [0]
    assert run_starts(a[:0]).tolist() == []
