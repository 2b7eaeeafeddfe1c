"""Series of remote write that a sender sent before, by their bytes: known_series.c, built by the C compiler of the
machine.

`series_kernels()` is None without a compiler or a library that was built before; then a dictionary has the keys."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from artimon.runtime.compiled_library import ADDRESS, INT, NOT_AVAILABLE, address, build_library, folder_of, typed
from sources.receive.key_table import UNKNOWN, KeyTable, TableKernels
from sources.state.start_times import Flags, Ints

SOURCE = Path(__file__).with_suffix(".c")


class Spans(NamedTuple):
    """Tag, first byte and length of each field of a body."""

    tag: Ints
    start: Ints
    length: Ints

    def of_tag(self, tag: int) -> Spans:
        """Return the fields with a tag."""
        return Spans(*(np.ascontiguousarray(one[self.tag == tag]) for one in self))


class FoundSeries(NamedTuple):
    """Column, time, start (0: unknown) and bits of the value of the only sample of each series. Column UNKNOWN: its
    bytes are no key, or it has no such sample; then the others are arbitrary."""

    column: Ints
    time_ms: Ints
    birth_ms: Ints
    cell: Ints

    def pick(self, at: Ints) -> FoundSeries:
        """Return the series at these distinct places, in ascending order."""
        return self if len(at) == len(self.column) else FoundSeries(*(one[at] for one in self))


class _Samples(ctypes.Structure):
    """`spans` and `found` are the arrays whose addresses the fields are."""

    _fields_ = (("n", INT), *((name, ADDRESS) for name in ("start", "length", *FoundSeries._fields)))

    def __init__(self, spans: Spans) -> None:
        self.spans, self.found = spans, FoundSeries(*np.empty((4, len(spans.tag)), np.int64))
        super().__init__(len(spans.tag), *map(address, (spans.start, spans.length, *self.found)))


class SeriesKernels(TableKernels):
    """Functions of the library."""

    def __init__(self) -> None:
        super().__init__(SOURCE)
        found = self.library
        self.divide = typed(found.divide, INT, INT, ADDRESS, INT, ADDRESS, ADDRESS, ADDRESS)
        self.read_known = typed(found.read_known, None, ADDRESS, ADDRESS, ADDRESS)
        whole = ctypes.c_int32
        self.number_texts = typed(found.number_texts, whole, ADDRESS, ADDRESS, ADDRESS, whole)
        self.read_symbolic = typed(found.read_symbolic, whole, ADDRESS, ADDRESS, ADDRESS, ADDRESS, whole)


@cache
def series_kernels() -> SeriesKernels | None:
    """Return the functions, built if necessary; None if they are not available."""
    try:
        return SeriesKernels()
    except NOT_AVAILABLE:
        return None


def divide(kernels: SeriesKernels, body: bytes, most: int) -> Spans | None:
    """Return the fields of a body; None if it has numbers among them or more than `most`, or is damaged."""
    spans = Spans(*np.empty((3, min(most, len(body) // 2)), np.int64))
    count = kernels.divide(len(body), body, len(spans.tag), *map(address, spans))
    return None if count < 0 else Spans(*(one[:count] for one in spans))


class KnownSeries(KeyTable):
    """Series of version 1.0 by the bytes before their only sample."""

    def __init__(self, kernels: SeriesKernels) -> None:
        super().__init__(kernels)
        self.kernels = kernels

    def read(self, body: bytes, spans: Spans) -> FoundSeries:
        """Look up the series of a body; none has a start."""
        samples = _Samples(spans)
        self.kernels.read_known(self.reference, body, ctypes.byref(samples))
        return samples.found


class KnownSymbols:
    """Series of version 2.0 by the numbers of their symbols, which a table has for all bodies. One thread at a time."""

    def __init__(self, kernels: SeriesKernels) -> None:
        self.kernels = kernels
        self.tables = self._texts, self._series = KeyTable(kernels), KeyTable(kernels)

    def read(self, body: bytes, symbols: Spans, series: Spans) -> tuple[Flags, FoundSeries]:
        """Look up symbols and series of a body. Return the mask of known symbols, and the series."""
        texts, samples = _Samples(symbols), _Samples(series)
        self._number(body, texts, adds=False)
        self._read(body, texts, samples, adds=False)
        return texts.found.column != UNKNOWN, samples.found

    def remember(self, body: bytes, symbols: Spans, series: Spans, column: Ints) -> None:
        """Remember all symbols, and the series that have a column (the others: UNKNOWN) and one sample."""
        texts, samples = _Samples(symbols), _Samples(series)
        samples.found.column[:] = column
        longest = int(symbols.length.max(initial=1))
        self._texts.retry(lambda: self._number(body, texts, adds=True), longest)
        self._series.retry(lambda: self._read(body, texts, samples, adds=True))

    def _number(self, body: bytes, texts: _Samples, adds: bool) -> int:
        return int(self.kernels.number_texts(self._texts.reference, body, ctypes.byref(texts), adds))

    def _read(self, body: bytes, texts: _Samples, samples: _Samples, adds: bool) -> int:
        of_texts, of_samples = ctypes.byref(texts), ctypes.byref(samples)
        return int(self.kernels.read_symbolic(self._series.reference, body, of_texts, of_samples, adds))


if __name__ == "__main__":
    print(build_library(SOURCE, folder_of(SOURCE)))
