"""Due compaction jobs, as pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from artimon.model.ranges import LaneId, LaneRanges
from artimon.rawtable.schema import DAY_MS, LiveFile, end_ms
from artimon.rawtable.table_state import Increment, RawState, TableTotals, advance, close_gaps
from pipeline.compaction import plan as plans
from pipeline.compaction.compaction_settings import RetentionError, parse_keep
from pipeline.compaction.plan import (
    IDLE_MARGIN_MS,
    ClassRetention,
    closed_before_ms,
    count_files,
    expired_files,
    plan_jobs,
)

DAY = "2026-11-21"
NEVER = 2**62


def appended(period: str, number: int, keep: str = "default", rows: int = 10) -> list[LiveFile]:
    return [LiveFile(f"period={period}/{keep}-{n}.parquet", 100, rows, period, keep) for n in range(number)]


def compacted(period: str, number: int, keep: str = "default", rows: int = 10) -> list[LiveFile]:
    kind = "hour" if "T" in period else "day"
    return [LiveFile(f"period={period}/{kind}-{keep}-{n}.parquet", 100, rows, period, keep) for n in range(number)]


def described(files: Iterable[LiveFile], settled: int) -> list[tuple[str, str, int, int]]:
    return [(job.period, job.keep, len(job.inputs), job.outputs) for job in plan_jobs(files, settled)]


@pytest.mark.parametrize(
    ("files", "settled", "jobs"),
    [
        pytest.param([], NEVER, [], id="nothing"),
        pytest.param(appended(f"{DAY}T13", 9), end_ms(f"{DAY}T13") - 1, [], id="open_hour"),
        pytest.param(appended(f"{DAY}T13", 9), end_ms(f"{DAY}T13"), [(f"{DAY}T13", "default", 9, 1)], id="closed_hour"),
        pytest.param(compacted(f"{DAY}T13", 4), end_ms(f"{DAY}T13"), [], id="compacted_hour"),
        pytest.param(
            compacted(f"{DAY}T13", 1) + appended(f"{DAY}T13", 1),
            end_ms(f"{DAY}T13"),
            [(f"{DAY}T13", "default", 2, 1)],
            id="late_file",
        ),
        pytest.param(
            compacted(f"{DAY}T13", 1) + appended(f"{DAY}T14", 2) + appended("2026-11-22T00", 5),
            end_ms(DAY),
            [(f"{DAY}T14", "default", 2, 1)],
            id="hours_before_their_day",
        ),
        pytest.param(
            compacted(f"{DAY}T13", 1) + appended(f"{DAY}T14", 1),
            end_ms(DAY),
            [(DAY, "default", 2, 1)],
            id="closed_day",
        ),
        pytest.param(compacted(f"{DAY}T13", 1), end_ms(DAY) - 1, [], id="open_day"),
        pytest.param(compacted(DAY, 5), NEVER, [], id="merged_day"),
        pytest.param(
            compacted(DAY, 5) + appended(f"{DAY}T13", 1), NEVER, [(DAY, "default", 1, 1)], id="late_hour_of_a_day"
        ),
        pytest.param(
            compacted(DAY, 8) + appended(f"{DAY}T13", 1), NEVER, [(DAY, "default", 9, 1)], id="no_room_for_a_late_hour"
        ),
        pytest.param(
            compacted(f"{DAY}T13", 2, "a") + compacted(f"{DAY}T13", 2, "b"),
            end_ms(DAY),
            [(DAY, "a", 2, 1), (DAY, "b", 2, 1)],
            id="classes_stay_apart",
        ),
        pytest.param(appended("__HIVE_DEFAULT_PARTITION__", 9), NEVER, [], id="unknown_period"),
        pytest.param(
            appended(f"{DAY}T13", 9, rows=plans.TARGET_ROWS),
            end_ms(f"{DAY}T13"),
            [(f"{DAY}T13", "default", 9, 4)],
            id="large_hour",
        ),
    ],
)
def test_due_jobs_of_files(files: list[LiveFile], settled: int, jobs: list[tuple[str, str, int, int]]) -> None:
    assert described(files, settled) == jobs


def test_what_is_given_up_holds_up_its_day_only() -> None:
    other = "2026-11-20"
    files = [*appended(f"{DAY}T13", 3), *compacted(f"{DAY}T14", 1), *compacted(f"{other}T14", 2)]
    (hour,) = plan_jobs(files, end_ms(DAY))
    assert described(files, end_ms(DAY)) == [(f"{DAY}T13", "default", 3, 1)]
    left = plan_jobs(files, end_ms(DAY), {hour.key})
    assert [(job.period, len(job.inputs)) for job in left] == [(other, 2)]
    assert hour.key in plans.due_keys(files, end_ms(DAY))
    more = [*files, *appended(f"{DAY}T13", 1)]
    assert plan_jobs(more, end_ms(DAY), {hour.key})[0].period == f"{DAY}T13"  # something has changed: it is tried again
    assert hour.key not in plans.due_keys(more, end_ms(DAY))


def test_following_the_plan_ends_within_the_limits() -> None:
    """For any number of classes and late files, the jobs keep the limits, and then nothing is due."""
    files = [f for h in range(24) for k in "abc" for f in appended(f"{DAY}T{h:02d}", 12, k, plans.TARGET_ROWS)]
    for round_ in range(8):
        for _ in range(200):
            jobs = plan_jobs(files, end_ms(DAY))
            if not jobs:
                break
            job = jobs[0]
            made = compacted(job.period, job.outputs, job.keep, -(-job.rows // job.outputs))
            made = [replace(file, path=f"{file.path}-{round_}-{id(job)}") for file in made]
            gone = {file.path for file in job.inputs}
            files = [file for file in files if file.path not in gone] + made
        assert plan_jobs(files, end_ms(DAY)) == []
        counted = count_files(files, end_ms(DAY))
        assert counted.day <= plans.DAY_FILES
        assert counted.closed_hour <= plans.HOUR_FILES
        files += appended(f"{DAY}T07", 3, "b")


def state(newest: dict[int, int], partitions: int) -> RawState:
    """Each partition of `newest` has a lane whose newest batch was appended then."""
    made = close_gaps(RawState(), "w", "cluster", "samples", "topic-1", partitions, [])
    for partition, at in newest.items():
        lane, seen = LaneId(f"a{partition}", 1, 0), LaneRanges()
        seen.add(lane, 1)
        made = advance(made, "w", Increment({partition: 9}, {partition: seen}, {lane: at}, TableTotals(), at))
    return made


def acks(until: dict[int, tuple[int, int]], at: int, topic: str = "topic-1") -> dict[str, Any]:
    partitions = {str(p): {"until": u, "log_end": end} for p, (u, end) in until.items()}
    return {"topic_id": topic, "time_ms": at, "partitions": partitions}


@pytest.mark.parametrize(
    ("newest", "document", "settled"),
    [
        pytest.param({0: 500, 1: 400}, None, 400, id="the_slowest_partition"),
        pytest.param({0: 500}, None, 0, id="a_partition_of_which_nothing_is_known"),
        pytest.param({0: 500_000}, acks({1: (0, 0)}, 700_000), 500_000, id="an_empty_one_is_idle"),
        pytest.param({0: 500_000}, acks({1: (3, 4)}, 700_000), 0, id="one_that_lags_is_not"),
        pytest.param({0: 500_000}, acks({1: (0, 0)}, 100_000), 100_000 - IDLE_MARGIN_MS, id="idle_until_then_only"),
        pytest.param({0: 500_000}, acks({1: (0, 0)}, 700_000, "topic-0"), 0, id="another_topic"),
        pytest.param({}, acks({0: (0, 0), 1: (0, 0)}, 700_000), 700_000 - IDLE_MARGIN_MS, id="all_idle"),
    ],
)
def test_settled(newest: dict[int, int], document: dict[str, Any] | None, settled: int) -> None:
    assert closed_before_ms(state(newest, 2), document) == settled


def test_an_empty_table_is_never_settled() -> None:
    assert closed_before_ms(RawState(), None) == 0


def test_expiry_by_class() -> None:
    files = [*appended(f"{DAY}T13", 1, "debug"), *appended(f"{DAY}T13", 1, "default"), *appended(DAY, 1, "debug")]
    keeping = ClassRetention({"debug": 7})
    week = 7 * DAY_MS
    assert expired_files(files, keeping, end_ms(f"{DAY}T13") + week - 1, NEVER) == []
    assert expired_files(files, keeping, end_ms(f"{DAY}T13") + week, NEVER) == files[:1]
    assert expired_files(files, keeping, end_ms(DAY) + week, NEVER) == [files[0], files[2]]
    assert expired_files(files, keeping, end_ms(f"{DAY}T13") + 400 * DAY_MS, NEVER) == files


def test_a_clock_that_runs_ahead_expires_nothing() -> None:
    files = appended(f"{DAY}T13", 1)
    assert expired_files(files, ClassRetention(), NEVER, end_ms(DAY)) == []


def test_keep_is_read_from_text() -> None:
    assert parse_keep("") == ClassRetention()
    assert parse_keep("debug=7, default=30,*=90") == ClassRetention({"debug": 7, "default": 30}, 90)
    for wrong in ("debug", "debug=", "debug=0", "debug=x", "=3"):
        with pytest.raises(RetentionError):
            parse_keep(wrong)
