"""Progress of the buckets query and the shards: lag, and time since a shard fell behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.control.shard_directory import ShardGroup, ShardInfo
from pipeline.spark.feed_progress import FeedProgress
from pipeline.spark.feed_task import FeedOutcome, FeedResult

ONE = ShardInfo("0", "127.0.0.1", 1, "a")
TWO = ShardInfo("1", "127.0.0.1", 2, "b")
HALVES = ShardGroup(ONE, 0b01), ShardGroup(TWO, 0b10)


def standing(start: int = 0) -> FeedProgress:
    """Return one partition, two shards of one group each, and the query at `start`."""
    progress = FeedProgress(1)
    for group in HALVES:
        progress.record_groups(group.shard, [(group, {0: start})])
    progress.start_position({0: (0, 1_000)})
    return progress


def fed(progress: FeedProgress, until: int, *groups: ShardGroup) -> None:
    progress.record_fed(FeedResult(0, 0, until, 0, {group.key: FeedOutcome(next=until) for group in groups}))


def test_a_quiet_period_does_not_count_as_lag() -> None:
    progress = standing(5)
    progress.record_log_end({0: 5}, 0)
    assert progress.figures(3_600_000)["lag_ms"] == 0
    progress.record_log_end({0: 6}, 3_600_000)
    assert progress.figures(3_601_000)["lag_ms"] == 1_000


def test_the_lag_is_the_age_of_the_first_end_not_reached() -> None:
    progress = standing()
    for now, end in ((1_000, 3), (6_000, 7), (11_000, 9)):
        progress.record_log_end({0: end}, now)
    assert (progress.figures(12_000)["lag_ms"], progress.figures(12_000)["behind"]) == (11_000, 9)
    fed(progress, 3, *HALVES)
    assert progress.figures(12_000)["lag_ms"] == 6_000
    fed(progress, 9, *HALVES)
    assert (progress.figures(12_000)["lag_ms"], progress.figures(12_000)["behind"]) == (0, 0)


def test_a_shard_is_behind_since_it_was_first_seen_behind() -> None:
    progress = standing()
    fed(progress, 4, HALVES[0])
    assert progress.figures(1_000)["lagging_ms"] == {"1": 0}
    assert progress.figures(9_000)["lagging_ms"] == {"1": 8_000}
    progress.record_groups(TWO, [(HALVES[1], {0: 4})])
    assert progress.figures(10_000)["lagging_ms"] == {}
    fed(progress, 6, HALVES[0])
    assert progress.figures(11_000)["lagging_ms"] == {"1": 0}


def test_runs_are_counted_with_their_time() -> None:
    progress = standing()
    progress.count_batch(0.25)
    progress.count_batch(0.5)
    found: dict[str, Any] = progress.figures(0)
    assert (found["runs"], found["runs_ms"], found["run_ms"]) == (2, 750, 500)


def test_groups_of_one_shard_are_fed_and_caught_up_separately() -> None:
    """A shard takes over virtual shards: its old group stays live, the new one is caught up, then they are merged."""
    progress = standing(10)
    fed(progress, 20, *HALVES)
    fresh, whole = ShardGroup(ONE, 0b100), ShardGroup(ONE, 0b101)
    progress.record_groups(ONE, [(HALVES[0], {0: 20}), (fresh, {})])
    assert progress.lagging_groups() == {(fresh.key, 0)}
    assert progress.cohorts() == [[fresh]]
    assert (progress.max_backlog([fresh]), progress.next_range([fresh], {0: (5, 30)}, 8)) == (20, ({0: 5}, {0: 13}))
    assert progress.lost_ranges(fresh, {0: (5, 30)}) == {0: (0, 5)}
    assert progress.record_catch_up(FeedResult(0, 5, 13, 0, {fresh.key: FeedOutcome(next=13)}))
    assert not progress.record_catch_up(FeedResult(0, 5, 13, 0, {fresh.key: FeedOutcome(next=13)}))
    progress.record_groups(ONE, [(whole, {0: 20})])
    assert (progress.lagging_groups(), progress.cohorts()) == (frozenset(), [])
    assert set(progress.groups()) == {whole, HALVES[1]}


def test_groups_at_the_same_offsets_are_caught_up_together() -> None:
    progress = standing(50)
    a, b, c = ShardGroup(ONE, 0b100), ShardGroup(TWO, 0b1000), ShardGroup(TWO, 0b10000)
    progress.record_groups(ONE, [(HALVES[0], {0: 50}), (a, {0: 7})])
    progress.record_groups(TWO, [(HALVES[1], {0: 50}), (b, {0: 7}), (c, {0: 9})])
    assert progress.cohorts() == [[a, b], [c]]


def test_after_a_group_changed_the_shard_is_queried_before_it_is_fed() -> None:
    progress = standing(5)
    progress.record_fed(
        FeedResult(0, 5, 6, 0, {HALVES[0].key: FeedOutcome(None, "ShardError: group changed: none of the 2")})
    )
    assert progress.changed() == [ONE]
    assert progress.groups() == [HALVES[1]]
    assert progress.cohorts() == [[HALVES[1]]]  # it lacks 5..6, the position of the other is unknown
    assert progress.shards_to_ask({"0": ONE, "1": TWO}) == [ONE]
    progress.record_groups(ONE, [(HALVES[0], {0: 6})])
    assert (progress.changed(), progress.figures(0)["problems"]) == ([], {})


def test_a_shard_is_queried_when_its_registration_changes() -> None:
    progress = standing()
    grown, other = replace(ONE, vshards=0b101), replace(TWO, incarnation="c")
    assert progress.shards_to_ask({"0": replace(ONE, vshards=0b01), "1": TWO}) == []
    assert progress.shards_to_ask({"0": grown, "1": other, "2": replace(ONE, id="2")}) == [
        grown,
        other,
        replace(ONE, id="2"),
    ]
    progress.retain({"0": ONE})
    assert progress.groups() == [HALVES[0]]


def test_a_query_without_following_groups_is_detected() -> None:
    progress = standing(5)
    assert progress.has_followers()
    progress.record_fed(FeedResult(0, 5, 900, 0, {}))
    assert not progress.has_followers()
    assert progress.min_backlog() == 895
