"""Rows of all levels open, close, are packed, patched, reopened, exported and imported at any moment, compared with a
plain slow store."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artimon.compute.sample_order import Cells
from artimon.compute.statistics import FOLDS, STATISTICS
from artimon.model.batch import Samples
from artimon.model.grid import DEFAULT_LEVELS, Grid, Level
from artimon.model.hash_routing import virtual_shard
from artimon.model.values import ValueType
from tests.varstore.reference import Reference
from tests.varstore.test_model import HOMES, MINUTE, SERIES, START, check_bucket, expect, grids, logs
from tests.varstore.worlds import Row, TestBatch, print_of
from varstore.cells.cell_file import CellFile
from varstore.cells.level_ring import LevelRing
from varstore.cells.locks import FairLock
from varstore.cells.open_block import CELL_BYTES, OpenBlock
from varstore.cells.packed_block import PackedBlock
from varstore.cells.string_pool import StringPool
from varstore.index.slot_table import SlotTable
from varstore.store.bucket_store import BucketStore, SampleRun
from varstore.store.cell_spiller import CellSpiller

PRINTS = np.array([print_of(series) for series in range(SERIES)], np.uint64)
KEYS = [(home, print_) for home in HOMES for print_ in PRINTS.tolist()]
_TABLE = SlotTable(1_000)
ALL = np.sort(np.concatenate([_TABLE.add(PRINTS, home) for home in HOMES]))
"""Slots of the series in each virtual shard."""
SLOT_OF = dict(zip(KEYS, ALL.tolist(), strict=True))


def store_of(segment: int, levels: tuple[Level, ...] = DEFAULT_LEVELS) -> BucketStore:
    """Return a store whose rows have several segments although there are seven series."""
    store = BucketStore(levels, capacity=1_000)
    assert np.concatenate([store.slots.add(PRINTS, home) for home in HOMES]).tolist() == ALL.tolist()
    for ring in store.rings:
        ring._segment = ring._packer.segment = segment
    return store


def run_of(samples: Samples, append_ms: int, home: int = HOMES[0]) -> SampleRun:
    """Return one batch of a source of that virtual shard."""
    slots = np.array([SLOT_OF[home, print_] for print_ in samples.fingerprint.tolist()])
    distinct = len(set(slots.tolist())) == len(slots)
    times, births, types, cells = samples.time_ms, samples.birth_ms, samples.type, samples.cell
    append, rows = np.array([append_ms]), np.array([len(slots)])
    return SampleRun(slots, times, births, types, cells, append, rows, distinct, samples.strings)


def moved(store: BucketStore, segment: int, order: st.DataObject) -> BucketStore:
    """Return another store with the same cells, imported row by row; types, incarnations and strings are shared."""
    other = store_of(segment)
    other.types, other.incarnations, other.strings, other.head_ms = (
        store.types,
        store.incarnations,
        store.strings,
        store.head_ms,
    )
    other._ended_ms = store._ended_ms
    rows = [(i, number) for i, ring in enumerate(store.rings) for number in ring.bucket_numbers()]
    for i, number in order.draw(st.permutations(rows)):
        ring, target = store.rings[i], other.rings[i]
        target._packer.kinds, target._texts = store.types, store.strings
        target.import_row(number, ALL, ring.export_row(number, ALL))
    for ring in other.rings:
        ring._packer.kinds, ring._texts = store.types, store.strings
    return other


def _read(store: BucketStore, slots: Cells, grid: Grid, statistics: Collection[str]) -> dict[str, Cells]:
    ring = store.ring(grid.step_ms)
    assert ring is not None
    return ring.read(slots, grid, statistics)


def _reserved(ring: LevelRing) -> int:
    """Return the address space of the open rows."""
    blocks = [*ring._pool, *(row.open for row in ring._open if row.open is not None)]
    return sum(CELL_BYTES * block.n for block in blocks)


def check(store: BucketStore, reference: Reference) -> None:
    """Check every bucket of every series at every level, forwards and some backwards."""
    for level, grid in grids(reference):
        strings = tuple(store.strings._texts[i] or "" for i in range(len(store.strings._texts)))
        read = _read(store, ALL, grid, STATISTICS)
        mirrored = _read(store, ALL[::-1].copy(), grid, ("sum",))
        few = {name: np.zeros((grid.n, 3), np.int64) for name in STATISTICS}
        ring = next(ring for ring in store.rings if ring.step_ms == grid.step_ms)
        ring.read_cells(ALL[[3, 0, 5]], grid.start_ms // grid.step_ms + 1, few)
        numbers = store.types.types_of(ALL) != ValueType.STRING  # folded statistics of STRING are undefined
        for name in STATISTICS:
            same = few[name] == read[name][:, [3, 0, 5]]
            assert (same[:, numbers[[3, 0, 5]]] if name in FOLDS else same).all(), name
        with np.errstate(all="ignore"):
            assert (mirrored["sum"][:, ::-1] == read["sum"])[:, numbers].all()
        for i, end in enumerate(grid.ends().tolist()):
            for at, key in enumerate(KEYS):
                got = {name: int(read[name][i, at]) for name in STATISTICS}
                check_bucket(got, reference.bucket(key, level, end), strings)


def unique(log: list[TestBatch]) -> list[TestBatch]:
    """Return each identity once."""
    return list({batch.id: batch for batch in reversed(log)}.values())[::-1]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_rows_in_any_state_give_the_reference_buckets(data: st.DataObject) -> None:
    """Any number of steps of closing and packing between batches, small patches, a move in between, cells on disk."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr("varstore.cells.packed_block.PATCH_CELLS", data.draw(st.integers(0, 3)))
        patch.setattr("varstore.cells.level_rows.STALE_PATCH", data.draw(st.integers(0, 2)))
        patch.setattr("varstore.cells.level_packer.MOST_UNPACKED", data.draw(st.sampled_from([0, 4, 100])))
        segment = data.draw(st.sampled_from([2, 4, 64]))
        log = unique(data.draw(logs()))
        store, moves, file = store_of(segment), data.draw(st.integers(0, len(log))), CellFile(Path(folder))
        for i, batch in enumerate(log):
            store.apply(run_of(batch.samples(), batch.append_ms, virtual_shard(batch.source)))
            for _ in range(data.draw(st.sampled_from([0, 0, 1, 5, 1_000]))):
                if not store.maintain():
                    break
            if i == moves:
                store = moved(store, segment, data)
            if data.draw(st.booleans()):
                CellSpiller(store, FairLock(), file).move()
                file.release()
        check(store, expect(log))


def _filled(minutes: int, levels: tuple[Level, ...] = DEFAULT_LEVELS) -> BucketStore:
    store = store_of(4, levels)
    for minute in range(minutes):
        rows: list[Row] = [(print_of(series), START + minute * MINUTE + 1, 0, minute) for series in (0, 1)]
        rows.append((print_of(2), START + minute * MINUTE + 1, 0, minute / 7))
        store.apply(run_of(Samples.of(rows), START + minute * MINUTE + 1_000))
    return store


def test_closed_rows_are_packed() -> None:
    """After some hours only the newest rows are open; versions of the others do not change."""
    store = _filled(200)
    while store.maintain():
        pass
    fine = store.rings[0]
    assert len(fine._open) == 3
    closed = [row for row in fine._held.values() if row.open is None]
    assert len(closed) == 76
    assert all(isinstance(block, PackedBlock) for row in closed for block in row.segments.values())
    versions = {number: fine.version(number) for number in fine.bucket_numbers()}
    hour = store.rings[3]
    before = {number: hour.version(number) for number in hour.bucket_numbers()}
    store.apply(run_of(Samples.of([(print_of(0), START + 200 * MINUTE, 0, 1)]), START + 200 * MINUTE))
    changed = {number for number in fine.bucket_numbers() if versions.get(number) != fine.version(number)}
    assert changed == {START // MINUTE + 200}
    assert [number for number in hour.bucket_numbers() if before.get(number) != hour.version(number)] == [max(before)]
    assert 0 < store.bytes_used() < sum(_reserved(ring) for ring in store.rings)


def test_a_late_sample_for_the_open_part_of_a_closing_row_counts_once() -> None:
    """A row closes in steps. Coarser levels do not get the sample directly, because its segment brings it later."""
    store, minutes = _filled(10), 10
    head_ms = START + minutes * MINUTE + 1_000
    closing = store.rings[0]._open[0]
    assert store.rings[0].maintain(head_ms + 2 * MINUTE)
    assert closing.open is not None
    assert 0 < closing.open_from <= max(ALL)
    late = Samples.of([(PRINTS.tolist()[-1], (closing.number - 1) * MINUTE + 1, 0, 5)])
    store.apply(run_of(late, head_ms, HOMES[-1]))
    while store.maintain():
        pass
    slot = np.array([SLOT_OF[HOMES[-1], PRINTS.tolist()[-1]]])
    grids_ = [Grid(-(-closing.number * MINUTE // ring.step_ms) * ring.step_ms, ring.step_ms, 1) for ring in store.rings]
    assert [_read(store, slot, grid, ("count",))["count"].item() for grid in grids_] == [1] * len(grids_)


def test_a_cell_can_be_cleared() -> None:
    """Cells are cleared in open and in packed rows."""
    store = _filled(100)
    for ring in store.rings:
        ring.clear(np.array([1]))
    for ring in store.rings:
        for number in ring.bucket_numbers():
            assert ring.export_row(number, ALL)["count"][[1, 3]].tolist() == [0, 0]
            assert ring.export_row(number, ALL)["count"][0] > 0


def test_reading_slot_by_slot_gives_the_same_row() -> None:
    """Any order, repeats, slots without samples."""
    store = _filled(100)
    ring: LevelRing = store.rings[1]
    wanted = np.array([2, 900, 0, 2, 1])
    for number in ring.bucket_numbers():
        row = ring.read_row(number, wanted, STATISTICS)
        each = [ring.read_row(number, np.array([slot]), STATISTICS) for slot in wanted.tolist()]
        assert row is not None
        for name in STATISTICS:
            assert row[name][[0, 2, 3, 4]].tolist() == [
                int(one[name][0]) for i, one in enumerate(each) if one and i != 1
            ]
        assert int(row["count"][1]) == 0
    assert ring.read_row(max(ring.bucket_numbers()) + 1, wanted, STATISTICS) is None


def test_levels_that_are_not_multiples_of_each_other_are_fed_separately() -> None:
    """Such levels are fed separately."""
    levels = (Level(60, 60), Level(90, 40), Level(120, 10), Level(600, 40))
    store = _filled(100, levels)
    assert [ring.is_follower for ring in store.rings] == [False, False, False, True]
    grid = Grid((START + 90 * MINUTE) // 600_000 * 600_000, 600_000, 5)
    assert _read(store, ALL, grid, ("count",))["count"][:, 0].tolist() == [10] * 5
    grid = Grid((START + 90 * MINUTE) // 90_000 * 90_000, 90_000, 10)
    assert sorted(set(_read(store, ALL, grid, ("count",))["count"][:, 0].tolist())) == [1, 2]
    assert store.types.types_of(ALL[:3]).tolist() == [ValueType.INTEGER, ValueType.INTEGER, ValueType.DOUBLE]


@pytest.mark.parametrize(
    ("kind", "less", "greater"),
    [
        (ValueType.INTEGER, -5, 3),
        (ValueType.DOUBLE, -0.0, 0.0),
        (ValueType.DOUBLE, 2.0, np.nan),
        (ValueType.STRING, 1, 0),
    ],
)
def test_absorbed_blocks_agree_on_the_last_value(kind: ValueType, less: float, greater: float) -> None:
    """Of equal times the greater value wins, otherwise the later one, in either order of addition."""
    texts = StringPool()
    assert [texts.intern(text) for text in ("b", "a")] == [0, 1]
    for low, high in ((less, greater), (greater, less)):
        blocks = [OpenBlock.empty(3) for _ in range(2)]
        for block, value, offsets in zip(blocks, (low, high), ([70, 10, 0], [10, 70, 0]), strict=True):
            cells = np.full(3, value, np.float64 if kind == ValueType.DOUBLE else np.int64).view(np.int64)
            columns = dict.fromkeys(("last", "min", "max", "sum"), cells)
            counts = np.array([1, 1, 0], np.uint32)
            block.overwrite(slice(0, 3), {**columns, "count": counts, "offset": np.array(offsets, np.uint32)})
        blocks[0].absorb(blocks[1], 60, np.full(3, kind, np.uint8), texts)
        best = np.array([greater, high], np.float64 if kind == ValueType.DOUBLE else np.int64).view(np.int64)
        assert blocks[0].count.tolist() == [2, 2, 0]
        assert blocks[0].offset[:2].tolist() == [70, 130]
        assert blocks[0].last[:2].tolist() == best.tolist()
