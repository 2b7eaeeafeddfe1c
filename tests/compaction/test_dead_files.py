"""Dead files go when nobody can need them, not earlier; readers go on whatever happens."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kazoo.client import KazooClient

from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable import table_reader as leases
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.schema import TableError
from artimon.rawtable.table_reader import (
    ANY_VERSION,
    LEASE_MS,
    ReadLease,
    leased_versions,
    open_leased,
    read_with_retry,
)
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.dead_files import APPEND_ORPHAN_AGE_MS, ORPHAN_AGE_MS, FileSweeper
from tests.compaction.builder import HOUR_MS, START_MS, Builder, expected, file_table, held
from tests.compaction.later import Later
from tests.compaction.test_compactor import SMALL, fill

pytestmark = pytest.mark.stack


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A ZooKeeper client whose root is the world of the test."""
    made = KazooClient(zookeeper)
    made.start(timeout=20)
    made.chroot = f"/c{uuid.uuid4().hex[:10]}"
    made.ensure_path("/")
    yield made
    made.stop()
    made.close()


def compactor(builder: Builder, tmp_path: Path, client: KazooClient | None) -> Compactor:
    return Compactor(CompactorConfig("", builder.hdfs, tmp_path / "data", limits=SMALL, sweep_s=0.0), client)


def data_files(builder: Builder) -> list[str]:
    return [path for path, _, _ in files.list_files(builder.table.uri) if not path.startswith("_delta_log/")]


def test_files_stay_while_a_reader_holds_their_version(builder: Builder, tmp_path: Path, client: KazooClient) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    made = compactor(builder, tmp_path, client)
    with open_leased(builder.table.uri, client) as table:
        made.run_due(threading.Event())
        assert len(data_files(builder)) == 4
        assert made.figures()["dead"]["files"] == 3
        assert table.to_pyarrow_dataset().count_rows() == 18
        with open_leased(builder.table.uri, client) as newer:
            assert newer.version() > table.version()
    made.sweep()
    assert len(data_files(builder)) == 1
    assert made.figures()["deleted"]["files"] == 3
    assert held(builder.table.uri) == expected(builder.ledger)


def test_a_lease_holds_for_an_hour_only(builder: Builder, client: KazooClient) -> None:
    uri = builder.table.uri
    now = SYSTEM_CLOCK.now_ms()
    lease, other = ReadLease(uri, client), ReadLease("hdfs://elsewhere/raw", client)
    assert leased_versions(client, uri, now) == []
    lease.acquire()
    other.acquire()
    assert leased_versions(client, uri, now) == [ANY_VERSION]
    lease.pin(7)
    assert leased_versions(client, uri, now) == [7]
    assert leased_versions(client, uri, now + LEASE_MS + 60_000) == []
    client.create(f"{leases.LEASES_PATH}/nonsense", b"?")
    assert leased_versions(client, uri, now) == [7, ANY_VERSION] or leased_versions(client, uri, now) == [
        ANY_VERSION,
        7,
    ]
    lease.release()
    assert leased_versions(client, uri, now) == [ANY_VERSION]


def test_a_reader_that_misses_a_file_begins_again(builder: Builder, tmp_path: Path) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    versions: list[int] = []

    def read(table: DeltaTable) -> int:
        versions.append(int(table.version()))
        if len(versions) == 1:
            compactor(builder, tmp_path, None).run_due(threading.Event())
        return int(table.to_pyarrow_dataset().to_table().num_rows)

    assert read_with_retry(builder.table.uri, read) == 18
    assert len(versions) == 2
    assert versions[1] > versions[0]


def test_a_file_that_is_gone_for_good_is_an_error(builder: Builder) -> None:
    fill(builder, 1)
    files.delete_file(f"{builder.table.uri}/{data_files(builder)[0]}")
    with pytest.raises(FileNotFoundError):
        read_with_retry(builder.table.uri, lambda table: table.to_pyarrow_dataset().to_table())


def test_without_zookeeper_nothing_is_deleted(builder: Builder, tmp_path: Path, client: KazooClient) -> None:
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    made = compactor(builder, tmp_path, client)
    client.stop()
    made.run_due(threading.Event())
    assert len(data_files(builder)) == 4
    client.start(timeout=20)
    made.sweep()
    assert len(data_files(builder)) == 1


def test_dead_files_are_known_after_a_restart_and_a_checkpoint(builder: Builder, tmp_path: Path) -> None:
    """A compactor that was killed before it deleted them leaves them to the next one; checkpoints do not name them."""
    fill(builder, 2)
    builder.settle(START_MS + 2 * HOUR_MS)
    killed = Compactor(CompactorConfig("", builder.hdfs, tmp_path / "data", limits=SMALL), None)
    killed.sweep()  # not due again for a while
    killed.run_due(threading.Event())
    assert len(data_files(builder)) == 6 + 2
    DeltaTable(builder.table.uri).create_checkpoint()
    assert compactor(builder, tmp_path, None).sweep().deleted == 6
    assert len(data_files(builder)) == 2
    assert held(builder.table.uri) == expected(builder.ledger)


def orphan(builder: Builder, name: str) -> str:
    path = f"period=2026-11-18T00/keep=default/{name}.parquet"
    files.write_file(f"{builder.table.uri}/{path}", b"left behind")
    return path


def test_orphans_go_when_they_are_old(builder: Builder) -> None:
    """Of compaction after a day, of tasks after a week; a commit comes before."""
    fill(builder, 1)
    mine, theirs = orphan(builder, "hour-1"), orphan(builder, "0-0-1")
    log = CompactionLog(builder.hdfs)
    sweeper, now = FileSweeper(log), SYSTEM_CLOCK.now_ms()
    version = log.refresh().version()
    assert sweeper.sweep(version, [], now).orphans == 0
    swept = sweeper.sweep(version, [], now + ORPHAN_AGE_MS + 60_000)
    assert (swept.orphans, swept.deleted, swept.deleted_bytes) == (1, 1, len(b"left behind"))
    assert mine not in data_files(builder)
    assert theirs in data_files(builder)
    assert log.refresh().version() == version + 1
    assert sweeper.sweep(version + 1, [], now + APPEND_ORPHAN_AGE_MS + 60_000).orphans == 1
    assert held(builder.table.uri) == expected(builder.ledger)


def test_a_compactor_that_was_stopped_for_long_commits_nothing(builder: Builder, tmp_path: Path) -> None:
    """Its files may have been taken for orphans meanwhile."""
    fill(builder, 1)
    builder.settle(START_MS + HOUR_MS)
    clock = Later()

    def stopped(point: str) -> None:
        if point == "verified":
            clock.seconds += 25 * 3600

    config = CompactorConfig("", builder.hdfs, tmp_path, limits=SMALL)
    with pytest.raises(TableError, match="too old to commit"):
        Compactor(config, None, clock, stopped).run_due(threading.Event())
    assert held(builder.table.uri) == expected(builder.ledger)


def test_files_of_an_append_under_way_are_left_alone(builder: Builder) -> None:
    fill(builder, 1)
    written: list[Any] = [builder.write(START_MS, "default", file_table([(1, 2, START_MS, 3)]))]
    log = CompactionLog(builder.hdfs)
    version = log.refresh().version()
    assert FileSweeper(log).sweep(version, [], SYSTEM_CLOCK.now_ms() + 3 * ORPHAN_AGE_MS).deleted == 0
    builder.commit(written, START_MS)
    assert sum(held(builder.table.uri).values()) == 19
