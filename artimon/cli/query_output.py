"""`artimon query`: one answer, or repeated answers, as a table, JSON or CSV."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal, TextIO

from artimon.api.formats import csv_pieces
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import SelectError
from artimon.runtime.text import printable
from artimon.session import Session
from query_dsl import Matrix, QueryError, parse, render_table
from query_dsl.promql import parse as parse_promql
from query_dsl.results.live_display import Painter, repeat_query
from query_dsl.tree.times import format_time

INTERRUPTED = 130
Form = Literal["text", "json", "csv"]


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Query and output options. `every_s`: interval of repeated queries in seconds; None: query once."""

    text: str
    format: Form = "text"
    at: str | None = None
    engine: str = "auto"
    ascii_only: bool = False
    series: int = 40
    explain: bool = False
    lint: bool = False
    every_s: float | None = None
    partial_windows: bool = False
    promql: bool = False
    start: str | None = None
    step: str = "1m"
    exact_increase: bool | None = None


def run_query(session: Session, asking: QueryOptions, out: TextIO | None = None, terminal: bool | None = None) -> int:
    """Run the query and print the answer; returns 0 for an answer, 1 for an error or a finding, 130 if interrupted.

    With `every_s` Ctrl-C is the normal end (0). An error of the first query ends the command; later ones are shown, and
    the query is repeated."""
    out = out or sys.stdout
    try:
        if asking.lint:
            return _print_findings(out, session, asking)
        if asking.every_s is None:
            _write(out, _answer(session, asking, Painter(out, terminal)))
        else:
            _watch_query(session, asking, Painter(out, terminal))
    except (QueryError, SelectError) as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if asking.every_s is None:
            print("artimon: interrupted; nothing is printed", file=sys.stderr)
            return INTERRUPTED
        if terminal if terminal is not None else out.isatty():
            print(file=out)
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _print_findings(out: TextIO, session: Session, asking: QueryOptions) -> int:
    """Print the findings about the query with their places; returns 1 if there is one."""
    found = session.lint(asking.text, promql=asking.promql)
    if asking.format == "json":
        lines = [json.dumps([one.to_dict() for one in found], ensure_ascii=False, indent=1)]
    else:
        lines = [printable(line) for one in found for line in one.shown(asking.text).split("\n")]
    out.write("".join(f"{line}\n" for line in lines))
    return 1 if found else 0


def _watch_query(session: Session, asking: QueryOptions, painter: Painter) -> None:
    """Repeat the query and show each answer."""
    (parse_promql if asking.promql else parse)(asking.text)  # a syntax error ends the command before the first query
    begun = False

    def ask() -> None:
        nonlocal begun
        try:
            text = "".join(_answer(session, asking, painter)).rstrip("\n")
        except (QueryError, SelectError) as problem:
            if not begun:
                raise
            text = f"artimon: {problem}"
        begun = True
        head = [] if asking.format != "text" else [f"{format_time(SYSTEM_CLOCK.now_ms())}  {asking.text}"]
        painter.paint("\n".join([*head, text]))

    repeat_query(ask, asking.every_s or 0.0)


def _answer(session: Session, asking: QueryOptions, painter: Painter) -> Iterator[str]:
    """Run the query, then yield the output in pieces."""
    options: dict[str, Any] = {} if asking.engine == "auto" else {"engine": asking.engine}
    if asking.partial_windows:
        options["partial_windows"] = True
    if asking.promql:
        asked: dict[str, Any] = {"start": asking.start, "step": asking.step, "exact_increase": asking.exact_increase}
        found: Matrix = session.promql(asking.text, asking.at, **asked, **options)
        yield from _shown(_uncertified(found, asking), asking, painter)
        return
    if asking.explain:
        plan = session.explain(asking.text, at=asking.at, **options)
        lines = [plan.to_json()] if asking.format == "json" else [printable(line) for line in str(plan).split("\n")]
        yield "\n".join([*lines, ""])
        return
    yield from _shown(_uncertified(session.query(asking.text, at=asking.at, **options), asking), asking, painter)


def _uncertified(answer: Matrix, asking: QueryOptions) -> Matrix:
    """Return a repeated answer without the line about completeness, which would ask the store once more each time."""
    return answer if asking.every_s is None or not isinstance(answer, Matrix) else answer.like(certificate=None)


def _shown(answer: Matrix, asking: QueryOptions, painter: Painter) -> Iterator[str]:
    if asking.format == "csv":
        _print_notes(answer)
    if asking.format == "json":
        yield answer.to_json() + "\n"
    elif not isinstance(answer, Matrix):
        yield from _samples_csv(answer) if asking.format == "csv" else (f"{answer!r}\n",)
    elif asking.format == "csv":
        yield from (piece.decode() for piece in csv_pieces(answer))
    else:
        yield _table(answer, asking, painter) + "\n"


def _print_notes(answer: Any) -> None:
    """Print flags and notes, which CSV cannot hold, on standard error."""
    flags = ("incomplete",) * (not answer.complete) + ("partial",) * answer.partial
    for note in (*flags, *answer.notes):
        print(f"artimon: {printable(note)}", file=sys.stderr)


def _table(matrix: Matrix, asking: QueryOptions, painter: Painter) -> str:
    size = painter.size()
    series = asking.series
    if size is not None and asking.every_s is not None:  # leave room for title, head, query and notes
        series = max(1, min(series, size[1] - 4 - len(matrix.notes)))
    width = size[0] if size is not None else None
    return render_table(matrix, series, sparks=True, ascii_only=asking.ascii_only, width=width)


def _samples_csv(answer: Any) -> Iterator[str]:
    """Yield raw samples as CSV with the columns of a matrix."""
    from artimon.api.formats import CSV_HEAD, csv_cell, csv_time
    from artimon.model.values import ValueType

    yield CSV_HEAD
    for i, (series, key) in enumerate(zip(answer.series, answer.keys, strict=True)):
        head = f"{csv_cell(series)},{csv_cell(key.name)},{ValueType(int(answer.types[i])).name}"
        for time, value in answer.tolist(i):
            shown = str(value).lower() if isinstance(value, bool) else csv_cell(_number(value))
            yield f"{head},{time},{csv_time(time)},{shown}\r\n"


def _number(value: Any) -> str:
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), str(value))


def _write(out: IO[str], pieces: Iterator[str]) -> None:
    for piece in pieces:
        out.write(piece)
    out.flush()


def supports_unicode(out: TextIO) -> bool:
    """True if the encoding of `out` has block characters and non-ASCII letters."""
    try:
        "▁…".encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
