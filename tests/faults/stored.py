"""Content of the raw table by source, read in batches: files that were read before are not read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from artimon.rawtable.schema import FILE_SCHEMA, raw_uri, sources_uri
from artimon.rawtable.sources import read_sources
from pipeline.compaction.row_digest import RowDigest, row_hashes
from tests.faults.ledger import Ledger, Noted

_READ_ATTEMPTS = 5
_SEEN = 50_000


class Stored:
    """The table at `hdfs`. A file never changes, so its digests are kept by its name."""

    def __init__(self, hdfs: str) -> None:
        self._hdfs = hdfs
        self._known: dict[str, dict[int, RowDigest]] = {}
        self.files: list[str] = []
        """Of the version that was read last."""

    def digests(self) -> dict[str, RowDigest]:
        """Per source, at the newest version; a file that compaction deleted meanwhile makes it begin again."""
        for _ in range(_READ_ATTEMPTS):
            try:
                return self._read()
            except (FileNotFoundError, OSError) as error:
                last = error
        raise last

    def rows_at(self, noted: Noted) -> int:
        """Rows of one batch that are in the table."""
        numbers = {name: number for number, name in read_sources(sources_uri(self._hdfs)).items()}
        if noted.source not in numbers:
            return 0
        moment = pa.scalar(noted.time_ms * 1000, FILE_SCHEMA.field("time").type)
        chosen = (ds.field("source") == numbers[noted.source]) & (ds.field("time") == moment)
        return int(DeltaTable(raw_uri(self._hdfs)).to_pyarrow_dataset().count_rows(filter=chosen))

    def _read(self) -> dict[str, RowDigest]:
        fragments = list(DeltaTable(raw_uri(self._hdfs)).to_pyarrow_dataset().get_fragments())
        total: dict[int, RowDigest] = {}
        for fragment in fragments:
            if fragment.path not in self._known:
                self._known[fragment.path] = _of_file(fragment)
            for source, digest in self._known[fragment.path].items():
                total[source] = total.get(source, RowDigest()).plus(digest)
        self.files = [fragment.path for fragment in fragments]
        names = read_sources(sources_uri(self._hdfs))
        return {names[source]: digest for source, digest in total.items()}


def _of_file(fragment: Any) -> dict[int, RowDigest]:
    found: dict[int, RowDigest] = {}
    for batch in fragment.to_batches(columns=FILE_SCHEMA.names, batch_size=_SEEN):
        for source, digest in by_source(batch.select(FILE_SCHEMA.names)).items():
            found[source] = found.get(source, RowDigest()).plus(digest)
    return found


def by_source(batch: Any) -> dict[int, RowDigest]:
    """Digests of a batch of FILE_SCHEMA; the number of the source counts as 0: the ledger does not know it."""
    if not len(batch):
        return {}
    sources = batch.column("source").to_numpy()
    columns = [pa.array(np.zeros(len(batch), np.int32)), *batch.columns[1:]]
    hashes = row_hashes(pa.record_batch(columns, schema=FILE_SCHEMA))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(sources)) + 1])
    counts = np.diff(np.append(starts, len(sources)))
    sums, parities = np.add.reduceat(hashes, starts), np.bitwise_xor.reduceat(hashes, starts)
    found: dict[int, RowDigest] = {}
    for source, rows, total, parity in zip(
        sources[starts].tolist(), counts.tolist(), sums.tolist(), parities.tolist(), strict=True
    ):
        found[source] = found.get(source, RowDigest()).plus(RowDigest(rows, total, parity))
    return found


def settle(ledger: Ledger, stored: Stored) -> Ledger:
    """Decide of each batch that a kill left open: it is stored whole, or not at all."""
    for noted in ledger.unknown:
        rows = stored.rows_at(noted)
        if rows:
            ledger.add(noted.source, noted.digest)
    ledger.unknown = []
    return ledger


def differences(expected: dict[str, RowDigest], found: dict[str, RowDigest]) -> list[str]:
    """One line a source whose rows are not exactly those of the ledger."""
    lines = []
    for source in sorted(expected.keys() | found.keys()):
        want, have = expected.get(source, RowDigest()), found.get(source, RowDigest())
        if want != have:
            kind = "lost" if have.rows < want.rows else "too many" if have.rows > want.rows else "other rows"
            lines.append(f"{source}: {kind}: accepted {want}, stored {have}")
    return lines
