"""Readers of files by the name of their format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import xxhash

from artimon.model.import_chunk import ImportChunk
from sources.history.column_mapping import ColumnMapping
from sources.history.import_builder import ImportBuilder
from sources.history.table_formats import Batches, arrow_batches, csv_batches, parquet_batches, read_table
from sources.history.text_formats import read_dump, read_openmetrics
from sources.history.victoria_format import read_victoria

ImportFormat = Literal["dump", "openmetrics", "victoriametrics", "csv", "parquet", "arrow"]
_LINES = {"dump": read_dump, "openmetrics": read_openmetrics, "victoriametrics": read_victoria}
_TABLES: dict[str, Batches] = {"csv": csv_batches, "parquet": parquet_batches, "arrow": arrow_batches}
DIGEST_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """Meaning of a file: its format, the source that its samples get, and the mapping of its columns."""

    format: ImportFormat
    source: str
    mapping: ColumnMapping | None = None

    def identity(self, file: Path, keep: str) -> str:
        """Return a digest of the bytes of the file and of all that decides which rows it becomes. Raises OSError."""
        mapping = self.mapping.model_dump_json() if self.mapping else ""
        digest = xxhash.xxh3_128(repr((self.format, self.source, keep, mapping)).encode())
        with file.open("rb") as stream:
            while block := stream.read(DIGEST_BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def read(self, file: Path, builder: ImportBuilder) -> Iterator[ImportChunk]:
        """Yield the samples of a file. Raises OSError, EOFError, FileRefusedError."""
        if self.format in _LINES:
            return _LINES[self.format](file, builder)
        return read_table(file, builder, _TABLES[self.format], self.mapping)


def format_of(file: Path) -> ImportFormat | None:
    """Return the format that the name of a file tells, if any."""
    ending = (file.suffixes[:-1] or [""])[-1] if file.suffix == ".gz" else file.suffix
    found = {".jsonl": "victoriametrics", ".om": "openmetrics", ".prom": "openmetrics"}.get(ending, ending[1:])
    return cast("ImportFormat", found) if found in get_args(ImportFormat) else None


__all__ = ["ImportSettings", "format_of"]
