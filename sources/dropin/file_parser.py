"""Parser of drop-in files: bytes to columns. Runs in its own thread: nothing here touches the state of a source.

The text of a series is parsed once while its bytes stay the same: a reader caches `bytes -> column`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.labels import LabelError
from artimon.model.values import Kind, Value, double_to_cell, type_of
from sources.base.line_text import SPACE
from sources.base.source_errors import LineError, RejectCounts
from sources.dropin.folder_files import BytesReader, FileLimits, LineChunks, OpenFile
from sources.dropin.line_grammar import parse_line, parse_metadata, parse_value
from sources.dropin.series_columns import DROPPED, SeriesColumns
from sources.state.relabel import RelabelRules
from sources.state.start_times import Ints

_MAX_METADATA_LINES = 10_000
_MAX_CACHED_LINES = 400_000
_DIGITS = 18
"""Maximum digits of a number that always fits an int64."""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """Metadata from the comments of a file, by name of variable."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    help: Mapping[str, str] = field(default_factory=dict)
    birth_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineColumns:
    """n valid lines in the order of the file; `column` indexes the lists of the reader."""

    column: Ints
    time_ms: Ints
    type: npt.NDArray[np.uint8]
    cell: Ints
    line: Ints
    strings: tuple[str, ...]
    metadata: FileMetadata
    rejected: RejectCounts
    complete: bool
    """True if the file was read to its end, so that a series missing here is missing in the file."""
    birth_ms: Ints | None = None
    """Birth of each line, 0 if unknown; None: that of the metadata for all."""
    delta: npt.NDArray[np.bool_] | None = None
    """Mask of the values that are increases since the sample before; None: none are."""

    def __len__(self) -> int:
        return len(self.column)


class LineReader(SeriesColumns):
    """Reads one file at every poll; forgets its columns if the file had too many different ones."""

    def __init__(self, automatic: Mapping[str, str], limits: FileLimits, rules: RelabelRules | None = None) -> None:
        super().__init__(automatic, rules)
        self._limits = limits
        self._metadata_lines: list[bytes] = []
        self._metadata = FileMetadata()

    def forget(self) -> None:
        """Forget all columns and the bytes of their lines."""
        super().forget()
        self._cached_lines: dict[bytes, int] = {}

    def read(self, file: OpenFile | BytesReader) -> LineColumns:
        """Parse the whole file. Raises FileRefusedError if reading fails."""
        if len(self._cached_lines) > _MAX_CACHED_LINES:
            self.forget()
        made = _ColumnBuilder()
        pieces = LineChunks(file, self._limits)
        before = 0
        for lines in pieces:
            self._read_lines(lines, before, made)
            before = pieces.count
        if pieces.cut:
            made.refused.add("file limit", pieces.cut, line=before + 1)
        if pieces.ends_in_partial_line:
            made.refused.add("half-written", "no newline at its end: read again at the next poll", line=before + 1)
        complete = not pieces.cut and not pieces.ends_in_partial_line and file.unchanged()
        return self._columns(made, complete)

    def _columns(self, made: _ColumnBuilder, complete: bool) -> LineColumns:
        if made.metadata_lines != self._metadata_lines:
            self._metadata_lines, self._metadata = made.metadata_lines, _parse_metadata(made.metadata_lines)
        return LineColumns(
            np.array(made.column, np.int64),
            np.array(made.time_ms, np.int64),
            np.frombuffer(bytes(made.type), np.uint8),
            np.array(made.cell, np.int64),
            np.array(made.line, np.int64),
            tuple(made.strings),
            self._metadata,
            made.refused,
            complete,
        )

    def _read_lines(self, lines: Iterable[bytes], before: int, made: _ColumnBuilder) -> None:
        """Parse lines. The fast path serves series whose bytes are cached, with a number without sign and point."""
        known, other = self._cached_lines, self._parse_uncached
        column, times, types, cells, numbers = made.column, made.time_ms, made.type, made.cell, made.line
        last, time_ms = b"", 0
        for number, line in enumerate(lines, before + 1):
            when, _, rest = line.partition(b" ")
            text, _, value = rest.rpartition(b" ")
            at = known.get(text)
            if at is None or not value:
                other(line, number, made)
                continue
            if at == DROPPED:
                continue
            if when != last:
                if not when.isdigit() or len(when) > _DIGITS:
                    other(line, number, made)
                    continue
                last, time_ms = when, int(when)
            if value.isdigit() and len(value) <= _DIGITS:
                types.append(0)
                cells.append(int(value))
            else:
                try:
                    made.add_value(parse_value(value.strip(SPACE)))
                except LineError:
                    other(line, number, made)
                    continue
            column.append(at)
            times.append(time_ms)
            numbers.append(number)

    def _parse_uncached(self, line: bytes, number: int, made: _ColumnBuilder) -> None:
        """Parse any other line: a comment, a blank line, a new series or a bad line."""
        stripped = line.strip(SPACE)
        if not stripped:
            return
        if len(line) > self._limits.line_bytes:
            made.refused.add("bad line", f"longer than {self._limits.line_bytes:,} bytes", line=number)
            return
        if stripped.startswith(b"#"):
            if len(made.metadata_lines) < _MAX_METADATA_LINES and stripped.lstrip(b"# \t").startswith(
                (b"kind", b"unit", b"help", b"birth")
            ):
                made.metadata_lines.append(stripped)
            return
        try:
            parsed = parse_line(line)
            at = self.column(parsed.name, parsed.labels)
        except (LineError, LabelError) as error:
            made.refused.add("bad line", str(error), line=number)
            return
        self._cached_lines[parsed.text] = at
        if at == DROPPED:
            return
        made.add_value(parsed.value)
        made.column.append(at)
        made.time_ms.append(parsed.time_ms)
        made.line.append(number)


class _ColumnBuilder:
    """Builder of `LineColumns`."""

    def __init__(self) -> None:
        self.column: list[int] = []
        self.time_ms: list[int] = []
        self.type = bytearray()
        self.cell: list[int] = []
        self.line: list[int] = []
        self.strings: dict[str, int] = {}
        self.metadata_lines: list[bytes] = []
        self.refused = RejectCounts()

    def add_value(self, value: Value) -> None:
        """Append type and cell of a value."""
        self.type.append(type_of(value))
        if isinstance(value, float):
            self.cell.append(double_to_cell(value))
        elif isinstance(value, str):
            self.cell.append(self.strings.setdefault(value, len(self.strings)))
        else:
            self.cell.append(int(value))


def _parse_metadata(lines: Iterable[bytes]) -> FileMetadata:
    found: dict[str, dict[str, Any]] = {"kind": {}, "unit": {}, "help": {}, "birth": {}}
    for line in lines:
        if (one := parse_metadata(line)) is not None:
            found[one.what][one.name] = one.value
    return FileMetadata(found["kind"], found["unit"], found["help"], found["birth"].get(""))
