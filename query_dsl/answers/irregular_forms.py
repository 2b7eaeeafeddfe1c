"""Raw samples as an Arrow table, a frame of pandas, and tables of plain text and HTML."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from query_dsl.answers.irregular import Irregular
from query_dsl.answers.keyed import Scalar
from query_dsl.answers.render import printable
from query_dsl.running.cells import BOOLEAN, DOUBLE, INTEGER, STRING
from query_dsl.tree.timing import format_time

if TYPE_CHECKING:
    import pandas as pd

MAX_SERIES = 40
SHOWN = 3
"""Newest samples that a table shows of each series."""
MAX_TEXT = 24
_NAMES = {INTEGER: "integer", DOUBLE: "double", BOOLEAN: "boolean", STRING: "string"}


def arrow_table(answer: Irregular) -> Any:
    """Columns series (dictionary), time (ms, UTC), integer, double, boolean, string."""
    import pyarrow as pa

    owner = answer.owner
    series = pa.DictionaryArray.from_arrays(pa.array(owner, pa.int32()), pa.array(answer.series, pa.utf8()))
    columns: dict[str, Any] = {"series": series, "time": pa.array(answer.times, pa.timestamp("ms", tz="UTC"))}
    for kind, name in _NAMES.items():
        columns[name] = _typed(answer, kind, np.asarray(answer.types[owner] != kind))
    return pa.table(columns)


def _typed(answer: Irregular, kind: int, missing: Any) -> Any:
    import pyarrow as pa

    cells = np.ascontiguousarray(answer.cells)
    if kind == INTEGER:
        return pa.array(cells, pa.int64(), mask=missing)
    if kind == DOUBLE:
        return pa.array(cells.view(np.float64), pa.float64(), mask=missing)
    if kind == BOOLEAN:
        return pa.array(cells == 1, pa.bool_(), mask=missing)
    coded = np.where(missing, 0, cells).astype(np.int32)
    texts = pa.array([*answer.strings, *([] if answer.strings else [""])], pa.utf8())
    return texts.take(pa.array(coded, pa.int32(), mask=missing))


def pandas_frame(answer: Irregular) -> pd.DataFrame:
    """The Arrow table in nullable columns."""
    import pandas as pd
    import pyarrow as pa

    kinds = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.float64(): pd.Float64Dtype()}
    kinds[pa.utf8()] = pd.StringDtype()
    frame: pd.DataFrame = arrow_table(answer).to_pandas(types_mapper=kinds.get)
    return frame


def text_table(answer: Irregular) -> str:
    """Title, a line a series with its newest samples (times in UTC), and the notes."""
    title, rows, remarks = _pieces(answer)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([title, *(lines if len(rows) > 1 else []), *remarks])


def html_table(answer: Irregular) -> str:
    """The same as a table of HTML, every text escaped."""
    title, rows, remarks = _pieces(answer)
    lines = [f"<p>{html.escape(title)}</p>"]
    if len(rows) > 1:
        head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in rows[0])
        lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>")
        for name, *cells in rows[1:]:
            shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            lines.append(f'<tr><th scope="row" style="text-align: left">{html.escape(name)}</th>{shown}</tr>')
        lines.append("</tbody></table>")
    return "<div>" + "\n".join([*lines, *(f"<p>{html.escape(remark)}</p>" for remark in remarks)]) + "</div>"


def _pieces(answer: Irregular) -> tuple[str, list[list[str]], list[str]]:
    flags = ("" if answer.complete else ", incomplete") + (", partial" if answer.partial else "")
    title = f"{len(answer)} series, {answer.samples} samples{flags}"
    rows = [["series", "samples", "newest", *[""] * (SHOWN - 1)]]
    for i, name in enumerate(answer.series[:MAX_SERIES]):
        newest = _newest(answer, i)
        rows.append([printable(name), str(int(answer.counts[i])), *newest, *[""] * (SHOWN - len(newest))])
    more = [f"... and {len(answer) - MAX_SERIES} more series"] if len(answer) > MAX_SERIES else []
    return title, rows, [*more, *(f"note: {printable(note)}" for note in answer.notes)]


def _newest(answer: Irregular, i: int) -> list[str]:
    """Of one series, without a Python object for each of its samples."""
    end = int(answer.starts[i + 1])
    begin = max(int(answer.starts[i]), end - SHOWN)
    few = answer.like(
        keys=answer.keys[i : i + 1],
        types=answer.types[i : i + 1],
        kinds=answer.kinds[i : i + 1],
        ended_ms=answer.ended_ms[i : i + 1],
        starts=np.array([begin, end], np.int64),
    )
    return [f"{format_time(time)} {_cell(value)}" for time, value in few.tolist(0)]


def _cell(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.6g}"
    if isinstance(value, str):
        text = printable(value)
        return f'"{text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"}"'
    return str(value)
