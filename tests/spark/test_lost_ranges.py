"""Kafka deletes messages that a query has not read, and nothing newer arrives: the query continues above them by
itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from artimon.rawtable.commit import RawTable
from artimon.rawtable.table_state import RawState
from pipeline.control.shard_directory import ShardGroup, ShardInfo
from pipeline.spark.buckets_query import BucketsRun
from pipeline.spark.feed_progress import FeedProgress
from pipeline.spark.topic_client import TopicInfo
from tests.spark.test_model import make_world
from tests.spark.world import PARTITIONS, World


@pytest.fixture
def unread_world() -> Iterator[World]:
    with make_world() as found:
        yield found


def head(unread_world: World) -> RawState:
    return RawTable(unread_world.uri).head()[1]


def ends(unread_world: World) -> dict[int, int]:
    return {p: log.end for p, log in enumerate(unread_world.log.partitions)}


def read_all(unread_world: World) -> None:
    for _ in range(3):
        unread_world.drivers[0].step(100, 1, look=True)


def filled(unread_world: World) -> None:
    for n in range(12):
        unread_world.send(n, n, 1)
    read_all(unread_world)
    assert dict(head(unread_world).until()) == ends(unread_world)


@pytest.mark.parametrize("restart", [False, True], ids=["running", "started anew"])
def test_the_raw_query_names_messages_deleted_unread(unread_world: World, restart: bool) -> None:
    filled(unread_world)
    lost = []
    for p, log in enumerate(unread_world.log.partitions):
        lost.append((log.end, log.end + 2))
        log.append(unread_world.clock.now_ms(), b"nobody reads this")
        log.append(unread_world.clock.now_ms(), b"nor this")
        log.trim(log.end)
        assert p < PARTITIONS
    if restart:
        unread_world.drivers[0].restart()
    read_all(unread_world)
    state = head(unread_world)
    assert dict(state.until()) == ends(unread_world)
    assert state.current is not None
    assert [state.current.lost[p] for p in range(PARTITIONS)] == [(one,) for one in lost]
    assert {named.gap.kind for named in state.recent_gaps} == {"lost"}
    unread_world.check_rows()


def test_messages_read_by_a_running_batch_are_not_named_lost(unread_world: World) -> None:
    """Kafka deletes the messages between the tasks and the commit, and the query checks the log meanwhile."""
    filled(unread_world)
    for n in range(12):
        unread_world.send(n, n, 1)
    driver = unread_world.drivers[0]

    def delete() -> None:
        for log in unread_world.log.partitions:
            log.trim(log.end)
        driver._query._check(driver._life.info, driver._life)

    driver.at_point["written"] = delete
    driver.step(100, 1)
    read_all(unread_world)
    state = head(unread_world)
    assert dict(state.until()) == ends(unread_world)
    assert not state.recent_gaps
    unread_world.check_rows()


def life_at(position: int) -> tuple[BucketsRun, ShardGroup]:
    """Return a query of one partition, and a group that follows it."""
    nothing: Any = None
    life = BucketsRun(nothing, nothing, nothing, nothing, TopicInfo("c", "t", "id", 1), nothing)
    group = ShardGroup(ShardInfo("0", "127.0.0.1", 1, "a"), 1)
    life.progress.record_groups(group.shard, [(group, {0: position})])
    life.progress.start_position({0: (0, position)})
    return life, group


def behind(progress: FeedProgress, group: ShardGroup) -> bool:
    return (group.key, 0) in progress.lagging_groups()


def test_a_group_below_the_start_of_the_log_is_caught_up() -> None:
    life, group = life_at(5)
    life.pass_deleted({0: (3, 5)})
    assert not behind(life.progress, group)
    life.pass_deleted({0: (8, 8)})
    assert behind(life.progress, group)
    assert life.progress.lost_ranges(group, {0: (8, 8)}) == {0: (5, 8)}
    assert life.progress.cohorts() == [[group]]


def test_deleted_offsets_are_not_skipped_during_a_micro_batch() -> None:
    life, group = life_at(5)
    with life._handover:
        life.pass_deleted({0: (8, 8)})
        assert not behind(life.progress, group)
    life.pass_deleted({0: (8, 8)})
    assert behind(life.progress, group)
