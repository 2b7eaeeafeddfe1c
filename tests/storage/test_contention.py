"""Rewrites beside writers that commit in closed loops: each commit needs few attempts, a file is rewritten once, and
every sample is that of the ledger."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artimon.cli.history_deletion import SelectedDeletion
from artimon.cli.history_relabel import SelectedRelabel, read_rules
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.delta import DeltaHandle
from artimon.runtime import file_access as files
from tests.compaction.builder import START_MS, Builder, file_table
from tests.history.world import HistoryWorld
from tests.series.world import block
from tests.storage.history_ledger import Ledger, check_samples
from tests.transfer.relabels import PREFIX
from tests.waiting import LIMIT_S, eventually

FILES = 2
MAX_TRIES = 64
"""Bound of the attempts of one commit. Writers that take equally long for an attempt win in turn: of four, each wins
with a probability of about 1/4, and loses 64 times in a row once in 10^8."""
CLOSED_LOOPS = 2
"""Writers that commit without a pause."""


@contextmanager
def busy(writers: Sequence[Callable[[], object]]) -> Iterator[Counter[int]]:
    """Call each writer again and again in a thread of its own while the context lasts; yields the numbers of calls."""
    stop, calls, failed = threading.Event(), Counter[int](), list[BaseException]()

    def run(number: int) -> None:
        try:
            while not stop.is_set():
                writers[number]()
                calls[number] += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(writers))]
    for thread in threads:
        thread.start()
    try:
        yield calls
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failed, failed


class Imports:
    """Commits of an import without rows: the shortest that there are."""

    def __init__(self, hdfs: str) -> None:
        self._table, self._identity, self._position = CompactionLog(hdfs), uuid.uuid4().hex, 0

    def __call__(self) -> None:
        at, self._position = self._position, self._position + 1
        assert not self._table.add([], self._identity, at, at + 1, {}, 0.0)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Attempts of each commit of this thread."""
    mine, counts, attempts = threading.current_thread(), list[int](), DeltaHandle.attempts

    def counted(table: DeltaHandle) -> Iterator[None]:
        if threading.current_thread() is mine:
            counts.append(0)
        for _ in attempts(table):
            if threading.current_thread() is mine:
                counts[-1] += 1
            yield

    monkeypatch.setattr(DeltaHandle, "attempts", counted)
    return counts


def filled(place: str) -> HistoryWorld:
    """A history of files with samples of the hosts old, bad and other."""
    world = HistoryWorld(place)
    world.announce([block("plc/a", 0, 1, [f'load{{host="{host}"}}' for host in ("old", "bad", "other", "stream")])])
    for n in range(FILES):
        hosts = ("old", "bad", "other")
        world.append(START_MS + n, [("plc/a", f'load{{host="{host}"}}', START_MS + n, float(n)) for host in hosts])
    return world


@pytest.mark.timeout(600)
@pytest.mark.parametrize("change", ["delete", "relabel"])
def test_a_rewrite_ends_beside_commits_without_a_pause(
    place: str, tmp_path: Path, tries: list[int], change: str
) -> None:
    world = filled(place)
    later, rules = iter(range(10**9)), tmp_path / "rules.yaml"
    rules.write_text(PREFIX)

    def append() -> None:
        at = START_MS + 1_000 + next(later)
        world.append(at, [("plc/a", 'load{host="stream"}', at, float(at))])

    if change == "delete":
        one: SelectedDeletion | SelectedRelabel = SelectedDeletion(place, '{host="bad"}', 0, START_MS + 500)
    else:
        one = SelectedRelabel(place, '{host="old"}', 0, START_MS + 500, read_rules(rules), tmp_path / "rows")
    _, token = one.plan()
    tries.clear()
    with busy([append, *(Imports(place) for _ in range(CLOSED_LOOPS))]) as calls:
        eventually(lambda: len(calls) == CLOSED_LOOPS + 1, "each writer commits", 2 * LIMIT_S)
        done = one.confirm(token)
    assert (done.samples, done.files) == (FILES, FILES)
    assert max(tries) <= MAX_TRIES
    print(f"{place.partition(':')[0]}: {sum(calls.values())} commits of others, attempts {tries}")
    ledger = Ledger()
    ledger.samples = list(world.samples)
    if change == "delete":
        assert ledger.delete("bad", 0, START_MS + 500) == FILES
    else:
        ledger.rename("old", "dc1-old")
    check_samples(place, ledger.samples)


class Beaten(CompactionLog):
    """Table whose next commits come too late: another writer commits before each."""

    def __init__(self, hdfs: str, times: int) -> None:
        super().__init__(hdfs)
        self._other, self.times, self.listed = CompactionLog(hdfs), times, 0

    def commit(self, actions: Any, apps: Any = (), metadata: Any = None) -> None:
        if self.times:
            self.times -= 1
            self._other.fence({})
        super().commit(actions, apps, metadata)

    def live(self) -> list[Any]:
        self.listed += 1
        return super().live()


def test_a_rewrite_outlasts_any_number_of_other_commits(place: str) -> None:
    """After each it reads only what they have changed, not the list of all files."""
    builder = Builder(place)
    builder.append([(START_MS + n, "default", [(1, 7, START_MS + n, n)]) for n in range(3)])
    table = Beaten(place, 10)
    table.refresh()
    old = table.live()[0]
    new = builder.write(START_MS, "default", file_table([(1, 8, START_MS, 1)]))
    table.replace([old], [new], {}, table._clock.monotonic())
    assert (table.times, table.listed) == (0, 2)
    table.refresh()
    assert table._live_paths() == {file.path for file in table.live()}
    assert new.path in table._live_paths()
    assert old.path not in table._live_paths()


def test_an_append_reads_each_commit_of_others_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an append after many commits of an import would take longer with each, and always come too late."""
    place, read, read_file = f"file://{tmp_path}/store", Counter[str](), files.read_file
    builder, other = Builder(place), CompactionLog(place)

    def counted(uri: str) -> bytes:
        read[uri] += 1
        return read_file(uri)

    for _ in range(10):
        other.fence({})
        with monkeypatch.context() as patch:
            patch.setattr(files, "read_file", counted)
            builder.table.head()
    assert list(read.values()) == [1] * 10
