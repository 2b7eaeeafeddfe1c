"""Compaction with roll-ups, imports, deletions and relabels at the same time, beside appends with late samples, each
program killed with -9 at random times and begun again: samples, roll-ups and answers are those of a plain ledger.

ARTIMON_HISTORY_MINUTES (default 1) is the duration on each store."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from artimon.rawtable.schema import DAY_MS
from tests.seeds import drawn, run_seed
from tests.storage.history_ledger import check_answers, check_increases, check_rollups, check_samples
from tests.storage.history_storm import BEGIN_MS, END_MS, STREAM_MS, Storm
from tests.storage.victims import begin, compactor
from tests.transfer.relabels import PREFIX
from tests.waiting import eventually

pytestmark = pytest.mark.slow
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "tests.storage.victims"])
MINUTES = float(os.environ.get("ARTIMON_HISTORY_MINUTES", "1"))
MAX_PAUSE_S = 2.5
"""Longest pause before a kill."""
KILLS = (4, 16)
"""Least and greatest number of kills in a round, if its programs are not done before. Then they may end."""
END_S = 600.0


class Victim:
    """One program; it is begun again after each kill."""

    def __init__(self, name: str, folder: Path, *words: str) -> None:
        self.name, self.kills = name, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._words, self._log = (name, *words), folder / "stderr.txt"
        self._start()

    def _start(self) -> None:
        told = self._log, dict(os.environ), self._words
        self._process = PROCESSES.Process(target=begin, args=told, daemon=True)
        self._process.start()

    @property
    def is_done(self) -> bool:
        """True if it has ended by itself."""
        code = self._process.exitcode
        assert code in (None, 0), f"{self.name} ended with {code}: {self.errors()}"
        return code == 0

    def show_threads(self) -> str:
        """Return the stacks of all its threads, after its last errors."""
        os.kill(self._process.pid or 0, signal.SIGUSR1)
        threading.Event().wait(2.0)
        return self.errors()

    def errors(self) -> str:
        return self._log.read_text()[-3000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.join(30)

    def kill_and_restart(self) -> None:
        self.kill()
        self.kills += 1
        self._start()


class KillRun:
    """Rounds of kills on one store. `close` ends every program."""

    def __init__(self, hdfs: str, folder: Path, chance: random.Random) -> None:
        self.storm, self.kills, self.rounds, self.deleted = Storm(hdfs, chance), Counter[str](), 0, 0
        self._hdfs, self._folder, self._chance = hdfs, folder, chance
        self._rules = folder / "rules.yaml"
        self._rules.write_text(PREFIX)
        self._running: list[Victim] = []

    def begin(self) -> None:
        """Import the first hosts, and start the compactor."""
        self._running.append(self._start("compact", "compact"))
        importing = self._import()
        self._running.append(importing)
        self._await_end([importing])

    def play_round(self) -> None:
        """Run an import, a deletion and a relabel to their ends over random kills; compare the samples."""
        self.rounds += 1
        self.storm.begin_round(self.rounds)
        last = self.rounds - 1
        hosts, times = f"r{last}h1|r{last}a", self._deleted_times()
        others = [
            self._import(),
            self._start("delete", f"delete{last}", f'{{host=~"{hosts}"}}', *map(str, times)),
            self._start("relabel", f"relabel{last}", f'{{host="r{last}h2"}}', "0", str(STREAM_MS), str(self._rules)),
        ]
        self._running += others
        self._kill_some(others)
        self._await_end(others)
        self.deleted += self.storm.ledger.delete(hosts, *times)
        self.storm.ledger.rename(f"r{last}h2", f"dc1-r{last}h2")
        with self.storm.lock:
            check_samples(self._hdfs, self.storm.ledger.samples)

    def close(self) -> None:
        """Kill the programs that still run."""
        for victim in self._running:
            victim.kill()
        self._running = []

    def _kill_some(self, others: Sequence[Victim]) -> None:
        for _ in range(self._chance.randint(*KILLS)):
            if all(one.is_done for one in others):
                break
            victim = self._chance.choice([one for one in self._running if not one.is_done])
            threading.Event().wait(self._chance.uniform(0.0, MAX_PAUSE_S))
            if not victim.is_done:
                victim.kill_and_restart()

    def _await_end(self, others: Sequence[Victim]) -> None:
        for victim in others:
            try:
                eventually(lambda one=victim: one.is_done, f"{victim.name} ends", END_S)  # type: ignore[misc]
            except AssertionError as error:
                raise AssertionError(victim.show_threads()) from error
            victim.kill()
            self._running.remove(victim)
            self.kills[victim.name] += victim.kills
        self.kills["compact"] = self._running[0].kills

    def _import(self) -> Victim:
        file = self._folder / f"import{self.rounds}.dump"
        self.storm.make_file(file)
        return self._start("import", f"import{self.rounds}", str(file))

    def _start(self, name: str, folder: str, *words: str) -> Victim:
        place = self._folder / folder
        return Victim(name, place, self._hdfs, str(place), *words)

    def _deleted_times(self) -> tuple[int, int]:
        """Return all times, or a random part of those that are imported."""
        if self._chance.random() < 0.3:
            return 0, STREAM_MS + 365 * DAY_MS
        first, second = sorted(self._chance.sample(range(BEGIN_MS, END_MS + 1), 2))
        return first, second


@pytest.mark.timeout(round(MINUTES * 60 + 1_800))
def test_killed_at_random_times(place: str, tmp_path: Path) -> None:
    run = KillRun(place, tmp_path, random.Random(drawn("random kills of the history")))
    began = time.monotonic()
    try:
        with run.storm.stream():
            run.begin()
            while time.monotonic() < began + MINUTES * 60:
                run.play_round()
                print(f"{time.monotonic() - began:.0f} s: round {run.rounds}, kills {dict(run.kills)}", flush=True)
    finally:
        run.close()
    for _ in range(3):  # a turn rolls up what a turn before it has merged
        compactor(place, tmp_path / "last").run_due(threading.Event())
    expected = run.storm.ledger.samples
    check_samples(place, expected)
    rows = check_rollups(place)
    check_answers(place, expected, "load", BEGIN_MS, END_MS)
    check_answers(place, expected, "level", BEGIN_MS, END_MS)
    check_increases(place, expected, "req_total", "(dc1-)?r[0-9]+h[023]", BEGIN_MS, END_MS)
    print(
        f"seed {run_seed()}, {place.partition(':')[0]}, {time.monotonic() - began:.0f} s: {run.rounds} rounds, kills "
        f"{dict(run.kills)}; {len(expected):,} samples, {run.deleted:,} deleted, rows of roll-ups {rows}"
    )
