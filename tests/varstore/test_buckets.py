"""Rules of buckets that the model test exercises too seldom, one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from artimon.compute.statistics import STATISTICS
from artimon.compute.true_sums import true_sum
from artimon.model.batch import BatchId
from artimon.model.grid import Grid
from artimon.model.select import NAME, Buckets, Matcher, SelectError, SelectRequest
from artimon.model.values import Value, ValueType, cell_to_double
from tests.varstore.worlds import TestBatch, announce, print_of, range_of
from varstore.cells.lazy_memory import lazy_zeros
from varstore.cells.level_ring import LevelRing
from varstore.cells.string_pool import NO_STRING, StringPool
from varstore.shard.shard import Shard

NOW = 1_800_000_000_000
GRID = Grid(NOW + 60_000, 60_000, 2)


def shard_of(*batches: Sequence[tuple[int, int, Value | None]], sources: tuple[str, ...] = ("s0",)) -> Shard:
    """Return a shard fed batches of rows (series, ms after NOW, value), all in one range."""
    shard = Shard(capacity=1_000)
    announce(shard, range(5))
    log = [
        TestBatch(
            BatchId("a", 1, 0, i),
            sources[i % len(sources)],
            NOW + 30_000,
            [(print_of(series), NOW + at, NOW, value) for series, at, value in rows],
        )
        for i, rows in enumerate(batches)
    ]
    shard.feed(range_of(log, 0, len(log)))
    return shard


def row(shard: Shard, series: int = 0, grid: Grid = GRID) -> tuple[Buckets, dict[str, int]]:
    """Return the answer for one series, and its last bucket."""
    matcher = Matcher(NAME, "=", f"test.v{series}")
    buckets = shard.select(SelectRequest((matcher,), grid, STATISTICS))
    return buckets, {name: int(matrix[0, -1]) for name, matrix in buckets.statistics.items()}


@pytest.mark.parametrize(
    ("less", "greater"),
    [(-2.0, -1.0), (-0.0, 0.0), (5.0, math.nan), (-math.inf, -1e300), (-5, -3), (-3, 2), ("a", "b"), (False, True)],
    ids=repr,
)
def test_last_value_at_equal_times_does_not_depend_on_order(less: Value, greater: Value) -> None:
    """Of two samples at one time the greater value is the last, in either order, in one batch or in two."""
    alone = row(shard_of([(0, 5, greater)]))[0]
    for shard in (
        shard_of([(0, 5, less), (0, 5, greater)]),
        shard_of([(0, 5, greater), (0, 5, less)]),
        shard_of([(0, 5, less)], [(0, 5, greater)]),
        shard_of([(0, 5, greater)], [(0, 5, less)]),
    ):
        both = row(shard)[0]
        for cells, expected in (
            (both.statistics["last"], alone.statistics["last"]),
            (both.births["last"], alone.births["last"]),
        ):
            if isinstance(greater, str):
                assert both.strings[int(cells.ravel()[-1])] == greater
            else:
                assert cells.tolist() == expected.tolist()


@pytest.mark.parametrize("together", [True, False])
def test_a_series_of_two_sources_in_one_range_shares_buckets(together: bool) -> None:
    """Samples of one virtual shard meet in one bucket although their batches might be applied in one pass."""
    for shard in (
        shard_of([(0, 1, 10), (1, 1, 1)], [(0, 2, 20), (2, 1, 1)], sources=("s0", "s129")),
        shard_of(
            [(0, 1, 10)], [(0, 2, 20)], [(0, 3, 30)], [(0, 4, 40)], sources=("s0", "s129") if together else ("s0",)
        ),
    ):
        _, got = row(shard)
        assert got["count"] in (2, 4)
        assert got["sum"] == {2: 30, 4: 100}[got["count"]]


def test_an_integer_series_becomes_double_inside_a_batch() -> None:
    """Every earlier sample is converted, in cells, sums and incarnations; a later integer is refused."""
    shard = shard_of([(0, 1, 2**53 + 1), (0, 2, 7), (0, 3, 0.5), (0, 4, 9)])
    buckets, got = row(shard)
    assert buckets.series[0].type == ValueType.DOUBLE
    assert (got["count"], cell_to_double(got["last"]), cell_to_double(got["min"])) == (3, 0.5, 0.5)
    assert cell_to_double(got["max"]) == 2.0**53
    assert cell_to_double(int(buckets.births["last"][0])) == 0.5
    assert shard.status()["conflicts"] == 1


@pytest.mark.parametrize(
    ("old", "new"), [(1, "x"), (1, True), (0.5, "x"), (True, 1), ("x", 1), ("x", 0.5), (True, 0.5)], ids=repr
)
def test_other_changes_of_type_are_counted_as_conflicts(old: Value, new: Value) -> None:
    """Samples of another type are refused and counted; the series keeps its type."""
    for shard in (shard_of([(0, 1, old)], [(0, 2, new)]), shard_of([(0, 1, old), (0, 2, new)])):
        assert row(shard)[1]["count"] == 1
        assert shard.status()["conflicts"] == 1


def test_integers_are_exact_at_the_limits() -> None:
    """Integers past 2^53 are exact, and wrapped sums are restored from count, min and max."""
    big = 2**63 - 1
    buckets, got = row(shard_of([(0, i, big) for i in range(1, 5)]))
    assert (got["min"], got["max"], got["last"]) == (big, big, big)
    assert true_sum(4, big, big, got["sum"]) == 4 * big
    assert buckets.notes == ("sum of test.v0 exceeds 64 bits in 1 buckets: given modulo 2^64",)
    buckets, got = row(shard_of([(0, 1, 2**53 + 1), (0, 2, 2**53 + 3)]))
    assert got["sum"] == 2**54 + 4
    assert buckets.notes == ()


def test_a_wrapped_sum_is_converted_to_double_from_the_true_sum() -> None:
    """A conversion starts from the true sum."""
    _, got = row(shard_of([(0, i, 2**62) for i in range(1, 5)], [(0, 9, 1.0)]))
    assert cell_to_double(got["sum"]) == 2.0**64


def test_nan_poisons_its_bucket_only() -> None:
    """min, max, sum and last of its bucket become NaN; later buckets are unaffected."""
    buckets, got = row(shard_of([(0, -5, math.nan)], [(0, -6, 1.0)], [(0, 5, 2.0)]))
    before = {name: cell_to_double(int(buckets.statistics[name][0, 0])) for name in ("min", "max", "sum", "last")}
    assert all(math.isnan(value) for value in before.values())
    assert buckets.statistics["count"].tolist() == [[2, 1]]
    assert cell_to_double(got["sum"]) == 2.0


def test_a_bucket_includes_its_end_and_excludes_its_start() -> None:
    """(end - step, end]: the end is inside, the start is not."""
    buckets, _ = row(shard_of([(0, 0, 1)], [(0, 1, 2)], [(0, 60_000, 3)]))
    assert buckets.statistics["count"].tolist() == [[1, 2]]
    assert buckets.statistics["last_time"].tolist() == [[NOW, NOW + 60_000]]


def test_many_samples_of_one_series_in_one_batch_are_all_counted() -> None:
    """Ten thousand rows of one series, as from a drop-in file with a backlog."""
    shard = shard_of([(0, -i, i) for i in range(10_000)])
    buckets, _ = row(shard, grid=Grid(NOW, 60_000, 1))
    assert {n: m.tolist() for n, m in buckets.statistics.items() if n != "last_time"} == {
        "last": [[0]], "min": [[0]], "max": [[9_999]], "sum": [[9_999 * 5_000]], "count": [[10_000]],
    }  # fmt: skip
    assert [tuple(life)[1:] for life in buckets.births.tolist()] == [(NOW, NOW - 9_999, NOW, 0)]


def test_every_order_of_births_gives_the_same_incarnations() -> None:
    """Three births in all six orders."""
    rows = [(print_of(0), NOW + i, NOW - i % 3, i) for i in range(6)]
    found = set()
    for order in itertools.permutations(range(3)):
        shard = Shard(capacity=1_000)
        announce(shard, range(1))
        log = [TestBatch(BatchId("a", 1, 0, i), "s0", NOW, rows[2 * i : 2 * i + 2]) for i in order]
        shard.feed(range_of(log, 0, 3))
        found.add(str(row(shard)[0].births.tolist()))
    assert found == {
        str([(0, NOW - 2, NOW + 2, NOW + 5, 5), (0, NOW - 1, NOW + 1, NOW + 4, 4), (0, NOW, NOW, NOW + 3, 3)])
    }


def test_a_series_is_ended_until_a_newer_sample_arrives() -> None:
    """The order does not matter; an end at the time of the last sample stays."""
    assert row(shard_of([(0, 1, 5)], [(0, 9, None)]))[0].ended_ms.tolist() == [NOW + 9]
    assert row(shard_of([(0, 9, None)], [(0, 9, 5)]))[0].ended_ms.tolist() == [NOW + 9]
    assert row(shard_of([(0, 10, 5)], [(0, 9, None)]))[0].ended_ms.tolist() == [0]
    assert row(shard_of([(0, 9, None)], [(0, 10, 5)]))[0].ended_ms.tolist() == [0]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (SelectRequest((), Grid(NOW, 7_000, 1)), "60 x 60 s, 48 x 300 s, 96 x 900 s, 72 x 3600 s"),
        (SelectRequest((), Grid(NOW + 1, 60_000, 1)), "use a multiple of its step"),
        (SelectRequest((), Grid(NOW, 60_000, 1), limit=4), "5 series of shard 0 fit, at most 4"),
        (SelectRequest((), Grid(NOW, 60_000, 1), ("mean",)), "unknown statistic 'mean'"),
        (SelectRequest((), Grid(NOW, 60_000, 10_000_000)), "ask for fewer"),
    ],
)
def test_invalid_requests_are_refused(request_: SelectRequest, text: str) -> None:
    """The message names what exists, or the limit."""
    with pytest.raises(SelectError, match=text):
        shard_of([(0, 1, 1)]).select(request_)


def test_a_series_announced_but_never_sampled_has_empty_buckets() -> None:
    """The series is found with its announced type and empty buckets."""
    buckets, got = row(shard_of([(0, 1, 1)]), series=3)
    assert (buckets.series[0].type, got["count"], len(buckets.births)) == (ValueType.INTEGER, 0, 0)


def test_string_pool_forgets_texts_that_no_cell_holds() -> None:
    """Numbers are reused; at the limit new texts get none."""
    texts = StringPool(limit_bytes=2_000)
    ids = [texts.intern(f"text {i}") for i in range(20)]
    assert ids[-1] == NO_STRING
    assert texts.wants_sweep()
    texts.retain(ids[:2])
    assert (texts[ids[0]], texts[ids[1]], len(texts)) == ("text 0", "text 1", 2)
    assert texts.intern("again") in ids[2:]


def test_strings_survive_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings that a bucket or an incarnation still points at are kept."""
    monkeypatch.setattr(StringPool, "wants_sweep", lambda _: True)
    shard = shard_of(*([(0, i, f"value {i}"), (1, i, "same")] for i in range(1, 30)))
    buckets, got = row(shard)
    assert buckets.strings[got["last"]] == "value 29"
    assert buckets.strings[int(buckets.births["last"][0])] == "value 29"
    assert shard.status()["strings"] <= 3


def test_two_million_series_can_be_reserved() -> None:
    """Only address space is reserved; no page is resident before it is written."""
    shard = Shard(capacity=2_000_000)
    assert shard.status()["capacity"] >= 2_000_000
    assert isinstance(shard._store.rings[0], LevelRing)
    assert int(lazy_zeros(10, np.int64).sum()) == 0
