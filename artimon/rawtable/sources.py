"""Table of sources: the small integers that represent names of sources in the raw table. A pair never changes."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from artimon.rawtable.delta import MAX_ATTEMPTS, DeltaHandle, first_line
from artimon.rawtable.schema import SOURCES_SCHEMA, DataFile, TableError, sources_uri
from artimon.runtime import file_access as files

log = logging.getLogger(__name__)


class SourcesTable(DeltaHandle):
    """Names of sources and their numbers. Used by one thread at a time."""

    def __init__(self, hdfs: str) -> None:
        super().__init__(sources_uri(hdfs), SOURCES_SCHEMA)
        self._ids: dict[str, int] = {}
        self._version = -1

    def ids(self) -> dict[str, int]:
        """Return the number of every source. Raises TableError, OSError."""
        table = self.refresh()
        if table.version() != self._version:
            self._ids = self._with_timeout("reading", lambda: _read_ids(table))
            self._version = table.version()
        return dict(self._ids)

    def assign(self, names: Iterable[str]) -> dict[str, int]:
        """Assign numbers to new `names` and return those of all sources. Concurrent drivers never assign two numbers to
        one name."""
        wanted = sorted(set(names))
        for _ in range(MAX_ATTEMPTS):
            ids = self.ids()
            missing = [name for name in wanted if name not in ids]
            if not missing:
                return ids
            first = max(ids.values(), default=0) + 1
            self._try_assign(missing, first)
        raise TableError(f"{self.uri}: {len(wanted)} sources could not be added in {MAX_ATTEMPTS} attempts")

    def _try_assign(self, names: list[str], first: int) -> None:
        rows = pa.table([list(range(first, first + len(names))), names], schema=SOURCES_SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        data = sink.getvalue()
        path = f"sources-{first}-{first + len(names)}-{uuid.uuid4().hex[:12]}.parquet"
        files.write_file(f"{self.uri}/{path}", data)
        try:
            file = DataFile(path, len(data), len(names), {}, json.dumps({"numRecords": len(names)}))
            self.commit([file.action()])
        except (DeltaError, OSError) as error:
            log.warning("sources not added: %s; reading them again", first_line(error))


def read_sources(uri: str) -> dict[int, str]:
    """Return the names of sources by their number; `uri` is that of the sources table."""
    return {id_: name for name, id_ in _read_ids(DeltaTable(uri)).items()}


def _read_ids(table: DeltaTable) -> dict[str, int]:
    rows = table.to_pyarrow_dataset().to_table()
    return dict(zip(rows.column("source").to_pylist(), rows.column("id").to_pylist(), strict=True))
