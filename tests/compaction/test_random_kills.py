"""Compactors that are killed with -9 at random times, two at once, while appends go on; and servers that go away."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.rawtable.commit import RawTable
from artimon.rawtable.schema import TableError
from artimon.runtime import file_access as files
from artimon.runtime.health import read_health
from artimon.stack.stack import Stack
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.dead_files import ORPHAN_AGE_MS
from pipeline.compaction.plan import DAY_FILES, HOUR_FILES
from tests.compaction.builder import HOUR_MS, START_MS, Builder, expected, held, settled_builder
from tests.compaction.later import Later
from tests.compaction.test_compactor import SMALL, fill
from tests.seeds import drawn
from tests.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
KILLS = 30
KEEP = "*=99999"


class Victim:
    """`artimon compactor`, as the stack starts it but in more haste."""

    def __init__(self, hdfs: str, zookeeper: str, folder: Path) -> None:
        self._health = folder / "health.json"
        self._error = folder / "stderr.txt"
        folder.mkdir()
        where = ["--hdfs", hdfs, "--zookeeper", zookeeper, "--data", str(folder / "data"), "--keep", KEEP]
        command = [sys.executable, "-m", "artimon.cli", "compactor", *where, "--interval", "1s"]
        with self._error.open("wb") as error:
            self._process = subprocess.Popen(
                [*command, "--health", str(self._health)], cwd=ROOT, stdout=error, stderr=error
            )

    def works(self) -> bool:
        """Return True once the compactor has begun to read the table."""
        assert self._process.poll() is None, self._error.read_text()[-3000:]
        found = read_health(self._health)
        return found is not None and (found.state == "ok" or found.figures.get("waiting", 0) > 0)

    def kill(self) -> None:
        self._process.kill()
        assert self._process.wait(30) == -signal.SIGKILL


@contextmanager
def appending(builder: Builder) -> Iterator[list[int]]:
    """Closes an hour after another, three files each, as long as the context lasts; the hours closed so far."""
    stop, hours = threading.Event(), [1]

    def run() -> None:
        while not stop.wait(0.3):
            fill(builder, 1, appends=3, keep=("default", "debug"), first=hours[0])
            builder.settle(START_MS + hours[0] * HOUR_MS)
            hours[0] += 1

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield hours
        finally:
            stop.set()
            running.result(120)


@pytest.mark.timeout(1800)
def test_killed_at_random_times(on_hdfs: Builder, zookeeper: str, tmp_path: Path) -> None:
    builder, chance = on_hdfs, random.Random(drawn("random kills"))
    root = f"{zookeeper}/k{chance.randrange(10**9)}"
    fill(builder, 1)
    made = [Victim(builder.hdfs, root, tmp_path / f"victim-{n}") for n in range(2)]
    left_over = 0
    with appending(builder):
        for kill in range(KILLS):
            victim = made.pop(chance.randrange(len(made)))
            eventually(victim.works, "a compactor looks at the table")
            threading.Event().wait(chance.uniform(0, 3))
            victim.kill()
            left_over = max(left_over, len(_not_live(builder)))
            made.append(Victim(builder.hdfs, root, tmp_path / f"victim-{kill + 2}"))
            assert held(builder.table.uri) <= expected(builder.ledger)  # appends go on: what is there is there once
    for victim in made:
        victim.kill()
    print(f"{KILLS} kills, at most {left_over} files that no version names at once")
    assert held(builder.table.uri) == expected(builder.ledger)
    _tidy_up(builder, tmp_path)


def _tidy_up(builder: Builder, tmp_path: Path) -> None:
    """The next compactor reaches the limits, and a day later no orphan remains."""
    clock = Later()
    clock.seconds = 2 * ORPHAN_AGE_MS / 1000
    config = CompactorConfig("", builder.hdfs, tmp_path / "last", keeping=parse_keep(KEEP), limits=SMALL, sweep_s=0.0)
    last = Compactor(config, None, clock)
    last.run_due(threading.Event())
    live = last.figures()["live"]
    assert live["closed_hour"] <= HOUR_FILES
    assert live["day"] <= DAY_FILES
    assert held(builder.table.uri) == expected(builder.ledger)
    assert _not_live(builder) == set()
    assert RawTable(builder.hdfs).head()[1].key == builder.state.key


def _not_live(builder: Builder) -> set[str]:
    """Data files on HDFS that the newest version does not name."""
    present = {path for path, _, _ in files.list_files(builder.table.uri) if not path.startswith("_delta_log/")}
    named = {uri.split(f"{builder.table.uri}/")[-1] for uri in RawTable(builder.hdfs).refresh().file_uris()}
    return present - named


@pytest.mark.parametrize("point", ["planned", "written", "verified"])
def test_hdfs_goes_away_in_the_middle(on_hdfs: Builder, hdfs_stack: Stack, tmp_path: Path, point: str) -> None:
    """The job fails and says so; the next turn does it."""
    builder = settled_builder(on_hdfs)
    stopped: list[str] = []

    def stop(here: str) -> None:
        if here == point and not stopped:
            stopped.append(here)
            hdfs_stack.stop_part("namenode")

    config = CompactorConfig("", builder.hdfs, tmp_path, keeping=parse_keep(KEEP), limits=SMALL, sweep_s=0.0)
    made = Compactor(config, None, probe=stop)
    try:
        with pytest.raises((TableError, OSError)):
            made.run_due(threading.Event())
    finally:
        hdfs_stack.start_part("namenode")
        hdfs_stack.wait_healthy(120)
    made.run_due(threading.Event())
    assert made.figures()["jobs"] == 1
    assert made.figures()["alarms"] == 0
    assert held(builder.table.uri) == expected(builder.ledger)
