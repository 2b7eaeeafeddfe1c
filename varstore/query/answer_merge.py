"""Merging of answers of several shards. A series that two of them hold (it has two sources) becomes one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from artimon.compute.sample_order import Cells, double_order
from artimon.compute.statistics import FOLDS, join_cells, to_double
from artimon.compute.succession import normalize_incarnations
from artimon.compute.true_sums import BEYOND_64_BITS
from artimon.model.select import Buckets, SelectRequest
from artimon.model.series_table import SeriesTable
from artimon.model.values import ValueType


def has_twins(parts: Sequence[Buckets]) -> bool:
    """True if a series occurs twice in the answers."""
    if sum(len(part.series) for part in parts) < 2:
        return False
    prints = np.sort(np.concatenate([SeriesTable.from_series(part.series).fingerprints for part in parts]))
    return bool((prints[1:] == prints[:-1]).any())


def merge_answers(parts: Sequence[Buckets], request: SelectRequest) -> Buckets:
    """Concatenate the rows of all parts; join twins, which need all statistics, into their first row."""
    joined = _concatenate(parts, request)
    if has_twins(parts):
        joined = _join_twins(joined)
    notes = joined.notes
    if "sum" not in request.statistics:  # it was only read to join twins
        notes = tuple(note for note in notes if BEYOND_64_BITS not in note)
    return replace(joined, statistics={name: joined.statistics[name] for name in request.statistics}, notes=notes)


def _concatenate(parts: Sequence[Buckets], request: SelectRequest) -> Buckets:
    if len(parts) == 1:
        return parts[0]
    strings: list[str] = []
    lasts, births, row = [], [], 0
    for part in parts:
        text = SeriesTable.from_series(part.series).types == ValueType.STRING
        lives = part.births.copy()
        if len(lives):
            lives["last"] += np.where(text[lives["row"]], len(strings), 0)
            lives["row"] += row
        births.append(lives)
        if "last" in part.statistics:
            lasts.append(part.statistics["last"] + np.where(text, len(strings), 0)[:, None])
        strings.extend(part.strings)
        row += len(part.series)
    names = parts[0].statistics.keys()
    return Buckets(
        request.grid,
        SeriesTable.concat([part.series for part in parts]),
        {name: np.concatenate(lasts if name == "last" else [p.statistics[name] for p in parts]) for name in names},
        tuple(strings),
        np.concatenate(births),
        np.concatenate([part.ended_ms for part in parts]),
        np.concatenate([part.newest_ms for part in parts]),
        tuple(note for part in parts for note in part.notes),
        any(part.partial for part in parts),
    )


def _join_twins(buckets: Buckets) -> Buckets:
    first: dict[int, int] = {}
    prints = SeriesTable.from_series(buckets.series).fingerprints.tolist()
    target = np.array([first.setdefault(print_, row) for row, print_ in enumerate(prints)], np.int64)
    twins = _Twins(buckets)
    for row in np.flatnonzero(target != np.arange(len(target))).tolist():
        twins.join(int(target[row]), row)
    return twins.result(target)


class _Twins:
    """Copies of the arrays of an answer, in which twins are joined."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._table = SeriesTable.from_series(buckets.series)
        self._types = [ValueType(code) for code in self._table.types.tolist()]
        self._statistics = {name: np.array(matrix) for name, matrix in buckets.statistics.items()}
        self._incarnations = buckets.births.copy()
        self._ended, self._newest = buckets.ended_ms.copy(), buckets.newest_ms.copy()
        self._notes: list[str] = []

    def join(self, into: int, row: int) -> None:
        """Join row `row` into row `into`. If their types are incompatible, `row` is left out and a note says so."""
        if not self._unify_type(into, row):
            name = self._buckets.series[into].name
            self._notes.append(f"a series of {name} has two types on two shards: only one is shown")
            self._incarnations = self._incarnations[self._incarnations["row"] != row]
            return
        type_ = self._types[into]
        count = self._statistics["count"]
        mine, theirs = count[into] > 0, count[row] > 0
        later = self._later(into, row, type_) & theirs | ~mine
        for name in ("last", "last_time"):
            self._statistics[name][into] = np.where(later, self._statistics[name][row], self._statistics[name][into])
        for name, fold in FOLDS.items():
            matrix = self._statistics[name]
            both = join_cells(fold, matrix[into], matrix[row], type_ == ValueType.DOUBLE)
            matrix[into] = np.where(mine & theirs, both, np.where(theirs, matrix[row], matrix[into]))
        count[into] += count[row]
        self._join_incarnations(into, row, type_)
        self._newest[into] = max(self._newest[into], self._newest[row])
        ended = max(self._ended[into], self._ended[row])
        self._ended[into] = ended if ended >= self._newest[into] else 0

    def _has_samples(self, row: int) -> bool:
        return bool((self._incarnations["row"] == row).any())

    def _unify_type(self, into: int, row: int) -> bool:
        """Convert INTEGER cells if the twin is DOUBLE; False if the types are incompatible. A row without samples has
        no type and fits any."""
        if not self._has_samples(row):
            return True
        if not self._has_samples(into):
            self._types[into] = self._types[row]
        types = self._types[into], self._types[row]
        if types[0] == types[1]:
            return True
        if set(types) != {ValueType.INTEGER, ValueType.DOUBLE}:
            return False
        whole = into if types[0] == ValueType.INTEGER else row
        for name, cells in to_double({name: matrix[whole] for name, matrix in self._statistics.items()}).items():
            self._statistics[name][whole] = cells
        mine = self._incarnations["row"] == whole
        self._incarnations["last"][mine] = self._incarnations["last"][mine].astype(np.float64).view(np.int64)
        self._types[whole] = ValueType.DOUBLE
        return True

    def _later(self, into: int, row: int, type_: ValueType) -> npt.NDArray[np.bool_]:
        """Mask of the buckets in which the last sample of `row` is the last of both."""
        times, cells = self._statistics["last_time"], self._statistics["last"]
        rank = self._rank(cells[row], type_) > self._rank(cells[into], type_)
        later: npt.NDArray[np.bool_] = (times[row] > times[into]) | ((times[row] == times[into]) & rank)
        return later

    def _rank(self, cells: Cells, type_: ValueType) -> Cells:
        if type_ == ValueType.DOUBLE:
            return double_order(cells)
        if type_ == ValueType.STRING:
            texts = self._buckets.strings
            place = {text: i for i, text in enumerate(sorted(set(texts)))}
            return np.array([place[texts[cell]] if 0 <= cell < len(texts) else -1 for cell in cells.tolist()], np.int64)
        return cells

    def _join_incarnations(self, into: int, row: int, type_: ValueType) -> None:
        births = self._incarnations
        for at in np.flatnonzero(births["row"] == row).tolist():
            same = np.flatnonzero((births["row"] == into) & (births["birth_ms"] == births["birth_ms"][at]))
            if not len(same):
                births["row"][at] = into
                continue
            held = int(same[0])
            ranks = self._rank(births["last"][[at, held]], type_).tolist()
            if (births["last_ms"][at], ranks[0]) > (births["last_ms"][held], ranks[1]):
                births["last_ms"][held], births["last"][held] = births["last_ms"][at], births["last"][at]
            births["first_ms"][held] = min(births["first_ms"][held], births["first_ms"][at])
        self._incarnations = births[births["row"] != row]

    def result(self, target: Cells) -> Buckets:
        """Return the answer without the rows that were joined into others."""
        kept = np.flatnonzero(target == np.arange(len(target)))
        births = self._incarnations
        births["row"] = np.searchsorted(kept, births["row"])
        return replace(
            self._buckets,
            series=replace(self._table, types=np.array(self._types, np.uint8)).take(kept),
            statistics={name: matrix[kept] for name, matrix in self._statistics.items()},
            births=normalize_incarnations(births),
            ended_ms=self._ended[kept],
            newest_ms=self._newest[kept],
            notes=tuple(dict.fromkeys((*self._buckets.notes, *self._notes))),
        )
