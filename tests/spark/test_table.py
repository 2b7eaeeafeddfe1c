"""Compare-and-set of the raw table, on a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from artimon.model.clock import ManualClock
from artimon.rawtable.commit import MAX_APPEND_AGE_S, DriverSuspended, RawTable
from artimon.rawtable.delta import StartTime
from artimon.rawtable.schema import DataFile
from artimon.rawtable.table_state import RawState, close_gaps
from tests.spark.local_files import local_files

FILE = DataFile("period=2026-11-21T13/keep=x/f.parquet", 1, 1, {"period": "2026-11-21T13", "keep": "x"}, "{}")


def begun(before: RawState, writer: str) -> RawState:
    return close_gaps(before, writer, "c", "t", "id", 1, [])


def test_files_that_may_have_been_deleted_are_not_committed(tmp_path: Path) -> None:
    """A driver suspended for a day between its files and its commit has to write the files again."""
    clock = ManualClock(1_795_000_000_000)
    with local_files(clock):
        table = RawTable(tmp_path.as_uri(), clock)
        began, after = StartTime.of(clock), begun(RawState(), "w")
        clock.advance(round(MAX_APPEND_AGE_S * 1000) + 1000)
        with pytest.raises(DriverSuspended, match="begun 24 h ago"):
            table.append([FILE], RawState(), after, began)
        assert table.head() == (0, RawState())
        assert table.append([FILE], RawState(), after, StartTime.of(clock)) == 1


def test_a_committed_append_is_never_refused(tmp_path: Path) -> None:
    """The answer arrives a day late; the head shows that the append is done."""
    clock = ManualClock(1_795_000_000_000)
    with local_files(clock):
        table = RawTable(tmp_path.as_uri(), clock)
        began, after = StartTime.of(clock), begun(RawState(), "w")
        assert table.append([FILE], RawState(), after, began) == 1
        clock.advance(round(MAX_APPEND_AGE_S * 1000) + 1000)
        assert table.append([FILE], RawState(), after, began) == 1


def test_the_age_of_a_start_time_is_the_larger_of_both_clocks() -> None:
    clock = ManualClock(1_000_000)
    assert StartTime(1_000_000 - 5_000, clock.monotonic() + 1).age_s(clock) == 5  # the machine slept
    assert StartTime(1_000_000 + 5_000, clock.monotonic() - 7).age_s(clock) == 7  # the clock was set back
