"""Compaction with roll-ups, imports, a deletion and a relabel at the same time, beside appends, each killed with -9 at
random times and begun again: in the end the history is what the ledger says."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.rollups import LEVELS_MS, RollupTable, stem_of
from query_dsl.stores.history.result import Sample
from tests.history.world import HOUR_MS, HistoryWorld
from tests.history.world import START_MS as APPENDED_MS
from tests.seeds import drawn
from tests.series.world import block
from tests.transfer.importing import samples
from tests.transfer.relabels import PREFIX
from tests.transfer.test_deletion import DAY_MS, ROOT, compact
from tests.transfer.test_relabel import by_days

pytestmark = pytest.mark.slow
KILLS = 24
HOSTS = 4
DAYS = 3
BEGIN_MS = 19_000 * DAY_MS
END_MS = BEGIN_MS + DAYS * DAY_MS
LATE_FILES = 4
KEPT_MS = LEVELS_MS[1:]
"""Levels of roll-ups that are kept for longer than the age of the imported samples."""


class Victim:
    """One program. `done` once it has ended by itself."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._command = [sys.executable, "-m", "tests.transfer.victims", *words]
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "stderr.txt").open("ab") as error:
            return subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=error)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n", self.errors()

    @property
    def is_done(self) -> bool:
        """True if it has ended by itself."""
        code = self.process.poll()
        assert code in (None, 0, -9), self.errors()
        return code == 0

    def errors(self) -> str:
        return (self._folder / "stderr.txt").read_text()[-3000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def restart(self) -> None:
        self.process = self._start()


def dump(file: Path, first: int, polls: int, step_ms: int, hosts: int = HOSTS) -> list[Sample]:
    """Write values of hosts, one for each poll; return the samples."""
    made = [
        Sample(f'load{{host="h{host}"}}', "import", first + n * step_ms, 1, "double", float(n * hosts + host))
        for n in range(polls)
        for host in range(hosts)
    ]
    lines = [f'{{__name__="load", host="{one.series[11:-2]}"}} {one.value} {one.time_ms}' for one in made]
    file.write_text("\n".join(lines) + "\n")
    return made


@contextmanager
def appending(world: HistoryWorld) -> Iterator[None]:
    """Appends an hour after another, four files each, as long as the context lasts."""
    stop, failed = threading.Event(), list[BaseException]()

    def append() -> None:
        hour = 0
        try:
            while not stop.wait(0.5) and hour < 48:
                for part in range(4):
                    at = APPENDED_MS + hour * HOUR_MS + part * 60_000 + 1
                    world.append(at + 5, [("plc/a", f'load{{host="a{n}"}}', at, n + hour) for n in range(3)])
                hour += 1
                world.builder.settle(APPENDED_MS + hour * HOUR_MS)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(120)
    assert not failed, failed


@pytest.mark.timeout(1800)
def test_killed_at_random_times(hdfs: str, tmp_path: Path) -> None:
    chance = random.Random(drawn("random kills of the history"))
    world = HistoryWorld(hdfs)
    world.announce([block("plc/a", 0, 1, [f'load{{host="a{n}"}}' for n in range(3)])])
    first, rules = tmp_path / "first.dump", tmp_path / "rules.yaml"
    rules.write_text(PREFIX)
    ledger = dump(first, BEGIN_MS + 1, DAYS * 48, 1_800_000)
    begin = Victim(tmp_path / "begin", "import", hdfs, str(tmp_path / "begin"), str(first))
    assert begin.process.wait(120) == 0, begin.errors()
    late = [tmp_path / f"late{n}.dump" for n in range(LATE_FILES)]
    for n, file in enumerate(late):  # other times than those of the deletion and the relabel
        ledger += dump(file, END_MS + 1 + n * DAY_MS // 2, 500, 60_000)
    times = str(BEGIN_MS), str(END_MS)
    with appending(world):
        victims = [
            Victim(tmp_path / "compact", "compact", hdfs, str(tmp_path / "compact")),
            Victim(tmp_path / "import", "import", hdfs, str(tmp_path / "import"), *map(str, late)),
            Victim(tmp_path / "delete", "delete", hdfs, str(tmp_path / "delete"), 'load{host="h1"}', *times),
            Victim(
                tmp_path / "relabel", "relabel", hdfs, str(tmp_path / "relabel"), 'load{host="h2"}', *times, str(rules)
            ),
        ]
        for _ in range(KILLS):
            victim = chance.choice([one for one in victims if not one.is_done])
            victim.wait_ready()
            threading.Event().wait(chance.uniform(0.0, 1.5))
            if not victim.is_done:
                victim.kill()
                victim.restart()
        for victim in victims[1:]:
            assert victim.process.wait(300) == 0, victim.errors()
        victims[0].kill()
    ledger += world.samples
    for _ in range(3):  # what a turn merges is rolled up by a later one
        compact(hdfs, tmp_path)
    _check(hdfs, [one for sample in ledger if (one := _changed(sample)) is not None])


def _changed(sample: Sample) -> Sample | None:
    """The sample after the deletion and the relabel."""
    if not BEGIN_MS < sample.time_ms <= END_MS or sample.source != "import":
        return sample
    if sample.series == 'load{host="h1"}':
        return None
    return sample._replace(series=sample.series.replace('"h2"', '"dc1-h2"'))


def _check(hdfs: str, expected: list[Sample]) -> None:
    def plain(found: list[Sample]) -> Counter[Any]:
        return Counter((one.series, one.source, one.time_ms, one.value) for one in found)

    assert plain(samples(hdfs)) == plain(expected)
    raw, rollups = CompactionLog(hdfs), RollupTable(hdfs)
    raw.refresh()
    rollups.refresh()
    imported = [file for file in raw.live() if file.period < "2023" and file.rows]
    assert len({file.period for file in imported}) >= DAYS
    closed = {stem_of(file.path) for file in imported}
    made = Counter((file.level_ms, file.raw_name) for file in rollups.live())
    assert {key for key in made if key[1] in closed} == {(level, name) for level in KEPT_MS for name in closed}
    assert set(made.values()) == {1}
    by_day: dict[str, Counter[int]] = {}
    for one in expected:
        day = -(-one.time_ms // DAY_MS) * DAY_MS
        if day <= END_MS:
            by_day.setdefault(one.series, Counter())[day] += 1
    for series, values in by_days(hdfs, BEGIN_MS, DAYS).items():
        wanted = by_day.get(series, Counter())
        assert values == [wanted[BEGIN_MS + (n + 1) * DAY_MS] for n in range(DAYS)], series
