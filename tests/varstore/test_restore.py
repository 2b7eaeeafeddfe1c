"""Choice of the place from which virtual shards without a holder are restored: the raw table, or Kafka from its
beginning."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from artimon.model.ranges import LaneRanges
from artimon.rawtable.schema import TableError
from tests.varstore.keeping import ALL, empty
from varstore.snapshot.raw_head import RawHead
from varstore.snapshot.restore import SHORT_LOG_MESSAGES, LogSpan, Restore, prefers_table
from varstore.store.feed_groups import Partition


def head(until: int, topic: str = "t", whole: bool = True, epoch: int = 0) -> RawHead:
    at = Partition("t", 0)
    return RawHead(topic, {at: until}, LaneRanges(), {}, 0, {at: epoch}, whole)


def log(start: int, end: int, epoch: int = 0) -> LogSpan:
    return LogSpan("t", {0: (start, end)}, {0: epoch})


@pytest.mark.parametrize(
    ("table", "kafka", "from_table"),
    [
        pytest.param(head(50), None, True, id="kafka_does_not_answer"),
        pytest.param(head(50), log(0, 100), False, id="short_and_whole"),
        pytest.param(head(50), log(0, SHORT_LOG_MESSAGES + 1), True, id="long"),
        pytest.param(head(50), log(10, 100), True, id="trimmed"),
        pytest.param(head(50, whole=False), log(0, 100), True, id="a_range_was_named_lost"),
        pytest.param(head(50), log(0, 40), True, id="ends_below_what_the_table_has"),
        pytest.param(head(50), log(0, 100, epoch=1), True, id="another_leader_nobody_has_looked_at"),
    ],
)
def test_source_of_a_restore_is_chosen_by_completeness_and_length(
    table: RawHead, kafka: LogSpan | None, from_table: bool
) -> None:
    assert prefers_table(table, kafka) is from_table


@pytest.mark.parametrize(
    ("table", "kafka", "reason"),
    [
        pytest.param(head(50, topic="before"), log(0, 5), "has not begun topic", id="made_again"),
        pytest.param(head(50), log(60, 100), "not named the lost range", id="deleted_unread"),
    ],
)
def test_restore_is_refused_while_neither_source_is_complete(table: RawHead, kafka: LogSpan, reason: str) -> None:
    """A shard that began with what Kafka has left would lack for ever the rows that only the table has."""
    with pytest.raises(TableError, match=reason):
        prefers_table(table, kafka)


def test_an_empty_shard_records_the_leader_epochs_of_its_start() -> None:
    """The log may be truncated, and grow again, before its leaders are read for the first time."""
    nothing: Any = None
    shard = empty(0)
    Restore(shard, nullcontext, lambda: log(0, 9, epoch=5), nothing).restore(ALL)
    assert shard.other_epochs("t", {0: 6}) == {(0, 5)}


def test_an_empty_shard_starts_without_kafka() -> None:
    nothing: Any = None
    shard = empty(0)
    Restore(shard, nullcontext, lambda: None, nothing).restore(ALL)
    assert shard.vshards == ALL
    assert shard.other_epochs("t", {0: 6}) == set()
