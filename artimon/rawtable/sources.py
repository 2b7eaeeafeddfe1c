"""Table of sources: the small integers that represent names of sources in the raw table. A pair never changes.

Numbers of names are looked up by row groups, so neither memory nor time grow with the names of the past. A source whose
rows have all expired is first retired: its number still has its name, but the name would get a new number. Retired rows
go once every append that may have looked them up before has ended. docs/formats/raw.md, section 2.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.delta import first_line
from artimon.rawtable.merged_table import BASE, DELTA, MergedTable, MergeResult, TableFile, check_columns, live_files
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import DAY_MS, SOURCES_SCHEMA, TableError, sources_uri

log = logging.getLogger(__name__)

RETIRED = "retired"
RETIRED_MS = 8 * DAY_MS
"""Age at which retired rows are dropped: much more than an append and the driver's cache of numbers live together."""
MAX_ID = 2**31 - 1
LAST_CHARACTER = "\U0010ffff"

IsUsed = Callable[[Any], Any]
"""Returns the mask of the numbers (numpy array) of which the raw table has rows."""


class SourcesTable(MergedTable):
    """Names of sources and their numbers. Used by one thread at a time."""

    max_deltas = 16
    row_group = 10_000
    pruned = ("id", "source")

    def __init__(self, hdfs: str, clock: Clock = SYSTEM_CLOCK, probe: Failpoint = no_failpoint) -> None:
        super().__init__(sources_uri(hdfs), SOURCES_SCHEMA, clock, probe)

    # --- numbers

    def assign(self, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of `names`, and assign them to new ones. Concurrent processes never assign two numbers to
        one name, nor one number to two. Raises TableError, OSError."""
        wanted = set(names)
        for _ in self.attempts():
            numbers, greatest = self.lookup(wanted)
            missing = sorted(wanted - numbers.keys())
            if not missing or self._try_assign(missing, greatest + 1):
                return {**numbers, **{name: number for number, name in enumerate(missing, greatest + 1)}}
        raise TableError(f"{self.uri}: {len(wanted)} sources could not be added")

    def lookup(self, names: Collection[str]) -> tuple[dict[str, int], int]:
        """Return the numbers of those `names` that have one, and the greatest number of any. Raises TableError,
        OSError."""
        live = live_files(self.refresh())
        return self._with_timeout("reading", lambda: self._lookup(live, names))

    def _lookup(self, live: Sequence[TableFile], names: Collection[str]) -> tuple[dict[str, int], int]:
        found: dict[str, int] = {}
        greatest = 0
        wanted = sorted(names)
        for file in live:
            reader = GroupReader(f"{self.uri}/{file.path}")
            for group in range(reader.groups):
                greatest = max(greatest, _id_bounds(reader, group)[1])
                if file.kind != RETIRED and (near := _names_within(reader, group, wanted)):
                    rows = reader.read(group, SOURCES_SCHEMA.names)
                    rows = rows.filter(pc.is_in(rows.column("source"), value_set=pa.array(near, pa.utf8())))
                    found.update(zip(*(rows.column(name).to_pylist() for name in ("source", "id")), strict=True))
        return found, greatest

    def _try_assign(self, names: Sequence[str], first: int) -> bool:
        """Add names on exactly the version that was looked up; False if the outcome is unknown, which the next look-up
        decides."""
        if first + len(names) > MAX_ID:
            raise TableError(f"{self.uri}: no numbers are left above {first}")
        rows = pa.table([list(range(first, first + len(names))), list(names)], schema=SOURCES_SCHEMA)
        file = self._write(rows, DELTA)
        self._probe("numbered")
        try:
            self.commit([file.action()])
        except (DeltaError, OSError) as error:
            log.info("sources not added: %s; reading them again", first_line(error))
            return False
        self._probe("assigned")
        return True

    # --- expiry

    def expire(self, is_used: IsUsed, go_on: Callable[[], bool] = lambda: True) -> MergeResult | None:
        """Once a day merge all files, retire the sources that the raw table no longer uses, and drop those that were
        retired long ago; None if nothing was merged. Raises TableError, OSError."""
        live = self.live()
        if not self.is_aged(live):
            return None
        old = [file for file in live if file.kind == RETIRED and self._is_old(file)]
        if old:
            self.merge(old, True, go_on, lambda rows: {RETIRED: rows.filter(pa.array(is_used(_ids(rows))))})
        known = [file for file in live if file.kind != RETIRED]
        settled = max((self._greatest(file) for file in known if file.is_base), default=0)

        def split(rows: pa.Table) -> dict[str, pa.Table]:
            ids = _ids(rows)
            kept = np.asarray(is_used(ids), np.bool_) | (ids >= settled)  # younger ones may not have been appended yet
            return {BASE: rows.filter(pa.array(kept)), RETIRED: rows.filter(pa.array(~kept))}

        return self.merge(known, True, go_on, split) if known else None

    def ids(self) -> Any:
        """Return the numbers of all sources, retired ones too, in order (numpy). Raises TableError, OSError."""
        live = self.live()
        parts = [self._with_timeout("reading", lambda file=file: self._ids_of(file)) for file in live]  # type: ignore[misc]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def _ids_of(self, file: TableFile) -> Any:
        reader = GroupReader(f"{self.uri}/{file.path}")
        groups = [_ids(reader.read(group, ["id"])) for group in range(reader.groups)]
        return np.concatenate(groups) if groups else np.zeros(0, np.int64)

    def _is_old(self, file: TableFile) -> bool:
        return self._clock.now_ms() - file.committed_ms >= RETIRED_MS

    def _greatest(self, file: TableFile) -> int:
        reader = GroupReader(f"{self.uri}/{file.path}")
        return max((_id_bounds(reader, group)[1] for group in range(reader.groups)), default=0)

    # --- merging

    def deltas(self, live: Sequence[TableFile]) -> list[TableFile]:
        return [file for file in live if file.kind not in (BASE, RETIRED)]

    def _spans(self, passes: int) -> list[tuple[int, int]]:
        count = max(1, passes)
        greatest = self.lookup(())[1] + 1
        step = math.ceil(greatest / count)
        return [(step * n, step * (n + 1) - 1 if n < count - 1 else MAX_ID) for n in range(count)]

    def _read_span(self, uri: str, low: int, high: int) -> pa.Table:
        reader = GroupReader(uri)
        check_columns(reader, uri, SOURCES_SCHEMA)
        parts = [SOURCES_SCHEMA.empty_table()]
        for group in range(reader.groups):
            least, most = _id_bounds(reader, group)
            if least <= high and most >= low:
                rows = reader.read(group, SOURCES_SCHEMA.names).cast(SOURCES_SCHEMA)
                ids = _ids(rows)
                parts.append(rows.filter(pa.array((ids >= low) & (ids <= high))))
        return pa.concat_tables(parts)

    def _combine(self, rows: pa.Table) -> tuple[pa.Table, tuple[int, ...]]:
        return rows.take(pc.sort_indices(rows, sort_keys=[("source", "ascending")])).combine_chunks(), ()


def read_sources(uri: str, numbers: Iterable[int] | None = None) -> dict[int, str]:
    """Return the names of sources by their number, of all or of these; `uri` is that of the sources table."""
    return {id_: name for ids, names in iter_sources(uri, numbers) for id_, name in zip(ids, names, strict=True)}


def iter_sources(uri: str, numbers: Iterable[int] | None = None) -> Iterator[tuple[list[int], list[str]]]:
    """Yield numbers and names of sources, a part at a time: no more is in memory. `numbers`: only of these. Nothing
    without a table: no batch with rows was stored yet."""
    try:
        dataset = DeltaTable(uri).to_pyarrow_dataset()
    except TableNotFoundError:
        return
    wanted = None if numbers is None else pc.field("id").isin(pa.array(sorted(set(numbers)), pa.int32()))
    for batch in dataset.to_batches(columns=SOURCES_SCHEMA.names, filter=wanted, batch_readahead=1):
        yield batch.column("id").to_pylist(), batch.column("source").to_pylist()


def _names_within(reader: GroupReader, group: int, wanted: Sequence[str]) -> Sequence[str]:
    """Return those of the sorted names that a row group may hold. Its bounds may be prefixes."""
    bounds = reader.bounds(group, ["source"]).get("source")
    if bounds is None:
        return wanted
    low, high = bounds
    return wanted[bisect_left(wanted, low) : bisect_right(wanted, high + LAST_CHARACTER)]


def _id_bounds(reader: GroupReader, group: int) -> tuple[int, int]:
    """Return the least and the greatest number of a row group."""
    bounds = reader.bounds(group, ["id"]).get("id")
    if bounds is None:
        ids = _ids(reader.read(group, ["id"]))
        bounds = int(ids.min()), int(ids.max())
    return bounds


def _ids(rows: pa.Table) -> Any:
    return rows.column("id").cast(pa.int64()).to_numpy()
