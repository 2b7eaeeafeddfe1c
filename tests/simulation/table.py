"""The raw table in memory: commits are a compare-and-set on the version, and may fail before or after they take effect.
`RawTable.append`, which decides about each append, is the shipped one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction, Transaction

from artimon.model.batch import BatchHeader, BatchId
from artimon.model.clock import Clock
from artimon.model.failpoints import Failpoint
from artimon.rawtable.commit import RawTable
from artimon.rawtable.head import METADATA_KEY
from artimon.rawtable.schema import DataFile, period_of
from artimon.rawtable.sources import SourcesTable
from artimon.rawtable.table_state import RawState, from_json
from pipeline.spark.raw_file_writer import NamedBatch
from pipeline.spark.source_numbers import SourceNumbers
from tests.simulation.scheduler import Process, Scheduler


class Row(NamedTuple):
    """Row of the table for one batch."""

    id: BatchId
    token: int
    source: str


class Columns:
    """Stands for the decoded columns of one batch."""

    __slots__ = ("header", "nbytes")

    def __init__(self, header: BatchHeader) -> None:
        self.header, self.nbytes = header, 100

    def __len__(self) -> int:
        return self.header.rows


class TableStore:
    """Content of HDFS."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.version = 0
        self.head: tuple[int, RawState] = 0, RawState()
        self.files: dict[str, list[Row]] = {}
        self.rows: list[Row] = []
        self.stored: set[BatchId] = set()
        self.sources: dict[str, int] = {}
        self.periods: list[str] = []
        self.faults: list[str] = []
        """Faults of the next commits: "before", "after", "compaction", "race", "" (none)."""
        self.race: Callable[[], None] = lambda: None
        self.down = False
        self.appends = 0
        self._paths = 0
        self.on_append: Callable[[RawState, RawState, list[Row]], None] | None = None

    def check(self) -> None:
        """Raise OSError while HDFS is down."""
        if self.down:
            raise OSError("HDFS does not answer")

    def new_path(self) -> str:
        """Return an unused file name."""
        self._paths += 1
        return f"period/file-{self._paths}.parquet"

    def compact(self) -> None:
        """Commit a version that is no append."""
        self.version += 1

    def commit(self, seen: int, actions: Iterable[AddAction], metadata: Mapping[str, Any] | None) -> None:
        """Commit on exactly the version `seen`."""
        fault = self.faults.pop() if self.faults else ""
        if fault == "before":
            raise OSError("the commit did not go through")
        if fault == "compaction":
            self.compact()
        elif fault == "race":
            self.race()
        if seen != self.version:
            raise CommitFailedError(f"version {seen} is not the newest")
        self.version += 1
        self._take(actions, metadata)
        if fault == "after":
            raise OSError("the answer to the commit was lost")

    def _take(self, actions: Iterable[AddAction], metadata: Mapping[str, Any] | None) -> None:
        before = self.head[1]
        if metadata is not None and METADATA_KEY in metadata:
            self.head = self.version, from_json(metadata[METADATA_KEY])
            self.appends += 1
        rows = [row for action in actions for row in self.files[action.path]]
        if self.on_append is not None:
            self.on_append(before, self.head[1], rows)
        self.rows += rows
        self.stored.update(row.id for row in rows)


class SimTable(RawTable):
    """View of the table by one process."""

    def __init__(self, store: TableStore, scheduler: Scheduler, owner: Process, clock: Clock) -> None:
        super().__init__("sim://", clock)
        self._store, self._scheduler, self._owner = store, scheduler, owner
        self._jitter = scheduler.random

    def head(self) -> tuple[int, RawState]:
        self._store.check()
        self._version, found = self._store.version, self._store.head
        if self._scheduler.chance(0.03):  # the answer is on its way
            self._scheduler.block(self._owner, self._scheduler.random.random())
        return found

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        apps: Sequence[Transaction] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        del apps
        self._store.check()
        self._store.commit(self._version, [one for one in actions if isinstance(one, AddAction)], metadata)
        self._is_committed = True

    def partitions(self) -> list[tuple[str, str]]:
        return [(period, "default") for period in self._store.periods]


class SimHead:
    """Stand-in for artimon.rawtable.head.HeadReader."""

    def __init__(self, store: TableStore, scheduler: Scheduler, owner: Process) -> None:
        self._store, self._scheduler, self._owner = store, scheduler, owner

    def head(self) -> tuple[int, RawState]:
        """Return version and state. Raises OSError, FileNotFoundError if there is no table yet."""
        self._store.check()
        if not self._store.version:
            raise FileNotFoundError("no table yet")
        found, wait = self._store.head, self._owner.stopped_until - self._scheduler.now
        if wait > 0 and self._owner.passes:
            self._owner.passes, wait = self._owner.passes - 1, 0.0
        if wait > 0 or self._scheduler.chance(0.03):  # the answer is on its way
            self._scheduler.block(self._owner, max(wait, self._scheduler.random.random()))
        return found


class SimSources(SourcesTable):
    """Numbers of sources, as a task of `owner` sees them."""

    def __init__(self, store: TableStore, clock: Clock, probe: Failpoint) -> None:
        super().__init__("sim://", clock, probe)
        self._store = store

    def lookup(self, names: Collection[str]) -> tuple[dict[str, int], int]:
        self._store.check()
        known = self._store.sources
        return {name: known[name] for name in names if name in known}, max(known.values(), default=0)

    def _try_assign(self, names: Sequence[str], first: int) -> bool:
        self._probe("numbered")
        self._store.check()
        if first != max(self._store.sources.values(), default=0) + 1:
            return False
        self._store.sources.update({name: first + at for at, name in enumerate(names)})
        self._probe("assigned")
        return True


class SimOutput:
    """Output of a task (as output.Output): one file, which no table names until it is committed."""

    def __init__(self, store: TableStore, sources: SourceNumbers) -> None:
        self._store, self._sources = store, sources
        self._rows: list[Row] = []
        self._append_ms = 0

    def append(self, keep: str, part: NamedBatch) -> None:
        """Add one batch."""
        del keep
        header = part.columns.header
        self._rows.append(Row(header.id, int.from_bytes(header.endpoint[:8], "little"), header.source))
        self._append_ms = part.append_ms

    def close(self) -> list[DataFile]:
        """Write and close the file."""
        self._store.check()
        if not self._rows:
            return []
        numbers = self._sources.resolve({row.source for row in self._rows})
        assert all(self._store.sources[name] == number for name, number in numbers.items())
        path = self._store.new_path()
        self._store.files[path] = self._rows
        return [DataFile(path, 100, len(self._rows), {"period": period_of(self._append_ms), "keep": "default"}, "{}")]
