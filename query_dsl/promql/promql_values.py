"""Values of PromQL during an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from artimon.compute.cells import Bools, Floats
from query_dsl.promql.label_sets import NAME, LabelSets, concatenate
from query_dsl.promql.tree import PromqlError
from query_dsl.results.result_cells import Rows
from query_dsl.stores.query_limits import QueryBudget

CELL_BYTES = 24
"""Memory of one value of a series at a step: value, presence, place."""
METADATA = (NAME, "__type__", "__unit__")
"""Labels that describe the metric: functions and arithmetic remove them."""
SAME_LABELS = "vector cannot contain metrics with the same labelset"


@dataclass(frozen=True, slots=True)
class ScalarValue:
    """A number at each step."""

    values: Floats


@dataclass(frozen=True, slots=True)
class TextValue:
    text: str


@dataclass(frozen=True, slots=True)
class VectorValue:
    """Instant vectors: `values` and `here` are (series, steps). `dropped`: series whose name is removed at the end of
    the query, so that label functions can still read it. `ordered`: the query sorts the series."""

    labels: LabelSets
    values: Floats
    here: Bools
    dropped: Bools
    ordered: bool = False

    def take(self, rows: Rows | Bools) -> VectorValue:
        """Return the series of these rows, or of a mask."""
        if rows.dtype != np.bool_ and is_identity(rows, self.labels.count):
            return self
        return VectorValue(self.labels.take(rows), self.values[rows], self.here[rows], self.dropped[rows], self.ordered)

    def with_values(self, values: Floats, here: Bools | None = None, drop: bool = True) -> VectorValue:
        """Return the same series with other values. With `drop` their names are removed at the end."""
        dropped = np.ones_like(self.dropped) if drop else self.dropped
        return VectorValue(self.labels, values, self.here if here is None else here, dropped)

    def present(self) -> VectorValue:
        """Return the series with a value at any step."""
        some = self.here.any(axis=1)
        return self if bool(some.all()) else self.take(np.flatnonzero(some))


Value = ScalarValue | TextValue | VectorValue


def is_identity(places: Rows | Bools, count: int) -> bool:
    """Return True if `places` are all of `count` places in their order."""
    return len(places) == count and bool((places == np.arange(count)).all())


def empty_vector(steps: int) -> VectorValue:
    """Return a vector without series."""
    return VectorValue(LabelSets(0, {}), np.zeros((0, steps)), np.zeros((0, steps), np.bool_), np.zeros(0, np.bool_))


def charge_cells(budget: QueryBudget, series: int, steps: int) -> None:
    """Count the cells of a vector before it is made. Raises LimitExceeded."""
    budget.check()
    budget.charge(series, series * steps * CELL_BYTES, 0)


def merge_equal(vector: VectorValue, message: str = SAME_LABELS) -> VectorValue:
    """Unite series with equal labels that have values at different steps. Raises PromqlError if they have at one."""
    codes, first = vector.labels.classes()
    if len(first) == vector.labels.count:
        return vector
    held = np.zeros((len(first), vector.here.shape[1]), np.int64)
    np.add.at(held, codes, vector.here)
    if (held > 1).any():
        raise PromqlError(message)
    values = np.zeros(held.shape)
    series, steps = np.nonzero(vector.here)
    values[codes[series], steps] = vector.values[series, steps]
    dropped = np.zeros(len(first), np.bool_)
    np.logical_or.at(dropped, codes, vector.dropped)
    return VectorValue(vector.labels.take(first), values, held > 0, dropped, vector.ordered)


def drop_names(vector: VectorValue) -> VectorValue:
    """Remove the names that are to be dropped, at the end of a query. Raises PromqlError as `merge_equal`."""
    vector = vector.present()
    labels = vector.labels
    for label in METADATA:
        labels = labels.drop_where(label, vector.dropped)
    return merge_equal(replace(vector, labels=labels))


def unite(first: VectorValue, second: VectorValue) -> VectorValue:
    """Return the series of both."""
    return VectorValue(
        concatenate((first.labels, second.labels)),
        np.concatenate((first.values, second.values)),
        np.concatenate((first.here, second.here)),
        np.concatenate((first.dropped, second.dropped)),
    )
