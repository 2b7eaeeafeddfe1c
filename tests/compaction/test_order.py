"""The order of rows, the merge of runs and the digest: pure, against plain Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.compaction.digest import Digest, digest
from pipeline.compaction.merge import Limits, merge_all
from pipeline.compaction.order import Keys, order_of
from pipeline.compaction.runs import SpilledRun, spill
from tests.compaction.builder import Row, file_table

Series = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([5, 6, -(2**63), 2**63 - 1]))
Value = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5))
ROW = st.tuples(st.integers(1, 5), Series, st.integers(0, 50), Value)


def keys_of(rows: list[tuple[int, int, int]]) -> Keys:
    columns = [np.array([row[n] for row in rows], np.int64) for n in range(3)]
    return Keys(*columns)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), Series, st.integers(0, 9)), min_size=1, max_size=60))
def test_order_is_that_of_the_full_keys(rows: list[tuple[int, int, int]]) -> None:
    order = order_of(keys_of(rows))
    found = rows if order is None else [rows[n] for n in order]
    assert found == sorted(rows)


@pytest.mark.parametrize("series", [[2**40 + n % 7 for n in range(4_000)], list(range(4_000)), [7] * 4_000])
def test_series_that_leading_bits_do_not_tell_apart(series: list[int]) -> None:
    """Fingerprints that differ in their last bits only, in many rows, are ordered by the full keys."""
    random = np.random.default_rng(3)
    rows = [(int(random.integers(1, 3)), one, int(random.integers(0, 9))) for one in series]
    rows.append((1, -(2**63), 0))
    rows.append((1, 2**63 - 1, 0))
    order = order_of(keys_of(rows))
    assert order is not None
    assert [rows[n] for n in order] == sorted(rows)


def test_rows_in_order_are_left_alone() -> None:
    assert order_of(keys_of([(1, 5, 3), (1, 5, 3), (1, 6, 0), (2, -1, 0)])) is None


@settings(deadline=None, max_examples=60)
@given(runs=st.lists(st.lists(ROW, min_size=1, max_size=40), min_size=1, max_size=9), window=st.integers(1, 50))
def test_merge_of_any_runs(runs: list[list[Row]], window: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any number of sorted runs, a few open at once: all rows, in order, from window to window."""
    folder: Path = tmp_path_factory.mktemp("runs")
    sorted_runs = [spill(folder / f"in-{n}", iter([file_table(rows)]), batch_rows=7) for n, rows in enumerate(runs)]
    limits = Limits(window_rows=window, fan_in=2)
    merged = list(merge_all(sorted_runs, folder / "levels", limits))
    rows = [row for run in runs for row in run]
    found = pa.concat_tables(merged)
    assert not len(Keys.of(found).breaks())
    assert len(found) == len(rows)
    assert total(merged) == digest(file_table(rows).to_batches()[0])


def total(tables: list[Any]) -> Digest:
    whole = Digest()
    for table in tables:
        for batch in table.to_batches():
            whole = whole.plus(digest(batch))
    return whole


def one(row: Row) -> Digest:
    return digest(file_table([row]).to_batches()[0])


@given(st.lists(ROW, max_size=20), st.randoms())
def test_the_digest_does_not_depend_on_order_or_grouping(rows: list[Row], random: Any) -> None:
    whole = Digest()
    for row in rows:
        whole = whole.plus(one(row))
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert digest(file_table(shuffled).to_batches()[0] if rows else file_table([]).combine_chunks()) == whole


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([(1, 2, 3, 4)], [(1, 2, 3, 5)]),
        ([(1, 2, 3, 4)], [(1, 2, 4, 4)]),
        ([(1, 2, 3, 4)], [(1, 3, 3, 4)]),
        ([(1, 2, 3, 4)], [(2, 2, 3, 4)]),
        ([(1, 2, 3, None)], [(1, 2, 3, 0)]),
        ([(1, 2, 3, False)], [(1, 2, 3, 0)]),
        ([(1, 2, 3, 0.0)], [(1, 2, 3, -0.0)]),
        ([(1, 2, 3, 0.0)], [(1, 2, 3, 0)]),
        ([(1, 2, 3, math.nan)], [(1, 2, 3, None)]),
        ([(1, 2, 3, "")], [(1, 2, 3, None)]),
        ([(1, 2, 3, 4), (1, 2, 4, 5)], [(1, 2, 3, 5), (1, 2, 4, 4)]),
        ([(1, 2, 3, 4), (1, 2, 3, 4)], [(1, 2, 3, 4)]),
        ([(1, 2, 3, 4), (1, 2, 3, 4)], [(1, 2, 3, 6), (1, 2, 3, 6)]),
    ],
)
def test_the_digest_tells_rows_apart(a: list[Row], b: list[Row]) -> None:
    assert digest(file_table(a).to_batches()[0]) != digest(file_table(b).to_batches()[0])


def test_a_spilled_run_gives_batches_of_the_size_asked_for(tmp_path: Path) -> None:
    table = file_table([(1, n, 0, n) for n in range(100)])
    run: SpilledRun = spill(tmp_path / "a", iter([table]), 64)
    assert [len(batch) for batch in run.batches(30)] == [30, 30, 4, 30, 6]
