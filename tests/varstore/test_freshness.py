"""Readiness and lag of virtual shards, as a shard reports them."""

from __future__ import annotations

from varstore.cluster.freshness import GAP_S, LAG_S, Freshness, GroupPosition

ALL = 0b1111


class SimulatedShard:
    """A shard that holds ALL, with one partition; its groups are checked and Kafka is queried every second."""

    def __init__(self) -> None:
        self.now, self.end, self.due, self.read = 100.0, 0, 1, 1
        self.standings = [GroupPosition(ALL, {0: 0}, True)]
        self.freshness = Freshness(self.now)

    def at(self, *groups: tuple[int, int]) -> None:
        """Set (mask, next offset) of each group."""
        self.standings = [GroupPosition(mask, {0: at}, True) for mask, at in groups]

    def pass_s(self, seconds: float, *, kafka: bool = True) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.freshness.update_groups(self.standings, self.due, self.read, self.now)
            if kafka:
                self.freshness.update_ends("t", {0: self.end}, self.now, self.now)

    def sleep_s(self, seconds: float) -> None:
        """Suspend the process: nothing runs."""
        self.now += seconds


def whole(end: int = 10) -> SimulatedShard:
    shard = SimulatedShard()
    shard.end = end
    shard.pass_s(2)
    shard.at((ALL, end))
    shard.pass_s(1)
    assert shard.freshness.ready == ALL
    return shard


def test_a_shard_is_ready_once_it_holds_all_that_kafka_had_at_its_start() -> None:
    shard = SimulatedShard()
    shard.end = 10
    assert shard.freshness.ready == 0
    shard.pass_s(2)
    assert (shard.freshness.ready, shard.freshness.missing()) == (0, 10)
    shard.end = 50
    shard.at((ALL, 9))
    shard.pass_s(2)
    assert (shard.freshness.ready, shard.freshness.missing()) == (0, 1)
    shard.at((ALL, 10))
    shard.pass_s(1)
    assert (shard.freshness.ready, shard.freshness.missing()) == (ALL, 0)


def test_nothing_is_ready_without_kafka() -> None:
    shard = SimulatedShard()
    shard.pass_s(20, kafka=False)
    assert shard.freshness.ready == 0


def test_virtual_shards_with_lost_offsets_are_not_ready_before_they_are_refilled() -> None:
    """It is complete only where Kafka ends now, with announcements that were read since."""
    shard = whole()
    shard.standings = [GroupPosition(0b1100, {0: 10}, True), GroupPosition(0b0011, {0: 10}, True, has_lost=True)]
    shard.pass_s(5)
    assert (shard.freshness.ready, shard.freshness.held, shard.freshness.missing()) == (0b1100, ALL, 0)
    shard.standings[1] = GroupPosition(0b0011, {0: 10}, False)  # it was dropped, and is refilled, between two checks
    shard.end, shard.due = 30, 2
    shard.pass_s(5)
    assert (shard.freshness.ready, shard.freshness.missing(0b0011)) == (0b1100, 20)
    shard.standings[1] = GroupPosition(0b0011, {0: 30}, True)
    shard.pass_s(5)
    assert shard.freshness.ready == 0b1100
    shard.read = 2
    shard.pass_s(5)
    assert shard.freshness.ready == ALL


def test_a_shard_is_not_ready_before_the_announcements_are_read() -> None:
    shard = SimulatedShard()
    shard.read = 0
    shard.pass_s(3)
    assert shard.freshness.ready == 0
    shard.read = 1
    shard.pass_s(1)
    assert shard.freshness.ready == ALL


def test_adopted_virtual_shards_become_ready_without_affecting_the_others() -> None:
    shard = whole()
    shard.due, shard.read, shard.end = 2, 1, 30
    shard.at((ALL, 30), (0b110000, 5))
    shard.pass_s(2)
    assert shard.freshness.ready == ALL
    assert shard.freshness.missing(0b110000) == 25
    assert shard.freshness.missing(ALL) == 0
    shard.at((ALL | 0b110000, 30))
    shard.pass_s(2)
    assert shard.freshness.ready == ALL  # its announcements were not read again yet
    shard.read = 2
    shard.pass_s(1)
    assert shard.freshness.ready == ALL | 0b110000


def test_virtual_shards_dropped_and_adopted_again_are_not_ready() -> None:
    shard = whole()
    shard.at((0b11, 10))
    shard.pass_s(1)
    assert (shard.freshness.held, shard.freshness.ready) == (0b11, 0b11)
    shard.at((0b11, 10), (0b1100, 0))
    shard.pass_s(2)
    assert shard.freshness.ready == 0b11


def test_a_group_that_waits_for_older_periods_is_not_ready() -> None:
    shard = SimulatedShard()
    shard.standings = [GroupPosition(ALL, {0: 0}, False)]
    shard.pass_s(3)
    assert shard.freshness.ready == 0
    shard.standings = [GroupPosition(ALL, {0: 0}, True)]
    shard.pass_s(1)
    assert shard.freshness.ready == ALL


def test_a_shard_lags_after_missing_batches_of_kafka_for_long() -> None:
    shard = whole()
    shard.pass_s(100)
    assert shard.freshness.lagging == 0  # a quiet log is no lag
    shard.end = 11
    shard.pass_s(LAG_S)
    assert shard.freshness.lagging == 0
    shard.pass_s(2)
    assert (shard.freshness.lagging, shard.freshness.ready) == (ALL, ALL)
    shard.at((ALL, 11))
    shard.pass_s(1)
    assert (shard.freshness.lagging, shard.freshness.lag_s()) == (0, 0.0)


def test_a_shard_that_follows_does_not_lag() -> None:
    shard = whole()
    for step in range(60):
        shard.end = 10 + step
        shard.at((ALL, 10 + step - 5))
        shard.pass_s(1)
        assert shard.freshness.lagging == 0
    assert 3 <= shard.freshness.lag_s() <= 7


def test_a_suspended_shard_is_unsure_until_it_has_queried_kafka() -> None:
    shard = whole()
    shard.sleep_s(60)
    shard.end = 500
    assert shard.freshness.is_unknown(shard.now)
    shard.pass_s(1, kafka=False)
    assert shard.freshness.is_unknown(shard.now)  # it runs again, but its knowledge is old
    shard.pass_s(1)
    assert not shard.freshness.is_unknown(shard.now)
    assert shard.freshness.lagging == ALL  # the batches may have been there for a minute
    shard.at((ALL, 500))
    shard.pass_s(1)
    assert shard.freshness.lagging == 0


def test_an_answer_of_kafka_from_before_the_suspension_is_ignored() -> None:
    shard = whole()
    before = shard.now
    shard.sleep_s(60)
    shard.pass_s(1, kafka=False)
    shard.freshness.update_ends("t", {0: 10}, before, shard.now)
    assert shard.freshness.is_unknown(shard.now)


def test_a_short_delay_does_not_count_as_a_suspension() -> None:
    shard = whole()
    shard.sleep_s(GAP_S - 2)
    shard.pass_s(1)
    assert not shard.freshness.is_unknown(shard.now)


def test_offsets_of_another_topic_do_not_count() -> None:
    shard = whole()
    shard.at((ALL, 0))  # offsets of the old topic do not count
    shard.end = 3
    shard.pass_s(LAG_S + 3)
    assert shard.freshness.lagging == ALL
