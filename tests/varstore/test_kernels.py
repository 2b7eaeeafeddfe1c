"""Compiled kernels give the bits of their forms in numpy, and are built safely by several processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute import class_increases, exact_sums, kernels
from artimon.compute.class_increases import ClassIncreases
from artimon.compute.rolling_windows import ClassOrder
from artimon.compute.statistics import FIELDS, FOLDS
from artimon.model.values import ValueType
from artimon.runtime import compiled_library
from varstore.cells import open_block, packed_block
from varstore.cells.open_block import OpenBlock
from varstore.cells.packed_block import PackedBlock, pack
from varstore.index.slot_table import NO_SLOT
from varstore.store import bucket_store, run_builder
from varstore.store.bucket_store import BucketStore, SampleRun
from varstore.store.run_builder import RunBuilder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")

Made = TypeVar("Made")
USERS = (class_increases, exact_sums, open_block, packed_block, bucket_store, run_builder)
"""Modules that call kernels."""
TEXTS = ["b", "a", "ü", ""]
WHOLE = np.array([0, 1, -1, 7, 2**62, 2**63 - 1, -(2**63), 2**53 + 1])
REAL = np.array([0.0, -0.0, 1.5, -3.25, np.nan, -np.nan, np.inf, -np.inf, 5e-324, 1e300, 0.1]).view(np.int64)
START, MINUTE = 1_800_000_000_000, 60_000
seeds = st.integers(0, 2**32).map(np.random.default_rng)


def in_numpy(work: Callable[[], Made]) -> Made:
    """Return the result of `work` without kernels."""
    with pytest.MonkeyPatch.context() as patch:
        for module in USERS:
            patch.setattr(module, "kernels", lambda: None)
        return work()


def test_kernels_are_there() -> None:
    """The other tests compare something."""
    assert kernels.kernels() is not None


def cells_of(types: npt.NDArray[np.uint8], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return cells of these types, mostly odd ones."""
    n = len(types)
    real = np.where(random.random(n) < 0.5, random.choice(REAL, n), random.standard_normal(n).view(np.int64))
    whole = np.where(random.random(n) < 0.5, random.choice(WHOLE, n), random.integers(-(2**63), 2**63 - 1, n))
    cells = np.where(types == ValueType.DOUBLE, real, whole)
    return np.where(types == ValueType.STRING, random.integers(0, len(TEXTS), n), cells)


def block_of(types: npt.NDArray[np.uint8], random: np.random.Generator, most: int, offsets: int) -> OpenBlock:
    """Return a block with up to `most` samples a cell at few different times."""
    n = len(types)
    block = OpenBlock.empty(n)
    block.count[:] = random.integers(0, most + 1, n)
    block.offset[:] = random.integers(0, offsets, n)
    block.has_folded = most > 1
    for name in ("last", *FOLDS):
        block._columns[name][:] = cells_of(types, random)
    return block


def copy_of(block: OpenBlock) -> OpenBlock:
    columns = {name: column.copy() for name, column in block._columns.items()}
    return OpenBlock(block.n, None, columns, block.has_folded)


def shown(block: OpenBlock, types: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
    """Return what a reader may see of a block; all NaN alike, because processors choose which of two to return."""
    found = block.cells(slice(0, block.n), tuple(FIELDS))
    empty, texts, real = found["count"] == 0, types == ValueType.STRING, types == ValueType.DOUBLE
    for name, column in found.items():
        column = np.where(empty | (texts if name in FOLDS else False), 0, column)
        if name == "sum":
            column = np.where(real & np.isnan(column.view(np.float64)), -1, column)
        found[name] = column
    return found


@settings(max_examples=150, deadline=None)
@given(seeds, st.sampled_from([1, 3, 4, 7, 64, 501]), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_absorbed_blocks(random: np.random.Generator, n: int, mine: int, theirs: int, texts: bool) -> None:
    kinds = [ValueType.INTEGER, ValueType.DOUBLE, ValueType.BOOLEAN] + [ValueType.STRING] * texts
    types = random.choice(np.array(kinds, np.uint8), n)
    block, other = block_of(types, random, mine, 4), block_of(types, random, theirs, 4)
    expected = copy_of(block)
    in_numpy(lambda: expected.absorb(other, 1, types, TEXTS))
    block.absorb(other, 1, types, TEXTS)
    for name, column in shown(expected, types).items():
        assert np.array_equal(shown(block, types)[name], column), name


@settings(max_examples=100, deadline=None)
@given(seeds, st.sampled_from([1, 4, 63, 64, 4_096]), st.sampled_from(["some", "all", "none"]), st.integers(0, 1))
def test_packed_columns(random: np.random.Generator, n: int, doubles: str, least: int) -> None:
    types = random.integers(0, 2, n).astype(np.uint8) if doubles == "some" else np.full(n, doubles == "all", np.uint8)
    block = block_of(types, random, 3, 1_000)
    block.count[:] = np.maximum(block.count, least)
    mask = types == ValueType.DOUBLE if doubles == "some" else doubles == "all"
    found, expected = pack(block, mask, False), in_numpy(lambda: pack(block, mask, False))
    assert (found is None) == (expected is None)
    if isinstance(found, PackedBlock) and isinstance(expected, PackedBlock):
        assert found.shape == expected.shape
        for name, column in expected.columns.items():
            assert found.columns[name].nbytes == column.nbytes
            assert np.array_equal(found.columns[name].take(slice(0, n)), column.take(slice(0, n))), name


def runs_of(random: np.random.Generator, slots: npt.NDArray[np.int64], minutes: int, odd: float) -> list[SampleRun]:
    """Return runs, three of a minute, sometimes after a long pause. About a share `odd` of the samples is not the next
    one of its series, at least one of each run unless it is 0."""
    kinds = np.array([ValueType.INTEGER, ValueType.DOUBLE, ValueType.BOOLEAN, ValueType.STRING], np.uint8)
    types, runs = random.choice(kinds, len(slots), p=[0.45, 0.45, 0.09, 0.01] if odd else [0.5, 0.5, 0, 0]), []
    minute, free = 0, np.zeros(0, np.intp)
    for number in range(3 * minutes):
        if number % 3 == 0:
            minute += int(random.choice([1, 1, 1, 1, 90 * 60]))
            free = random.permutation(len(slots))
        order, free = np.split(free, [random.integers(1, max(2, len(free) // 2))])
        if odd and number % 2:
            order = np.unique(np.append(order, random.integers(0, len(slots), 1)))
        if random.random() < 0.1:
            free = random.permutation(len(slots))
        n, at = len(order), START + minute * MINUTE
        time = at - MINUTE * int(random.random() < 0.2) + random.integers(1, MINUTE, n)
        birth, type_, slot = np.full(n, START - 1), types[order].copy(), slots[order].copy()
        changed = np.append(np.flatnonzero(random.random(n) < odd), random.integers(0, n, int(odd > 0)))
        for row in changed.tolist():
            match int(random.choice([0, 1, 2, 3, 4, 5, 5, 5, 6, 7])):
                case 0:
                    slot[row] = NO_SLOT
                case 1:
                    type_[row] = ValueType.ENDED
                case 2:
                    type_[row] = random.choice(kinds)
                case 3:
                    birth[row] = at - 30_000
                case 4:
                    birth[row] = START - MINUTE
                case 5:
                    time[row] -= int(random.integers(1, 3)) * MINUTE
                case 6:
                    time[row] += int(random.integers(1, 4)) * MINUTE
                case 7:
                    time[row] -= 100 * 3_600_000
        rows = random.multinomial(n, [0.5, 0.5])
        append = np.sort(at + MINUTE + random.integers(-30_000, 30_000, 2))
        cells = np.where(type_ == ValueType.STRING, random.integers(0, len(TEXTS), n), cells_of(type_, random))
        runs.append(SampleRun(slot, time, birth, type_, cells, append, rows, True, TEXTS))
    return runs


def state_of(store: BucketStore, slots: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """Return everything that a store holds of these slots."""
    found = {f"slot {name}": column for name, column in store.export_slots(slots).items()}
    found |= {f"past {name}": column for name, column in store.incarnations.export_past(slots).items()}
    for ring in store.rings:
        for number in ring.bucket_numbers():
            row = ring.export_row(number, slots)
            texts = store.types.types_of(slots) == ValueType.STRING
            for name, column in row.items():
                found[f"{ring.step_ms} {number} {name}"] = np.where(texts & (name in FOLDS), 0, column)
    return found


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([5, 300, 4_500]), st.integers(2, 6), st.sampled_from([0.0, 1e-9, 0.0005, 0.02, 0.5]))
def test_applied_runs(random: np.random.Generator, series: int, minutes: int, odd: float) -> None:
    prints = np.arange(1, series + 1).astype(np.uint64)
    ours, theirs = BucketStore(capacity=series), BucketStore(capacity=series)
    slots = ours.slots.add(prints, 0)
    assert np.array_equal(theirs.slots.add(prints, 0), slots)
    for run in runs_of(random, slots, minutes, odd):
        assert ours.apply(run) == in_numpy(lambda run=run: theirs.apply(run))  # type: ignore[misc]
    expected, found = in_numpy(lambda: state_of(theirs, slots)), state_of(ours, slots)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        is_nan = np.isnan(column.view(np.float64)) if name.endswith(" sum") else np.zeros(len(column), np.bool_)
        same = (found[name] == column) | (is_nan & np.isnan(found[name].view(np.float64)) if is_nan.any() else False)
        assert same.all(), name


def test_a_run_without_samples() -> None:
    nothing, none = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    run = SampleRun(nothing, nothing, nothing, none, nothing, np.array([START]), np.array([0]), True, [])
    assert BucketStore(capacity=1).apply(run).applied == 0


@pytest.mark.parametrize("before_ms", [-1, 0, 1, MINUTE])
def test_a_sample_of_the_bucket_before_that_of_the_run(before_ms: int) -> None:
    """It is the next of its series, but not in the bucket of the first sample."""
    stores = [BucketStore(capacity=3), BucketStore(capacity=3)]
    slots = stores[0].slots.add(np.arange(1, 4).astype(np.uint64), 0)
    stores[1].slots.add(np.arange(1, 4).astype(np.uint64), 0)
    left = START + 3 * MINUTE
    for rows, time in (
        ([0, 1, 2], [left - 2 * MINUTE + 1] * 3),
        ([0], [left + 1]),
        ([2, 1], [left + 2, left - before_ms]),
    ):
        n, append = len(rows), np.array([max(time) + 1_000])
        columns = np.array(time), np.full(n, START - 1), np.full(n, ValueType.INTEGER, np.uint8), np.arange(n) + 7
        run = SampleRun(slots[rows], *columns, append, np.array([n]), True, [])
        assert stores[0].apply(run) == in_numpy(lambda run=run: stores[1].apply(run))  # type: ignore[misc]
    expected, found = in_numpy(lambda: state_of(stores[1], slots)), state_of(stores[0], slots)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], column) for name, column in expected.items())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4, unique=True), min_size=1, max_size=5))
def test_slots_of_a_run(batches: list[list[int]]) -> None:
    store = BucketStore(capacity=21)
    ours, theirs = RunBuilder(store.slots), RunBuilder(store.slots)
    for builder in (ours, theirs):
        builder._next_mark()
    for batch in batches:
        slots = np.array(batch)
        assert ours._mark_free(slots) == in_numpy(lambda slots=slots: theirs._mark_free(slots))  # type: ignore[misc]
        assert np.array_equal(ours._marks, theirs._marks)


@settings(max_examples=150, deadline=None)
@given(seeds, st.integers(0, 70), st.integers(1, 5), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.05]))
def test_sums_by_class(
    random: np.random.Generator, n: int, classes: int, whole: bool, masked: bool, odd: float
) -> None:
    values = random.standard_normal(n) * 10.0 ** random.integers(-20, 20, n)
    values = np.where(random.random(n) < odd, random.choice(REAL.view(np.float64), n), values)
    class_of = random.integers(0, classes + (not whole), n)
    present = random.random(n) < 0.7 if masked else None
    count = int((class_of < classes).sum())
    found = exact_sums.class_sums(values, class_of, classes, count, present)
    expected = in_numpy(lambda: exact_sums.class_sums(values, class_of, classes, count, present))
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        for part, other in zip(found, expected, strict=True):
            assert np.array_equal(part.view(np.int64), other.view(np.int64))


@settings(max_examples=150, deadline=None)
@given(
    seeds, st.integers(1, 70), st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.9]), st.sampled_from([9, 2**40, 2**61])
)
def test_growth_and_sums_of_integers(
    random: np.random.Generator, n: int, classes: int, strange: float, largest: int
) -> None:
    class_of = np.where(random.random(n) < strange, -1, random.integers(0, classes, n))
    class_of[0] = max(class_of[0], 0)
    order = np.argsort(class_of, kind="stable")[np.count_nonzero(class_of < 0) :]
    starts = np.flatnonzero(np.diff(class_of[order], prepend=-1))
    before, cells = random.integers(-largest, largest, (2, n))
    before[class_of < 0] = cells[class_of < 0] = -(2**63)
    changed = random.random(n - 1) < 0.3

    def found() -> list[list[float]]:
        made = ClassIncreases(ClassOrder(order, starts), n)
        _, groups = made.groups(None)
        groups = made._grouped(np.concatenate(([0], np.flatnonzero(changed) + 1))) if groups is None else groups
        greatest = float(np.abs(cells[order]).max())
        sums = made.integer_sums(cells, greatest, groups)
        return [list(made.bounds(cells, None)), list(made.bounds(cells, before)), sums.high.tolist(), sums.low.tolist()]

    exact = [sum(part.tolist()) for part in np.split(cells[order], starts[1:])]
    ours = found()
    assert ours == in_numpy(found)
    high, low = ours[2:]
    if len(high) == len(exact):
        assert [int(a) + int(b) for a, b in zip(high, low, strict=True)] == exact
    grown = cells[order] - before[order]
    assert ours[1] == [cells[order].min(), cells[order].max(), grown.min(), grown.max()]


def test_several_processes_build_one_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads start compilers, as processes do: each makes a file of its own, and the last rename stays."""
    monkeypatch.setattr(compiled_library, "FLAGS", ("-O0", *compiled_library.FLAGS[1:]))
    with ThreadPoolExecutor(4) as pool:
        paths = {*pool.map(kernels.build, [tmp_path / "cache"] * 4)}
    assert [*(tmp_path / "cache").iterdir()] == [*paths]
    kernels.Kernels(*paths)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernels, "FOLDER", tmp_path / "file" / "cache")
    assert kernels.kernels.__wrapped__() is None


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left behind, and callers use numpy."""
    monkeypatch.setattr(compiled_library, "FLAGS", ("-no-such-flag",))
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    with pytest.raises(subprocess.CalledProcessError):
        kernels.build(tmp_path)
    assert kernels.kernels.__wrapped__() is None
    assert not [*tmp_path.iterdir()]


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no C compiler"):
        kernels.build(tmp_path)
