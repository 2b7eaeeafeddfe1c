"""Sparklines of single series: characters for terminals, SVG for notebooks. Each series has its own scale.

Missing values are gaps. NaN and infinities do not affect the scale: characters mark them, the SVG leaves gaps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from query_dsl.results.matrix_values import MatrixValues
from query_dsl.results.result_cells import BOOLEAN, STRING, Floats, as_floats

BLOCKS, MARKS = "▁▂▃▄▅▆▇█", "×↑↓"
ASCII_BLOCKS, ASCII_MARKS = "_.-=+*#@", "x^v"
"""Characters from least to greatest; then for NaN, infinity, minus infinity. A missing value is a blank."""
SVG_WIDTH, SVG_HEIGHT = 120, 24
_MARGIN = 2.0

Point = tuple[float, float]


def numbers(matrix: MatrixValues, i: int) -> tuple[Floats, bool] | None:
    """Return (values, True if BOOLEAN) of series i; None for STRING. Missing values: see `Matrix.present`."""
    kind = int(matrix.types[i])
    if kind == STRING:
        return None
    values = as_floats(matrix.types[i : i + 1], np.ascontiguousarray(matrix.cells[i : i + 1]))[0]
    return np.asarray(values, np.float64), kind == BOOLEAN


def spark(matrix: MatrixValues, i: int, width: int, ascii_only: bool = False) -> str:
    """Draw series i in at most `width` characters, each the greatest value of its buckets. "" for STRING."""
    found = numbers(matrix, i)
    if found is None or width < 1:
        return ""
    values, is_boolean = found
    groups = _groups(len(values), width)
    shown = [_greatest(values[a:b], matrix.present[i, a:b]) for a, b in groups]
    low, high = (0.0, 1.0) if is_boolean else _scale([v for v in shown if v is not None])
    blocks, marks = (ASCII_BLOCKS, ASCII_MARKS) if ascii_only else (BLOCKS, MARKS)
    return "".join(_character(v, low, high, blocks, marks) for v in shown)


def _groups(n: int, width: int) -> list[tuple[int, int]]:
    """Return the bucket range (first, last + 1) of each character."""
    edges = [round(i * n / width) for i in range(width + 1)] if n > width else range(n + 1)
    return list(pairwise(edges))


def _greatest(values: Floats, present: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float | None:
    """Return the greatest present value; NaN if all are NaN; None if none is present."""
    there = values[present]
    if not len(there):
        return None
    proper = there[~np.isnan(there)]
    return float(proper.max()) if len(proper) else math.nan


def _scale(values: Sequence[float]) -> tuple[float, float]:
    finite = [v for v in values if math.isfinite(v)]
    return (min(finite), max(finite)) if finite else (0.0, 0.0)


def _share(value: float, low: float, high: float) -> float:
    """Return the position of a value between low and high, 0 to 1; 0.5 if both are equal."""
    if high == low:
        return 0.5
    half_low, half_high = low / 2, high / 2  # halves, because high - low could overflow
    return min(1.0, max(0.0, (value / 2 - half_low) / (half_high - half_low)))


def _character(value: float | None, low: float, high: float, blocks: str, marks: str) -> str:
    if value is None:
        return " "
    if not math.isfinite(value):
        return marks[0] if math.isnan(value) else marks[1] if value > 0 else marks[2]
    return blocks[min(len(blocks) - 1, int(_share(value, low, high) * len(blocks)))]


def spark_svg(matrix: MatrixValues, i: int, width: int = SVG_WIDTH, height: int = SVG_HEIGHT) -> str:
    """Draw series i as an inline SVG with a description for screen readers; "" for STRING."""
    found = numbers(matrix, i)
    if found is None:
        return ""
    values, is_boolean = found
    drawn = np.where(matrix.present[i] & np.isfinite(values), values, np.nan)
    finite = drawn[~np.isnan(drawn)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    told = f"{low:.6g} to {high:.6g}" if len(finite) else "no values"
    scale = (0.0, 1.0) if is_boolean else (low, high)
    body = "".join(_line(run) for run in _runs(drawn, scale, width, height))
    return (
        f'<svg role="img" aria-label="{told}" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' fill="none" stroke="currentColor" stroke-width="1.2"><title>{told}</title>{body}</svg>'
    )


def _runs(values: Floats, scale: tuple[float, float], width: int, height: int) -> list[list[Point]]:
    """Return the points of each run between gaps: per pixel its value, or least and greatest of several."""
    n = len(values)
    runs: list[list[Point]] = [[]]
    for place, (a, b) in enumerate(_groups(n, width)):
        x = _MARGIN + (width - 2 * _MARGIN) * (place + 0.5) / min(n, width)
        there = values[a:b][~np.isnan(values[a:b])]
        if not len(there):
            if runs[-1]:
                runs.append([])
            continue
        for value in (there.min(), there.max()) if len(there) > 1 else there:
            share = _share(float(value), *scale)
            runs[-1].append((x, height - _MARGIN - (height - 2 * _MARGIN) * share))
    return [run for run in runs if run]


def _line(run: list[Point]) -> str:
    if len(run) == 1:
        x, y = run[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.2" fill="currentColor" stroke="none"/>'
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in run)}"/>'
