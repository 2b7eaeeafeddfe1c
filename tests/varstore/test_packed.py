"""Packed columns and blocks: every value is restored bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.statistics import FIELDS
from varstore.cells.compressed_columns import (
    CompressedColumn,
    ConstantColumn,
    Indexes,
    OffsetColumn,
    PlainColumn,
    WidthClassColumn,
    Words,
    encode,
    index_array,
)
from varstore.cells.open_block import OpenBlock
from varstore.cells.packed_block import NeedsBatchRead, PackedBlock, pack, unzigzag, zigzag

ODD: npt.NDArray[np.float64] = np.concatenate(
    ([np.nan, -0.0, 0.0, np.inf, -np.inf, 5e-324, 1.5], np.array([0x7FF0000000000001]).view(np.float64))
)
Make = Callable[[np.random.Generator, int], Words]
WIDTHS: dict[str, Make] = {
    "zero": lambda r, n: np.zeros(n, np.uint64),
    "small": lambda r, n: r.integers(0, 200, n, np.uint64),
    "sixteen": lambda r, n: r.integers(0, 2**16, n, np.uint64),
    "middle": lambda r, n: r.integers(0, 2**32, n, np.uint64),
    "large": lambda r, n: r.integers(0, 2**48, n, np.uint64),
    "any": lambda r, n: r.integers(0, 2**64, n, np.uint64),
    "halves": lambda r, n: (r.integers(0, 50, n) / 2).view(np.uint64),
    "doubles": lambda r, n: r.standard_normal(n).view(np.uint64),
    "odd": lambda r, n: r.choice(ODD, n).view(np.uint64),
    "extreme": lambda r, n: r.choice(np.array([-(2**63), 2**63 - 1, 0, -1, 1]), n).view(np.uint64),
}
lengths = st.one_of(st.integers(1, 200), st.sampled_from([63, 64, 65, 4_096, 65_536]))


@st.composite
def words(draw: st.DrawFn, n: int) -> Words:
    """Return n numbers, a mixture of widths, in runs or at random."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = draw(st.lists(st.sampled_from(sorted(WIDTHS)), min_size=1, max_size=4))
    parts = np.stack([WIDTHS[kind](random, n) for kind in kinds])
    pick = random.integers(0, len(kinds), n)
    mixed: Words = parts[np.sort(pick) if draw(st.booleans()) else pick, np.arange(n)]
    return mixed


@st.composite
def places(draw: st.DrawFn, n: int) -> Indexes:
    """Return some of n places, in any order, or a run of them."""
    start = draw(st.integers(0, n - 1))
    if draw(st.booleans()):
        return slice(start, draw(st.integers(start + 1, n)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    return random.integers(0, n, draw(st.sampled_from([1, 3, 50, 2 * n])))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_columns_restore_every_number(data: st.DataObject) -> None:
    """Every number of every column is restored, one by one and in runs."""
    n = data.draw(lengths)
    values = data.draw(words(n))
    column = encode(values, data.draw(st.booleans()))
    assert column.nbytes <= 8 * n
    assert (column.take(slice(0, n)) == values).all()
    for _ in range(3):
        where = data.draw(places(n))
        assert (column.take(where) == values[index_array(where)]).all()
        some = index_array(where)[:20].tolist()
        assert [column.at(place) for place in some] == values[some].tolist()


@pytest.mark.parametrize(
    ("kinds", "kind", "most"),
    [
        (["zero"], ConstantColumn, 0), (["any"], PlainColumn, 8), (["small"], OffsetColumn, 1),
        (["middle"], OffsetColumn, 4), (["halves"], WidthClassColumn, 2.6), (["zero", "any"], WidthClassColumn, 4.3),
        (["large"], WidthClassColumn, 6.1),
    ],
)  # fmt: skip
def test_the_smallest_encoding_is_chosen(kinds: list[str], kind: type[CompressedColumn], most: float) -> None:
    """Limits are bytes for each of 65,536 numbers."""
    random = np.random.default_rng(1)
    values = np.stack([WIDTHS[name](random, 65_536) for name in kinds])[
        random.integers(0, len(kinds), 65_536), np.arange(65_536)
    ]
    column = encode(values)
    assert isinstance(column, kind)
    assert column.nbytes <= most * 65_536


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_zigzag_is_reversible(numbers: list[int]) -> None:
    """Numbers are restored, and small ones stay small."""
    cells = np.array(numbers, np.int64)
    assert (unzigzag(zigzag(cells)) == cells).all()
    assert zigzag(np.array([0, -1, 1, -2])).tolist() == [0, 1, 2, 3]


@st.composite
def blocks(draw: st.DrawFn, n: int) -> OpenBlock:
    """Return cells of any content; the statistics need not be consistent."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = draw(st.sampled_from([[0], [1], [5], [0, 1], [0, 1, 2], [5, 5, 5, 4], [1, 70_000, 2**32 - 1, 0]]))
    columns = {name: draw(words(n)).view(np.int64) for name in ("last", "min", "max", "sum")}
    if draw(st.booleans()):  # consistent buckets
        columns |= {"min": columns["last"], "max": columns["last"], "sum": columns["last"] * 5}
    block = OpenBlock.reserve(n)
    offsets = random.integers(0, draw(st.sampled_from([1, 60_000, 3_600_000, 2**32])), n).astype(np.uint32)
    block.overwrite(slice(0, n), {**columns, "count": random.choice(counts, n).astype(np.uint32), "offset": offsets})
    return block


def same(packed: PackedBlock | None, block: OpenBlock, where: Indexes) -> None:
    """Check that every statistic of cells with samples is the same, bit by bit."""
    expected = block.cells(where, tuple(FIELDS))
    if packed is None:
        assert not expected["count"].any()
        return
    got, some = packed.cells(where, tuple(FIELDS)), expected["count"] > 0
    assert (got["count"] == expected["count"]).all()
    for name in FIELDS:
        assert got[name].dtype == FIELDS[name]
        assert (got[name][some] == expected[name][some]).all(), name
        assert (packed.cells(where, (name,))[name][some] == expected[name][some]).all(), name
    one_by_one(packed, block, index_array(where)[:20].tolist())


def one_by_one(packed: PackedBlock, block: OpenBlock, some: list[int]) -> None:
    """Check the cells read one by one; sums of doubles and patched cells need a batch read."""
    for place in some:
        expected = block.cell(place, tuple(FIELDS))
        if packed.patch is not None:
            with pytest.raises(NeedsBatchRead):
                packed.cell(place, ("count",))
            continue
        without_sum = tuple(name for name in FIELDS if name != "sum")
        assert packed.cell(place, without_sum) == (expected and expected[:-1])
        try:
            assert packed.cell(place, tuple(FIELDS)) == expected
        except NeedsBatchRead:
            assert packed.doubles is True or (packed.doubles is not False and packed.doubles[place])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_packed_blocks_restore_every_cell(data: st.DataObject) -> None:
    """Cells are packed, changed here and there, and opened again."""
    n = data.draw(lengths)
    block = data.draw(blocks(n))
    doubles = data.draw(st.sampled_from([True, False, None]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    packed = pack(block, random.random(n) < 0.5 if doubles is None else doubles, data.draw(st.booleans()))
    same(packed, block, slice(0, n))
    same(packed, block, data.draw(places(n)))
    if packed is None:
        return
    for _ in range(data.draw(st.integers(0, 3))):
        where = np.unique(random.integers(0, n, data.draw(st.integers(1, 40))))
        columns = data.draw(blocks(n)).cells(where, tuple(FIELDS))
        assert packed.overwrite(where, columns)
        block.overwrite(where, columns)
    same(packed, block, slice(0, n))
    same(packed, block, data.draw(places(n)))
    same(pack(packed.to_open_block(n), False, False), block, data.draw(places(n)))


def test_places_beyond_the_packed_ones_are_empty() -> None:
    """Series that were added later are empty until a late sample of them is put."""
    block = OpenBlock.wrap({name: np.full(10, 3, dtype) for name, dtype in FIELDS.items()})
    packed = pack(block, False, False)
    assert packed is not None
    assert packed.counts(np.array([9, 10, 500])).tolist() == [3, 0, 0]
    assert packed.counts(slice(8, 12)).tolist() == [3, 3, 0, 0]
    assert packed.overwrite(np.array([500]), {name: np.full(1, 7, dtype) for name, dtype in FIELDS.items()})
    assert packed.cells(np.array([9, 10, 500]), ("count", "sum"))["sum"][[0, 2]].tolist() == [3, 7]
    assert packed.to_open_block(65_536).count[[9, 10, 500]].tolist() == [3, 0, 7]


def test_a_patch_that_is_too_large_is_refused() -> None:
    """The patch is refused without effect, and the caller opens the segment."""
    block = OpenBlock.wrap({name: np.full(65_536, 3, dtype) for name, dtype in FIELDS.items()})
    packed = pack(block, False, False)
    assert packed is not None
    assert not packed.overwrite(slice(0, 5_000), block.cells(slice(0, 5_000), tuple(FIELDS)))
    assert packed.patched == 0
