"""A matrix as a table of plain text, or of HTML for notebooks."""

from __future__ import annotations

import html
import math

from query_dsl.matrix import Matrix, Scalar
from query_dsl.timing import format_duration, format_time

MAX_SERIES = 40
MAX_COLUMNS = 6
MAX_TEXT = 24


def render_table(matrix: Matrix, max_series: int = MAX_SERIES, max_columns: int = MAX_COLUMNS) -> str:
    """Title, a line a series with its newest values (times in UTC), what was left out, and the notes."""
    title, rows, remarks = _pieces(matrix, max_series, max_columns)
    return "\n".join([title, *(_aligned(rows) if len(rows) > 1 else []), *remarks])


def render_html(matrix: Matrix, max_series: int = MAX_SERIES, max_columns: int = MAX_COLUMNS) -> str:
    """The same as a table of HTML, every text escaped."""
    title, rows, remarks = _pieces(matrix, max_series, max_columns)
    lines = [f"<p>{html.escape(title)}</p>"]
    if len(rows) > 1:
        head, *body = rows
        lines.append(f"<table><thead><tr>{''.join(_html(cell, 'th', 'col') for cell in head)}</tr></thead><tbody>")
        for name, *cells in body:
            lines.append(f"<tr>{_html(name, 'th', 'row')}{''.join(_html(cell, 'td') for cell in cells)}</tr>")
        lines.append("</tbody></table>")
    lines += [f"<p>{html.escape(remark)}</p>" for remark in remarks]
    return "<div>" + "\n".join(lines) + "</div>"


def _html(text: str, tag: str, scope: str = "") -> str:
    side = "left" if scope == "row" else "right"
    about = f' scope="{scope}"' if scope else ""
    return f'<{tag}{about} style="text-align: {side}">{html.escape(text)}</{tag}>'


def _pieces(matrix: Matrix, max_series: int, max_columns: int) -> tuple[str, list[list[str]], list[str]]:
    """Title, head and rows as cells, remarks."""
    first = max(0, matrix.grid.n - max_columns)
    head = ["series", *(_clock(t, matrix.grid.step_ms) for t in matrix.times[first:])]
    rows = [
        [printable(name), *(_cell(v) for v in matrix.tolist(i)[first:])]
        for i, name in enumerate(matrix.series[:max_series])
    ]
    more = [f"... and {len(matrix) - max_series} more series"] if len(matrix) > max_series else []
    return _title(matrix, first), [head, *rows], [*more, *(f"note: {printable(note)}" for note in matrix.notes)]


def _title(matrix: Matrix, first: int) -> str:
    grid = matrix.grid
    shown = f", last {grid.n - first} shown" if first else ""
    flags = "" if matrix.complete else ", incomplete"
    flags += ", partial" if matrix.partial else ""
    return (
        f"{len(matrix)} series x {grid.n} buckets of {format_duration(grid.step_ms)} "
        f"({format_time(grid.start_ms)} .. {format_time(grid.end_ms)}]{shown}{flags}"
    )


def _clock(ms: int, step_ms: int) -> str:
    text = format_time(ms)
    day, _, clock = text.partition("T")
    return f"{day[5:]} {clock[:5]}" if step_ms >= 3_600_000 else clock.rstrip("Z") or text


def _cell(value: Scalar) -> str:
    if value is None:
        return "NA"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.6g}"
    if isinstance(value, int):
        return str(value)
    text = printable(value)
    return f'"{text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"}"'


def printable(text: str) -> str:
    """Labels come from anywhere: what could move a terminal's cursor is shown as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
