"""Lines of a series, a value and a time, split as columns: without an object for each line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
NEWLINE, BLANK, HASH = b"\n# "[0], b"\n# "[2], b"\n# "[1]


@dataclass(frozen=True, slots=True)
class LineColumns:
    """n lines of a block. `series`: distinct texts before the last two blanks, `code`: that of each line; `row`: number
    of each line in the block. `others`: numbers of the lines that are not of this form; `comments`: begin with #."""

    series: list[bytes]
    code: Ints
    value: Floats
    time: Floats
    row: Ints
    others: list[int]
    comments: list[int]


def split_columns(block: bytes) -> LineColumns:
    """Split the lines of a block."""
    data = np.frombuffer(block, np.uint8)
    ends = np.append(np.flatnonzero(data == NEWLINE), len(data))
    starts = np.append(0, ends[:-1] + 1)
    blanks = np.flatnonzero(data == BLANK)
    last = np.searchsorted(blanks, ends) - 1
    padded = np.append(blanks, [-1, -1])  # indices -1 and -2 are no blank of the line
    second, first = padded[np.maximum(last, -1)], padded[np.maximum(last - 1, -2)]
    is_comment = (ends > starts) & (data[np.minimum(starts, max(len(data) - 1, 0))] == HASH if len(data) else False)
    good = ~is_comment & (first > starts) & (second > first + 1) & (ends > second + 1)
    value, bad_value = _floats(_texts(data, first[good] + 1, second[good]))
    time, bad_time = _floats(_texts(data, second[good] + 1, ends[good]))
    row = np.flatnonzero(good)
    right = ~(bad_value | bad_time)
    coded = _texts(data, starts[good][right], first[good][right]).dictionary_encode()
    good[row[~right]] = False
    others = np.flatnonzero(~good & ~is_comment & (ends > starts))
    return LineColumns(
        coded.dictionary.to_pylist(),
        coded.indices.to_numpy().astype(np.int64),
        value[right],
        time[right],
        row[right],
        others.tolist(),
        np.flatnonzero(is_comment).tolist(),
    )


def _texts(data: npt.NDArray[np.uint8], start: Ints, end: Ints) -> Any:
    """Return data[start:end] for each pair, in order, as an Arrow array of binaries."""
    runs = np.zeros(2 * len(start) + 1, np.int64)
    runs[1::2] = end - start
    runs[0::2] = np.append(start, len(data)) - np.append(0, end)
    inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    offsets = np.append(0, np.cumsum(end - start)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data[inside]))]
    return pa.Array.from_buffers(pa.binary(), len(start), buffers)


def _floats(texts: Any) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return numbers, and the mask of the texts that are none, or that a slower parser must look at."""
    try:
        return texts.cast(pa.utf8()).cast(pa.float64()).to_numpy(), np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        found, bad = np.zeros(len(texts)), np.zeros(len(texts), np.bool_)
        for at, text in enumerate(texts.to_pylist()):
            try:
                found[at] = float(text if b"_" not in text else b"")
            except ValueError:
                bad[at] = True
        return found, bad
