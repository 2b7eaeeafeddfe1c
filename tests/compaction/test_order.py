"""The order of rows, the merge of runs and the digest: pure, against plain Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from pipeline.compaction import row_digest
from pipeline.compaction.merge import MergeLimits, merge_all
from pipeline.compaction.row_digest import RowDigest, digest_of, row_hashes
from pipeline.compaction.row_order import SortKeys, order_of, take_rows
from pipeline.compaction.sorted_runs import FLAT_ROW_BYTES, ParquetRun, SpilledRun, slices_of, spill
from tests.compaction.builder import Row, file_table
from tests.seeds import fixed_and_drawn
from tests.spark.local_files import local_files

Series = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([5, 6, -(2**63), 2**63 - 1]))
Value = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5))
ROW = st.tuples(st.integers(1, 5), Series, st.integers(0, 50), Value)


def keys_of(rows: list[tuple[int, int, int]]) -> SortKeys:
    columns = [np.array([row[n] for row in rows], np.int64) for n in range(3)]
    return SortKeys(*columns)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), Series, st.integers(0, 9)), min_size=1, max_size=60))
def test_order_is_that_of_the_full_keys(rows: list[tuple[int, int, int]]) -> None:
    order = order_of(keys_of(rows))
    found = rows if order is None else [rows[n] for n in order]
    assert found == sorted(rows)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(5, 8), st.integers(0, 300), st.integers(0, 2)), min_size=1, max_size=12
    )
)
def test_stretches_of_a_series_are_ordered(stretches: list[tuple[int, int, int, int]]) -> None:
    """Long stretches in any order, some of which overlap or repeat times."""
    rows = [(source, one, start + step * n) for source, one, start, step in stretches for n in range(100)]
    order = order_of(keys_of(rows))
    found = range(len(rows)) if order is None else order.tolist()
    assert [rows[n] for n in found] == sorted(rows)
    assert sorted(found) == list(range(len(rows)))


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), max_size=6),
    st.integers(1, 3),
    st.sampled_from([None, True, 7, 0.5, "text"]),
)
def test_rows_in_stretches_are_those_of_arrow(stretches: list[tuple[int, int]], chunks: int, value: object) -> None:
    """Whether they are copied or taken one by one; any of several chunks."""
    rows = [(1, 5, n, value if n % 3 else None) for n in range(900)]
    table = pa.concat_tables([file_table(rows)] * chunks)
    order = np.concatenate([np.zeros(0, np.int64), *(np.arange(min(ends), max(ends)) for ends in stretches)])
    found = take_rows(table, order)
    assert found.equals(table.take(pa.array(order)))
    assert all(column.num_chunks <= 1 for column in found.columns)


@pytest.mark.parametrize("series", [[2**40 + n % 7 for n in range(4_000)], list(range(4_000)), [7] * 4_000])
@pytest.mark.parametrize("seed", fixed_and_drawn([3], "order of keys"))
def test_series_that_leading_bits_do_not_tell_apart(series: list[int], seed: int) -> None:
    """Fingerprints that differ in their last bits only, in many rows, are ordered by the full keys."""
    random = np.random.default_rng(seed)
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
    limits = MergeLimits(window_rows=window, fan_in=2)
    merged = list(merge_all(sorted_runs, folder / "levels", limits))
    rows = [row for run in runs for row in run]
    found = pa.concat_tables(merged)
    assert not len(SortKeys.of(found).descents())
    assert len(found) == len(rows)
    assert total(merged) == digest_of(file_table(rows).to_batches()[0])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), st.integers(0, 2)), max_size=6), st.booleans())
def test_kernel_and_numpy_agree_on_order(rows: list[tuple[int, int, int]], in_order: bool) -> None:
    keys = keys_of(sorted(rows) if in_order else rows)
    assert keys.is_ordered() == (not len(keys.descents())) == (in_order or rows == sorted(rows))


@given(st.lists(ROW, max_size=20))
def test_kernel_and_numpy_give_the_same_hashes(rows: list[Row]) -> None:
    table = file_table(rows).combine_chunks()
    for batch in table.to_batches():
        with pytest.MonkeyPatch.context() as patch:
            compiled = row_hashes(batch)
            patch.setattr(row_digest, "kernels", lambda: None)
            assert compiled.tolist() == row_hashes(batch).tolist()


def total(tables: list[Any]) -> RowDigest:
    whole = RowDigest()
    for table in tables:
        for batch in table.to_batches():
            whole = whole.plus(digest_of(batch))
    return whole


def one(row: Row) -> RowDigest:
    return digest_of(file_table([row]).to_batches()[0])


@given(st.lists(ROW, max_size=20), st.randoms())
def test_the_digest_does_not_depend_on_order_or_grouping(rows: list[Row], random: Any) -> None:
    whole = RowDigest()
    for row in rows:
        whole = whole.plus(one(row))
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert digest_of(file_table(shuffled).to_batches()[0] if rows else file_table([]).combine_chunks()) == whole


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
    assert digest_of(file_table(a).to_batches()[0]) != digest_of(file_table(b).to_batches()[0])


def doubles(words: list[int]) -> Any:
    """Rows that differ in the bits of their double only."""
    table = file_table([(1, n, 0, 0.0) for n in range(len(words))])
    values = pa.array(np.array(words, np.uint64).view(np.float64))
    return table.set_column(6, "double", values).combine_chunks().to_batches()[0]


QUIET = 0x7FF8000000000000


@pytest.mark.parametrize(("a", "b"), [(QUIET, QUIET | 1), (QUIET, QUIET | 1 << 63), (0, 1 << 63), (1, 2)])
def test_the_digest_sees_every_bit_of_a_double(a: int, b: int) -> None:
    """Payload and sign of a NaN, the sign of zero, the least denormals; one for another, and both swapped."""
    assert digest_of(doubles([a])) != digest_of(doubles([b]))
    assert digest_of(doubles([a, b])) != digest_of(doubles([b, a]))


@pytest.mark.parametrize("column", ["birth", "future", "integer", "double", "boolean", "string"])
@pytest.mark.parametrize("seed", fixed_and_drawn([5], "exchanged values"))
def test_the_digest_sees_a_value_that_two_rows_have_exchanged(column: str, seed: int) -> None:
    """Everything else stays: the sum of the values too."""
    table = file_table([(1, n // 4, 60_000 * n, [n, n / 3, n % 3 == 0, f"text {n}"][n % 4]) for n in range(400)])
    table = table.set_column(4, "future", pa.array([n % 5 == 0 for n in range(400)]))
    values = table.column(column).to_pylist()
    whole = digest_of(table.combine_chunks().to_batches()[0])
    random = np.random.default_rng(seed)
    for a, b in random.integers(0, 400, (300, 2)):
        if values[a] == values[b]:
            continue
        swapped = list(values)
        swapped[a], swapped[b] = values[b], values[a]
        at = table.schema.get_field_index(column)
        changed = table.set_column(at, column, pa.array(swapped, table.schema.field(column).type))
        assert digest_of(changed.combine_chunks().to_batches()[0]) != whole


def test_the_digest_sees_rows_that_are_there_twice_in_place_of_others() -> None:
    """The exclusive or alone would not: of pairs nothing is left of it."""
    a, b, c = [(1, 2, 3, 4)], [(1, 2, 3, 5)], [(2, 9, 9, 0.5)]
    sets: list[list[Row]] = [[*a, *a, *b], [*a, *b, *b], [*a, *a, *c], [*b, *b, *c], [*c, *c, *c], [*a, *b, *c]]
    digests = {digest_of(file_table(rows).to_batches()[0]) for rows in sets}
    assert len(digests) == len(sets)


def test_pieces_are_cut_by_bytes() -> None:
    """Rows of any size: long ones stand together, and a single one may exceed the size of a piece."""
    table = file_table([(1, n, 0, "x" * (100_000 if n in (40, 41, 42) else 10)) for n in range(100)])
    cut = list(slices_of(table, 64, 150_000))
    assert pa.concat_tables(cut).equals(table)
    assert max(len(piece) for piece in cut) <= 64
    assert all(piece.nbytes <= 150_000 or len(piece) == 1 for piece in cut)


@pytest.mark.parametrize("encoding", [True, "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("different", [True, False])
def test_a_run_of_long_strings_is_read_in_small_batches(tmp_path: Path, different: bool, encoding: Any) -> None:
    """By bytes, not by rows; where rows are short, by rows."""
    texts = {n: f"{n * different:04}" * 6_000 for n in range(500, 540)}
    path = tmp_path / "long.parquet"
    coded = {"use_dictionary": True} if encoding is True else {"column_encoding": {"string": encoding}}
    made: list[Row] = [(1, n, 0, texts.get(n, n)) for n in range(9_000)]
    pq.write_table(file_table(made), path, **{"use_dictionary": False, **coded})
    with local_files(SYSTEM_CLOCK):
        run = ParquetRun(f"file://{path}", 9_000, path.stat().st_size)
        assert run.weight > path.stat().st_size
        batches = list(run.batches(4_000))
    assert sum(map(len, batches)) == 9_000
    assert max(batch.nbytes for batch in batches) <= 3 * 4_000 * FLAT_ROW_BYTES
    assert len(batches) < 60


def test_a_spilled_run_gives_batches_of_the_size_asked_for(tmp_path: Path) -> None:
    table = file_table([(1, n, 0, n) for n in range(100)])
    run: SpilledRun = spill(tmp_path / "a", iter([table]), 64)
    assert [len(batch) for batch in run.batches(30)] == [30, 30, 4, 30, 6]
