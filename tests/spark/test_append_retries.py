"""Appends beside other writers: a commit that they overtake is tried again, and the chain is checked each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from artimon.model.clock import ManualClock
from artimon.rawtable.commit import ConcurrentAppend, RawTable
from artimon.rawtable.delta import COMMIT_TIMEOUT_S, MAX_FAILURES
from artimon.rawtable.schema import TableError
from artimon.rawtable.table_state import Increment, RawState, TableTotals, advance, close_gaps

FIRST = close_gaps(RawState(), "a" * 32, "cluster", "t", "topic-1", 1, [])


class ContendedTable(RawTable):
    """Table whose next commits fail, each after `seconds`. `by_others`: because another writer is first; `rival`: the
    append that it then makes."""

    def __init__(
        self, failures: int, by_others: bool = True, rival: RawState | None = None, seconds: float = 0.0
    ) -> None:
        self.clock = ManualClock()
        super().__init__("hdfs://nowhere", self.clock)
        self.failures, self.by_others, self.rival, self.seconds = failures, by_others, rival, seconds
        self.state, self.tried = FIRST, 0

    def head(self) -> tuple[int, RawState]:
        self._version = self.tried if self.by_others else 0
        return self.tried, self.state

    def commit(self, actions: Sequence[Any], apps: Sequence[Any] = (), metadata: Any = None) -> None:
        self.tried += 1
        self.clock.advance(round(self.seconds * 1000))
        if self.tried <= self.failures:
            self.state = self.rival or self.state
            raise DeltaError("Failed to commit transaction: 7")
        self.state = AFTER


AFTER = advance(FIRST, "w", Increment({0: 1}, {}, {}, TableTotals(), 0))
RIVAL = advance(FIRST, "x", Increment({0: 1}, {}, {}, TableTotals(), 0))


def test_an_append_outlasts_any_number_of_commits_of_others() -> None:
    table = ContendedTable(1_000)
    assert table.append([], FIRST, AFTER) == 1_001
    assert table.state is AFTER


def test_an_append_gives_up_after_the_time_limit() -> None:
    table = ContendedTable(1_000, seconds=COMMIT_TIMEOUT_S / 20)
    with pytest.raises(TableError, match="append 2 was not committed: Failed to commit"):
        table.append([], FIRST, AFTER)
    assert 5 <= table.tried <= 20


def test_an_append_gives_up_if_the_store_keeps_failing() -> None:
    table = ContendedTable(1_000, by_others=False)
    with pytest.raises(TableError, match="append 2 was not committed: Failed to commit"):
        table.append([], FIRST, AFTER)
    assert table.tried == MAX_FAILURES + 1


def test_an_append_that_another_writer_overtook_is_not_tried_again() -> None:
    table = ContendedTable(1, rival=RIVAL)
    with pytest.raises(ConcurrentAppend):
        table.append([], FIRST, AFTER)
    assert table.tried == 1
