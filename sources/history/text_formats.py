"""Text of `promtool tsdb dump`, and OpenMetrics with times. A sample is a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from artimon.model.import_chunk import FIND_START_MS, ImportChunk
from artimon.model.values import ValueType
from sources.base.line_text import SPACE, decode_text, printable
from sources.base.source_errors import LineError
from sources.history.file_lines import text_blocks
from sources.history.import_builder import CHUNK_ROWS, REFUSED, ImportBuilder, Ints, ParsedColumns, kind_by_name
from sources.history.line_columns import Floats, split_columns
from sources.scrape.prometheus.exposition_text import parse_labels, parse_sample, parse_value, split_sample
from sources.scrape.prometheus.metric_families import MetricFamilies

IRREGULAR = -2
"""Code of a text before two numbers that is not a series."""
MAX_FAMILIES = 100_000
_GO_ESCAPE = re.compile(r'\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[abfnrtv\\"])')
_GO_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


class _ParsedLines:
    """Samples of one chunk: columns of whole blocks, and single lines. Times are numbers as in the file."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Floats, Floats, Ints]] = []
        self._single: list[tuple[int, float, float, int]] = []
        self.rows = 0

    def add(self, code: Ints, value: Floats, time: Floats, line: Ints) -> None:
        self._parts.append((code, value, time, line))
        self.rows += len(code)

    def add_line(self, code: int, value: bytes, time: bytes, line: int) -> None:
        """Add one sample. Raises LineError."""
        self._single.append((code, parse_value(value), parse_value(time), line))
        self.rows += 1

    def numbers(self, time_factor: int) -> tuple[Ints, Floats, Ints, Ints]:
        """Return codes, values, times in ms and lines. A time out of all range is -1."""
        single: Any = zip(*self._single, strict=True) if self._single else ((), (), (), ())
        types = (np.int64, np.float64, np.float64, np.int64)
        last: Any = tuple(np.array(column, type_) for column, type_ in zip(single, types, strict=True))
        code, value, time, line = (np.concatenate(columns) for columns in zip(*self._parts, last, strict=True))
        time = np.rint(time * time_factor)
        return code, value, np.where(np.abs(time) < 2**62, time, -1).astype(np.int64), line


class _DumpLines:
    """Lines `{__name__="up",job="x"} 1 1700000000000`."""

    def __init__(self, builder: ImportBuilder) -> None:
        self._builder = builder

    def comment(self, line: bytes) -> None:
        """Ignore a blank line or a comment."""

    def forget(self) -> None:
        """Have no state."""

    def split(self, line: bytes) -> tuple[bytes, bytes, bytes]:
        head, brace, tail = line.rpartition(b"}")
        parts = tail.split()
        if not brace or not line.startswith(b"{") or len(parts) != 2:
            raise LineError(f"want {{labels}} value time: {printable(line)}")
        return head + brace, parts[0], parts[1]

    def series(self, text: bytes, line: int) -> int:
        labels = parse_labels(text[1:-1], _unescape_go)
        name = labels.get("__name__", "")
        return self._builder.series(name, labels, line, kind_by_name(name))

    def columns(self, held: _ParsedLines) -> ParsedColumns:
        code, value, time_ms, line = held.numbers(1)
        return ParsedColumns(code, time_ms, *doubles_or_ends(value), line)


def _unescape_go(text: bytes) -> str:
    """Decode a text as Go quotes it."""
    if b"\\" not in text:
        return decode_text(text)
    return _GO_ESCAPE.sub(
        lambda found: _GO_PLAIN.get(found[1]) or chr(min(int(found[1][1:], 16), 0x10FFFF)), decode_text(text)
    )


def doubles_or_ends(values: Floats) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return types and cells of values of which NaN is the end of a series: these formats write Prometheus' mark of
    staleness as NaN."""
    ended, cells = np.isnan(values), np.ascontiguousarray(values).view(np.int64)
    if not ended.any():
        return np.full(len(values), ValueType.DOUBLE, np.uint8), cells
    cells = np.where(ended, 0, cells)
    return np.where(ended, np.uint8(ValueType.ENDED), np.uint8(ValueType.DOUBLE)), cells


class _OpenMetricsLines:
    """Series of a file of OpenMetrics. A `…_created` sample is the birth of the samples of its group at its time."""

    def __init__(self, builder: ImportBuilder) -> None:
        self._builder = builder
        self._families = MetricFamilies()
        self._metadata: list[bytes] = []
        self._changed = False
        self._groups: dict[tuple[str, frozenset[tuple[str, str]]], int] = {}
        self._group: dict[int, int] = {}
        """Group of each code of a counter."""
        self._creates: dict[int, int] = {}
        """Group of each code of a `…_created` sample."""

    def comment(self, line: bytes) -> None:
        if len(self._metadata) < MAX_FAMILIES:
            self._metadata.append(line)
            self._changed = True

    def forget(self) -> None:
        for held in (self._groups, self._group, self._creates):
            held.clear()

    def split(self, line: bytes) -> tuple[bytes, bytes, bytes]:
        text, value, time = split_sample(line)
        if not time:
            raise LineError(f"a sample without a time: {printable(line)}")
        return text, value, time

    def series(self, text: bytes, line: int) -> int:
        if self._changed:
            self._families, self._changed = MetricFamilies(self._metadata), False
        one = parse_sample(text + b" 0")
        family = self._families.family_of(one.name)
        created = self._families.created(one.name)
        kind = family.kind(one.name) if family.type else kind_by_name(one.name)
        code = self._builder.series(one.name, one.labels, line, kind, unit=family.unit, help=family.help)
        outer = frozenset((label, value) for label, value in one.labels.items() if label not in ("le", "quantile"))
        group = self._groups.setdefault((created or family.name, outer), len(self._groups))
        if code != REFUSED:
            (self._creates if created else self._group)[code] = group
        return code

    def columns(self, held: _ParsedLines) -> ParsedColumns:
        code, value, time_ms, line = held.numbers(1000)
        birth_ms = np.full(len(code), FIND_START_MS, np.int64)
        told = np.isin(code, np.array(list(self._creates), np.int64))
        if told.any():
            births = zip(code[told].tolist(), time_ms[told].tolist(), np.rint(value[told] * 1000).tolist(), strict=True)
            born = {(self._creates[one], at): int(birth) for one, at, birth in births if 0 < birth <= at}
            birth_ms[:] = [
                born.get((self._group.get(one, -1), at), FIND_START_MS)
                for one, at in zip(code.tolist(), time_ms.tolist(), strict=True)
            ]
        kept = ~told
        type_ = np.full(int(kept.sum()), ValueType.DOUBLE, np.uint8)
        cell = np.ascontiguousarray(value[kept]).view(np.int64)
        return ParsedColumns(code[kept], time_ms[kept], type_, cell, line[kept], birth_ms=birth_ms[kept])


class LineForm(Protocol):
    """Format whose samples are lines. All may raise LineError."""

    def comment(self, line: bytes) -> None:
        """Read a line of metadata, a comment or a blank line."""
        ...

    def split(self, line: bytes) -> tuple[bytes, bytes, bytes]:
        """Return series, value and time of a line."""
        ...

    def series(self, text: bytes, line: int) -> int:
        """Return the code of a series."""
        ...

    def columns(self, held: _ParsedLines) -> ParsedColumns:
        """Convert samples."""
        ...

    def forget(self) -> None:
        """Forget all codes."""
        ...


def read_dump(file: Path, builder: ImportBuilder) -> Iterator[ImportChunk]:
    """Yield the samples of a dump of `promtool tsdb dump`. NaN ends a series. Raises OSError, FileRefusedError."""
    return _read(file, builder, _DumpLines(builder))


def read_openmetrics(file: Path, builder: ImportBuilder) -> Iterator[ImportChunk]:
    """Yield the samples of a text of OpenMetrics whose lines have times, in seconds. Raises OSError,
    FileRefusedError."""
    return _read(file, builder, _OpenMetricsLines(builder))


def _read(file: Path, builder: ImportBuilder, form: LineForm) -> Iterator[ImportChunk]:
    """Split lines into series, value and time, nearly all of them as columns; a series is parsed once."""
    reader = _LineReader(builder, form)
    for first, block in text_blocks(file):
        reader.read(block, first)
        if reader.held.rows >= CHUNK_ROWS:
            yield reader.take()
    if reader.held.rows:
        yield reader.take()


class _LineReader:
    """Reader of blocks of lines."""

    def __init__(self, builder: ImportBuilder, form: LineForm) -> None:
        self._builder, self._form = builder, form
        self._known: dict[bytes, int] = {}
        """Code of each text, IRREGULAR for a text that is not that of a series."""
        self.held = _ParsedLines()

    def read(self, block: bytes, first: int) -> None:
        found = split_columns(block)
        others = sorted(found.others)
        lines = block.split(b"\n") if found.comments or others else []
        for row in found.comments:
            self._form.comment(lines[row].strip(SPACE))
        firsts = dict(zip(found.code[::-1].tolist(), found.row[::-1].tolist(), strict=True))
        codes = np.array([self._code(text, first + firsts[at]) for at, text in enumerate(found.series)], np.int64)
        code = codes[found.code] if len(codes) else found.code
        if irregular := found.row[code == IRREGULAR].tolist():
            others, lines = sorted([*others, *irregular]), lines or block.split(b"\n")
        if refused := int((code == REFUSED).sum()):
            self._builder.rejects.counts["bad series"] += refused
        good = code >= 0
        self.held.add(code[good], found.value[good], found.time[good], found.row[good] + first)
        for row in others:
            self._read_line(lines[row], first + row)

    def take(self) -> ImportChunk:
        """Return the samples read so far as a chunk."""
        held, self.held = self.held, _ParsedLines()
        chunk = self._builder.chunk(self._form.columns(held))
        if self._builder.is_full:
            self._builder.forget()
            self._form.forget()
            self._known.clear()
        return chunk

    def _code(self, text: bytes, line: int) -> int:
        code = self._known.get(text)
        if code is None:
            try:
                regular = self._form.split(text + b" 1 1")[0] == text
                code = self._form.series(text, line) if regular else IRREGULAR
            except LineError:
                code = IRREGULAR
            self._known[text] = code
        return code

    def _read_line(self, line: bytes, number: int) -> None:
        if not (line := line.strip(SPACE)):
            return
        try:
            text, value, time = self._form.split(line)
            code = self._known.get(text, IRREGULAR)
            if code == IRREGULAR:
                code = self._known[text] = self._form.series(text, number)
            if code == REFUSED:
                self._builder.rejects.counts["bad series"] += 1
            else:
                self.held.add_line(code, value, time, number)
        except LineError as problem:
            self._builder.rejects.add("bad line", str(problem), line=number)
