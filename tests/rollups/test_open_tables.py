"""Tables and data files that stay open between questions give the answers of those that are opened anew."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from artimon.model.clock import ManualClock
from artimon.model.grid import Grid
from artimon.model.values import Kind
from artimon.rawtable import parquet_reader, table_reader
from artimon.rawtable.file_parts import FileParts
from artimon.rawtable.parquet_reader import FOOTER_FACTOR, GroupReader, KeptRanges, OpenFiles
from artimon.rawtable.rollups import rollups_uri
from artimon.rawtable.schema import TableError, raw_uri
from artimon.rawtable.table_reader import OpenTables, TableSnapshot
from artimon.runtime import file_access as files
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.history.engine_world import put, some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.engine_worlds import request_of
from tests.query_dsl.test_pushdown import HOUR, MINUTE, T, Told
from tests.rollups.conftest import SERIES
from tests.rollups.test_reading import answers, later, put_at, turn
from tests.spark.local_files import local_files


class Opened:
    """URIs of the tables and files that were opened, in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.tables: list[str] = []
        self.files: list[str] = []
        open_file, read_file = files.open_reader, files.read_file

        def table(uri: str) -> Any:
            self.tables.append(uri)
            return DeltaTable(uri)

        def file(uri: str) -> Any:
            self.files.append(uri)
            return open_file(uri)

        def whole(uri: str) -> bytes:
            self.files += [uri] if uri.endswith(".parquet") else []
            return read_file(uri)

        patch.setattr(table_reader, "DeltaTable", table)
        patch.setattr(files, "open_reader", file)
        patch.setattr(files, "read_file", whole)

    def forget(self) -> None:
        self.tables.clear()
        self.files.clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def anew(world: HistoryWorld) -> list[Any]:
    """The answers of a history that has nothing open."""
    with History(world.hdfs) as history:
        return answers(HistoryStore(history, engine="local"))


def test_a_question_asked_again_opens_nothing(
    world: HistoryWorld, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    turn(world, clock, tmp_path)
    with History(world.hdfs) as history:
        store = HistoryStore(history, engine="local")
        expected = answers(store)
        assert opened.tables
        assert opened.files
        opened.forget()
        assert answers(store) == expected
        assert (opened.tables, opened.files) == ([], [])
        put_at(world, later(some_series(11, SERIES, 120), 1), T - 1)
        assert answers(store) == anew(world) != expected
        assert len(set(opened.tables)) == 3  # by the other history: raw, roll-ups, series


def test_files_that_compaction_replaced_are_not_asked_again(
    world: HistoryWorld, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    with History(world.hdfs) as history:
        store = HistoryStore(history, engine="local")
        for version in range(3):
            answers(store)
            turn(world, clock, tmp_path)
            assert answers(store) == anew(world)
            put_at(world, later(some_series(11, SERIES, 120), version), T - 1)
        before = set(opened.files)
        turn(world, clock, tmp_path).sweep()
        opened.forget()
        assert answers(store) == anew(world)
        exist, held = set(files_of_folder(world)), history.opened.rollup_files
        assert not (before - exist) & set(opened.files)
        assert held._kept is not None
        assert set(held._open) == {key[0] for key in held._kept._ranges._held} <= exist
        assert held._bytes == sum(FOOTER_FACTOR * one.footer_bytes for one in held._open.values()) > 0
        ranges = held._kept._ranges
        assert ranges._bytes == sum(len(data) for data, _ in ranges._held.values()) > 0
        decoded = held.decoded
        assert {uri for uri, _ in decoded._held} <= exist
        assert decoded._bytes == sum(size for _, size in decoded._held.values()) > 0


def files_of_folder(world: HistoryWorld) -> list[str]:
    """URIs of all files that exist."""
    root = Path(world.hdfs.removeprefix("file://"))
    return [f"file://{path}" for path in root.rglob("*") if path.is_file()]


def test_a_table_made_again_under_its_name_is_noticed(tmp_path: Path, clock: ManualClock) -> None:
    with local_files(clock), History(f"file://{tmp_path}/files") as history:
        first = HistoryWorld(history.hdfs)
        put(first, some_series(11, SERIES, 120), files=5)
        store = HistoryStore(history, engine="local")
        before = answers(store)
        (tmp_path / "files").rename(tmp_path / "old")
        second = HistoryWorld(history.hdfs)
        put(second, some_series(12, SERIES, 120), files=1)
        again = HistoryStore(history, engine="local")
        assert answers(again) == anew(second) != before


def test_old_tables_are_opened_anew(world: HistoryWorld, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, uri = OpenTables(), raw_uri(world.hdfs)
    versions = [tables.read(uri, lambda table: table.version()) for _ in range(2)]
    assert opened.tables == [uri]
    monkeypatch.setattr(table_reader, "REOPEN_S", 0.0)
    assert tables.read(uri, lambda table: table.version()) == versions[0]
    assert opened.tables == [uri, uri]


def test_tables_are_read_ahead(world: HistoryWorld, opened: Opened, clock: ManualClock, tmp_path: Path) -> None:
    """A reading takes the versions that were read ahead, or later ones, those of the second table after the first."""
    turn(world, clock, tmp_path)
    tables, uri, beside = OpenTables(), raw_uri(world.hdfs), rollups_uri(world.hdfs)

    def versions(since_s: float) -> list[int]:
        def read(table: TableSnapshot, other: TableSnapshot | None) -> list[int]:
            return [table.version(), other.version() if other else -1]

        return tables.read_both(uri, beside, read, since_s=since_s)

    since_s = tables.read_ahead(uri, beside)
    first = versions(since_s)
    assert sorted(opened.tables) == sorted([uri, beside])
    put_at(world, later(some_series(11, SERIES, 120), 1), T - 1)
    assert versions(since_s) == first
    newer = versions(tables.read_ahead(uri, beside))
    assert newer == versions(inf)
    assert newer[0] > first[0]
    assert tables._open[uri].answered_s <= tables._open[beside].answered_s


def test_errors_of_a_reading_ahead_are_those_of_the_reading(tmp_path: Path) -> None:
    tables = OpenTables()
    since_s = tables.read_ahead(f"file://{tmp_path}/a", f"file://{tmp_path}/b")
    with pytest.raises(TableNotFoundError):
        tables.read_both(f"file://{tmp_path}/a", f"file://{tmp_path}/b", lambda *_: None, since_s=since_s)


def some_files(folder: Path, count: int) -> list[str]:
    for number in range(count):
        pq.write_table(pa.table({"n": np.full(3, number)}), folder / f"{number}.parquet")
    return [f"file://{folder}/{number}.parquet" for number in range(count)]


def test_open_files_are_bounded(tmp_path: Path, opened: Opened) -> None:
    uris = some_files(tmp_path, 4)
    size = FOOTER_FACTOR * GroupReader(uris[0]).footer_bytes
    for held in (OpenFiles(max_files=2), OpenFiles(max_bytes=2 * size + size // 2)):
        opened.forget()
        for number in (0, 1, 0, 2, 0, 1, 3):
            assert held.reader(uris[number]).read(0, ["n"]).column("n").to_pylist() == [number] * 3
        assert opened.files == [uris[n] for n in (0, 1, 2, 1, 3)]


def test_a_file_whose_blocks_have_moved_is_opened_anew(tmp_path: Path, opened: Opened) -> None:
    uri, held = some_files(tmp_path, 1)[0], OpenFiles()
    broken = held.reader(uri)

    class Moved:
        def read_range(self, _start: int, _length: int) -> bytes:
            raise OSError("no DataNode has the block")

    broken._reader._file._file = Moved()
    opened.forget()
    assert held.reader(uri).read(0, ["n"]).num_rows == 3
    assert held.reader(uri).read(0, ["n"]).num_rows == 3
    assert opened.files == [uri]
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        held.reader(uri).read(0, ["n"])


@pytest.mark.parametrize("keeps", [False, True])
def test_a_small_file_is_fetched_whole_at_once(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    uri = some_files(tmp_path, 1)[0]
    size = (tmp_path / "0.parquet").stat().st_size
    held = OpenFiles(kept=KeptRanges() if keeps else None)
    for first, requests in ((True, [uri]), (False, [] if keeps else [uri])):
        opened.forget()
        reader = held.reader(uri, size)
        assert (reader.fetched_bytes, reader.buffered_bytes) == ((size, size) if first else (0, 0))
        for one in (reader, GroupReader(uri, reader)):
            one.prefetch([0])
            assert one.read(0, ["n"]).column("n").to_pylist() == [0, 0, 0]
        assert opened.files == requests
    assert held._open[uri].buffered_bytes == 0
    monkeypatch.setattr(parquet_reader, "WHOLE_BYTES", size - 1)
    assert GroupReader(uri, size=size).fetched_bytes == 0
    with pytest.raises(FileNotFoundError):
        GroupReader(f"file://{tmp_path}/1.parquet", size=1)
    (tmp_path / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match="is not a Parquet file"):
        GroupReader(f"file://{tmp_path}/1.parquet", size=1)


def test_ranges_are_kept_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uris = some_files(tmp_path, 3)
    one = GroupReader(uris[0])
    one.prefetch([0])
    size = one.fetched_bytes
    held = OpenFiles(kept=KeptRanges(2 * size + size // 2))
    fetched = []
    for number in (0, 1, 0, 2, 0, 1):
        reader = held.reader(uris[number])
        reader.prefetch([0])
        fetched.append(reader.fetched_bytes)
        assert reader.read(0, ["n"]).column("n").to_pylist() == [number] * 3
    assert fetched == [size, size, 0, size, 0, size]
    monkeypatch.setattr(parquet_reader, "MAX_RANGE_BYTES", size - 1)
    big = OpenFiles(kept=KeptRanges())
    for _ in range(2):
        reader = big.reader(uris[0])
        reader.prefetch([0])
        assert reader.fetched_bytes == size


def test_decoded_groups_are_dropped_beyond_a_limit_and_with_their_files() -> None:
    held = FileParts[int | str](100, 25)
    for group in range(4):
        held.add("a", group, group, 25)
    assert held.get("a", 0) == 0  # now the one that was used last
    held.add("b", 0, "b", 20)
    assert [held.get("a", group) for group in range(4)] == [0, None, 2, 3]
    held.add("a", 2, "again", 5)
    held.add("b", 1, "big", 26)
    assert (held.get("a", 2), held.get("b", 1), held._bytes) == ("again", None, 75)
    held.keep_only({"a"})
    assert (held.get("a", 3), held.get("b", 0), held._bytes) == (3, None, 55)


def test_decoded_roll_ups_are_not_read_again(
    world: HistoryWorld, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor if other series, times or statistics of the same rows are asked; what was not decoded yet is added."""
    samples = tuple((T + at * MINUTE, 5, at * at) for at in range(1, 150))
    put(world, [Told(f"n{n}", (), Kind.COUNTER, samples[n:], "numbers", 0) for n in range(3)], files=1)
    turn(world, clock, tmp_path)
    decoded: list[set[str]] = []
    read = GroupReader.read

    def counted(self: GroupReader, group: int, columns: Sequence[str]) -> Any:
        if self.uri.startswith(rollups_uri(world.hdfs)):
            decoded.append({*columns})
        return read(self, group, columns)

    monkeypatch.setattr(GroupReader, "read", counted)
    with History(world.hdfs) as history:
        store = HistoryStore(history, engine="local")

        def ask(name: str, statistics: tuple[str, ...], buckets: int = 3) -> list[set[str]]:
            """Return the columns that were read of each row group for an answer, which is that of another history."""
            request = request_of([name], Grid(T + 3 * HOUR, HOUR, buckets), statistics)
            with History(world.hdfs) as other:
                expected = HistoryStore(other, engine="local").select(request)
            decoded.clear()
            found = store.select(request)
            assert [one.name for one in found.series] == [one.name for one in expected.series] != []
            assert all(np.array_equal(found.statistics[name], expected.statistics[name]) for name in statistics)
            assert found.statistics[statistics[0]].any()
            return list(decoded)

        first = ask("n.*", ("last", "count"))
        assert first
        assert not any("below" in columns for columns in first)
        assert ask("n.*", ("last", "count")) == first  # blocks are kept from the second time on
        assert not ask("n1", ("count", "last_time"), 1)
        more = ask("n.*", ("min",))
        assert len(more) == len(first)
        assert all("below" in columns for columns in more)
        assert all({"below", "above", "rest"} <= columns for columns in ask("n.*", ("sum",)))
        assert not ask("n.*", ("min", "max", "last"))
