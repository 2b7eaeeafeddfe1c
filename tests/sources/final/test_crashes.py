"""An agent killed with -9 while it takes a final snapshot: the log has each sample once, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.bookkeeper.polling import REPOSITORY
from tests.sources.final.agent import OLD, ledger, polled, run, succeeded, take
from tests.sources.final.world import SOURCE, Row, T, World, increase_of
from tests.waiting import LIMIT_S

POINTS = ["before the log", "after the log", "after the state", "after the deletion"]


def put(folder: Path) -> None:
    path = folder / OLD.file
    path.write_bytes(OLD.final(4, {"n": 132, "new": 3}))
    os.utime(path, (T / 1000, T / 1000))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("before", [polled, succeeded])
def test_killed_at_a_point(tmp_path: Path, before: Callable[[World], Coroutine[Any, Any, None]], point: str) -> None:
    """The agent restarts, and restarts again with a copy of the file that a disk may have restored."""
    run(tmp_path, before)
    folder = tmp_path / "dropin" / "final"
    folder.mkdir(exist_ok=True)
    put(folder)
    command = [sys.executable, "-m", "tests.sources.final.agent", str(tmp_path), point]
    killed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for _ in range(2):
        run(tmp_path, take)
        assert list(folder.iterdir()) == []
        put(folder)
    rows = ledger(tmp_path)
    assert {row[0] for row in rows} == {SOURCE}
    assert len({(row[1], row[2]) for row in rows}) == len(rows), "no series has two samples of one time"
    by_series: dict[int, list[Row]] = {}
    for _, print_, *row in rows:
        by_series.setdefault(print_, []).append((row[0], row[1], row[2]))
    later = [100] if before is succeeded else []
    assert sorted(map(increase_of, by_series.values())) == [3, 132 + sum(later)]
    assert sorted(row[4] for row in rows if row[4] is not None) == sorted([1, 3, *later, 132])
