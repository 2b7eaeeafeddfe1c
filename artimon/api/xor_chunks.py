"""Chunks of samples in the XOR encoding of Prometheus.

https://github.com/prometheus/prometheus/blob/main/tsdb/docs/format/chunks.md defines the bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from artimon.compute.cells import Floats, Ints

CHUNK_SAMPLES = 120
_NO_WINDOW = (64, 0)


class XorChunk(NamedTuple):
    """Samples of one series; times in ms, both inclusive."""

    min_ms: int
    max_ms: int
    data: bytes


def encode_chunks(times_ms: Ints, values: Floats) -> Iterator[XorChunk]:
    """Encode the samples of one series, in the order of time."""
    times = times_ms.tolist()
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64).tolist()
    for at in range(0, len(times), CHUNK_SAMPLES):
        part = times[at : at + CHUNK_SAMPLES]
        yield XorChunk(part[0], part[-1], _encode(part, bits[at : at + CHUNK_SAMPLES]))


def _encode(times: Sequence[int], values: Sequence[int]) -> bytes:
    """Encode one chunk; `values` are the bits of the doubles."""
    head = len(times).to_bytes(2, "big") + varint(times[0] << 1 ^ times[0] >> 63) + values[0].to_bytes(8, "big")
    written, size, window, delta = 0, 0, _NO_WINDOW, 0
    for i in range(1, len(times)):
        before, delta = delta, times[i] - times[i - 1]
        if i == 1:
            head += varint(delta)  # whole bytes, before the first bit
        else:
            code, width = _time_code(delta - before)
            written, size = written << width | code, size + width
        code, width, window = _value_code(values[i] ^ values[i - 1], window)
        if i == 1:
            written, size = code, width
        else:
            written, size = written << width | code, size + width
    padding = -size % 8
    return head + (written << padding).to_bytes((size + padding) // 8, "big")


def _time_code(change: int) -> tuple[int, int]:
    """Return the bits for a change of the distance between samples, and their number."""
    if change == 0:
        return 0, 1
    for prefix, prefix_width, width in ((0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)):
        if -(1 << width - 1) + 1 <= change <= 1 << width - 1:
            return prefix << width | change & (1 << width) - 1, prefix_width + width
    return 0b1111 << 64 | change & (1 << 64) - 1, 68


def _value_code(change: int, window: tuple[int, int]) -> tuple[int, int, tuple[int, int]]:
    """Return the bits for the XOR of two values, their number, and the window (leading, trailing zeros) that the next
    value may use again."""
    if change == 0:
        return 0, 1, window
    leading = min(31, 64 - change.bit_length())
    trailing = (change & -change).bit_length() - 1
    if window != _NO_WINDOW and leading >= window[0] and trailing >= window[1]:
        width = 64 - window[0] - window[1]
        return 0b10 << width | change >> window[1], 2 + width, window
    width = 64 - leading - trailing
    code = ((0b11 << 5 | leading) << 6 | width & 63) << width | change >> trailing
    return code, 13 + width, (leading, trailing)


def varint(number: int) -> bytes:
    """Encode a number, at least 0, in groups of 7 bits."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
