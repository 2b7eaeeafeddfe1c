"""Formats of an answered matrix: content negotiation, and JSON and CSV written in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson

from artimon.api.api_errors import ApiError
from artimon.api.arrow_format import arrow_pieces
from artimon.api.buffered_answer import PIECE_BYTES
from artimon.model.values import ValueType
from query_dsl import Matrix

BLOCK_CELLS = 65_536
"""Cells encoded together: as many as fit a processor cache."""
LISTED_HOSTS = 10
"""Silent hosts in a header."""
NOTES_BYTES = 4_000
"""Maximum size of the notes in a header; further notes are only counted."""
CSV_HEAD = "series,name,type,time_ms,time,value\r\n"
Completeness = Mapping[str, Any] | None
"""`Completeness.to_dict` of the language."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?Infinity")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """Format of a matrix. `write`: its pieces, from the matrix and its completeness if that is asked for, which JSON
    alone holds. `smaller`: formats to suggest if an answer is too large."""

    name: str
    content_type: str
    write: Callable[[Matrix, Completeness], Iterator[bytes]]
    smaller_hint: str = ""
    headers: Mapping[str, str] | None = None


def negotiate_format(named: str | None, accept: str) -> OutputFormat:
    """Choose the format by its name, else by the header Accept, else JSON. Raises ApiError for an unknown name."""
    if named is not None:
        if named not in FORMATS:
            raise ApiError(400, f"format {named[:50]!r} is not known: write one of {', '.join(FORMATS)}")
        return FORMATS[named]
    best, best_weight = FORMATS["json"], 0.0
    for kind, weight in _accepted(accept):
        form = next((form for form in FORMATS.values() if form.content_type.partition(";")[0] == kind), None)
        if form is not None and weight > best_weight:
            best, best_weight = form, weight
    return best


def _accepted(accept: str) -> Iterator[tuple[str, float]]:
    for one in accept.lower().split(",")[:50]:
        kind, *parameters = (part.strip() for part in one.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        yield kind, float(weight) if re.fullmatch(r"[01](\.\d{0,3})?", weight) else 0.0


def headers_of(form: OutputFormat, matrix: Matrix, completeness: Completeness = None) -> dict[str, str]:
    """Return the headers of an answer: content type, flags, engine, notes and completeness, which CSV cannot hold."""
    found = {
        "content-type": form.content_type,
        "x-artimon-complete": str(matrix.complete).lower(),
        "x-artimon-partial": str(matrix.partial).lower(),
        **(form.headers or {}),
    }
    if matrix.origin is not None:
        found["x-artimon-engine"] = matrix.origin.engine
    if matrix.notes:
        found["x-artimon-notes"] = notes_text(matrix.notes)
    if completeness is not None:
        few = completeness["silent"][:LISTED_HOSTS]
        found["x-artimon-completeness"] = json.dumps({**completeness, "silent": few})
    return found


def engine_headers(engines: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the headers of the engines that answered, and of what each read, for an answer without these fields."""
    if not engines:
        return {}
    read = [note for notes in engines.values() for note in notes]
    found = {"x-artimon-engine": " and ".join(sorted(engines, reverse=True))}
    return found | ({"x-artimon-notes": notes_text(read)} if read else {})


def notes_text(notes: Iterable[str]) -> str:
    """Return notes as a JSON list in ASCII, truncated to NOTES_BYTES."""
    kept: list[str] = []
    left = list(notes)
    while left and len(json.dumps([*kept, left[0]])) <= NOTES_BYTES:
        kept.append(left.pop(0))
    return json.dumps([*kept, f"and {len(left)} more"] if left else kept)


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Join texts to pieces of about PIECE characters, in UTF-8; lone surrogates become escapes."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= PIECE_BYTES:
            yield "".join(held).encode("utf-8", "backslashreplace")
            held, size = [], 0
    if held:
        yield "".join(held).encode("utf-8", "backslashreplace")


# ---- JSON ------------------------------------------------------------------------------------------------------------


def json_pieces(matrix: Matrix, completeness: Completeness = None) -> Iterator[bytes]:
    """Yield `Matrix.to_json` in pieces, with a member `completeness` if it is given."""
    return _pieces(_json_texts(matrix, completeness))


def _json_texts(matrix: Matrix, completeness: Completeness) -> Iterator[str]:
    empty = Matrix((), matrix.grid, matrix.column, (), matrix.notes, matrix.complete, matrix.partial)
    head = json.dumps(empty.to_dict(), ensure_ascii=False)
    yield head.removesuffix("]}")
    comma = ""
    for i, ((name, labels), values) in enumerate(zip(matrix.keys, _number_texts(matrix), strict=True)):
        pairs = ", ".join([f"{_quoted(label)}: {_quoted(value)}" for label, value in labels])
        if values is None:
            values = json.dumps(json_values(matrix, i), ensure_ascii=False, allow_nan=False)
        kind = _type(matrix, i).name
        yield f'{comma}{{"name": {_quoted(name)}, "labels": {{{pairs}}}, "type": "{kind}", "values": {values}}}'
        comma = ", "
    yield "]}" if completeness is None else f'], "completeness": {json.dumps(completeness)}}}'


def _number_texts(matrix: Matrix) -> Iterator[str | None]:
    """Yield the JSON list of the values of each series; None if a value is missing or not a finite number."""
    each = max(1, BLOCK_CELLS // matrix.grid.n)
    for start in range(0, len(matrix.keys), each):
        rows = slice(start, start + each)
        types, full = matrix.types[rows], matrix.present[rows].all(axis=1)
        cells = np.ascontiguousarray(matrix.cells[rows])
        floats = cells.view(np.float64)
        real = full & (types == ValueType.DOUBLE) & np.isfinite(floats).all(axis=1)
        whole = full & (types == ValueType.INTEGER)
        for i, (is_real, is_whole) in enumerate(zip(real.tolist(), whole.tolist(), strict=True)):
            numbers = floats[i] if is_real else cells[i] if is_whole else None
            yield None if numbers is None else orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY).decode()


_quoted = json.encoder.encode_basestring
"""Encodes a text as a JSON string, without ASCII escapes."""


def json_values(matrix: Matrix, i: int) -> list[int | float | bool | str | None]:
    """Return the JSON values of series i: null if missing; NaN and infinities as texts."""
    values = matrix.tolist(i)
    if _type(matrix, i) is ValueType.DOUBLE and not np.isfinite(matrix.row(i).data).all():
        return [_NOT_FINITE.get(repr(value), value) for value in values]
    return values


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _type(matrix: Matrix, i: int) -> ValueType:
    return ValueType(int(matrix.types[i]))


# ---- CSV -------------------------------------------------------------------------------------------------------------


def csv_pieces(matrix: Matrix) -> Iterator[bytes]:
    """Yield CSV (RFC 4180), a line per value; missing values have no line."""
    return _pieces(_csv_texts(matrix))


def _csv_texts(matrix: Matrix) -> Iterator[str]:
    yield CSV_HEAD
    times = [f"{end},{csv_time(end)}," for end in matrix.times]
    for i, (series, key) in enumerate(zip(matrix.series, matrix.keys, strict=True)):
        head = f"{csv_cell(series)},{csv_cell(key.name)},{_type(matrix, i).name},"
        values = _csv_values(matrix, i)
        yield "".join(
            [f"{head}{time}{value}\r\n" for time, value in zip(times, values, strict=True) if value is not None]
        )


def _csv_values(matrix: Matrix, i: int) -> list[str | None]:
    values = matrix.tolist(i)
    match _type(matrix, i):
        case ValueType.STRING:
            return [None if value is None else csv_cell(str(value)) for value in values]
        case ValueType.BOOLEAN:
            return [None if value is None else "true" if value else "false" for value in values]
        case ValueType.DOUBLE:
            return [None if value is None else _NOT_FINITE.get(repr(value), repr(value)) for value in values]
    return [None if value is None else str(value) for value in values]


def csv_time(ms: int) -> str:
    """Return a time in ISO 8601, UTC, with milliseconds."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return ""  # outside the years 1 to 9999; the column time_ms has the value


def csv_cell(text: str) -> str:
    """Return a cell that spreadsheets do not execute: a formula gets an apostrophe, a number does not."""
    if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    if any(char in text for char in '",\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


FORMATS: Mapping[str, OutputFormat] = {
    form.name: form
    for form in (
        OutputFormat("json", "application/json", json_pieces, "format=arrow is smaller"),
        OutputFormat(
            "csv",
            "text/csv; charset=utf-8",
            lambda matrix, _: csv_pieces(matrix),
            "format=json and format=arrow are smaller",
            {"content-disposition": 'attachment; filename="artimon.csv"'},
        ),
        OutputFormat(
            "arrow",
            "application/vnd.apache.arrow.stream",
            lambda matrix, _: arrow_pieces(matrix),
            "",
            {"content-disposition": 'attachment; filename="artimon.arrows"'},
        ),
    )
}
