"""Line charts of a matrix by matplotlib, which is imported only when a chart is drawn.

Names and labels are untrusted: they are drawn literally and never parsed as matplotlib's math text.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any

import numpy as np

from artimon.runtime.text import printable
from query_dsl.results.matrix_values import MatrixValues
from query_dsl.results.result_cells import BOOLEAN, STRING, Bools, Floats, as_floats
from query_dsl.tree.query_errors import QueryError

MAX_LINES = 200
MAX_WORDS = 30
MAX_TEXT = 80


class PlotError(QueryError):
    """A matrix that cannot be drawn; the message has the reason and a remedy."""


def plot_matrix(
    matrix: MatrixValues, ax: Any = None, *, title: str | None = None, legend: int = 12, **line: Any
) -> Any:
    """Draw at most MAX_LINES series on `ax` (None: a new figure) and return it; NA, NaN and infinities are gaps.

    BOOLEAN series are steps between false and true. STRING series use an axis of words if there are no other types,
    else they are omitted; the title reports omissions. The legend has at most `legend` series (0: no legend); `line` is
    passed to matplotlib's `Axes.plot`. Times are UTC. Raises PlotError."""
    axes = _new_axes() if ax is None else ax
    words = (matrix.types == STRING) if len(matrix) else np.zeros(0, np.bool_)
    only_words = bool(words.size and words.all())
    rows = [i for i in range(len(matrix)) if only_words or not words[i]]
    drawn = rows[:MAX_LINES]
    values = _words(matrix, axes) if only_words else _numbers(matrix)
    handles = _lines(matrix, axes, drawn, values, line)
    _time_axis(matrix, axes)
    remarks = [f"{len(drawn)} of {len(rows)} series shown"] if len(drawn) < len(rows) else []
    if len(rows) < len(matrix):
        remarks.append(f"{len(matrix) - len(rows)} STRING series left out")
    remarks += ["partial"] if matrix.partial else []
    remarks += ["no series"] if not len(matrix) else []
    _texts(matrix, axes, matrix.query if title is None else title, remarks)
    if drawn and legend > 0:
        _legend(matrix, axes, handles, drawn, legend)
    return axes


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as problem:
        raise PlotError(f"charts need matplotlib: install artimon[notebook] ({problem})") from problem
    return pyplot.subplots(figsize=(9, 4), layout="constrained")[1]


def _numbers(matrix: MatrixValues) -> Floats:
    """Return values (series, n), NaN where missing or not finite."""
    values = as_floats(matrix.types, matrix.cells)
    return np.where(matrix.present & np.isfinite(values), values, np.nan)


def _words(matrix: MatrixValues, axes: Any) -> Floats:
    """Label an axis with the distinct texts and return positions on it, (series, n)."""
    texts = [matrix.tolist(i) for i in range(len(matrix))]
    known = sorted({text for row in texts for text in row if isinstance(text, str)})
    if len(known) > MAX_WORDS:
        raise PlotError(f"{len(known)} different texts, at most {MAX_WORDS} can be drawn: use the table instead")
    axes.set_yticks(range(len(known)), [_short(word) for word in known], parse_math=False)
    place = {word: float(i) for i, word in enumerate(known)}
    return np.array([[place[text] if isinstance(text, str) else np.nan for text in row] for row in texts], np.float64)


def _lines(matrix: MatrixValues, axes: Any, rows: list[int], values: Floats, line: dict[str, Any]) -> list[Any]:
    times = matrix.grid.ends().astype("datetime64[ms]")
    steps = np.isin(matrix.types, (BOOLEAN, STRING))
    if rows and bool((matrix.types[rows] == BOOLEAN).all()):
        axes.set_yticks([0, 1], ["false", "true"])
    found = []
    for i in rows:
        alone = np.flatnonzero(_alone(~np.isnan(values[i]))).tolist()
        style = {"drawstyle": "steps-pre"} if steps[i] else {}
        found += axes.plot(times, values[i], **{"marker": "o", "markersize": 3, "markevery": alone, **style, **line})
    return found


def _alone(present: Bools) -> Bools:
    """Mark isolated values: no line connects them, so they need a marker."""
    before, after = np.roll(present, 1), np.roll(present, -1)
    before[:1] = after[-1:] = False
    return np.asarray(present & ~before & ~after)


def _time_axis(matrix: MatrixValues, axes: Any) -> None:
    from matplotlib import dates

    library: Any = dates  # its classes are untyped
    locator = library.AutoDateLocator(tz=UTC)
    axes.xaxis_date(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(library.ConciseDateFormatter(locator, tz=UTC))
    edges = np.array([matrix.grid.start_ms, matrix.grid.end_ms], np.int64).astype("datetime64[ms]")
    axes.set_xlim(edges[0], edges[1])


def _texts(matrix: MatrixValues, axes: Any, title: str, remarks: list[str]) -> None:
    names = set(matrix.names)
    lines = [_short(title, 2 * MAX_TEXT)] if title else []
    lines += [", ".join(remarks)] if remarks else []
    axes.set_title("\n".join(lines), loc="left", fontsize="medium", parse_math=False)
    axes.set_xlabel("time (UTC)")
    axes.set_ylabel(_short(next(iter(names))) if len(names) == 1 else "", parse_math=False)
    axes.grid(visible=True, alpha=0.3)


def _legend(matrix: MatrixValues, axes: Any, handles: list[Any], rows: list[int], limit: int) -> None:
    """Draw a legend of the first `limit` series and the number of the others."""
    from matplotlib.lines import Line2D

    named = [" " + _short(text) for text in _short_names(matrix, rows[:limit])]  # a legend omits names like "_x"
    shown = handles[: len(named)]
    if len(rows) > limit:
        shown, named = [*shown, Line2D([], [], linestyle="none")], [*named, f" … and {len(rows) - limit} more"]
    made = axes.legend(shown, named, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, fontsize="small")
    for text in made.get_texts():
        text.set_parse_math(False)


def _short_names(matrix: MatrixValues, rows: list[int]) -> list[str]:
    """Name each series by the labels that are not equal in all series; by its full text if there are none."""
    labels = matrix.labels
    same = set.intersection(*(set(one.items()) for one in labels))
    one_name = len(set(matrix.names)) == 1
    found = []
    for i in rows:
        own = ", ".join(f'{name}="{value}"' for name, value in labels[i].items() if (name, value) not in same)
        text = own if one_name else f"{matrix.names[i]} {own}".strip()
        found.append(text or matrix.series[i])
    return found


def _short(text: str, limit: int = MAX_TEXT) -> str:
    shown = printable(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
