"""When a virtual shard is whole, and when it lags: what a shard says of itself."""

from __future__ import annotations

from varstore.cluster.freshness import GAP_S, LAG_S, Freshness, GroupPosition

ALL = 0b1111


class Life:
    """A shard that holds ALL, one partition, looked at every second, Kafka asked as often."""

    def __init__(self) -> None:
        self.now, self.end, self.due, self.read = 100.0, 0, 1, 1
        self.standings = [GroupPosition(ALL, {0: 0}, True)]
        self.freshness = Freshness(self.now)

    def at(self, *groups: tuple[int, int]) -> None:
        """(mask, next offset) of each group."""
        self.standings = [GroupPosition(mask, {0: at}, True) for mask, at in groups]

    def pass_s(self, seconds: float, *, kafka: bool = True) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.freshness.look(self.standings, self.due, self.read, self.now)
            if kafka:
                self.freshness.saw("t", {0: self.end}, self.now, self.now)

    def sleep_s(self, seconds: float) -> None:
        """Stopped, nothing runs."""
        self.now += seconds


def whole(end: int = 10) -> Life:
    life = Life()
    life.end = end
    life.pass_s(2)
    life.at((ALL, end))
    life.pass_s(1)
    assert life.freshness.ready == ALL
    return life


def test_it_is_whole_once_it_holds_what_stood_in_kafka_when_it_began() -> None:
    life = Life()
    life.end = 10
    assert life.freshness.ready == 0
    life.pass_s(2)
    assert (life.freshness.ready, life.freshness.missing()) == (0, 10)
    life.end = 50
    life.at((ALL, 9))
    life.pass_s(2)
    assert (life.freshness.ready, life.freshness.missing()) == (0, 1)
    life.at((ALL, 10))
    life.pass_s(1)
    assert (life.freshness.ready, life.freshness.missing()) == (ALL, 0)


def test_without_kafka_nothing_is_known_to_be_whole() -> None:
    life = Life()
    life.pass_s(20, kafka=False)
    assert life.freshness.ready == 0


def test_what_kafka_deleted_unread_is_not_whole_before_it_is_taken_over_anew() -> None:
    """And then only where Kafka ends now, with announcements that were read since."""
    life = whole()
    life.standings = [GroupPosition(0b1100, {0: 10}, True), GroupPosition(0b0011, {0: 10}, True, lost=True)]
    life.pass_s(5)
    assert (life.freshness.ready, life.freshness.held, life.freshness.missing()) == (0b1100, ALL, 0)
    life.standings[1] = GroupPosition(0b0011, {0: 10}, False)  # it was let go of, and is refilled, between two looks
    life.end, life.due = 30, 2
    life.pass_s(5)
    assert (life.freshness.ready, life.freshness.missing(0b0011)) == (0b1100, 20)
    life.standings[1] = GroupPosition(0b0011, {0: 30}, True)
    life.pass_s(5)
    assert life.freshness.ready == 0b1100
    life.read = 2
    life.pass_s(5)
    assert life.freshness.ready == ALL


def test_it_waits_for_the_announcements_too() -> None:
    life = Life()
    life.read = 0
    life.pass_s(3)
    assert life.freshness.ready == 0
    life.read = 1
    life.pass_s(1)
    assert life.freshness.ready == ALL


def test_what_is_taken_over_is_not_whole_before_the_rest_stays_so() -> None:
    life = whole()
    life.due, life.read, life.end = 2, 1, 30
    life.at((ALL, 30), (0b110000, 5))
    life.pass_s(2)
    assert life.freshness.ready == ALL
    assert life.freshness.missing(0b110000) == 25
    assert life.freshness.missing(ALL) == 0
    life.at((ALL | 0b110000, 30))
    life.pass_s(2)
    assert life.freshness.ready == ALL  # its announcements were not read again yet
    life.read = 2
    life.pass_s(1)
    assert life.freshness.ready == ALL | 0b110000


def test_what_is_let_go_and_taken_back_begins_again() -> None:
    life = whole()
    life.at((0b11, 10))
    life.pass_s(1)
    assert (life.freshness.held, life.freshness.ready) == (0b11, 0b11)
    life.at((0b11, 10), (0b1100, 0))
    life.pass_s(2)
    assert life.freshness.ready == 0b11


def test_a_group_that_still_waits_for_older_periods_is_not_whole() -> None:
    life = Life()
    life.standings = [GroupPosition(ALL, {0: 0}, False)]
    life.pass_s(3)
    assert life.freshness.ready == 0
    life.standings = [GroupPosition(ALL, {0: 0}, True)]
    life.pass_s(1)
    assert life.freshness.ready == ALL


def test_it_lags_when_kafka_has_held_for_long_what_it_lacks() -> None:
    life = whole()
    life.pass_s(100)
    assert life.freshness.lagging == 0  # a quiet log is no lag
    life.end = 11
    life.pass_s(LAG_S)
    assert life.freshness.lagging == 0
    life.pass_s(2)
    assert (life.freshness.lagging, life.freshness.ready) == (ALL, ALL)
    life.at((ALL, 11))
    life.pass_s(1)
    assert (life.freshness.lagging, life.freshness.lag_s()) == (0, 0.0)


def test_it_does_not_lag_while_it_follows() -> None:
    life = whole()
    for step in range(60):
        life.end = 10 + step
        life.at((ALL, 10 + step - 5))
        life.pass_s(1)
        assert life.freshness.lagging == 0
    assert 3 <= life.freshness.lag_s() <= 7


def test_one_that_was_stopped_does_not_know_what_it_lacks_until_it_has_asked() -> None:
    life = whole()
    life.sleep_s(60)
    life.end = 500
    assert life.freshness.is_unsure(life.now)
    life.pass_s(1, kafka=False)
    assert life.freshness.is_unsure(life.now)  # it runs again, but what it knows is old
    life.pass_s(1)
    assert not life.freshness.is_unsure(life.now)
    assert life.freshness.lagging == ALL  # it may have been there for a minute
    life.at((ALL, 500))
    life.pass_s(1)
    assert life.freshness.lagging == 0


def test_an_answer_of_kafka_from_before_the_stop_does_not_count() -> None:
    life = whole()
    before = life.now
    life.sleep_s(60)
    life.pass_s(1, kafka=False)
    life.freshness.saw("t", {0: 10}, before, life.now)
    assert life.freshness.is_unsure(life.now)


def test_a_busy_machine_is_no_stop() -> None:
    life = whole()
    life.sleep_s(GAP_S - 2)
    life.pass_s(1)
    assert not life.freshness.is_unsure(life.now)


def test_another_topic_begins_anew() -> None:
    life = whole()
    life.at((ALL, 0))  # what it holds of the old topic does not count
    life.end = 3
    life.pass_s(LAG_S + 3)
    assert life.freshness.lagging == ALL
