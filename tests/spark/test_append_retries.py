"""Appends beside compactors: a commit that others overtake is tried again, and the chain is checked each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from artimon.model.clock import ManualClock
from artimon.rawtable.commit import APPEND_ATTEMPTS, ConcurrentAppend, RawTable
from artimon.rawtable.schema import TableError
from artimon.rawtable.table_state import Increment, RawState, TableTotals, advance, close_gaps

FIRST = close_gaps(RawState(), "a" * 32, "cluster", "t", "topic-1", 1, [])


class ContendedTable(RawTable):
    """Table whose next commits fail; `rival`: the append that another writer then makes."""

    def __init__(self, conflicts: int, rival: RawState | None = None) -> None:
        super().__init__("hdfs://nowhere", ManualClock())
        self.conflicts, self.rival, self.state, self.tried = conflicts, rival, FIRST, 0

    def head(self) -> tuple[int, RawState]:
        return self.tried, self.state

    def commit(self, actions: Sequence[Any], apps: Sequence[Any] = (), metadata: Any = None) -> None:
        self.tried += 1
        if self.tried <= self.conflicts:
            self.state = self.rival or self.state
            raise DeltaError("Failed to commit transaction: 7")
        self.state = AFTER


AFTER = advance(FIRST, "w", Increment({0: 1}, {}, {}, TableTotals(), 0))
RIVAL = advance(FIRST, "x", Increment({0: 1}, {}, {}, TableTotals(), 0))


def test_an_append_outlasts_compactors_that_commit_before_it() -> None:
    table = ContendedTable(APPEND_ATTEMPTS - 1)
    assert table.append([], FIRST, AFTER) == APPEND_ATTEMPTS
    assert table.state is AFTER


def test_an_append_gives_up_after_its_attempts_and_says_why() -> None:
    table = ContendedTable(APPEND_ATTEMPTS)
    with pytest.raises(TableError, match=rf"failed {APPEND_ATTEMPTS} times: Failed to commit"):
        table.append([], FIRST, AFTER)


def test_an_append_that_another_writer_overtook_is_not_tried_again() -> None:
    table = ContendedTable(1, RIVAL)
    with pytest.raises(ConcurrentAppend):
        table.append([], FIRST, AFTER)
    assert table.tried == 1
