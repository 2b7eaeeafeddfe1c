"""Sums by class of increases, from sums of samples: without the increase of each series.

The sum of increases is the difference of the sums of the newest and the first samples, which each bucket needs once.
Series whose samples have equal times share the factor of extrapolation, so sums are made for each run of equal times
within a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.exact_sums import ExactSums, float_sums, from_integers, integer_sums
from artimon.compute.kernels import kernels
from artimon.compute.packed_samples import Rows
from artimon.compute.rolling_windows import ClassOrder

LEAST_GROUP = 4
"""Mean size of groups from which sums by group are worth it."""


@dataclass(frozen=True, slots=True, eq=False)
class RunGroups:
    """Series of one class and one run of equal times, in the order of the classes. `starts`: first place of each group;
    `runs`: run of each group; `classes`: first group of each class; `of`: group of each series, their number for
    series without a class."""

    starts: Ints
    runs: Rows
    classes: Ints
    of: Ints


class ClassIncreases:
    """Sums of one part of the series, which has `rows` series. Groups are kept while the times of samples change at the
    same places, or at some of them: runs may be shorter than necessary."""

    def __init__(self, classes: ClassOrder, rows: int) -> None:
        self._classes, self._rows = classes, rows
        self._class_of = self._numbered(classes.starts)
        self._runs: Rows = np.zeros(1, np.intp)
        self._changed: Bools | None = None
        self._groups: RunGroups | None = None

    def groups(self, changed: Bools | None) -> tuple[Rows, RunGroups | None]:
        """Return the first series of each run, and the groups; None if they are too small. `changed`: series, but the
        first, whose times differ from those of the series before."""
        known = self._changed
        if changed is not None and (known is None or (changed & ~known).any()):
            self._changed = changed if known is None else known | changed
            self._runs = np.concatenate((self._runs[:1], np.flatnonzero(self._changed) + 1))
            self._groups = None
        if self._groups is None:
            self._groups = self._grouped(self._runs)
        return self._runs, self._groups if len(self._groups.starts) * LEAST_GROUP <= len(self._classes.order) else None

    def _grouped(self, runs: Rows) -> RunGroups:
        order, starts = self._classes.order, self._classes.starts
        if len(runs) == 1:
            return RunGroups(starts, np.zeros(len(starts), np.intp), np.arange(len(starts)), self._class_of)
        run = np.repeat(np.arange(len(runs)), np.diff(runs, append=self._rows)).take(order)
        begins = np.concatenate(([True], run[1:] != run[:-1]))
        begins[starts] = True
        first = np.flatnonzero(begins)
        return RunGroups(first, run[first], np.searchsorted(first, starts), self._numbered(first))

    def _numbered(self, starts: Ints) -> Ints:
        """Return the number of the part of each series, of parts of the order of the classes."""
        found, order = np.full(self._rows, len(starts)), self._classes.order
        found[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        return found

    def bounds(self, cells: Ints, before: Ints | None) -> list[int]:
        """Return the least and the greatest integer, and growth since `before`, which must be below 2^62; without it
        the growth is 0."""
        compiled = kernels()
        if compiled is not None:
            earlier = None if before is None else np.ascontiguousarray(before)
            return compiled.bounds(np.ascontiguousarray(cells), earlier, self._class_of, len(self._classes.starts))
        mine = self.arranged(cells)
        steps = np.zeros(1, np.int64) if before is None else mine - self.arranged(before)
        return [int(mine.min()), int(mine.max()), int(steps.min()), int(steps.max())]

    def arranged(self, cells: Ints) -> Ints:
        """Return cells of the series in the order of the classes."""
        return cells.take(self._classes.order, mode="clip")

    def integer_sums(self, cells: Ints, largest: float, groups: RunGroups) -> ExactSums:
        """Return the sum of the samples of each group. largest: greatest absolute value."""
        compiled = kernels()
        if compiled is None or largest * len(self._classes.order) >= 2.0**63:
            return integer_sums(self.arranged(cells), groups.starts)
        return from_integers(compiled.sum_integers(np.ascontiguousarray(cells), groups.of, len(groups.starts)))

    def float_sums(self, arranged: Floats, groups: RunGroups) -> ExactSums:
        """Return the sum of the samples of each group."""
        found = float_sums(arranged[:, None], groups.starts)
        return ExactSums(found.high[:, 0], found.low[:, 0])


def extrapolated_sums(first: ExactSums, last: ExactSums, factor: Floats, groups: RunGroups) -> Floats:
    """Return the sum of each class. `factor`: that of each run, or one of all."""
    increase = (last.high - first.high) + (last.low - first.low)
    increase *= factor[groups.runs] if len(factor) > 1 else factor
    found: Floats = np.add.reduceat(increase, groups.classes)
    return found
