"""Equivalence classes: which series have equal labels, and what their class is called."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter

import numpy as np

from artimon.model.select import NAME
from query_dsl.results.cells import Key
from query_dsl.results.label_codes import Codes, LabelTable, Rows, combined, first_rows, keys_of
from query_dsl.tree.nodes import Labels

Class = tuple[tuple[str, str], ...]
_LABELS_OF = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Classes:
    """`codes`: class of each series. `keys`: what the classes are called. Canonical order, no class is empty."""

    keys: tuple[Key, ...]
    codes: Codes

    @property
    def order(self) -> Rows:
        """Series by class, within a class as they were."""
        width = np.uint16 if len(self.keys) <= 2**16 else np.int64  # numpy sorts short integers by their digits
        return np.argsort(self.codes.astype(width), kind="stable")


def class_key(labels: Class) -> Key:
    """The series that a class becomes: its labels; the name only if it was listed."""
    name = next((value for label, value in labels if label == NAME), "")
    return Key(name, tuple(pair for pair in labels if pair[0] != NAME))


def classes_of(table: LabelTable, by: Labels | None, without: Labels | None) -> Classes:
    """Classes by equal labels: those of `by`, or all but those of `without`."""
    codes, count = class_codes(table, by, without)
    keys = keys_at(table, by, without, first_rows(codes, count))
    order = sorted(range(count), key=keys.__getitem__)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    return Classes(tuple(map(keys.__getitem__, order)), place[codes])


def class_codes(table: LabelTable, by: Labels | None, without: Labels | None) -> tuple[Codes, int]:
    """Number of the class of each series, from 0 without gaps, in no special order; and how many there are."""
    if by is None and not without:
        labels = list(map(_LABELS_OF, table.keys))
        number = {one: code for code, one in enumerate(dict.fromkeys(labels))}
        return np.fromiter(map(number.__getitem__, labels), np.int64, len(labels)), len(number)
    wanted = sorted(set(by)) if by is not None else sorted(table.names - {NAME, *(without or ())})
    return combined([table.column(label) for label in wanted], len(table))


def keys_at(table: LabelTable, by: Labels | None, without: Labels | None, rows: Rows) -> list[Key]:
    """What the classes of the series at `rows` are called."""
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


def differing(first: Key, second: Key) -> list[str]:
    """Labels in which two series differ; `__name__` if their names do."""
    labels = {label for label, _ in {*first.labels} ^ {*second.labels}}
    return sorted(labels | ({NAME} if first.name != second.name else set()))
