"""Rows of the raw table that are aggregated to cells before they reach the store give the same result as single
rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from artimon.compute.statistics import STATISTICS
from artimon.model.batch import BatchId
from artimon.model.grid import DEFAULT_LEVELS, Grid
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.model.vshards import vshards_of
from tests.seeds import fixed_and_drawn
from tests.varstore.feeding import table
from tests.varstore.keeping import HOUR, MINUTE, START, VSHARDS, empty, feed, range_for
from tests.varstore.keeping import Log as LaneLog
from tests.varstore.raw_log import file_table
from tests.varstore.worlds import Row, TestBatch, announce, print_of
from varstore.shard.shard import Shard
from varstore.snapshot.raw_row_loader import BUDGET_BYTES, COLUMNS, RawRowLoader, Target, plan

SOURCES = {0: VSHARDS["s0"], 1: VSHARDS["s1"], 2: VSHARDS["s2"], 3: VSHARDS["s0"]}
"""Virtual shards by number in the table; two sources are of one virtual shard, and share series."""
SERIES = tuple(range(9))


def value_of(series: int, draw: random.Random) -> bool | int | float | str | None:
    if draw.random() < 0.02:
        return None
    match series:
        case 0 | 1:
            return draw.choice([draw.randint(-9, 9), 2**63 - 1, -(2**63)])
        case 2 | 3:
            return draw.choice([draw.randint(-40, 40) / 4, 0.5, -0.25])
        case 4:
            return draw.random() < 0.5
        case 5:
            return draw.choice(["a", "bc"])
        case _:  # whole numbers at first, then halves
            return draw.randint(0, 9)


def rows_of(draw: random.Random, hour: int, dense: bool) -> list[tuple[int, TestBatch]]:
    """Return rows of the hour that lies this many hours back."""
    found = []
    for source in SOURCES:
        rows: list[Row] = []
        for series in draw.sample(SERIES, 6):
            birth = START - 100 * HOUR
            for at in range(0, 60, 1 if dense else 7):
                if draw.random() < 0.03:
                    birth += HOUR
                time = START - hour * HOUR - at * MINUTE - draw.choice([0, 0, 20, 59_999])
                rows.append((print_of(series), time, birth, value_of(series, draw)))
                if draw.random() < 0.02:
                    rows.append((print_of(series), time, birth, value_of(series, draw)))
        found.append((source, TestBatch(BatchId("a", 1, source, hour), f"s{source}", START, rows)))
    return found


def shown(shard: Shard) -> list[object]:
    """Return every bucket of every level, every incarnation and every end."""
    for source in ("s0", "s1", "s2"):
        announce(shard, SERIES, source)
    found: list[object] = []
    for level in DEFAULT_LEVELS:
        grid = Grid(-(-START // level.step_ms) * level.step_ms + level.step_ms, level.step_ms, level.count)
        for vshard in vshards_of(shard.vshards):
            asked = SelectRequest((Matcher(NAME, "prefix", "test."),), grid, STATISTICS, vshards=1 << vshard)
            answer = shard.select(asked)
            found += [table([answer], asked), answer.strings, answer.ended_ms.tolist()]
    return found


def one_by_one(rows: RawRowLoader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable aggregation."""
    monkeypatch.setattr(
        "varstore.snapshot.raw_row_loader.mask_aggregatable",
        lambda r, _: (np.zeros(len(r.time_ms), bool), r.starts < 0),
    )


@pytest.mark.parametrize("seed", fixed_and_drawn(range(4), "folding", 4))
def test_aggregated_rows_give_the_same_cells_as_single_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All types, times that occur twice, new births, ends, a series of two sources, hours in any order."""
    draw = random.Random(seed)
    hours = [0, 1, 2, 5, 26, 27, 70]
    draw.shuffle(hours)
    batches = [file_table(rows_of(draw, hour, draw.random() < 0.7)).select(list(COLUMNS)) for hour in hours]
    joined, single = (empty(0) for _ in range(2))
    for shard in (joined, single):
        for vshard in set(SOURCES.values()):
            shard.adopt(1 << vshard)
    apply(joined, batches)
    with monkeypatch.context() as patch:
        one_by_one(RawRowLoader(single, SOURCES, START), patch)
        apply(single, batches)
    assert shown(joined) == shown(single)


def apply(shard: Shard, batches: Sequence[object]) -> None:
    """Apply each table in pieces of a few hundred rows."""
    rows = RawRowLoader(shard, SOURCES, START)
    for one in batches:
        for batch in one.combine_chunks().to_batches(max_chunksize=700):  # type: ignore[attr-defined]
            rows.apply(batch)
    rows.close()


def test_rows_of_open_buckets_are_applied_one_by_one() -> None:
    """Rows of the table for minutes that Kafka already filled are added once, to every level."""
    log, whole = LaneLog(), LaneLog()
    for at in range(20):
        rows: list[Row] = [(print_of(0), START - at * 20_000, START - HOUR, at)]
        (log if at % 2 else whole).add("s0", START, rows)
    shard = empty(masks := 1 << VSHARDS["s0"])
    feed(shard, log, shard.groups()[0], 0)
    older = [(0, batch) for batch in whole.partitions[0]]
    rows_ = RawRowLoader(shard, SOURCES, START)
    for batch in file_table(older).select(list(COLUMNS)).to_batches():
        rows_.apply(batch)
    expected = empty(masks)
    expected.feed(range_for(log, masks, 0, 0, 10))
    for batch in whole.partitions[0]:
        log.partitions[0].append(TestBatch(BatchId("b", 1, 0, batch.id.sequence), "s0", START, batch.rows))
    expected.feed(range_for(log, masks, 0, 10, len(log.partitions[0])))
    assert shown(shard) == shown(expected)


LEVELS = [Target(level.step_ms, START - level.span_ms, 40 * 65_536) for level in DEFAULT_LEVELS]


@pytest.mark.parametrize("segments", [1, 5, 23])
@pytest.mark.parametrize("back", [0, 3, 10, 24, 60])
def test_slices_cover_a_period_once_newest_first(segments: int, back: int) -> None:
    end = START - back * HOUR
    for length in (HOUR, 24 * HOUR):
        found = plan(end - length, end, START - 72 * HOUR, LEVELS, segments)
        assert found[0].until_ms is None
        assert found[-1].after_ms == START - 72 * HOUR
        assert all(earlier.until_ms == later.after_ms for later, earlier in pairwise(found))
        assert all(sum(one.open) * 40 * 65_536 <= 1.5 * BUDGET_BYTES for one in found)


def test_a_period_that_is_older_than_all_is_one_slice() -> None:
    (only,) = plan(START - 80 * HOUR, START - 79 * HOUR, START - 72 * HOUR, LEVELS, 23)
    assert (only.until_ms, only.after_ms) == (None, START - 72 * HOUR)
