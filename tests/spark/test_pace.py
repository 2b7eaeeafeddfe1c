"""Number of files that appends add to an hour."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from artimon.rawtable.schema import DataFile, period_of
from pipeline.spark.append_pace import (
    APPEND_ROWS,
    HOUR_FILES,
    HOUR_MS,
    MIN_MESSAGES,
    UNPACED_FILES,
    AppendPace,
    message_limit,
)

START = 1_795_000_000_000 // HOUR_MS * HOUR_MS
HOUR = period_of(START)


def file(rows: int, at_ms: int = START, keep: str = "default") -> DataFile:
    return DataFile("x", 1, rows, {"period": period_of(at_ms), "keep": keep}, "")


def hour_of_appends(
    pace: AppendPace, classes: int, rows: int, took_s: float = 2.0, interval_s: float = 30.0
) -> list[float]:
    """Drive one whole hour and return the pauses that the query would make."""
    at, pauses = float(START), []
    while at < START + HOUR_MS:
        pace.record([file(rows, int(at), f"k{n}") for n in range(classes)])
        pauses.append(pace.pause_s(int(at)))
        at += 1000 * max(interval_s, took_s + pauses[-1])
    return pauses


def test_an_ordinary_hour_has_one_file_an_append_and_no_pause() -> None:
    pauses = hour_of_appends(pace := AppendPace(), 1, 750_000)
    assert len(pauses) == 120
    assert not any(pauses)
    assert not pace.is_scarce(HOUR)


@given(st.integers(1, 20), st.floats(0.5, 30.0))
def test_up_to_twenty_classes_keep_the_limit(classes: int, interval_s: float) -> None:
    pauses = hour_of_appends(AppendPace(interval_s), classes, 10_000, interval_s=interval_s)
    assert classes * len(pauses) <= HOUR_FILES


def test_four_classes_need_no_pause() -> None:
    assert not any(hour_of_appends(AppendPace(), 4, 200_000))


def test_files_of_the_hour_before_the_start_count() -> None:
    pace = AppendPace(30.0, Counter([HOUR] * (HOUR_FILES - 10) + ["2026-11-01"]))
    pace.record([file(1000)])
    assert pace.pause_s(START) == 300.0
    assert pace.pause_s(START + HOUR_MS) == 0.0


def test_a_backlog_gets_larger_files_and_no_pause() -> None:
    pace = AppendPace(30.0, {HOUR: UNPACED_FILES - 1})
    assert pace.task_count(12_000_000, 4, HOUR) == 4
    small = pace.chunk_bytes(HOUR)
    pace.record([file(3_000_000)])
    assert pace.task_count(12_000_000, 4, HOUR) == 3
    assert pace.chunk_bytes(HOUR) > 2 * small
    assert pace.pause_s(START) == 0.0


def test_few_rows_are_one_task() -> None:
    assert [AppendPace().task_count(rows, 4, HOUR) for rows in (0, 750_000, 2_999_999, 3_000_000, 10**9)] == [
        1,
        1,
        1,
        2,
        4,
    ]


def test_large_batches_make_appends_of_fewer_messages() -> None:
    assert message_limit(8_000, 0, 0) == 8_000
    assert message_limit(8_000, 1_500_000, 1_000) == 8_000
    assert message_limit(8_000, 10_000_000, 1_000) == APPEND_ROWS // 10_000
    assert message_limit(8_000, 7, 1_000) == 8_000


def test_failing_appends_shrink_down_to_a_minimum_size() -> None:
    sizes = [message_limit(8_000, 5_000_000, 1_000, fruitless) for fruitless in range(20)]
    assert sizes[:4] == [2_400, 1_200, 600, 300]
    assert set(sizes[4:]) == {MIN_MESSAGES}
    assert message_limit(200, 5_000_000, 1_000, 9) == 200
