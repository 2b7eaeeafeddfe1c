"""Tables of a matrix as plain text, or as HTML for notebooks, with a small chart per series."""

from __future__ import annotations

import html
import math
import textwrap
import unicodedata

from artimon.runtime.text import printable
from query_dsl.results.matrix_values import MatrixValues
from query_dsl.results.query_result import QueryResult, Scalar
from query_dsl.results.sparklines import spark, spark_svg
from query_dsl.tree.calendar_units import shortest_ms, step_text
from query_dsl.tree.selector import series_text
from query_dsl.tree.times import format_time

MAX_SERIES = 40
MAX_COLUMNS = 6
MAX_TEXT = 24
MAX_SPARK = 30
LEAST_NAME, LEAST_SPARK = 12, 8
GAP = 2


def render_table(
    matrix: MatrixValues,
    max_series: int = MAX_SERIES,
    max_columns: int = MAX_COLUMNS,
    *,
    sparks: bool = False,
    ascii_only: bool = False,
    width: int | None = None,
) -> str:
    """Render the title, one line per series with its newest values (times in UTC), omissions, and the notes.

    `sparks`: a chart of characters per series; `ascii_only`: for ASCII terminals, labels with escapes. `width` limits
    the length of lines: older columns are dropped first, then charts are shortened, then names; notes are wrapped."""
    first, remarks = max(0, matrix.grid.n - max_columns), remarks_of(matrix, max_series)
    rows = _rows(matrix, max_series, first)
    if ascii_only:
        rows = [[_ascii(cell) for cell in row] for row in rows]
    chart = 0
    if len(rows) > 1:
        chart = min(MAX_SPARK, matrix.grid.n) if sparks and matrix.grid.n > 1 else 0
        if width is not None:
            chart, kept = _fit_width(rows, chart, width)
            rows = [[_shortened(row[0], kept[0], ascii_only), *row[-kept[1] :]] for row in rows]
            first = matrix.grid.n - kept[1]
        if chart:
            rows[0].insert(1, "")
            for i, row in enumerate(rows[1:]):
                row.insert(1, spark(matrix, i, chart, ascii_only).ljust(chart))
    table = _aligned(rows) if len(rows) > 1 else []
    said = [_ascii(line) if ascii_only else line for line in (_title(matrix, first), *remarks)]
    if width is not None:
        table = [_shortened(line, width, ascii_only) for line in table]
        folded = [textwrap.wrap(line, max(width, LEAST_NAME), subsequent_indent="  ") for line in said]
        return "\n".join([*folded[0], *table, *(line for lines in folded[1:] for line in lines)])
    return "\n".join([said[0], *table, *said[1:]])


def _fit_width(rows: list[list[str]], chart: int, width: int) -> tuple[int, tuple[int, int]]:
    """Return (characters of charts, (characters of names, columns of values)) that fit into the width."""
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    name, values = widths[0], widths[1:]
    columns = len(values)

    def free(columns: int, chart: int) -> int:
        return width - sum(each + GAP for each in values[len(values) - columns :]) - (chart + GAP if chart else 0)

    least = min(LEAST_SPARK, chart)
    while columns > 1 and free(columns, chart) < name:
        columns -= 1
    while chart > least and free(columns, chart) < name:
        chart -= 1
    if chart and free(columns, chart) < min(name, LEAST_NAME):
        chart = 0
    return chart, (max(1, min(name, free(columns, chart))), columns)


def render_html(matrix: MatrixValues, max_series: int = MAX_SERIES, max_columns: int = MAX_COLUMNS) -> str:
    """Render an HTML table, every text escaped, charts as SVG. It has no scripts and no page-wide styles."""
    first, remarks = max(0, matrix.grid.n - max_columns), remarks_of(matrix, max_series)
    rows = _rows(matrix, max_series, first)
    charts = matrix.grid.n > 1
    lines = [f"<p>{html.escape(_title(matrix, first))}</p>"]
    if len(rows) > 1:
        head, *body = rows
        extra = _html("chart", "th", "col") if charts else ""
        cells = [_html(cell, "th", "col") for cell in head]
        lines.append(f"<table><thead><tr>{cells[0]}{extra}{''.join(cells[1:])}</tr></thead><tbody>")
        for i, (name, *values) in enumerate(body):
            chart = f"<td>{spark_svg(matrix, i)}</td>" if charts else ""
            line = "".join(_html(cell, "td") for cell in values)
            lines.append(f"<tr>{_html(name, 'th', 'row')}{chart}{line}</tr>")
        lines.append("</tbody></table>")
    lines += [f"<p>{html.escape(remark)}</p>" for remark in remarks]
    return "<div>" + "\n".join(lines) + "</div>"


def _html(text: str, tag: str, scope: str = "") -> str:
    side = "left" if scope == "row" else "right"
    about = f' scope="{scope}"' if scope else ""
    return f'<{tag}{about} style="text-align: {side}">{html.escape(text)}</{tag}>'


def _rows(matrix: MatrixValues, max_series: int, first: int) -> list[list[str]]:
    """Return the header and one row per series, as texts."""
    step_ms = shortest_ms(matrix.grid)
    head = ["series", *(_clock(t, step_ms) for t in matrix.times[first:])]
    names = [printable(series_text(key.name, dict(key.labels))) for key in matrix.keys[:max_series]]
    return [head, *([name, *map(cell_text, matrix.tolist(i)[first:])] for i, name in enumerate(names))]


def remarks_of(answer: QueryResult, max_series: int) -> list[str]:
    """Return the lines below a table: the number of omitted series, and the notes."""
    more = [f"... and {len(answer) - max_series} more series"] if len(answer) > max_series else []
    certificate = printable(str(getattr(answer, "certificate", None) or ""))
    return [*more, *([certificate] if certificate else []), *(f"note: {printable(note)}" for note in answer.notes)]


def _title(matrix: MatrixValues, first: int) -> str:
    grid = matrix.grid
    shown = f", last {grid.n - first} shown" if first else ""
    flags = "" if matrix.complete else ", incomplete"
    flags += ", partial" if matrix.partial else ""
    return (
        f"{len(matrix)} series x {grid.n} buckets of {step_text(grid)} "
        f"({format_time(grid.start_ms)} .. {format_time(grid.end_ms)}]{shown}{flags}"
    )


def _clock(ms: int, step_ms: int) -> str:
    text = format_time(ms)
    day, _, clock = text.partition("T")
    return f"{day[5:]} {clock[:5]}" if step_ms >= 3_600_000 else clock.rstrip("Z") or text


def cell_text(value: Scalar) -> str:
    """Format one value of a table; None is NA, texts are quoted and truncated."""
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


def _ascii(text: str) -> str:
    return text if text.isascii() else text.replace("…", "...").encode("ascii", "backslashreplace").decode()


def _width(text: str) -> int:
    """Return the width of a text in terminal cells: East Asian wide characters 2, combining marks 0."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _shortened(text: str, width: int, ascii_only: bool = False) -> str:
    """Truncate a text to `width` cells, with an ellipsis if it was longer."""
    if _width(text) <= width:
        return text
    mark = "..." if ascii_only else "…"
    mark = mark[: max(0, width)]
    while text and _width(text) + len(mark) > width:
        text = text[: min(len(text) - 1, width)]
    return text + mark


def _padded(text: str, width: int, left: bool) -> str:
    fill = " " * (width - _width(text))
    return text + fill if left else fill + text


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    gap = " " * GAP
    return [
        gap.join(_padded(cell, width, left=i == 0) for i, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
