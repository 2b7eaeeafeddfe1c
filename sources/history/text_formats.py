"""Text of `promtool tsdb dump`, and OpenMetrics with times. A sample is a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from artimon.model.import_chunk import FIND_START_MS, ImportChunk
from artimon.model.values import ValueType
from sources.base.line_text import SPACE, decode_text, printable
from sources.base.source_errors import LineError
from sources.history.file_lines import line_blocks
from sources.history.import_builder import CHUNK_ROWS, REFUSED, ImportBuilder, Ints, ParsedColumns, kind_by_name
from sources.scrape.prometheus.exposition_text import parse_labels, parse_sample, parse_value, split_sample
from sources.scrape.prometheus.metric_families import MetricFamilies

Floats = npt.NDArray[np.float64]
MAX_FAMILIES = 100_000
_GO_ESCAPE = re.compile(r'\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[abfnrtv\\"])')
_GO_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"'}


class _LineColumns:
    """Samples of lines that were split but not converted yet."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.values: list[bytes] = []
        self.times: list[bytes] = []
        self.lines: list[int] = []

    def numbers(self, builder: ImportBuilder, time_factor: int) -> tuple[Ints, Floats, Ints, Ints]:
        """Return codes, values, times in ms and lines; those that are not numbers are left out and counted."""
        values, bad = _floats(self.values, self.lines, builder)
        times, wrong = _floats(self.times, self.lines, builder)
        times = np.rint(times * time_factor)
        wrong |= ~(np.abs(times) < 2**62)
        good = ~(bad | wrong)
        codes, lines = np.array(self.codes, np.int64), np.array(self.lines, np.int64)
        return codes[good], values[good], times[good].astype(np.int64), lines[good]


def _floats(texts: list[bytes], lines: list[int], builder: ImportBuilder) -> tuple[Floats, npt.NDArray[np.bool_]]:
    bad = np.zeros(len(texts), np.bool_)
    try:
        if b"_" not in b" ".join(texts):
            return np.array(texts or [b"0"]).astype(np.float64)[: len(texts)], bad
    except ValueError:
        pass
    found = np.zeros(len(texts))
    for at, text in enumerate(texts):
        try:
            found[at] = parse_value(text)
        except LineError as problem:
            bad[at] = True
            builder.rejects.add("bad line", str(problem), line=lines[at])
    return found, bad


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

    def columns(self, held: _LineColumns) -> ParsedColumns:
        code, value, time_ms, line = held.numbers(self._builder, 1)
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
    ended = np.isnan(values)
    cells = np.where(ended, 0, np.ascontiguousarray(values).view(np.int64))
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

    def columns(self, held: _LineColumns) -> ParsedColumns:
        code, value, time_ms, line = held.numbers(self._builder, 1000)
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

    def columns(self, held: _LineColumns) -> ParsedColumns:
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
    """Split lines into series, value and time; a series is parsed once."""
    known: dict[bytes, int] = {}
    held = _LineColumns()
    for first, lines in line_blocks(file):
        for number, line in enumerate(lines, first):
            rest, _, time = line.rpartition(b" ")
            text, _, value = rest.rpartition(b" ")
            code = known.get(text)
            if code is None:
                if not (line := line.strip(SPACE)) or line.startswith(b"#"):
                    form.comment(line)
                    continue
                try:
                    text, value, time = form.split(line)
                    code = known.get(text)
                    if code is None:
                        code = known[text] = form.series(text, number)
                except LineError as problem:
                    builder.rejects.add("bad line", str(problem), line=number)
                    continue
            if code == REFUSED:
                builder.rejects.counts["bad series"] += 1
                continue
            held.codes.append(code)
            held.values.append(value)
            held.times.append(time)
            held.lines.append(number)
        if len(held.codes) >= CHUNK_ROWS:
            yield builder.chunk(form.columns(held))
            held = _LineColumns()
            if builder.is_full:
                builder.forget()
                form.forget()
                known.clear()
    if held.codes:
        yield builder.chunk(form.columns(held))
