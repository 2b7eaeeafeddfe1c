"""Output of history samples on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, TextIO

import pyarrow as pa

from artimon.runtime.text import printable
from query_dsl.stores.history.result import RESULT_SCHEMA, HistoryAnswer
from query_dsl.tree.times import format_time


def show_history(answer: HistoryAnswer, form: str, arrow: Path | None) -> None:
    """Print samples as `form` (json, csv or text) on standard output, or write Arrow to a file, "-" for standard
    output; the notes go to standard error."""
    if arrow is not None and str(arrow) == "-":
        answer.write_arrow(sys.stdout.buffer)
    elif arrow is not None:
        with arrow.open("wb") as out:
            answer.write_arrow(out)
    elif form == "json":
        answer.write_json(sys.stdout)
    elif form == "csv":
        answer.write_csv(sys.stdout)
    else:
        _write_text(answer, sys.stdout)
    for note in (f"{len(answer):,} samples of {len(answer.series):,} series", *answer.notes):
        print(f"artimon: {note}", file=sys.stderr)


Writer = Callable[[Iterable[Any], IO[bytes]], int]
"""Writes tables and returns the number of samples."""


def write_batches(batches: Iterator[Any], target: Path, write: Writer) -> int:
    """Write tables as they come to a file ("-": standard output). Returns the number of samples. The file appears once
    it is complete; a failure leaves an older one as it was."""
    if str(target) == "-":
        return write(batches, sys.stdout.buffer)
    first = next(batches, None)  # an invalid query fails here, before there is any file
    if not target.is_file() and target.exists():  # a device or a pipe
        with target.open("wb") as out:
            return write(chain([] if first is None else [first], batches), out)
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as out:
            rows = write(chain([] if first is None else [first], batches), out)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return rows


def write_arrow(batches: Iterable[Any], out: IO[bytes], schema: Any = RESULT_SCHEMA) -> int:
    """Write an Arrow IPC stream."""
    rows = 0
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_table(batch)
            rows += len(batch)
    return rows


def show_series(described: Any, as_json: bool) -> None:
    """Print the series that History.described returns: first and last announcement, text, source, type, kind, unit."""
    columns = {name: described.column(name).to_pylist() for name in ("text", "source_name", "type", "kind", "unit")}
    times = {
        name: (described.column(name).cast(pa.int64()).to_numpy() // 1000).tolist()
        for name in ("first_seen", "last_seen")
    }
    keys = ("series", "source", "type", "kind", "unit", *times)
    for row in zip(*columns.values(), *times.values(), strict=True):
        one = dict(zip(keys, row, strict=True))
        if as_json:
            print(json.dumps(one, ensure_ascii=False))
        else:
            first, last = (format_time(one[name]) for name in times)
            print(f"{first}  {last}  {printable(one['series'])}  {printable(one['source'])}")
    print(f"artimon: {len(described):,} series", file=sys.stderr)


def _write_text(answer: HistoryAnswer, out: TextIO) -> None:
    for one in answer.samples():
        value = "(ended)" if one.value is None else str(one.value).lower() if one.type == "boolean" else str(one.value)
        out.write(f"{format_time(one.time_ms)}  {printable(one.series)}  {printable(value)}\n")
