"""Output of history samples on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
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


def write_batches(batches: Iterator[Any], arrow: Path) -> int:
    """Write tables of RESULT_SCHEMA as they come, as one Arrow stream, to a file ("-": standard output). Returns the
    number of rows. A failure after the first table leaves no file."""
    if str(arrow) == "-":
        return _write_stream(batches, sys.stdout.buffer)
    first = next(batches, None)  # an invalid query fails here and leaves an older file as it was
    try:
        with arrow.open("wb") as out:
            return _write_stream(chain([] if first is None else [first], batches), out)
    except BaseException:
        if arrow.is_file():
            arrow.unlink()
        raise


def _write_stream(batches: Iterable[Any], out: IO[bytes]) -> int:
    rows = 0
    with pa.ipc.new_stream(out, RESULT_SCHEMA) as stream:
        for batch in batches:
            stream.write_table(batch)
            rows += len(batch)
    return rows


def _write_text(answer: HistoryAnswer, out: TextIO) -> None:
    for one in answer.samples():
        value = "(ended)" if one.value is None else str(one.value).lower() if one.type == "boolean" else str(one.value)
        out.write(f"{format_time(one.time_ms)}  {printable(one.series)}  {printable(value)}\n")
