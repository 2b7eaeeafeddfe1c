"""The log stays small, and nobody who comes late is misled by what is gone."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable.commit import CompactionLog, ConcurrentAppend, RawTable
from artimon.rawtable.head import HeadReader, last_checkpoint
from artimon.rawtable.schema import PARTITION_BY, PROPERTIES, RAW_SCHEMA, raw_uri
from artimon.runtime import file_access as files
from pipeline.compaction.compaction_settings import CompactorConfig
from pipeline.compaction.compactor import Compactor
from pipeline.compaction.dead_files import KEEP_MS, LEAST, Tidier
from tests.compaction.builder import HOUR_MS, START_MS, Builder, expected, held
from tests.compaction.test_compactor import SMALL, fill

pytestmark = pytest.mark.stack
LATER_MS = KEEP_MS + 60_000


def log_files(builder: Builder) -> dict[str, int]:
    """Name -> bytes."""
    return {name: size for name, size, _ in files.list_files(f"{builder.table.uri}/_delta_log")}


def tidy(builder: Builder, later_ms: int = LATER_MS) -> int:
    version, _ = HeadReader(builder.hdfs).head()
    return Tidier(CompactionLog(builder.hdfs)).tidy(version, SYSTEM_CLOCK.now_ms() + later_ms)


def appends(builder: Builder, count: int = LEAST + 4) -> None:
    for n in range(count):
        builder.append([(START_MS + n, "default", [(1, 7, START_MS + n, n)])])


def test_what_is_old_goes_and_everybody_goes_on(builder: Builder) -> None:
    appends(builder, 3)
    behind, writer = HeadReader(builder.hdfs), RawTable(builder.hdfs)
    reader = DeltaTable(builder.table.uri)
    behind.head(), writer.head()
    appends(builder)
    version, state = HeadReader(builder.hdfs).head()
    assert tidy(builder) == version
    left = log_files(builder)
    assert min(left).startswith(f"{version:020d}.")
    assert last_checkpoint(builder.table.uri) == version
    for head in (behind.head(), writer.head(), HeadReader(builder.hdfs).head(), RawTable(builder.hdfs).head()):
        assert head == (version, state)
    reader.update_incremental()
    assert reader.version() == version
    builder.append([(START_MS, "default", [(1, 8, START_MS, "after")])])
    assert behind.head()[1].key == builder.state.key
    assert held(builder.table.uri) == expected(builder.ledger)
    assert tidy(builder) == 0  # too little to be worth a checkpoint


def test_a_table_made_by_an_older_program_gets_its_properties(place: str) -> None:
    DeltaTable.create(raw_uri(place), RAW_SCHEMA, partition_by=PARTITION_BY)
    builder = Builder(place)
    appends(builder)
    tidy(builder)
    assert DeltaTable(builder.table.uri).metadata().configuration == PROPERTIES
    builder.append([(START_MS, "default", [(1, 8, START_MS, "after")])])
    assert held(builder.table.uri) == expected(builder.ledger)


def test_what_is_young_stays(builder: Builder) -> None:
    appends(builder)
    before = log_files(builder)
    assert tidy(builder, later_ms=0) == 0
    assert log_files(builder) == before


def test_nothing_from_the_newest_append_on_goes(builder: Builder) -> None:
    """However many commits of compaction follow it."""
    log = CompactionLog(builder.hdfs)
    for _ in range(LEAST + 4):
        log.fence({})
    head = HeadReader(builder.hdfs).head()
    assert tidy(builder) == 0
    assert HeadReader(builder.hdfs).head() == RawTable(builder.hdfs).head() == head


def test_a_commit_that_comes_below_a_checkpoint_is_not_believed(builder: Builder) -> None:
    """Of a driver that slept between looking and writing: its name had become free."""
    appends(builder, 2)
    behind = HeadReader(builder.hdfs)
    version, old = behind.head()
    appends(builder)
    wrong = json.loads(files.read_file(f"{builder.table.uri}/_delta_log/{version + 1:020d}.json").splitlines()[0])
    wrong["commitInfo"]["artimon"]["writer"] = "slept"
    tidy(builder)
    files.write_file(f"{builder.table.uri}/_delta_log/{version + 1:020d}.json", json.dumps(wrong).encode())
    assert behind.head()[1].key == builder.state.key
    assert RawTable(builder.hdfs).head()[1].key == builder.state.key
    with pytest.raises(ConcurrentAppend):
        RawTable(builder.hdfs).append([], old, old)
    assert held(builder.table.uri) == expected(builder.ledger)


def test_checkpoints_forget_dead_files_only_when_they_are_deleted(builder: Builder, tmp_path: Path) -> None:
    """An hour leaves one file, one append and one checkpoint; a turn of the compactor does all of it."""
    fill(builder, 1, appends=LEAST + 4)
    appends(builder)
    builder.settle(START_MS + HOUR_MS)
    clock = _Later()
    made = Compactor(CompactorConfig("", builder.hdfs, tmp_path, limits=SMALL, sweep_s=0.0), None, clock)
    made.run_due(threading.Event())
    assert made.figures()["log_files_deleted"] > LEAST
    data = [path for path, _, _ in files.list_files(builder.table.uri) if not path.startswith("_delta_log")]
    assert len(data) == 1
    builder.settle(START_MS + HOUR_MS + 1)
    for _ in range(LEAST):
        builder.settle(START_MS + HOUR_MS + 1)
    made.run_due(threading.Event())
    names = log_files(builder)
    checkpoint = max(name for name in names if "checkpoint.parquet" in name)
    dead = DeltaTable(builder.table.uri).vacuum(0, dry_run=True, enforce_retention_duration=False, full=False)
    assert dead == []
    assert sum(names.values()) < 40_000, checkpoint
    assert held(builder.table.uri) == expected(builder.ledger)


class _Later:
    """The system's clock, an hour ahead of HDFS."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + LATER_MS

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return SYSTEM_CLOCK.wait(event, timeout_s)
