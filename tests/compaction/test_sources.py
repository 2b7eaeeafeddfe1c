"""The tables of sources and of series: numbers, merges, expiry, and a death at every step of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.model.failpoints import Failpoint
from artimon.model.values import ValueType
from artimon.rawtable.announced_rows import rows_of
from artimon.rawtable.schema import DAY_MS, SOURCES_SCHEMA, DataFile, sources_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.sources import RETIRED, RETIRED_MS, SourcesTable, read_sources
from artimon.runtime import file_access as files
from pipeline.compaction.source_expiry import sources_of
from tests.compaction.builder import HOUR_MS, START_MS, Builder
from tests.raw_files import to_parquet
from tests.spark.local_files import local_files


class Died(RuntimeError):
    """Stands for the end of the process."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def local(tmp_path: Path, clock: ManualClock) -> Iterator[str]:
    with local_files(clock):
        yield f"file://{tmp_path}/files"


def die_at(point: str) -> Failpoint:
    def probe(at: str) -> None:
        if at == point:
            raise Died(point)

    return probe


def numbers(place: str) -> dict[str, int]:
    """Return the numbers of all names that are not retired."""
    table = SourcesTable(place)
    return table.lookup(read_sources(table.uri).values())[0]


def test_tasks_that_assign_at_once_agree(local: str, clock: ManualClock) -> None:
    del clock
    SourcesTable(local).lookup(())
    given: list[dict[str, int]] = []

    def assign(first: int) -> None:
        table = SourcesTable(local)
        given.append(table.assign([f"s{n}" for n in range(first, first + 5)]))

    threads = [threading.Thread(target=assign, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    final = numbers(local)
    assert sorted(final.values()) == list(range(1, 11))
    assert len(given) == 6
    assert all(final[name] == number for one in given for name, number in one.items())


def test_small_files_are_merged_and_old_ones_deleted(local: str, clock: ManualClock) -> None:
    """The number of files does not grow with the number of commits, neither in the table nor in its folder."""
    table, given = SourcesTable(local, clock), dict[str, int]()
    for n in range(100):
        given |= table.assign([f"{n % 7}/{n}", "always"])
        table.maintain()
        clock.advance(HOUR_MS)
        assert len(table.live()) <= table.max_deltas
        assert len([path for path, _, _ in files.list_files(table.uri) if not path.startswith("_")]) <= 60
    assert numbers(local) == given
    assert sorted(given.values()) == list(range(1, 102))


def test_files_of_the_version_before_are_read_and_merged(local: str, clock: ManualClock) -> None:
    table = SourcesTable(local, clock)
    table.refresh()
    rows = pa.table([[1, 2], ["b", "a"]], schema=SOURCES_SCHEMA)
    data = to_parquet(rows)
    files.write_file(f"{table.uri}/sources-1-3-x.parquet", data)
    table.commit([DataFile("sources-1-3-x.parquet", len(data), 2, {}, '{"numRecords": 2}').action()])
    assert table.assign(["a", "c"]) == {"a": 2, "c": 3}
    assert table.expire(lambda ids: ids > 0) is not None
    assert [file.kind for file in table.live()] == ["base"]
    assert table.assign(["b", "d"]) == {"b": 1, "d": 4}


@pytest.mark.parametrize("point", ["numbered", "assigned"])
def test_a_task_that_dies_while_it_assigns(local: str, clock: ManualClock, point: str) -> None:
    """The next task gives the same names the numbers that were committed, or new ones, and never one number twice."""
    with pytest.raises(Died):
        SourcesTable(local, clock, die_at(point)).assign(["a", "b"])
    assert SourcesTable(local, clock).assign(["b", "c"]) == (
        {"b": 1, "c": 2} if point == "numbered" else {"b": 2, "c": 3}
    )


def test_a_merge_and_an_assignment_at_the_same_time(local: str, clock: ManualClock) -> None:
    """The merge commits on the newer version; two merges of one file do not both."""
    made: list[Callable[[], object]] = []

    def probe(point: str) -> None:
        if point == "merged" and made:
            made.pop()()

    table, other = SourcesTable(local, clock, probe), SourcesTable(local, clock)
    first = other.assign(["a", "b"])
    made.append(lambda: first.update(other.assign(["c"])))
    assert table.merge(table.live(), True) is not None
    assert numbers(local) == first == {"a": 1, "b": 2, "c": 3}
    made.append(lambda: other.merge(other.live(), True))
    assert table.merge(table.live(), True) is None
    assert numbers(local) == first
    assert {path for path, _, _ in files.list_files(table.uri) if not path.startswith("_")} >= {
        file.path for file in table.live()
    }


def test_unused_sources_are_retired_and_then_dropped(local: str, clock: ManualClock) -> None:
    """A retired name gets a new number; its old one has a name as long as the raw table may hold rows of it."""
    table, uri = SourcesTable(local, clock), sources_uri(local)
    table.assign(["a", "b", "c", "d"])
    clock.advance(DAY_MS)
    table.expire(lambda ids: ids < 0)  # younger than the first merge: all stay
    assert numbers(local) == {"a": 1, "b": 2, "c": 3, "d": 4}
    clock.advance(DAY_MS)
    table.assign(["e"])
    table.expire(lambda ids: ids == 1)
    assert numbers(local) == {"a": 1, "d": 4, "e": 5}  # the greatest of the merged ones stays, too
    assert read_sources(uri) == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    assert table.assign(["b"]) == {"b": 6}
    clock.advance(RETIRED_MS)
    table.expire(lambda ids: (ids == 2) | (ids == 5))  # an append has used the old number of b meanwhile
    assert read_sources(uri, [2, 3, 5, 6]) == {2: "b", 5: "e", 6: "b"}
    assert {file.kind for file in table.live()} == {"base", RETIRED}
    assert table.assign(["c"]) == {"c": 7}


def test_the_greatest_number_is_never_given_again(local: str, clock: ManualClock) -> None:
    table = SourcesTable(local, clock)
    for n in range(40):
        assert table.assign([f"s{n}"]) == {f"s{n}": n + 1}
        clock.advance(DAY_MS)
        table.expire(lambda ids: ids < 0)
    assert len(read_sources(table.uri)) < 15


def block(source: str, version: int) -> SeriesBlock:
    return SeriesBlock(source, 0, version, (SeriesInfo("x{}", ValueType.INTEGER), SeriesInfo("y{}", ValueType.DOUBLE)))


def fill(builder: Builder, now_ms: int) -> None:
    """Sources 1 and 2, of which the raw table has rows of the first only, announced and merged two days ago."""
    then = ManualClock(now_ms - 3 * DAY_MS)
    sources, series = SourcesTable(builder.hdfs, then), SeriesTable(builder.hdfs, then)
    ids = sources.assign(["a-used/h/0", "b-gone/h/0", "c-last/h/0"])
    rows, _ = rows_of([block(name, then.now_ms()) for name in ids], ids)
    assert series.add(rows, "topic", {0: 0}, {0: 3})
    then.advance(DAY_MS)
    sources.expire(lambda one: one > 0)
    builder.append([(now_ms - HOUR_MS, "default", [(1, 5, now_ms - HOUR_MS, 7)])])


def series_sources(place: str) -> set[int]:
    table = SeriesTable(place)
    return {n for file in table.live() for n in sources_of(f"{table.uri}/{file.path}").tolist()}


POINTS = [("merged", 1), ("replaced", 1), ("merged", 2), ("replaced", 2), ("replaced", 3)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("point", "nth"), [POINTS[1], *(pytest.param(*one, marks=pytest.mark.slow) for one in POINTS if one != POINTS[1])]
)
def test_a_compactor_killed_while_it_expires_sources(tmp_path: Path, point: str, nth: int) -> None:
    """Killed with -9 between files and commit, of the sources (first) and of the series: the next one finishes."""

    with local_files(SYSTEM_CLOCK):
        builder = Builder(f"file://{tmp_path}/files")
        fill(builder, SYSTEM_CLOCK.now_ms())
        command = [sys.executable, "-m", "tests.compaction.crashing_compactor", builder.hdfs, str(tmp_path / "runs")]
        for kill in ((point, nth), ("never", 1)):
            done = subprocess.run(
                [*command, kill[0], str(kill[1]), "*=400"],
                cwd=Path(__file__).parents[2],
                capture_output=True,
                timeout=120,
                check=False,
            )
            assert done.returncode in ((0,) if kill[0] == "never" or nth > 2 else (-signal.SIGKILL,)), done.stderr
            assert read_sources(sources_uri(builder.hdfs)) == {1: "a-used/h/0", 2: "b-gone/h/0", 3: "c-last/h/0"}
            assert series_sources(builder.hdfs) == {1, 2, 3}  # a retired source keeps its series
        assert numbers(builder.hdfs) == {"a-used/h/0": 1, "c-last/h/0": 3}
        assert {file.kind for file in SourcesTable(builder.hdfs).live()} == {"base", RETIRED}
        assert [file.kind for file in SeriesTable(builder.hdfs).live()] == ["base"]
        clock = ManualClock(SYSTEM_CLOCK.now_ms() + RETIRED_MS + DAY_MS)
        SourcesTable(builder.hdfs, clock).expire(lambda ids: ids != 2)
        assert read_sources(sources_uri(builder.hdfs)) == {1: "a-used/h/0", 3: "c-last/h/0"}


def test_sources_of_a_file(builder: Builder) -> None:
    """Row groups of one or two sources are known from their statistics; others are read."""
    rows = [(source, 1, START_MS, 0) for source in (2, 3, 7, 9)]
    builder.append([(START_MS, "default", rows), (START_MS, "debug", rows[:2])])
    found = {path: sources_of(f"{builder.table.uri}/{path}").tolist() for (path,) in builder.table.list_files("path")}
    assert sorted(found.values()) == [[2, 3], [2, 3, 7, 9]]
