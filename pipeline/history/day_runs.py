"""Rows of an import on the local disk: a file for each day, of sorted runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from artimon.model.import_chunk import ImportChunk
from artimon.model.value_traits import TRAITS
from artimon.rawtable.schema import DAY_MS, FILE_SCHEMA, STAMP
from pipeline.compaction.merge import MAX_BATCH_ROWS
from pipeline.compaction.row_order import Ints, SortKeys, order_of, take_rows
from pipeline.compaction.sorted_runs import SpilledRun, spill


class DayRuns:
    """Runs by day, counted from 1970. `folder` is emptied at first; `close` removes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs: dict[int, list[SpilledRun]] = {}
        self._rows: dict[int, int] = {}
        self.close()

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def days(self) -> list[int]:
        """The days that have rows, in order."""
        return sorted(self._runs)

    @property
    def merge_folder(self) -> Path:
        """Folder for merges of runs."""
        return self._folder / "merge"

    def runs(self, day: int) -> list[SpilledRun]:
        return self._runs[day]

    def rows(self, day: int) -> int:
        return self._rows[day]

    def add(self, rows: Any) -> None:
        """Add rows of FILE_SCHEMA in any order."""
        if not len(rows):
            return
        keys = SortKeys.of(rows)
        days = keys.time // (DAY_MS * 1000)
        order = order_of(SortKeys((days - days.min()) * (keys.source.max() + 1) + keys.source, keys.series, keys.time))
        if order is not None:
            rows, days = take_rows(rows, order), days[order]
        starts = np.flatnonzero(np.append(True, days[1:] != days[:-1]))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(days)], strict=True):
            day = int(days[start])
            piece = rows.slice(start, end - start)
            run = spill(self._folder / f"{day}.arrow", [piece], MAX_BATCH_ROWS, compression=None)
            self._runs.setdefault(day, []).append(run)
            self._rows[day] = self._rows.get(day, 0) + end - start

    def discard(self, day: int) -> None:
        """Delete the rows of a day."""
        (self._folder / f"{day}.arrow").unlink(missing_ok=True)
        shutil.rmtree(self.merge_folder, ignore_errors=True)
        self._runs.pop(day)


def file_rows(chunk: ImportChunk, numbers: Ints) -> Any:
    """Return the samples as FILE_SCHEMA; `numbers` are those of the chunk's sources in the table of sources."""
    samples = chunk.samples
    columns = [
        pa.array(numbers[chunk.source].astype(np.int32)),
        pa.array(samples.fingerprint.view(np.int64)),
        pa.array(samples.time_ms * 1000).view(STAMP),
        pa.array(samples.birth_ms * 1000).view(STAMP),
        pa.array(chunk.future),
        *(
            traits.to_column(samples.cell, samples.strings, samples.type != int(type_))
            for type_, traits in TRAITS.items()
        ),
    ]
    return pa.table(columns, schema=FILE_SCHEMA)
