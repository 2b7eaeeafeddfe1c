"""Equivalence classes of series with equal labels, and the keys of these classes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter

import numpy as np

from artimon.model.select import NAME
from query_dsl.results.label_table import Codes, LabelTable, combine_codes, first_rows, keys_of
from query_dsl.results.result_cells import Rows, SeriesKey
from query_dsl.tree.nodes import Labels

ClassLabels = tuple[tuple[str, str], ...]
_LABELS_OF = itemgetter(1)


@dataclass(frozen=True, slots=True)
class SeriesClasses:
    """`codes`: class number of each series. `keys`: keys of the classes, in canonical order. No class is empty."""

    keys: tuple[SeriesKey, ...]
    codes: Codes

    @property
    def order(self) -> Rows:
        """Rows sorted by class; the sort is stable."""
        width = np.uint16 if len(self.keys) <= 2**16 else np.int64  # numpy uses radix sort for short integers
        return np.argsort(self.codes.astype(width), kind="stable")


def class_key(labels: ClassLabels) -> SeriesKey:
    """Return the key of a class: its labels, and the name only if `__name__` is among them."""
    name = next((value for label, value in labels if label == NAME), "")
    return SeriesKey(name, tuple(pair for pair in labels if pair[0] != NAME))


def classes_of(table: LabelTable, by: Labels | None, without: Labels | None) -> SeriesClasses:
    """Return the classes by the labels `by`, or by all labels except `without`."""
    codes, count = class_codes(table, by, without)
    keys = keys_at(table, by, without, first_rows(codes, count))
    order = sorted(range(count), key=keys.__getitem__)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    return SeriesClasses(tuple(map(keys.__getitem__, order)), place[codes])


def class_codes(table: LabelTable, by: Labels | None, without: Labels | None) -> tuple[Codes, int]:
    """Return the class number of each series, from 0 without gaps in any order, and the number of classes."""
    if by is None and not without:
        labels = list(map(_LABELS_OF, table.keys))
        number = {one: code for code, one in enumerate(dict.fromkeys(labels))}
        return np.fromiter(map(number.__getitem__, labels), np.int64, len(labels)), len(number)
    wanted = sorted(set(by)) if by is not None else sorted(table.names - {NAME, *(without or ())})
    return combine_codes([table.column(label) for label in wanted], len(table))


def keys_at(table: LabelTable, by: Labels | None, without: Labels | None, rows: Rows) -> list[SeriesKey]:
    """Return the keys of the classes of the series at `rows`."""
    if by is None:
        labels = map(_LABELS_OF, map(table.keys.__getitem__, rows.tolist()))
        if not without:
            return keys_of(repeat(""), labels)
        out = frozenset(without)
        return keys_of(repeat(""), (tuple([pair for pair in pairs if pair[0] not in out]) for pairs in labels))
    names: list[str] | repeat[str] = repeat("")
    columns = []
    for label in sorted(set(by)):
        column = table.column(label)
        codes = column.codes[rows].tolist()
        if label == NAME:
            names = list(map(column.values.__getitem__, codes))
        else:
            pairs = [(label, value) if value else None for value in column.values]
            columns.append(list(map(pairs.__getitem__, codes)))
    if not columns:
        return keys_of(names, repeat((), len(rows)))
    present = (tuple([pair for pair in row if pair is not None]) for row in zip(*columns, strict=True))
    return keys_of(names, present)


def differing(first: SeriesKey, second: SeriesKey) -> list[str]:
    """Return the labels in which two series differ, including `__name__` if their names differ."""
    labels = {label for label, _ in {*first.labels} ^ {*second.labels}}
    return sorted(labels | ({NAME} if first.name != second.name else set()))
