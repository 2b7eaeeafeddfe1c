"""Use of Kafka's quota by status, doctor and the broker's configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from artimon.runtime.health import HealthFile
from artimon.runtime.settings import MIN_KAFKA_QUOTA, load
from artimon.stack.child_process import start_time
from artimon.stack.doctor import CheckResult, run_checks
from artimon.stack.kafka_part import segment_bytes
from artimon.stack.part_runner import Phase
from artimon.stack.stack_state import PartState, StackState, write_state
from artimon.stack.status import read_status

MIB = 2**20
FULL = {"bytes": 29 * MIB, "quota_bytes": 30 * MIB, "full": True}
ROOM = {"bytes": 3 * MIB, "quota_bytes": 30 * MIB, "full": False}


def stack(folder: Path, kafka: dict[str, Any], problems: Sequence[str] = (), warnings: Sequence[str] = ()) -> int:
    """The files that a stack of three parts leaves; when it began."""
    pid, started = os.getpid(), start_time(os.getpid())
    parts = [PartState(name, Phase.HEALTHY.value, pid, started) for name in ("agent", "collector-0", "spark")]
    write_state(folder, StackState(pid, started, {}, {}, parts))
    HealthFile(folder / "health" / "collector-0.json", "collector-0").write(kafka=kafka)
    HealthFile(folder / "health" / "spark.json", "spark").write(
        raw={}, buckets={}, problems=problems, warnings=warnings
    )
    return round(started * 1000)


def test_a_full_kafka_makes_the_stack_unhealthy(tmp_path: Path) -> None:
    began = stack(tmp_path, FULL)
    status = read_status(tmp_path, ManualClock(began + 600_000))
    (hop,) = [hop for hop in status.hops if hop.name == "collector-0: to Kafka"]
    assert not hop.healthy
    assert hop.reason.startswith("Kafka is full, 30408704 of 31457280 bytes")


def test_how_full_kafka_is_and_gaps_are_told(tmp_path: Path) -> None:
    began = stack(tmp_path, ROOM, warnings=["gap (topic) named by append 7 at noon"])
    status = read_status(tmp_path, ManualClock(began + 600_000))
    (hop,) = [hop for hop in status.hops if hop.name == "collector-0: to Kafka"]
    assert hop.healthy
    assert "Kafka holds 3 of 30 MiB" in hop.detail
    assert (status.problems, status.warnings) == ([], ["spark: gap (topic) named by append 7 at noon"])
    assert status.healthy, "a gap is told; what must be done is done by agents"


@pytest.mark.parametrize(("kafka", "mark"), [(FULL, CheckResult.FAILED), (ROOM, CheckResult.GOOD)])
def test_the_doctor_says_how_full_kafka_is(tmp_path: Path, kafka: dict[str, Any], mark: CheckResult) -> None:
    stack(tmp_path, kafka, ["topic artimon.samples: retention.ms is 1"])
    checks = [check for check in run_checks(load({"HOME": str(tmp_path)}), tmp_path) if check.name.startswith("kafka ")]
    assert [(check.name, check.mark) for check in checks] == [
        ("kafka buffer", mark),
        ("kafka log", CheckResult.WARNING),
    ]
    assert "of 0.03 GiB, by collector-0" in checks[0].detail
    assert "retention.ms is 1" in checks[1].detail


@pytest.mark.parametrize("quota", [MIN_KAFKA_QUOTA, 30_000_000, 2**30, 20 * 2**30, 2**40])
def test_the_segments_of_eight_partitions_fit_into_half_of_the_quota(quota: int) -> None:
    assert MIB <= segment_bytes(quota) <= 128 * MIB
    assert 8 * segment_bytes(quota) <= quota / 2


def test_without_a_quota_segments_are_large() -> None:
    assert segment_bytes(0) == 128 * MIB
