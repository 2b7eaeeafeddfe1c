"""Last bytes of a series of remote write 1.0: its only sample, decoded for many series at once. Pure numpy.

Senders write the labels of a series first and mostly one sample. So the bytes before it are a key of the labels."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from sources.state.start_times import Flags, Ints

Part = Callable[[bytes], bytes]
_SAMPLE, _VALUE, _TIME = 0x12, 0x09, 0x10
"""Tags: field 2 of a series, of bytes; field 1 of a sample, 64 bits; field 2 of a sample, a varint."""
_TIME_BYTES = 6
"""Bytes of a time in ms between 2004 and 2109; other times are parsed as any message."""
_WEIGHTS = 2.0 ** (7 * np.arange(_TIME_BYTES))
"""Of the bytes of a varint; sums are exact below 2**53."""
_MORE = np.array([0x80] * (_TIME_BYTES - 1) + [0], np.uint8)
"""Highest bits of the bytes of a time: all but the last one are followed by another one."""


class SampleTail:
    """Form of a sample with a value, or without one: senders leave out a value of 0.

    `before` and `own` divide the bytes of a series."""

    def __init__(self, has_value: bool) -> None:
        value: list[Any] = [("value_tag", "u1"), ("value", "<i8")] if has_value else []
        self._row = np.dtype([("tag", "u1"), ("length", "u1"), *value, ("time_tag", "u1"), ("time", "u1", _TIME_BYTES)])
        self._has_value, self.size = has_value, self._row.itemsize
        self.before: Part = itemgetter(slice(None, -self.size))
        self.own: Part = itemgetter(slice(-self.size, None))

    def decode(self, tails: bytes) -> tuple[Flags, Ints, Ints]:
        """Return for each tail of `size` bytes: True if it has this form, its time, and the bits of its value."""
        rows = np.frombuffer(tails, self._row)
        varint = rows["time"]
        good: Flags = (rows["tag"] == _SAMPLE) & (rows["length"] == self.size - 2) & (rows["time_tag"] == _TIME)
        good &= ((varint & 0x80) == _MORE).all(axis=1)
        time_ms: Ints = (varint & 0x7F).astype(np.float64) @ _WEIGHTS
        if not self._has_value:
            return good, time_ms.astype(np.int64), np.zeros(len(rows), np.int64)
        return good & (rows["value_tag"] == _VALUE), time_ms.astype(np.int64), rows["value"].astype(np.int64)


TAILS = (SampleTail(True), SampleTail(False))
