"""Small chart of a value over time as a PNG picture: a line, and the threshold as a dashed line."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from alerts.state.notification import Notification

WIDTH, HEIGHT, MARGIN = 480, 120, 6
"""Size and margin in pixels."""
MAX_MISSING = 3
"""Distance of two values in places, up to which they are joined."""
MAX_BYTES = 20_000
"""Limit of a picture; a chart of this size takes about 2,000 bytes."""
_WHITE, _GREY, _BLUE, _RED = range(4)
_PALETTE = bytes((255, 255, 255, 221, 221, 221, 26, 95, 180, 179, 38, 30))
_DASH = 6
Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Chart:
    """Picture, and a text about it for readers without pictures."""

    png: bytes
    text: str


ChartSource = Callable[[Notification], Chart | None]
"""Returns the chart of an alert within a limited time; None without one."""


def draw(times: Floats, values: Floats, threshold: float | None = None) -> bytes:
    """Return the picture of values at ascending times, both (n,); NaN: no value. The line has a gap where three values
    or more are missing."""
    pixels = np.full((HEIGHT, WIDTH), _WHITE, np.uint8)
    pixels[(MARGIN, HEIGHT - MARGIN - 1), :] = _GREY
    places = np.flatnonzero(np.isfinite(values))
    times, values = times[places], values[places]
    if len(values):
        marks = values if threshold is None else np.append(values, threshold)
        low, high = float(marks.min()), float(marks.max())
        if threshold is not None:
            pixels[_rows(np.array([threshold]), low, high)[0], np.arange(WIDTH) // _DASH % 2 == 0] = _RED
        _draw_line(pixels, _columns(times), _rows(values, low, high), np.diff(places) > MAX_MISSING)
    return _encode(pixels)


def _rows(values: Floats, low: float, high: float) -> npt.NDArray[np.intp]:
    """Return the rows of values; one value alone is in the middle."""
    share = np.full(len(values), 0.5) if high <= low else (values / 2 - low / 2) / (high / 2 - low / 2)
    return np.asarray(HEIGHT - 1 - MARGIN - np.rint(share * (HEIGHT - 1 - 2 * MARGIN)), np.intp)


def _columns(times: Floats) -> npt.NDArray[np.intp]:
    span = max(1.0, float(times[-1] - times[0]))
    return np.asarray(MARGIN + np.rint((times - times[0]) / span * (WIDTH - 1 - 2 * MARGIN)), np.intp)


def _draw_line(
    pixels: Pixels, columns: npt.NDArray[np.intp], rows: npt.NDArray[np.intp], gaps: npt.NDArray[np.bool_]
) -> None:
    for at, (column, row) in enumerate(zip(columns.tolist(), rows.tolist(), strict=True)):
        pixels[row - 1 : row + 2, column - 1 : column + 2] = _BLUE
        if at == 0 or gaps[at - 1]:
            continue
        before, there = int(columns[at - 1]), int(rows[at - 1])
        count = max(abs(column - before), abs(row - there)) + 1
        x, y = np.linspace(before, column, count).round(), np.linspace(there, row, count).round()
        pixels[y.astype(np.intp), x.astype(np.intp)] = _BLUE


def _encode(pixels: Pixels) -> bytes:
    """Return a PNG with a palette; https://www.w3.org/TR/png/ defines it."""
    lines = np.concatenate((np.zeros((len(pixels), 1), np.uint8), pixels), axis=1)  # filter 0 for each line
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", _PALETTE), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
