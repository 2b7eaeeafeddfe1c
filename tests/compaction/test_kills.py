"""A compactor that is killed with -9 at any point: nothing is lost, nothing is twice, and the next one goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from artimon.rawtable.commit import CompactionLog, RawTable
from artimon.rawtable.rollups import LEVELS_MS, RollupTable, stem_of
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.rollup_job import counted_samples
from tests.compaction.builder import DAY_MS, START_MS, Builder, Ledger, expected, held
from tests.compaction.crashing_compactor import ROLLUPS, SMALL
from tests.compaction.test_compactor import fill, live

POINTS = [
    [("expire", 1), ("planned", 1), ("window", 1)],
    [("window", 2), ("file", 1), ("written", 1)],
    [("verified", 1), ("committed", 1), ("delete", 1)],
    [("planned", 2), ("verified", 2), ("committed", 2)],
    [("delete", 2), ("expired", 1)],
    [("rollups written", 1), ("rollups committed", 1), ("rollups written", 2)],
]
"""Kills one after another: in an hour, in the day that follows (the second job), between dead files."""
KEEP = "debug=1,default=99999"


SHORT = [("window", 2), ("verified", 1)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "points",
    [SHORT, *(pytest.param(one, marks=pytest.mark.slow) for one in POINTS)],
    ids=lambda points: "-".join(f"{point}{nth}" for point, nth in points),
)
def test_killed_at_any_point(builder: Builder, tmp_path: Path, points: list[tuple[str, int]]) -> None:
    """Killed again and again; what is due each time is what was left, and some more."""
    fill(builder, 1, appends=1, keep=("debug",), first=-30 * 24)  # has expired
    for round_, (point, nth) in enumerate(points):
        fill(builder, 1, appends=4, keep=("default", "debug"), first=24 * round_)
        builder.settle(START_MS + (round_ + 1) * DAY_MS)
        assert _run(builder, tmp_path, point, nth) == -signal.SIGKILL, f"{point} {nth}"
        _check(builder, point)
    made = Compactor(
        CompactorConfig(
            "",
            builder.hdfs,
            tmp_path / "runs",
            keeping=parse_keep(KEEP),
            rollups=parse_rollups(ROLLUPS),
            limits=SMALL,
            sweep_s=0.0,
        ),
        None,
    )
    made.run_due(threading.Event())
    _check(builder, "never")
    assert set(live(builder).values()) <= {1, 2}  # a file a class
    assert not any("T" in period for period in live(builder))
    _check_rollups(builder)


def _check_rollups(builder: Builder) -> None:
    """Every raw file has one roll-up of each level, which counts all its samples with a value, and no other exists."""
    raw, rollups = CompactionLog(builder.hdfs), RollupTable(builder.hdfs)
    raw.refresh()
    rollups.refresh()
    files = [(file.level_ms, file.raw_name) for file in rollups.live()]
    names = {stem_of(file.path) for file in raw.live()}
    held_back = {name for level, name in files if level == LEVELS_MS[0]} - names  # of class debug: samples have expired
    assert sorted(files) == sorted((level, name) for level in LEVELS_MS for name in names | held_back)
    counted = sum(
        counted_samples(f"{rollups.uri}/{file.path}")
        for file in rollups.live()
        if file.level_ms == LEVELS_MS[-1] and file.keep != "debug"
    )
    wanted = _without_debug(expected(builder.ledger))
    assert counted == sum(times for (_, text), times in wanted.items() if not text.endswith("None)"))


def _run(builder: Builder, tmp_path: Path, point: str, nth: int) -> int:
    command = [sys.executable, "-m", "tests.compaction.crashing_compactor", builder.hdfs, str(tmp_path / "runs")]
    done = subprocess.run(
        [*command, point, str(nth), KEEP], cwd=Path(__file__).parents[2], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-3000:]
    return done.returncode


def _check(builder: Builder, point: str) -> None:
    """Classes with long retention are complete; no row of the others occurs twice."""
    found, wanted = held(builder.table.uri), expected(builder.ledger)
    assert _without_debug(found) == _without_debug(wanted), point
    assert found <= wanted, point
    assert RawTable(builder.hdfs).head()[1].key == builder.state.key


def _without_debug(ledger: Ledger) -> Ledger:
    return type(ledger)({key: times for key, times in ledger.items() if key[0] != "debug"})
