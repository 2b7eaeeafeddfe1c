"""A compactor that is killed with -9 at any point: nothing is lost, nothing is twice, and the next one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.compaction.compactor import Compactor
from pipeline.compaction.config import CompactorConfig, parse_keep
from pipeline.spark.table import RawTable
from tests.compaction.builder import DAY_MS, START_MS, Builder, Ledger, expected, held
from tests.compaction.crashing_compactor import SMALL
from tests.compaction.test_compactor import fill, live

pytestmark = pytest.mark.stack
POINTS = [
    ("expire", 1),
    ("expired", 1),
    ("planned", 1),
    ("window", 1),
    ("window", 2),
    ("file", 1),
    ("written", 1),
    ("verified", 1),
    ("committed", 1),
    ("planned", 3),
    ("verified", 3),
    ("committed", 3),
    ("delete", 1),
    ("delete", 2),
]
"""In an hour, in the day that follows, and between dead files."""
KEEP = "debug=1,default=99999"


def test_killed_at_every_point(builder: Builder, tmp_path: Path) -> None:
    """One table, killed again and again; what is due each time is what was left, and some more."""
    for round_, (point, nth) in enumerate(POINTS):
        day = 2 * round_
        fill(builder, 1, appends=4, keep=("default", "debug"), first=24 * day)
        builder.settle(START_MS + (day + 2) * DAY_MS)
        assert _run(builder, tmp_path, point, nth) == -signal.SIGKILL, f"{point} {nth}"
        _check(builder, point)
    made = Compactor(
        CompactorConfig("", builder.hdfs, tmp_path / "runs", keeping=parse_keep(KEEP), limits=SMALL, sweep_s=0.0), None
    )
    made.turn(threading.Event())
    _check(builder, "never")
    assert set(live(builder).values()) <= {1, 2}  # a file a class
    assert not any("T" in period for period in live(builder))


def _run(builder: Builder, tmp_path: Path, point: str, nth: int) -> int:
    command = [sys.executable, "-m", "tests.compaction.crashing_compactor", builder.hdfs, str(tmp_path / "runs")]
    done = subprocess.run(
        [*command, point, str(nth), KEEP], cwd=Path(__file__).parents[2], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    return done.returncode


def _check(builder: Builder, point: str) -> None:
    """What is kept for long is all there; of the rest, nothing is twice."""
    found, wanted = held(builder.table.uri), expected(builder.ledger)
    assert _without_debug(found) == _without_debug(wanted), point
    assert found <= wanted, point
    assert RawTable(builder.hdfs).head()[1].key == builder.state.key


def _without_debug(ledger: Ledger) -> Ledger:
    return type(ledger)({key: times for key, times in ledger.items() if key[0] != "debug"})
