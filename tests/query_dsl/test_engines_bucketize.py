"""Raw samples cut into buckets equal those of shards, for any split and order of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.statistics import STATISTICS
from artimon.model.grid import Grid
from artimon.model.select import SelectRequest
from query_dsl.stores.bucket_accumulator import BucketAccumulator
from query_dsl.stores.partial_buckets import PartialBuckets, bucketize, merge_partials
from query_dsl.stores.partial_codec import decode_partial, encode_partial
from query_dsl.stores.sample_rows import SampleRows, unify_types
from tests.query_dsl.engine_worlds import MINUTE, T, Told, made_of, request_of, rows_of, table_of, worlds
from tests.query_dsl.test_pushdown import fed_shards

GRIDS = [Grid(T, MINUTE, 40), Grid(T - 5 * MINUTE, 5 * MINUTE, 4), Grid(T, 15 * MINUTE, 4)]


def held(told: list[Told], grid: Grid, pieces: list[PartialBuckets], request: SelectRequest) -> Any:
    kept = BucketAccumulator(len(table_of(told)), grid, request.statistics)
    for piece in pieces:
        kept.add(piece)
    if kept.mixed:
        rows, source = rows_of(told)
        mine = np.isin(rows.row, sorted(kept.mixed))
        kept.replace(bucketize(unify_types(rows.select(mine), source[mine]).rows, grid))
    return made_of(kept.buckets(request, table_of(told)))


@settings(max_examples=30, deadline=None)
@given(told=worlds(), at=st.integers(0, 2), order=st.randoms(use_true_random=False), many=st.integers(1, 6))
def test_pieces_in_any_order_are_what_the_shards_hold(told: list[Told], at: int, order: Any, many: int) -> None:
    grid = GRIDS[at]
    request = request_of(["v.*"], grid)
    rows, _ = rows_of(told)
    places = list(range(len(rows)))
    order.shuffle(places)
    parts = [np.array(sorted(places[i::many]) if many % 2 else places[i::many], np.intp) for i in range(many)]
    pieces = [bucketize(rows.select(part), grid) for part in parts]
    if many > 3:
        pieces = [merge_partials([decode_partial(encode_partial(piece)) for piece in pieces[:3]]), *pieces[3:]]
    expected = made_of(fed_shards(told, 2).select(request))
    assert held(told, grid, pieces, request) == expected


def test_a_piece_of_nothing_is_nothing() -> None:
    none = np.zeros(0, np.int64)
    rows = SampleRows(none, none, none, none.astype(np.uint8), none)
    piece = bucketize(rows, GRIDS[0])
    assert piece.samples == 0
    assert merge_partials([piece, decode_partial(encode_partial(piece))]).samples == 0


@pytest.mark.parametrize("statistic", STATISTICS)
def test_only_requested_statistics_are_kept(statistic: str) -> None:
    told = [Told("v0", (), 1, ((T - 10, 5, 3), (T - 5, 5, 4)), "s0", 0)]  # type: ignore[arg-type]
    rows, _ = rows_of(told)
    kept = BucketAccumulator(1, GRIDS[0], (statistic,))
    kept.add(bucketize(rows, GRIDS[0]))
    buckets = kept.buckets(SelectRequest((), GRIDS[0], (statistic,)), table_of(told))
    assert set(buckets.statistics) == {statistic}
    assert (
        buckets.statistics[statistic][0, -1]
        == {"last": 4, "last_time": T - 5, "min": 3, "max": 4, "sum": 7, "count": 2}[statistic]
    )
