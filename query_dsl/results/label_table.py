"""Dictionary-encoded labels of many series, so that grouping and joining need no Python loop over series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, repeat
from operator import eq, itemgetter

import numpy as np
import numpy.typing as npt

from artimon.model.select import NAME
from query_dsl.results.result_cells import Rows, SeriesKey

Codes = npt.NDArray[np.int64]
Labels = tuple[tuple[str, str], ...]
_NAME_OF, _LABELS_OF = itemgetter(0), itemgetter(1)
_FIRST, _SECOND = itemgetter(0), itemgetter(1)
MAX_RADIX = 2**40
DENSE_FACTOR = 8
"""Limit of the code range per row: within it codes are renumbered by a table, beyond it by sorting."""


@dataclass(frozen=True, slots=True)
class LabelColumn:
    """One label, encoded: `values[codes[i]]` is its value in series i, "" if absent; values are sorted."""

    codes: Codes
    values: list[str]


class _SameLengthSeries:
    """Series with the same number of labels. `rows` None: all series."""

    def __init__(self, rows: Rows | None, labels: list[Labels], length: int) -> None:
        self.rows, self.labels, self.length = rows, labels, length
        self._names: list[str | list[str] | None] = [None] * length

    def names(self, place: int) -> str | list[str]:
        """Return the label name at `place` if it is the same in all series, else the names per series."""
        found = self._names[place]
        if found is None:
            names = list(map(_FIRST, map(itemgetter(place), self.labels)))
            found = self._names[place] = names[0] if names.count(names[0]) == len(names) else names
        return found

    def values(self, label: str) -> list[str] | None:
        """Return the label's value in each series; None if no series has it."""
        guess = next((place for place, pair in enumerate(self.labels[0]) if pair[0] == label), -1)
        if guess >= 0 and self.names(guess) == label:
            return list(map(_SECOND, map(itemgetter(guess), self.labels)))
        out: list[str] | None = None
        for place in range(self.length):
            names = self.names(place)
            if isinstance(names, str):  # a different label, or the guess would have matched
                continue
            here = list(map(eq, names, repeat(label)))
            if any(here):
                out = out or [""] * len(names)
                for row in compress(range(len(here)), here):
                    out[row] = self.labels[row][place][1]
        return out


class LabelTable:
    """Encoded labels of `keys`; columns are built on first use."""

    def __init__(self, keys: Sequence[SeriesKey]) -> None:
        self.keys = keys
        self._columns: dict[str, LabelColumn] = {}

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def names(self) -> frozenset[str]:
        """Labels that occur in any series; includes `__name__` if a series has a name."""
        found: set[str] = set()
        for group in self._groups:
            for names in map(group.names, range(group.length)):
                found.update([names] if isinstance(names, str) else names)
        if any(map(_NAME_OF, self.keys)):
            found.add(NAME)
        return frozenset(found)

    def has_label(self, label: str) -> bool:
        """Return True if any series has this label."""
        return len(self.column(label).values) > 1

    def column(self, label: str) -> LabelColumn:
        """Return the column of a label; `__name__` is the name."""
        found = self._columns.get(label)
        if found is None:
            values = list(map(_NAME_OF, self.keys)) if label == NAME else self._values(label)
            found = self._columns[label] = encode(values)
        return found

    @cached_property
    def _groups(self) -> list[_SameLengthSeries]:
        labels = list(map(_LABELS_OF, self.keys))
        counts = np.fromiter(map(len, labels), np.int64, len(labels))
        lengths = np.unique(counts)
        if len(lengths) == 1:
            return [_SameLengthSeries(None, labels, int(lengths[0]))]
        out = []
        for length in lengths.tolist():
            chosen = counts == length
            out.append(_SameLengthSeries(np.flatnonzero(chosen), list(compress(labels, chosen.tolist())), length))
        return out

    def _values(self, label: str) -> list[str]:
        if len(self._groups) == 1:
            return self._groups[0].values(label) or [""] * len(self.keys)
        out = np.full(len(self.keys), "", object)
        for group in self._groups:
            found = group.values(label)
            if found is not None:
                out[group.rows] = found
        return list(out)


def keys_of(names: Iterable[str], labels: Iterable[Labels]) -> list[SeriesKey]:
    """Build many keys at once; stops at the end of the shorter input."""
    return list(map(tuple.__new__, repeat(SeriesKey), zip(names, labels, strict=False)))


def encode(values: Sequence[str]) -> LabelColumn:
    """Encode the value of each series."""
    known = sorted({"", *values})
    number = {value: code for code, value in enumerate(known)}
    return LabelColumn(np.fromiter(map(number.__getitem__, values), np.int64, len(values)), known)


def with_shared_values(columns: Sequence[LabelColumn]) -> list[LabelColumn]:
    """Encode several columns again, so that all use one list of values. The list may be unsorted and have
    repetitions."""
    known = sorted({"", *(value for column in columns for value in column.values)})
    number = {value: code for code, value in enumerate(known)}
    lookups = [np.array([number[value] for value in column.values] or [0], np.int64) for column in columns]
    return [LabelColumn(lookup[column.codes], known) for lookup, column in zip(lookups, columns, strict=True)]


def combine_codes(columns: Sequence[LabelColumn], rows: int) -> tuple[Codes, int]:
    """Combine columns to one code per row, from 0 without gaps, in value order; also return the number of codes."""
    total, size = np.zeros(rows, np.int64), 1
    for column in columns:
        if size * len(column.values) > MAX_RADIX:
            total, size = renumber(total, size)
        total = total * len(column.values) + column.codes
        size *= len(column.values)
    return renumber(total, size)


def renumber(codes: Codes, size: int) -> tuple[Codes, int]:
    """Renumber codes below `size` without gaps, keeping their order; also return the number of codes."""
    if not len(codes):
        return codes, 0
    if size > DENSE_FACTOR * len(codes) + 1024:
        found, places = np.unique(codes, return_inverse=True)
        return places.astype(np.int64), len(found)
    seen = np.zeros(size, np.bool_)
    seen[codes] = True
    place = np.cumsum(seen) - 1
    return place[codes], int(place[-1]) + 1


def first_rows(codes: Codes, count: int) -> Rows:
    """Return the first row of each code; -1 for an unused code."""
    out = np.full(count, -1, np.intp)
    out[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return out
