"""Histograms: counts of observed values up to each of some bounds, their sum and their count.

A histogram NAME appears as the variables `NAME.bucket{le="0.005"}` … `NAME.bucket{le="+Inf"}` (INTEGER, cumulative),
`NAME.sum` (DOUBLE) and `NAME.count` (INTEGER), as `histogram_quantile` of the query language expects. An observation
changes one bucket and the sum, without a lock where cell.py allows the fast path; a poll accumulates the buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Protocol

from bookkeeper.variables.canonical import Key, key_of
from bookkeeper.variables.cell import FLOAT_MAX, LOCK_FREE, CellOwner, LockedDouble, LockedInteger
from bookkeeper.variables.validation import VariableRefused

BUCKET, SUM, COUNT = ".bucket", ".sum", ".count"
LE = "le"


class HistogramOwner(Protocol):
    """Registry that a histogram belongs to. It handles the calls that the fast path of a histogram cannot."""

    def observe(self, histogram: Histogram, value: float) -> None: ...

    def update_variables(self, histogram: Histogram) -> None: ...

    def remove(self, histogram: Histogram) -> None: ...


class Histogram:
    """One histogram of a process, and the handle to it. The first observation creates it.

    Invariants: `counts` (one for each bound, and one for values above all bounds) is None while it does not exist, and
    changes from and to None only under the registry's lock, together with `total`. `fell`: a negative value was
    observed, so the sum is not a counter. `parts`: its variables: the buckets, the sum, the count."""

    __slots__ = (
        "__weakref__",
        "_book",
        "bounds",
        "counts",
        "has_negative",
        "key",
        "labels",
        "name",
        "refused",
        "route",
        "total",
        "variables",
    )

    def __init__(
        self,
        book: HistogramOwner,
        name: str,
        labels: Mapping[str, str],
        bounds: tuple[float, ...],
        refused: VariableRefused | None = None,
    ) -> None:
        self._book, self.name, self.bounds, self.refused = book, name, bounds, refused
        self.labels = {label: value for label, value in labels.items() if value}
        self.key: Key = key_of(self.labels)
        self.counts: list[int] | None = None
        self.total = 0.0
        self.has_negative = False
        self.route: tuple[str, ...] | None = None  # its key in the look-up cache
        self.variables: tuple[HistogramInteger | HistogramDouble, ...] = ()

    def observe(self, value: float) -> None:
        """Counts a value. NaN and infinities are refused, because they would ruin the sum."""
        if type(value) is float and 0.0 <= value <= FLOAT_MAX:
            place = bisect_left(self.bounds, value)  # no call below: see cell.py
            try:
                self.counts[place] += 1  # type: ignore[index]
                self.total += value
                return
            except TypeError:  # counts is None
                pass
        self._book.observe(self, value)

    def count(self) -> int:
        """Number of observed values."""
        counts = self.counts
        return 0 if counts is None else sum(counts)

    def sum(self) -> float:
        """Sum of the observed values."""
        return 0.0 if self.counts is None else self.total

    def update_variables(self) -> None:
        """Updates its variables."""
        self._book.update_variables(self)

    def remove(self) -> None:
        """Ends the histogram; a later observation restarts it."""
        self._book.remove(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.labels} of {self.count()}>"


class LockedHistogram(Histogram):
    """Histogram without the fast path, for interpreters on which it is unsafe."""

    __slots__ = ()

    def observe(self, value: float) -> None:
        self._book.observe(self, value)


HISTOGRAM: type[Histogram] = Histogram if LOCK_FREE else LockedHistogram


class _HistogramVariable:
    """Variable of a histogram: read like any other, written by its histogram only."""

    __slots__ = ()
    histogram: Histogram
    value: Any
    writable = False

    @property
    def family(self) -> str:
        return self.histogram.name

    @property
    def described(self) -> str:
        return f"a part of the histogram {self.family}"

    def get(self) -> Any:
        self.histogram.update_variables()
        return self.value


class HistogramInteger(_HistogramVariable, LockedInteger):
    """A bucket, or the count."""

    __slots__ = ("histogram",)


class HistogramDouble(_HistogramVariable, LockedDouble):
    """The sum."""

    __slots__ = ("histogram",)


def make_variables(histogram: Histogram, variables: CellOwner) -> tuple[HistogramInteger | HistogramDouble, ...]:
    """Make the variables of a histogram: its buckets by bound, its sum, its count."""
    name, labels = histogram.name, histogram.labels
    refused = VariableRefused("type", f"{name} is a histogram: observe it, or use another name")
    les = [{**labels, LE: text} for text in (*map(repr, histogram.bounds), "+Inf")]
    parts: list[HistogramInteger | HistogramDouble] = [
        HistogramInteger(variables, name + BUCKET, le, key_of(le), refused) for le in les
    ]
    parts.append(HistogramDouble(variables, name + SUM, labels, histogram.key, refused))
    parts.append(HistogramInteger(variables, name + COUNT, labels, histogram.key, refused))
    for part in parts:
        part.histogram = histogram
    return tuple(parts)
