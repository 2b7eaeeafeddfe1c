"""Buckets of roll-ups, samples and both are those of shards that were fed all samples."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.statistics import STATISTICS
from artimon.model.grid import Grid
from artimon.model.select import SelectRequest
from artimon.model.values import ValueType
from artimon.rawtable.rollup_rows import RollupRows, concat_rows, from_table, merge_rows, roll_up_cells, to_table
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.partial_buckets import PartialBuckets, bucketize
from query_dsl.stores.rollup_blocks import PackBuffers, RollupBlock, pack_block
from query_dsl.stores.rollup_buckets import as_rollups, bucketize_rollups, unify_rollup_types
from query_dsl.stores.sample_rows import STRING, SampleRows
from tests.query_dsl.engine_worlds import MINUTE, T, Told, made_of, request_of, rows_of, table_of, worlds
from tests.query_dsl.test_pushdown import HOUR, fed_shards

GRIDS = [Grid(T - 5 * MINUTE, 5 * MINUTE, 4), Grid(T, 15 * MINUTE, 4), Grid(T, HOUR, 2)]
FIVE = 5 * MINUTE
FAR = 2**62


class Part:
    """Samples of one file. `steps` of its roll-up: (), 5 min, or 1 h made of 5 min."""

    def __init__(self, samples: SampleRows, source: Any, steps: tuple[int, ...]) -> None:
        self._samples, self._source, self.steps = samples, source, steps

    def rows(self) -> RollupRows:
        one = self._samples
        if not self.steps:
            return as_rollups(one, self._source)
        rows = roll_up_cells(
            self._source, one.row, one.time_ms, one.birth_ms, one.type, one.cell, one.strings, self.steps[0]
        )
        for step in self.steps[1:]:
            rows = merge_rows(rows, step)
        table = to_table(rows)
        return from_table(table, *(table.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series")))

    def piece(self, grid: Grid) -> PartialBuckets:
        return bucketize_rollups(self.rows(), grid) if self.steps else bucketize(self._samples, grid)


def block_of(rows: RollupRows) -> RollupBlock:
    """The rows as they are read from a file."""
    made = pack_block(to_table(rows), PackBuffers())
    assert made is not None
    return made


def add_block(kept: BucketAccumulator, block: RollupBlock, after_ms: int = -FAR, until_ms: int = FAR) -> bool:
    """Add the rows of all series, whose numbers are their rows in the answer."""
    return kept.add_block(block, block.series, np.arange(int(block.series.max()) + 1), after_ms, until_ms) is not None


def added(kept: BucketAccumulator, part: Part) -> bool:
    """True if the kernel has merged the part."""
    rows = part.rows()
    return not len(rows) or add_block(kept, block_of(rows)) or kept.add_rows(rows) is not None


def held(told: list[Told], grid: Grid, parts: list[Part], request: SelectRequest, compiled: bool = False) -> Any:
    """Return the answer; `compiled`: rows of roll-ups are merged by the kernel, where it can."""
    kept = BucketAccumulator(len(table_of(told)), grid, request.statistics)
    for part in parts:
        if not (compiled and part.steps and added(kept, part)):
            kept.add(part.piece(grid))
    if kept.mixed:
        rows = concat_rows([part.rows() for part in parts])
        rows = rows.select(np.isin(rows.series, sorted(kept.mixed)))
        kept.replace(bucketize_rollups(unify_rollup_types(rows)[0], grid))
    return made_of(kept.buckets(request, table_of(told)))


@settings(max_examples=40, deadline=None)
@given(told=worlds(), at=st.integers(0, 2), order=st.randoms(use_true_random=False), many=st.integers(1, 5))
def test_files_of_any_level_are_what_the_shards_hold(told: list[Told], at: int, order: Any, many: int) -> None:
    """Late samples lie in any file, and each file is read at a level of its own."""
    grid = GRIDS[at]
    request = request_of(["v.*"], grid)
    rows, source = rows_of(told)
    places = list(range(len(rows)))
    order.shuffle(places)
    levels: list[tuple[int, ...]] = [(), (FIVE,), (FIVE, HOUR) if grid.step_ms == HOUR else (FIVE, FIVE)]
    parts = []
    for i in range(many):
        chosen = np.array(places[i::many], np.intp)
        parts.append(Part(rows.select(chosen), source[chosen], order.choice(levels)))
    expected = made_of(fed_shards(told, 2).select(request))
    assert held(told, grid, parts, request) == expected
    assert held(told, grid, parts, request, compiled=True) == expected


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_one_type_are_merged_by_the_kernel_in_any_order(packed: bool) -> None:
    """Rows of one bucket, of two start times, and of an end marker; those outside the grid count for incarnations."""
    samples = (
        (T - 4 * MINUTE, 5, 3),
        (T - 3 * MINUTE, 5, 4),
        (T - 2 * MINUTE, T - 2 * MINUTE, 1),
        (T + HOUR, T - 2 * MINUTE, 9),
    )
    told = [Told(f"v{n}", (), 1, samples, "s0", 0) for n in range(3)]  # type: ignore[arg-type]
    rows, source = rows_of(told)
    grid, request = Grid(T, FIVE, 1), request_of(["v.*"], Grid(T, FIVE, 1))
    whole = Part(rows, source, (FIVE,)).rows()
    pieces = BucketAccumulator(3, grid, request.statistics)
    pieces.add(bucketize_rollups(whole, grid))
    merged = BucketAccumulator(3, grid, request.statistics, np.array([2, 0, 1]))
    for at in np.random.default_rng(1).permutation(len(whole)).tolist():
        one = whole.select(slice(at, at + 1))
        assert add_block(merged, block_of(one)) if packed else merged.add_rows(one) is not None
    expected, found = (one.buckets(request, table_of(told)) for one in (pieces, merged))
    assert [one.name for one in found.series] == ["v2", "v0", "v1"]
    for name, matrix in expected.statistics.items():
        assert np.array_equal(found.statistics[name], matrix[[2, 0, 1]]), name
    assert np.array_equal(np.sort(found.births, order=["row", "birth_ms"]), found.births)
    assert np.array_equal(
        found.births[["birth_ms", "first_ms", "last_ms", "last"]][:2],
        expected.births[-2:][["birth_ms", "first_ms", "last_ms", "last"]],
    )
    assert len(found.births) == len(expected.births) == 6
    assert merged.samples == pieces.samples


def test_texts_are_left_to_pieces() -> None:
    time, stats = np.array([T]), dict.fromkeys(STATISTICS, np.array([0]))
    stats["last_time"] = time
    zero = np.array([0])
    texts = RollupRows(zero, zero, time, time, np.array([STRING], np.uint8), time, stats, ("a",))
    kept = BucketAccumulator(1, GRIDS[0], ("last",))
    assert kept.add_rows(texts) is None
    assert not add_block(kept, block_of(texts))
    assert add_block(kept, block_of(texts), until_ms=T - 1)  # none of its rows is wanted
    assert kept.samples == 0


def test_a_block_serves_any_series_and_times() -> None:
    """Rows outside the times, and of series that are not wanted, leave no trace, nor does their type."""
    told = [Told(f"v{n}", (), 1, tuple((T + at * FIVE, 5, 3 + at) for at in range(6)), "s0", 0) for n in range(3)]  # type: ignore[arg-type]
    rows, source = rows_of(told)
    whole = Part(rows, source, (FIVE,)).rows()
    block, grid = block_of(whole), Grid(T + 4 * FIVE, FIVE, 3)
    after_ms, until_ms = T + FIVE, T + 3 * FIVE
    wanted = whole.select((whole.series > 0) & (whole.end_ms > after_ms) & (whole.end_ms <= until_ms))
    merged, pieces = (BucketAccumulator(2, grid, STATISTICS) for _ in range(2))
    assert merged.add_block(block, block.series - 1, np.array([1, 0]), after_ms, until_ms) == 4
    pieces.add(bucketize_rollups(replace(wanted, series=2 - wanted.series), grid))
    assert same_state(merged, pieces)
    assert merged.samples == len(wanted) == 4
    assert merged.add_block(block, block.series - 1, np.array([1, 0]), T + HOUR, T + 2 * HOUR) == 0
    assert same_state(merged, pieces)


def test_threads_add_blocks_at_a_time() -> None:
    """Blocks of equal series with several incarnations, added by four threads, and pieces between them."""
    count, days = 60, 12
    random = np.random.default_rng(5)
    blocks, whole = [], BucketAccumulator(count, Grid(T + days * HOUR, FIVE, days * 12), STATISTICS)
    order = random.permutation(count)
    for day in range(days):
        own, at = np.repeat(np.arange(count), 12), np.tile(T + day * HOUR + (1 + np.arange(12)) * FIVE - 1, count)
        birth, cells = random.choice([5, 7, 11], len(own)), random.integers(0, 9, len(own))
        types = np.full(len(own), int(ValueType.INTEGER), np.uint8)
        rows = roll_up_cells(np.zeros_like(own), own, at, birth, types, cells, (), FIVE)
        blocks.append(rows)
        whole.add(bucketize_rollups(rows, Grid(T + days * HOUR, FIVE, days * 12)))
    merged = BucketAccumulator(count, Grid(T + days * HOUR, FIVE, days * 12), STATISTICS, order)

    def add(day: int) -> bool:
        if day % 5 == 4:
            return merged.add_rows(blocks[day]) is not None
        return add_block(merged, block_of(blocks[day]))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(add, range(days)))
    expected, found = (one._matrices() for one in (whole, merged))
    for name, matrix in expected.items():
        assert np.array_equal(matrix[order], found[name]), name
    for kept in (whole, merged):
        kept._merge_incarnations()
    assert np.array_equal(whole._incarnations[0], merged._incarnations[0])
    assert merged.samples == whole.samples == count * days * 12


def test_times_and_counts_beyond_a_packed_row_are_left_to_tables() -> None:
    told = [Told("v0", (), 1, ((T, 5, 3), (T + HOUR, 5, 4)), "s0", 0)]  # type: ignore[arg-type]
    whole = Part(*rows_of(told), (FIVE,)).rows()
    for stats, end_ms in (
        ({"count": np.array([1, 2**32])}, whole.end_ms),
        ({"last_time": whole.end_ms - 2**32}, whole.end_ms),
        ({"last_time": whole.end_ms + 1}, whole.end_ms),
        ({}, whole.end_ms + np.array([0, 1])),
        ({}, whole.end_ms + np.array([0, 1000 * 2**32])),
    ):
        rows = to_table(replace(whole, end_ms=end_ms, stats={**whole.stats, **stats}))
        assert pack_block(rows, PackBuffers()) is None
    assert pack_block(to_table(RollupRows()), PackBuffers()) is None
    assert block_of(whole).size > 0


def test_a_sample_within_the_bucket_of_a_later_row_is_not_the_last() -> None:
    """The end of a row's bucket says nothing about the order of its samples and those of other rows."""
    told = [Told("v0", (), 1, ((T - 4 * MINUTE, 5, 3), (T - 3 * MINUTE, 5, 4)), "s0", 0)]  # type: ignore[arg-type]
    rows, source = rows_of(told)
    early, late = np.array([0]), np.array([1])
    parts = [Part(rows.select(early), source[early], (FIVE,)), Part(rows.select(late), source[late], ())]
    both = concat_rows([part.rows() for part in parts])
    made = bucketize_rollups(both, Grid(T, FIVE, 1))
    assert {name: int(made.buckets.stats[name][0]) for name in ("last", "last_time", "count")} == {
        "last": 4,
        "last_time": T - 3 * MINUTE,
        "count": 2,
    }
    assert made.incarnations.tolist() == [(0, 5, T - 4 * MINUTE, T - 3 * MINUTE, 4)]


def test_rows_of_nothing_are_no_buckets() -> None:
    piece = bucketize_rollups(replace(RollupRows()), GRIDS[0])
    assert piece.samples == 0
    assert not len(piece.buckets.at)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_rows_of_a_file_of_numbers_give_what_their_pieces_give(data: st.DataObject) -> None:
    """Times before 1970 and within a millisecond, extreme values, NaN, equal samples, and any set of statistics."""
    double = data.draw(st.booleans())
    times = st.integers(-(2**40), 2**40)
    values = st.floats(width=64) if double else st.integers(-(2**63), 2**63 - 1)
    given_rows = data.draw(
        st.lists(st.tuples(st.integers(0, 3), times, st.sampled_from((-5, 0, 7)), values), min_size=1)
    )
    series, time_ms, birth, value = (list(column) for column in zip(*given_rows, strict=True))
    cells = np.array(value, np.float64).view(np.int64) if double else np.array(value, np.int64)
    ints = (np.array(column, np.int64) for column in (series, time_ms, birth))
    own, at, births = ints
    types = np.full(len(own), int(ValueType.DOUBLE if double else ValueType.INTEGER), np.uint8)
    rows = roll_up_cells(np.zeros_like(own), own, at, births, types, cells, (), FIVE)
    grid = Grid(int(rows.end_ms[0]) + FIVE, FIVE, 3)
    statistics = data.draw(st.lists(st.sampled_from(STATISTICS), unique=True))
    merged, pieces = (BucketAccumulator(4, grid, statistics) for _ in range(2))
    assert add_block(merged, block_of(rows))
    pieces.add(bucketize_rollups(rows, grid))
    assert same_state(merged, pieces, double)


def same_state(one: BucketAccumulator, other: BucketAccumulator, double: bool = False) -> bool:
    """Compare all that an answer is made of."""
    for name, matrix in other._flat.items():
        mine = one._flat[name]
        if double and name in ("min", "max"):  # of several NaN any one, whatever its bits
            assert np.array_equal(matrix.view(np.float64), mine.view(np.float64), equal_nan=True), name
        else:
            assert np.array_equal(matrix, mine), name
    assert np.array_equal(one._types, other._types)
    assert np.array_equal(one._newest, other._newest)
    assert np.array_equal(one._ended, other._ended)
    for kept in (one, other):
        kept._merge_incarnations()
    return np.array_equal(one._incarnations[0], other._incarnations[0])
