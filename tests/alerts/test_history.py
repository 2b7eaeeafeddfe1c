"""Rules that memory alone cannot answer: windows of 30 days, read from the history once for each bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from artimon.model.select import Buckets, SelectError, SelectRequest
from artimon.model.values import Kind
from query_dsl import offline
from query_dsl.evaluation.offline import LiteralStore
from query_dsl.stores.auto_store import AutoStore
from tests.alerts.worlds import MINUTE, START, World

DAY = 24 * 60 * MINUTE
FIRST = START - 40 * DAY
COUNTS = [(FIRST + hour * 60 * MINUTE - 10_000, 2 * hour) for hour in range(1, 40 * 24 + 3)]
RULE = """rules:
- {name: budget, expr: "fetch('errors').increase('30d')", threshold: "> 1000", missing: keep}
- {name: down, expr: "fetch('up')", threshold: "< 1", missing: keep}
"""


class CountedHistory(LiteralStore):
    """Store of raw samples that counts reads and may fail."""

    reads = 0
    problem = ""

    def select(self, request: SelectRequest) -> Buckets:
        CountedHistory.reads += 1
        if CountedHistory.problem:
            raise SelectError(CountedHistory.problem)
        return super().select(request)


@pytest.fixture
def old(tmp_path: Path) -> World:
    """A world with a history of 40 days."""
    world = World(tmp_path)
    made = offline({'errors{host="a"}': COUNTS}, kinds={'errors{host="a"}': "counter"})
    made.__class__ = CountedHistory
    CountedHistory.reads, CountedHistory.problem = 0, ""
    world.past = AutoStore(world.store, lambda: made, world.clock)
    world.store.add("errors", {"host": "a"}, [c for c in COUNTS if c[0] > START - DAY], Kind.COUNTER, birth=FIRST)
    world.write(RULE)
    return world


def test_a_window_of_thirty_days_is_read_once_an_hour(old: World) -> None:
    """Two an hour are 1,440 in thirty days."""
    old.tick({"b": 1})
    assert (old.error("budget"), old.told()) == ("", ["firing a"])
    assert [shown["value"] for shown in old.engine.view().alerts() if shown["rule"] == "budget"] == [1440]
    first = CountedHistory.reads
    assert first > 0
    for _ in range(5):
        old.tick({"b": 1})
    assert CountedHistory.reads == first
    old.tick({"b": 1}, minutes=60)
    assert CountedHistory.reads > first
    assert old.told() == []


def test_a_history_that_does_not_answer_stops_no_other_rule(old: World) -> None:
    CountedHistory.problem = "the file system is away"
    old.tick({"b": 0})
    assert "the file system is away" in old.error("budget")
    assert old.told() == ["firing b"]
    CountedHistory.problem = ""
    old.tick({"b": 0})
    assert (old.error("budget"), old.told()) == ("", ["firing a"])


def test_without_a_history_the_rule_says_what_is_missing(old: World) -> None:
    old.past = None
    old.tick({"b": 0})
    assert "truncated" in old.error("budget")
    assert old.told() == ["firing b"]


def test_an_incomplete_answer_is_not_kept(old: World) -> None:
    """A shard that does not answer: the next evaluation reads again."""
    old.store.partial, old.store.notes = True, ("shard 1 is not there",)
    old.tick({"b": 1})
    assert "incomplete" in old.error("budget")
    old.store.partial, old.store.notes = False, ()
    old.tick({"b": 1})
    assert (old.error("budget"), old.told()) == ("", ["firing a"])


def test_rules_that_accept_different_answers_share_none(old: World) -> None:
    """One query, once judged from what memory holds and once refused."""
    old.past = None
    rule = "- {{name: {name}, expr: \"fetch('up').map('mean', '30d')\", threshold: '< 1', missing: keep{more}}}\n"
    old.write("rules:\n" + rule.format(name="whole", more="") + rule.format(name="part", more=", accept: [partial]"))
    old.store.add("up", {"host": "a"}, [(START - 60 * MINUTE, 0)])
    old.tick()
    assert "truncated" in old.error("whole")
    assert (old.error("part"), old.told()) == ("", ["firing a"])
