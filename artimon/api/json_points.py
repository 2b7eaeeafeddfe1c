"""JSON of series of points at shared times, as the API of Prometheus writes them: [[seconds,"number"], ...]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np
import orjson

from artimon.compute.cells import Bools, Floats
from artimon.compute.kernels import kernels

BLOCK_CELLS = 65_536
"""Values that are formatted together: as many as fit a processor cache."""
_NAMED = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def number(value: float) -> str:
    """Format a value as Prometheus does."""
    text = repr(value)
    if text in _NAMED:
        return _NAMED[text]
    if "e" in text and 1e-6 <= abs(value) < 1e21:
        return str(np.format_float_positional(value, trim="-"))
    return text.removesuffix(".0")


def seconds(time_ms: int) -> str:
    """Format a time as a JSON number of seconds."""
    whole, rest = divmod(time_ms, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def point(time_ms: int, value: float) -> str:
    """Format one point."""
    return f'[{seconds(time_ms)},"{number(value)}"]'


def write_points(heads: Sequence[bytes], times_ms: Sequence[int], values: Floats, here: Bools, tail: bytes) -> bytes:
    """Return for each series its head, its points where `here`, and the tail. values, here: (series, times)."""
    if not len(heads) or not len(times_ms):
        return b"".join(head + tail for head in heads)
    times, numbers = [f'[{seconds(time_ms)},"'.encode() for time_ms in times_ms], _numbers(values, here)
    found = kernels()
    if found is not None:
        return found.json_points(heads, times, numbers, np.ascontiguousarray(here), tail)
    return b"".join(_rows(heads, times, numbers, here, tail))


def _numbers(values: Floats, here: Bools) -> bytes:
    """Return the values of all rows, with commas between them; whole numbers may end with ".0"."""
    cells = np.where(here, values, 0.0).ravel()
    found = orjson.dumps(cells, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
    if b"e" not in found and b"n" not in found:
        return found
    # an exponent, or null instead of NaN and the infinities
    texts = found.split(b",")
    for i in [i for i, text in enumerate(texts) if b"e" in text or b"n" in text]:
        texts[i] = number(float(cells[i])).encode()
    return b",".join(texts)


def _rows(heads: Sequence[bytes], times: Sequence[bytes], numbers: bytes, here: Bools, tail: bytes) -> Iterator[bytes]:
    """Yield the texts of the kernel `json_points` without a compiler."""
    texts = (numbers + b",").replace(b".0,", b",")[:-1].split(b",")
    whole = [b""] * (2 * len(times)) + [b'"]']  # the texts of a series with a value at each time
    whole[:-1:2] = [(b'"],' if place else b"") + time for place, time in enumerate(times)]
    full: list[bool] = np.all(here, axis=1).tolist()
    for i, head in enumerate(heads):
        row = texts[i * len(times) : (i + 1) * len(times)]
        if full[i]:
            whole[1::2] = row
            yield b"".join((head, *whole, tail))
        else:
            held = compress(zip(times, row, strict=True), here[i].tolist())
            yield head + b",".join([b'%b%b"]' % one for one in held]) + tail
