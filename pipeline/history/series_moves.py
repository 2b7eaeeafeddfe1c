"""New labels for selected samples of the past: values, times and start times stay.

Order of the steps: the record of the moves, the new series, raw files, roll-ups of expired samples, removal of the old
series. The record is kept on HDFS until all are done: a relabel that ended early goes on from it, because a new plan
would apply the rules to series that have their new labels already. docs/history.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.rawtable.announced_rows import SERIES_SCHEMA
from artimon.rawtable.schema import TableError
from artimon.rawtable.series_delta import SeriesTable
from artimon.runtime import file_access as files
from pipeline.history.deletion import RECORD_KEY, Deletion, DeletionPlan, DeletionResult
from pipeline.history.rewrite import LabelChange
from pipeline.history.row_selection import Ints, Prune, RowSelection, Select

OLD_SERIES = "old_series"
MOVES_SCHEMA = SERIES_SCHEMA.append(pa.field(OLD_SERIES, pa.int64()))
"""A row for each pair of source and series that moves: its new description, and its old fingerprint."""


class RelabelError(TableError):
    """The labels cannot be changed. The text says why; nothing has changed."""


@dataclass(frozen=True, slots=True)
class SeriesMoves:
    """Moves of samples in (after, until] ms to other series: a table of MOVES_SCHEMA, sorted by source and old series,
    each pair once."""

    table: Any
    after_ms: int
    until_ms: int

    @classmethod
    def of(cls, rows: Any, after_ms: int, until_ms: int) -> SeriesMoves:
        """Sort the rows."""
        order = pc.sort_indices(rows, sort_keys=[("source", "ascending"), (OLD_SERIES, "ascending")])
        return cls(rows.take(order).combine_chunks(), after_ms, until_ms)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def source(self) -> Ints:
        return self._numbers("source")

    @property
    def old(self) -> Ints:
        """Old fingerprints, signed."""
        return self._numbers(OLD_SERIES)

    @property
    def new(self) -> Ints:
        """New fingerprints, signed."""
        return self._numbers("series")

    @property
    def digest(self) -> str:
        """Digest of the pairs and their new series."""
        digest = xxhash.xxh3_64(self.source.tobytes())
        digest.update(self.old.tobytes())
        digest.update(self.new.tobytes())
        return digest.hexdigest()

    def check(self) -> None:
        """Raise RelabelError if a series moves to one that moves itself: a repetition would move its samples twice."""
        chained = np.isin(self.new, self.old)
        if chained.any():
            row = self.table.slice(int(np.flatnonzero(chained)[0]), 1).to_pylist()[0]
            raise RelabelError(
                f"{int(chained.sum()):,} series would get the labels of series that get other labels themselves, such"
                f" as {row['name']} {dict(row['labels'])}: narrow the selector, or give them other labels first"
            )

    def _numbers(self, column: str) -> Ints:
        numbers: Ints = self.table.column(column).cast(pa.int64()).to_numpy()
        return numbers


class Relabel:
    """Relabel of `moves`. `folder`: local, for rows that change their place."""

    def __init__(
        self,
        hdfs: str,
        moves: SeriesMoves,
        prune: Prune,
        select: Select,
        folder: Path,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
    ) -> None:
        """`probe`: called at the points "noted", "announced", and those of a deletion."""
        moves.check()
        self._hdfs, self._moves, self._clock, self._probe = hdfs, moves, clock, probe
        self.selection: RowSelection = select(moves.source, moves.old, moves.after_ms, moves.until_ms)
        change = LabelChange(moves.new, folder)
        self._rewrite = Deletion(hdfs, self.selection, prune, select, clock, probe, change)

    def plan(self) -> tuple[DeletionPlan, str]:
        """Find the selected rows; return the plan and its code. Raises RelabelError if a bucket of expired samples is
        only partly in the time."""
        plan = self._rewrite.plan()
        if parts := self._rewrite.straddling(plan):
            days = sorted({file.period for file, _ in plan.rollups})
            raise RelabelError(
                f"samples of {len(days):,} days from {days[0]} to {days[-1]} have expired, and {parts:,} of their"
                " buckets begin before or end after this time: begin and end at midnight (UTC)"
            )
        return plan, f"{plan.code(self.selection)}{self._moves.digest}"

    def run(self, plan: DeletionPlan, code: str) -> DeletionResult:
        """Change the labels. Raises as Deletion.run; `resume` then has the moves."""
        _write_moves(self._hdfs, code, self._moves)
        self._probe("noted")
        self._announce(plan, code)
        self._probe("announced")
        result = self._rewrite.run(plan)
        files.delete_file(moves_uri(self._hdfs, code))
        return result

    def resume(self, code: str) -> DeletionResult:
        """Change the labels of what is left of a relabel that has ended early. Raises as `run`."""
        return self.run(self._rewrite.plan(), code)

    def _announce(self, plan: DeletionPlan, code: str) -> None:
        """Add the new series that get samples, once."""
        series, topic = SeriesTable(self._hdfs, self._clock), f"relabel-{code}"
        rows = self._moves.table.select(SERIES_SCHEMA.names)
        if not plan.rollups:
            rows = rows.take(pa.array(sorted(plan.pairs), pa.int64()))
        start = series.positions(topic, 1)
        if not start[0] and not series.add(rows, topic, start, {0: 1}):
            raise TableError(f"{series.uri}: another process does the same: wait for it, then repeat")


def moves_uri(hdfs: str, code: str) -> str:
    """Return the URI of the record of a relabel that is not done yet."""
    return f"{hdfs.rstrip('/')}/artimon/deletions/relabel-{code}.parquet"


def read_moves(hdfs: str, code: str) -> SeriesMoves | None:
    """Return the moves of a relabel that has ended early; None if there is none. Raises TableError, OSError."""
    uri = moves_uri(hdfs, code)
    try:
        rows = pq.read_table(pa.BufferReader(files.read_file(uri)))
        about = json.loads((rows.schema.metadata or {})[RECORD_KEY.encode()])
        return SeriesMoves.of(rows.cast(MOVES_SCHEMA), int(about["after_ms"]), int(about["until_ms"]))
    except FileNotFoundError:
        return None
    except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise TableError(f"{uri} cannot be read: {error!r:.200}") from error


def _write_moves(hdfs: str, code: str, moves: SeriesMoves) -> None:
    about = {"format": 1, "after_ms": moves.after_ms, "until_ms": moves.until_ms}
    sink = pa.BufferOutputStream()
    rows = moves.table.replace_schema_metadata({RECORD_KEY: json.dumps(about)})
    pq.write_table(rows, sink, compression="zstd")
    files.replace_file(moves_uri(hdfs, code), sink.getvalue())


def moves_table(described: Any, new: Sequence[tuple[str, dict[str, str], int]], old: Ints) -> Any:
    """Return a table of MOVES_SCHEMA: rows of SERIES_SCHEMA with their new (name, labels, fingerprint)."""
    columns = {name: described.column(name) for name in SERIES_SCHEMA.names}
    columns["series"] = pa.array([series for _, _, series in new], pa.int64())
    columns["name"] = pa.array([name for name, _, _ in new], pa.utf8())
    columns["labels"] = pa.array([sorted(labels.items()) for _, labels, _ in new], SERIES_SCHEMA.field("labels").type)
    columns[OLD_SERIES] = pa.array(old, pa.int64())
    return pa.table(columns, schema=MOVES_SCHEMA)
