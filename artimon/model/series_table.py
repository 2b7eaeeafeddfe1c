"""Selected series in columns: dictionary-encoded labels, so that thousands of series are built, sent and read without
a dict each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from artimon.model.values import Kind, ValueType

NAME = "__name__"
Codes = npt.NDArray[np.int32]
RowIndexes = npt.NDArray[np.intp]
Pairs = tuple[tuple[str, str], ...]
EncodedLabel = tuple[Codes, Sequence[str]]
"""Label of each series as `values[code]`; "" if absent."""
_TYPES = {int(type_): type_ for type_ in ValueType}
_KINDS = {int(kind): kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Series:
    """A selected series."""

    fingerprint: int
    name: str
    labels: Mapping[str, str]
    type: ValueType
    kind: Kind


@dataclass(frozen=True, eq=False, slots=True)
class SeriesTable(Sequence[Series]):
    """Immutable columns of series. `columns` holds the name, as NAME, and every label of any series."""

    fingerprints: npt.NDArray[np.uint64]
    types: npt.NDArray[np.uint8]
    kinds: npt.NDArray[np.uint8]
    columns: Mapping[str, EncodedLabel]

    @classmethod
    def from_series(cls, series: Sequence[Series]) -> SeriesTable:
        """Convert series to columns."""
        if isinstance(series, SeriesTable):
            return series
        labels = sorted({label for one in series for label, value in one.labels.items() if value})
        columns = {NAME: _encode_label([one.name for one in series])}
        columns |= {label: _encode_label([one.labels.get(label, "") for one in series]) for label in labels}
        return cls(
            np.array([one.fingerprint for one in series], np.uint64),
            np.array([one.type for one in series], np.uint8),
            np.array([one.kind for one in series], np.uint8),
            columns,
        )

    @classmethod
    def concat(cls, parts: Sequence[Sequence[Series]]) -> SeriesTable:
        tables = [cls.from_series(part) for part in parts]
        if len(tables) == 1:
            return tables[0]
        labels = sorted({label for table in tables for label in table.columns})
        return cls(
            np.concatenate([table.fingerprints for table in tables]),
            np.concatenate([table.types for table in tables]),
            np.concatenate([table.kinds for table in tables]),
            {label: _concat_labels([table._column(label) for table in tables]) for label in labels},
        )

    def _column(self, label: str) -> EncodedLabel:
        return self.columns.get(label) or (np.zeros(len(self), np.int32), ("",))

    def take(self, rows: RowIndexes) -> SeriesTable:
        """Return the chosen series, in the order of `rows`."""
        columns = {label: (codes[rows], values) for label, (codes, values) in self.columns.items()}
        return SeriesTable(self.fingerprints[rows], self.types[rows], self.kinds[rows], columns)

    def texts(self) -> list[tuple[str, Pairs]]:
        """Return name and sorted labels of each series."""
        codes, values = self.columns[NAME] if self.columns else (np.zeros(0, np.int32), ())
        names = [values[code] for code in codes.tolist()]
        found: list[list[tuple[str, str] | None]] = []
        absent = False
        for label in sorted(self.columns):
            if label != NAME:
                codes, values = self.columns[label]
                pairs = [(label, value) if value else None for value in values]
                found.append([pairs[code] for code in codes.tolist()])
                absent = absent or _is_absent(codes, values)
        if not found:
            return [(name, ()) for name in names]
        rows: Any = zip(*found, strict=True)
        if absent:
            rows = (tuple(pair for pair in row if pair is not None) for row in rows)
        return list(zip(names, rows, strict=True))

    def canonical_order(self) -> RowIndexes:
        """Return the rows in the order of their `texts`."""
        labels = [NAME, *sorted(self.columns.keys() - {NAME})] if self.columns else []
        if any(_is_absent(*self.columns[label]) for label in labels[1:]):
            texts = self.texts()
            return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.intp)
        if not labels:
            return np.arange(len(self))
        return np.lexsort([_ranks(*self.columns[label]) for label in reversed(labels)])

    def __len__(self) -> int:
        return len(self.fingerprints)

    @overload
    def __getitem__(self, at: int) -> Series: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Series, ...]: ...
    def __getitem__(self, at: int | slice) -> Series | tuple[Series, ...]:
        if isinstance(at, slice):
            return tuple(self.take(np.arange(len(self))[at]))
        row = range(len(self))[at]
        labels = {label: values[int(codes[row])] for label, (codes, values) in sorted(self.columns.items())}
        name = labels.pop(NAME)
        shown = {label: value for label, value in labels.items() if value}
        return Series(
            int(self.fingerprints[row]), name, shown, _TYPES[int(self.types[row])], _KINDS[int(self.kinds[row])]
        )

    def __iter__(self) -> Iterator[Series]:
        heads = zip(self.fingerprints.tolist(), self.texts(), self.types.tolist(), self.kinds.tolist(), strict=True)
        for print_, (name, pairs), type_, kind in heads:
            yield Series(print_, name, dict(pairs), _TYPES[type_], _KINDS[kind])

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def _is_absent(codes: Codes, values: Sequence[str]) -> bool:
    """True if a series lacks the label."""
    return bool(np.array([not value for value in values], np.bool_).take(codes).any())


def _ranks(codes: Codes, values: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the place of each series' value among the sorted values."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[value] for value in values], np.int64).take(codes)


def _encode_label(texts: Sequence[str]) -> EncodedLabel:
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int32)
    return codes, tuple(numbers)


def _concat_labels(columns: Sequence[EncodedLabel]) -> EncodedLabel:
    numbers: dict[str, int] = {}
    codes = []
    for own, values in columns:
        places = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)
        codes.append(places.take(own) if len(own) else own)
    return np.concatenate(codes), tuple(numbers)
