"""Detection of truncated logs: groups above the truncation must read again, even where the log has grown since."""

from __future__ import annotations

from artimon.rawtable.table_state import Epochs
from pipeline.spark.log_truncation import RETENTION_MS, TruncationDetector

OLD: dict[int, Epochs] = {0: ((3, 0),)}


def detector_at(end: int = 100, fed: int = 100) -> TruncationDetector:
    """Return a detector of one partition whose log ended at `end` under epoch 3."""
    cuts = TruncationDetector("t")
    assert cuts.check(OLD, {0: (0, end)}, {0: fed}, 0) == []
    return cuts


def test_a_new_leader_with_the_whole_log_is_no_truncation() -> None:
    cuts = detector_at()
    assert cuts.check({0: ((3, 0), (4, 105))}, {0: (0, 110)}, {0: 104}, 1) == []
    assert cuts.check({0: ((3, 0), (4, 105), (5, 110))}, {0: (0, 110)}, {0: 110}, 2) == []
    assert cuts.truncations == []


def test_a_truncation_is_found_though_the_log_has_grown_again() -> None:
    cuts = detector_at()
    found = cuts.check({0: ((3, 0), (4, 90))}, {0: (0, 200)}, {0: 100}, 1)
    assert [(cut.partition, cut.offset) for cut in found] == [(0, 90)]
    assert cuts.check({0: ((3, 0), (4, 90))}, {0: (0, 210)}, {0: 90}, 2) == []
    assert cuts.truncations == found


def test_a_truncation_is_remembered_for_returning_shards() -> None:
    """The shards may be stopped meanwhile, or return to a snapshot."""
    cuts = detector_at(end=100, fed=0)
    assert len(cuts.check({0: ((3, 0), (4, 90))}, {0: (0, 95)}, {}, 1)) == 1
    cuts.check({0: ((3, 0), (4, 90))}, {0: (0, 95)}, {}, RETENTION_MS)
    assert len(cuts.truncations) == 1
    cuts.check({0: ((3, 0), (4, 90))}, {0: (0, 95)}, {}, RETENTION_MS + 1)
    assert cuts.truncations == []


def test_a_log_that_ends_early_is_truncated_only_if_seen_twice() -> None:
    """A leader that just took over may report too low an end."""
    cuts = detector_at()
    assert cuts.check(OLD, {0: (0, 40)}, {0: 100}, 1) == []
    assert cuts.check(OLD, {0: (0, 100)}, {0: 100}, 2) == []
    assert cuts.check(OLD, {0: (0, 40)}, {0: 100}, 3) == []
    assert [cut.offset for cut in cuts.check(OLD, {0: (0, 41)}, {0: 100}, 4)] == [41]


def test_a_log_with_lower_epochs_is_read_from_the_start() -> None:
    cuts = detector_at()
    assert [cut.offset for cut in cuts.check({0: ((1, 0),)}, {0: (0, 120)}, {0: 100}, 1)] == [0]
