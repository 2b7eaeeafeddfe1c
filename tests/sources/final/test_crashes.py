"""An agent killed with -9 while it takes a final snapshot: the log has each sample once, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bookkeeper.polling import REPOSITORY
from tests.sources.final.agent import NEW, OLD
from tests.sources.final.world import MINUTE, SOURCE, T, increase_of
from tests.waiting import LIMIT_S

POINTS = [
    "before the log",
    "after the log",
    "before the state",
    "after the state",
    "before the deletion",
    "after the deletion",
]


def agent(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.sources.final.agent", str(place), *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def put(folder: Path) -> None:
    path = folder / OLD.file
    path.write_bytes(OLD.final(4, {"n": 132, "new": 3}))
    os.utime(path, (T / 1000, T / 1000))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("step", ["polled", "polled late"])
def test_killed_at_a_point(tmp_path: Path, step: str, point: str) -> None:
    """Then it comes back, and once more for a copy of the file that a disk may have given back."""
    assert agent(tmp_path, step).returncode == 0
    folder = tmp_path / "dropin" / "final"
    folder.mkdir()
    put(folder)
    killed = agent(tmp_path, "take", point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for _ in range(2):
        came_back = agent(tmp_path, "take")
        assert came_back.returncode == 0, came_back.stderr
        assert list(folder.iterdir()) == []
        put(folder)
    rows = json.loads(agent(tmp_path, "ledger").stdout)
    assert {row[0] for row in rows} == {SOURCE}
    assert len({(row[1], row[2]) for row in rows}) == len(rows), "no series has two samples of one time"
    late = [(T + 21 * MINUTE, NEW.birth_ms, 100)] if step == "polled late" else []
    by_series: dict[int, list[tuple[int, int, int | None]]] = {}
    for _, print_, time_ms, birth_ms, value in rows:
        by_series.setdefault(print_, []).append((time_ms, birth_ms, value))
    totals = sorted(increase_of(found) for found in by_series.values())
    assert totals == [3, 132 + (100 if late else 0)]
    values = sorted(value for found in by_series.values() for *_, value in found if value is not None)
    assert values == [1, 3, *(value for *_, value in late), 132]
