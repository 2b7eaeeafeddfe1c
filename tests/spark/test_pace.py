"""Number of files that appends add to an hour."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.rawtable.schema import DataFile, period_of
from pipeline.spark.append_pace import (
    APPEND_ROWS,
    CHUNK_BYTES,
    HOUR_FILES,
    HOUR_MS,
    MIN_MESSAGES,
    TASK_ROWS,
    AppendPace,
    message_limit,
)
from pipeline.spark.spark_settings import SparkConfig

START = 1_795_000_000_000 // HOUR_MS * HOUR_MS
HOUR = period_of(START)
ROW_BYTES = 43
MOST_ROWS = 8_000_000
MOST = next(int(str(one.default)) for one in fields(SparkConfig) if one.name == "raw_messages")


def file(rows: int, at_ms: int = START, keep: str = "default") -> DataFile:
    return DataFile("x", 1, rows, {"period": period_of(at_ms), "keep": keep}, "")


class Load:
    """Appends of a steady load for some hours, at the times at which the query makes them; Spark looks each second."""

    def __init__(self, interval_s: float, classes: int, messages_s: float, rows_a_message: int) -> None:
        self.pace, self.files, self.appends = AppendPace(interval_s), Counter[str](), 0
        self.pauses = list[float]()
        self._interval_s, self._classes, self._messages_s, self._rows = interval_s, classes, messages_s, rows_a_message
        self._limit = message_limit(MOST, rows_a_message * 1_000, 1_000)

    def run(self, hours: int, offset_ms: int = 0) -> Load:
        at = START + offset_ms
        until, last = float(at), float(at)
        while at < START + hours * HOUR_MS:
            full = until + self._limit / self._messages_s * 1000
            at = max(at, -int(-min(full, last + self._interval_s * 1000) // 1000) * 1000)
            waiting = (at - until) / 1000 * self._messages_s
            last, count = at, min(waiting, self._limit)
            self._append(int(until), at, int(count * self._rows), count >= self._limit)
            until += count / self._messages_s * 1000
            pause = self.pace.pause_s(at + 2_000)
            self.pauses.append(pause)
            at += max(2_000, round(pause * 1000))
        return self

    def _append(self, since: int, until: int, rows: int, is_full: bool) -> None:
        """One append: as many files a class as tasks and their buffers make; those of two hours at their border."""
        tasks = self.pace.task_count(rows, 4)
        per_file = CHUNK_BYTES // ROW_BYTES
        each = max(1, rows // tasks // self._classes)
        count = tasks * max(1, -(-each * self._classes // per_file))
        share = max(1, rows // (count * self._classes))
        named = [
            DataFile("x", 1, share, {"period": hour, "keep": f"k{n}"}, "")
            for hour in sorted({period_of(since), period_of(until - 1)})
            for n in range(self._classes)
            for _ in range(count)
        ]
        self.pace.record(named, is_full)
        self.files.update(one.partition["period"] for one in named)
        self.appends += 1

    @property
    def most(self) -> int:
        """Greatest number of files of an hour of one class."""
        return max(self.files.values()) // self._classes


@pytest.mark.parametrize(
    ("messages_a_minute", "rows_a_message"),
    [(10, 1), (1_000, 1_500), (29_000, 50), (120_000, 10), (5_400, 1_500)],
    ids=["idle", "stack", "small batches of 3,000 hosts", "smaller ones of 12,000", "8 million series"],
)
def test_two_appends_a_minute_at_any_fleet(messages_a_minute: int, rows_a_message: int) -> None:
    """Time and rows make appends, not messages; an hour has at most HOUR_FILES files, and its last rows are among
    them."""
    load = Load(30.0, 1, messages_a_minute / 60, rows_a_message).run(4, 1_234_567)
    assert load.most <= HOUR_FILES
    assert load.appends <= 4 * 120
    assert load.appends >= 3 * 105


@settings(max_examples=25)
@given(st.integers(1, 20), st.floats(2.0, 30.0), st.integers(1, 60_000), st.integers(1, 2_000), st.integers(0, HOUR_MS))
def test_no_load_of_a_fleet_exceeds_the_limit(
    classes: int, interval_s: float, messages_a_minute: int, rows_a_message: int, offset_ms: int
) -> None:
    rows_a_minute = messages_a_minute * rows_a_message
    if rows_a_minute > MOST_ROWS:
        messages_a_minute = max(1, MOST_ROWS // rows_a_message)
    load = Load(interval_s, classes, messages_a_minute / 60, rows_a_message).run(2, offset_ms)
    assert load.most <= HOUR_FILES + 2


def test_an_ordinary_load_is_appended_evenly() -> None:
    load = Load(30.0, 4, 1_000 / 60, 1_500).run(1)
    assert load.appends >= 110
    assert max(load.pauses) < 60


def test_files_of_the_hour_before_the_start_count() -> None:
    pace = AppendPace(30.0, {(HOUR, "default"): HOUR_FILES, ("2026-11-01", "default"): 9})
    pace.record([file(1000)])
    assert pace.pause_s(START) == 300.0
    assert pace.pause_s(START + HOUR_MS) == 0.0


def test_a_backlog_has_no_pause() -> None:
    """Many rows, or as many messages as an append may have, however small they are."""
    pace = AppendPace(30.0)
    pace.record([file(TASK_ROWS)] * HOUR_FILES)
    assert pace.pause_s(START) == 0.0
    pace.record([file(1000)], is_full=True)
    assert pace.pause_s(START) == 0.0
    pace.record([file(1000)])
    assert pace.pause_s(START) > 0.0


def test_few_rows_are_one_task() -> None:
    assert [AppendPace.task_count(rows, 4) for rows in (0, TASK_ROWS, 2 * TASK_ROWS, 10**9)] == [1, 1, 2, 4]


def test_large_batches_make_appends_of_fewer_messages() -> None:
    assert message_limit(8_000, 0, 0) == 8_000
    assert message_limit(8_000, 1_500_000, 1_000) == 8_000
    assert message_limit(8_000, 10_000_000, 1_000) == APPEND_ROWS // 10_000
    assert message_limit(8_000, 7, 1_000) == 8_000
    assert message_limit(MOST, 0, 0) == 8_000
    assert message_limit(MOST, 50_000, 1_000) == MOST


def test_failing_appends_shrink_down_to_a_minimum_size() -> None:
    sizes = [message_limit(8_000, 5_000_000, 1_000, fruitless) for fruitless in range(20)]
    assert sizes[:4] == [2_400, 1_200, 600, 300]
    assert set(sizes[4:]) == {MIN_MESSAGES}
    assert message_limit(200, 5_000_000, 1_000, 9) == 200
