"""Labels of many series in dictionary-encoded columns: grouping and matching need no loop over series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from artimon.model.select import NAME
from artimon.model.series_table import SeriesTable
from query_dsl.results.label_table import Codes, LabelColumn, combine_codes, encode, first_rows, with_shared_values
from query_dsl.results.result_cells import Rows

FEW = 256
"""Up to so many series are sorted one by one: columns may hold the values of many more."""


@dataclass(frozen=True, slots=True)
class LabelSets:
    """Label sets of `count` series; the name is the label `__name__`. An absent label has the value ""."""

    count: int
    columns: Mapping[str, LabelColumn]

    @classmethod
    def from_dicts(cls, found: Sequence[Mapping[str, str]]) -> LabelSets:
        names = dict.fromkeys(name for one in found for name in one)
        return cls(len(found), {name: encode([one.get(name, "") for one in found]) for name in names})

    @classmethod
    def from_table(cls, table: SeriesTable) -> LabelSets:
        encoded = {
            name: LabelColumn(codes.astype(np.int64), list(values)) for name, (codes, values) in table.columns.items()
        }
        return cls(len(table), {name: with_shared_values([column])[0] for name, column in encoded.items()})

    def dicts(self) -> list[dict[str, str]]:
        """Return the non-empty labels of each series, sorted by name."""
        rows: list[dict[str, str]] = [{} for _ in range(self.count)]
        for name in sorted(self.columns):
            column = self.columns[name]
            for row, value in zip(rows, map(column.values.__getitem__, column.codes.tolist()), strict=True):
                if value:
                    row[name] = value
        return rows

    def texts(self, label: str) -> list[str]:
        """Return the value of a label in each series."""
        column = self.column(label)
        return list(map(column.values.__getitem__, column.codes.tolist()))

    def take(self, rows: Rows | np.ndarray[Any, np.dtype[np.bool_]]) -> LabelSets:
        """Return the series of these rows, or of a mask."""
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return LabelSets(count, {n: LabelColumn(c.codes[rows], c.values) for n, c in self.columns.items()})

    def keep(self, labels: Iterable[str]) -> LabelSets:
        """Return the sets with these labels only."""
        wanted = set(labels)
        return LabelSets(self.count, {n: c for n, c in self.columns.items() if n in wanted})

    def drop(self, labels: Iterable[str]) -> LabelSets:
        """Return the sets without these labels."""
        unwanted = set(labels)
        return LabelSets(self.count, {n: c for n, c in self.columns.items() if n not in unwanted})

    def drop_where(self, label: str, rows: np.ndarray[Any, np.dtype[np.bool_]]) -> LabelSets:
        """Remove a label from the series of a mask."""
        column = self.columns.get(label)
        if column is None or not rows.any():
            return self
        cleared = LabelColumn(np.where(rows, column.values.index(""), column.codes), column.values)
        return LabelSets(self.count, {**self.columns, label: cleared})

    def with_column(self, label: str, column: LabelColumn) -> LabelSets:
        """Set a label of all series."""
        return LabelSets(self.count, {**self.columns, label: column})

    def column(self, label: str) -> LabelColumn:
        """Return the column of a label, also of an absent one."""
        return self.columns.get(label) or LabelColumn(np.zeros(self.count, np.int64), [""])

    def classes(self) -> tuple[Codes, Rows]:
        """Return the class number of each series, from 0 in the order of appearance, and the first row of each."""
        if self.count < 2:
            return np.zeros(self.count, np.int64), np.zeros(self.count, np.intp)
        codes, count = combine_codes([self.columns[name] for name in sorted(self.columns)], self.count)
        first = first_rows(codes, count)
        order = np.argsort(first, kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        return place[codes], first[order]

    def sort_order(self) -> Rows:
        """Return the rows in the order of their labels, compared by name and value as Prometheus does."""
        if self.count < 2:
            return np.zeros(self.count, np.intp)
        by_code = self._codes_in_order() if self.count > FEW else None
        if by_code is not None:
            return np.lexsort(by_code) if by_code else np.arange(self.count)
        rows = [tuple(one.items()) for one in self.dicts()]
        return np.array(sorted(range(self.count), key=rows.__getitem__), np.intp)

    def _codes_in_order(self) -> list[Codes] | None:
        """Return the codes of all labels, the first one last, if their order is that of the series: each label is in
        all series or in none. Else None."""
        found: list[Codes] = []
        for name in sorted(self.columns, reverse=True):
            column = self.columns[name]
            empty = column.values.index("") if "" in column.values else -1
            absent = column.codes == empty
            if absent.all():
                continue
            if absent.any() or column.values != sorted(column.values):
                return None
            found.append(column.codes)
        return found


def concatenate(parts: Sequence[LabelSets]) -> LabelSets:
    """Concatenate series of several sets."""
    names = dict.fromkeys(name for part in parts for name in part.columns)
    columns = {}
    for name in names:
        encoded = [part.column(name) for part in parts]
        if any(column.values != encoded[0].values for column in encoded):
            encoded = with_shared_values(encoded)
        columns[name] = LabelColumn(np.concatenate([column.codes for column in encoded]), encoded[0].values)
    return LabelSets(sum(part.count for part in parts), columns)


__all__ = ["NAME", "LabelColumn", "LabelSets", "concatenate"]
