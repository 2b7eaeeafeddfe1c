"""The contract of a store that holds the tables, on every store."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from artimon.model.clock import ManualClock
from artimon.rawtable.delta import DeltaHandle
from artimon.rawtable.parquet_reader import RangeReader
from artimon.rawtable.schema import DAY_MS, TableError
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from query_dsl import evaluate, parse
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.compaction.builder import Builder, expected, held, settled_builder
from tests.history.engine_world import put, some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.test_engines_auto import plain
from tests.query_dsl.test_pushdown import NOW

MIB = 1 << 20
SCHEMA = pa.schema([("n", pa.int64())])


# ---- files


def test_a_file_is_written_whole_read_and_replaced(place: str) -> None:
    files.check_reachable(place)
    uri = f"{place}/a/b.bin"
    with pytest.raises(FileNotFoundError):
        files.read_file(uri)
    files.write_file(uri, b"first")
    assert files.read_file(uri) == b"first"
    files.write_file(uri, memoryview(b"second, longer"))
    assert files.read_file(uri) == b"second, longer"
    files.delete_file(uri)
    with pytest.raises(FileNotFoundError):
        files.read_file(uri)
    files.delete_file(uri)


def test_a_file_is_replaced_as_a_whole(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed before the end leaves the old content; the next one is not disturbed."""
    uri = f"{place}/record.parquet"
    files.replace_file(uri, b"first")
    assert files.read_file(uri) == b"first"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(files, "rename_file" if place.startswith("hdfs:") else "write_file", killed)
        files.replace_file(uri, b"never finished")
    assert files.read_file(uri) == b"first"
    files.replace_file(uri, b"second")
    assert files.read_file(uri) == b"second"
    assert [path for path, _, _ in files.list_files(place)] == ["record.parquet"]


def test_names_keep_their_letters(place: str) -> None:
    uri = f"{place}/period=2026-11-28T10/keep=default/append-1 +=é%.parquet"
    files.write_file(uri, b"x")
    assert [path for path, _, _ in files.list_files(place)] == [uri.removeprefix(f"{place}/")]
    assert files.read_file(uri) == b"x"


def test_a_list_has_every_file_below_with_size_and_time(place: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.list_files(f"{place}/table")
    for name, size in (("a", 1), ("deep/er/b", 2), ("deep/c", 0)):
        files.write_file(f"{place}/table/{name}", b"x" * size)
    files.write_file(f"{place}/table-beside/d", b"")
    found = sorted(files.list_files(f"{place}/table"))
    assert [(path, size) for path, size, _ in found] == [("a", 1), ("deep/c", 0), ("deep/er/b", 2)]
    now_ms = time.time() * 1000
    assert all(abs(now_ms - changed_ms) < 300_000 for _, _, changed_ms in found)


def test_a_list_of_many_files_is_whole(place: str) -> None:
    names = {f"{n:05}" for n in range(1_100)}  # more than a page of a list
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: files.write_file(f"{place}/many/{name}", b""), sorted(names)))
    assert {path for path, _, _ in files.list_files(f"{place}/many")} == names


def test_ranges_of_a_file_that_was_written_in_pieces(place: str) -> None:
    data = bytes(range(256)) * (40 * MIB // 1024)  # several parts of an upload
    writer = files.open_writer(f"{place}/large")
    for start in range(0, len(data), 3 * MIB):
        writer.write(bytearray(data[start : start + 3 * MIB]))
    writer.close()
    reader = RangeReader(f"{place}/large")
    reader.seek(5 * MIB + 7)
    assert reader.read(MIB) == data[5 * MIB + 7 : 6 * MIB + 7]
    reader.load(len(data) - 100, 100)
    reader.seek(-100, 2)
    assert reader.read() == data[-100:]
    with pytest.raises(FileNotFoundError):
        files.open_reader(f"{place}/nothing")


def test_a_renamed_file_replaces_another(place: str) -> None:
    files.write_file(f"{place}/new", b"new")
    files.write_file(f"{place}/old", b"old")
    files.rename_file(f"{place}/new", f"{place}/old")
    assert files.read_file(f"{place}/old") == b"new"
    assert [path for path, _, _ in files.list_files(place)] == ["old"]


# ---- tables


def test_of_two_commits_on_one_version_one_succeeds(place: str) -> None:
    handles = [DeltaHandle(f"{place}/t", SCHEMA) for _ in range(2)]
    for one in handles:
        one.refresh()
    handles[0].commit([_action("a")])
    with pytest.raises((DeltaError, OSError, TableError)):
        handles[1].commit([_action("b")])
    handles[1].refresh()
    handles[1].commit([_action("c")])
    handles[0].refresh()
    assert {path for (path,) in handles[0].list_files("path")} == {"a", "c"}


def test_commits_of_many_writers_are_in_the_table_once_each(place: str) -> None:
    DeltaHandle(f"{place}/t", SCHEMA).refresh()
    start, done = threading.Barrier(4), list[str]()

    def write(number: int) -> None:
        handle = DeltaHandle(f"{place}/t", SCHEMA)
        start.wait(20)
        for n in range(5):
            name = f"{number}-{n}"
            for _ in range(200):
                handle.refresh()
                try:
                    handle.commit([_action(name)])
                except (DeltaError, OSError, TableError):
                    continue
                done.append(name)
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(done) == 20
    handle = DeltaHandle(f"{place}/t", SCHEMA)
    assert handle.refresh().version() == 20
    assert sorted(path for (path,) in handle.list_files("path")) == sorted(done)


def _action(name: str) -> AddAction:
    return AddAction(name, 1, {}, 0, True, "{}")


# ---- the raw table


def test_the_raw_table_is_compacted_without_change(place: str, tmp_path: Path) -> None:
    builder = settled_builder(Builder(place))
    compactor = _compactor(place, tmp_path, ManualClock(NOW + 2 * DAY_MS))
    compactor.run_due(threading.Event())
    assert held(builder.table.uri) == expected(builder.ledger)


def test_the_history_answers_from_samples_and_roll_ups(place: str, tmp_path: Path) -> None:
    clock = ManualClock(NOW + 2 * DAY_MS)
    world = HistoryWorld(place)
    put(world, some_series(11, 15, 120), files=3)
    query = "fetch('v0').increase('5m').sum(by=[\"rack\"]).range('2h')"
    with History(place) as history:
        before = plain(evaluate(parse(query), HistoryStore(history, engine="local"), NOW))
    world.builder.settle(clock.now_ms() // DAY_MS * DAY_MS)
    compactor = _compactor(place, tmp_path, clock)
    for _ in range(2):
        compactor.run_due(threading.Event())
        clock.advance(DAY_MS)
    assert any("rollups" in path for path, _, _ in files.list_files(f"{place}/artimon"))
    with History(place) as history:
        after = plain(evaluate(parse(query), HistoryStore(history, engine="local"), NOW))
    assert after == before


def _compactor(place: str, tmp_path: Path, clock: ManualClock) -> Compactor:
    keeping, rollups = parse_keep("*=99999"), parse_rollups("5m=365,1h=ever,1d=ever")
    config = CompactorConfig("", place, tmp_path / "compactor", keeping=keeping, rollups=rollups, sweep_s=0.0)
    return Compactor(config, None, clock)
