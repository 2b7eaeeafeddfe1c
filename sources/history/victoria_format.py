"""Lines of JSON of VictoriaMetrics' /api/v1/export: a series with its samples, or a part of them, each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from artimon.compute.kernels import kernels
from artimon.model.import_chunk import ImportChunk
from sources.base.source_errors import LineError
from sources.history.file_lines import line_blocks
from sources.history.import_builder import CHUNK_ROWS, REFUSED, ImportBuilder, Ints, ParsedColumns, kind_by_name
from sources.history.line_columns import Floats
from sources.history.text_formats import doubles_or_ends

VALUES, TIMES = b',"values":[', b',"timestamps":['
JSON_BLANKS = b" \t\r"


def read_victoria(file: Path, builder: ImportBuilder) -> Iterator[ImportChunk]:
    """Yield the samples of an export. A null or NaN ends a series. Raises OSError, FileRefusedError."""
    held: list[_Line] = []
    rows = 0
    for first, lines in line_blocks(file):
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            try:
                labels, values, times = _parse(line)
            except LineError as problem:
                builder.rejects.add("bad line", str(problem), line=number)
                continue
            name = labels.get("__name__", "")
            code = builder.series(name, labels, number, kind_by_name(name))
            if code == REFUSED:
                builder.rejects.counts["bad series"] += len(times)
                continue
            held.append(_Line(code, number, times, values))
            rows += len(times)
            if rows >= CHUNK_ROWS:
                yield _chunk(builder, held)
                rows = 0
                if builder.is_full:
                    builder.forget()
    if held:
        yield _chunk(builder, held)


class _Line(NamedTuple):
    """Samples of one line of the file."""

    code: int
    number: int
    times: Ints
    values: Floats


def _chunk(builder: ImportBuilder, held: list[_Line]) -> ImportChunk:
    """Return the samples as a chunk; empties the list."""
    codes, numbers, times, values = zip(*held, strict=True)
    held.clear()
    lengths = [len(one) for one in times]
    code, line = (np.repeat(np.array(column, np.int64), lengths) for column in (codes, numbers))
    return builder.chunk(ParsedColumns(code, np.concatenate(times), *doubles_or_ends(np.concatenate(values)), line))


def _parse(line: bytes) -> tuple[dict[str, str], Floats, Ints]:
    try:
        labels, values, times = _parse_plain(line) or _parse_any(line)
        if not all(isinstance(one, str) for pair in labels.items() for one in pair):
            raise TypeError("a label is not a text")
        if len(times) and times.dtype != np.int64:
            raise TypeError("a time is not a whole number of ms")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise LineError(f"not a line of VictoriaMetrics' export: {error!r:.100}") from None
    if values.ndim != 1 or times.ndim != 1 or len(values) != len(times):
        raise LineError(f"{values.size} values and {times.size} times: want two arrays of as many numbers")
    return labels, values, times.astype(np.int64, copy=False)


def _parse_any(line: bytes) -> tuple[Any, Floats, Any]:
    told: Any = orjson.loads(line)
    return told["metric"], np.array(told["values"], np.float64), np.array(told["timestamps"])


def _parse_plain(line: bytes) -> tuple[Any, Floats, Ints] | None:
    """As `_parse_any`, in a quarter of the time, of a line as VictoriaMetrics writes it; None for another one. What
    stands before the values must be JSON by itself: then it does not end within a string."""
    compiled, at = kernels(), line.find(VALUES)
    if compiled is None or at < 0 or (values := compiled.json_numbers(line, at + len(VALUES))) is None:
        return None
    if not line.startswith(TIMES, values[1]):
        return None
    times = compiled.json_numbers(line, values[1] + len(TIMES), whole=True, most=len(values[0]))
    if times is None or line[times[1] :].strip(JSON_BLANKS) != b"}":
        return None
    told: Any = orjson.loads(line[:at] + b"}")
    return (told["metric"], values[0], times[0]) if told.keys() == {"metric"} else None
