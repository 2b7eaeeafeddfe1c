"""Aggregations of instant vectors over classes of equal labels."""

from __future__ import annotations

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.paired_sums import grouped_sum
from query_dsl.promql.label_sets import NAME, LabelColumn
from query_dsl.promql.promql_values import VectorValue, charge_cells, empty_vector
from query_dsl.promql.tree import PromqlError
from query_dsl.promql.vector_functions import format_value
from query_dsl.results.label_table import Codes, with_shared_values
from query_dsl.stores.query_limits import QueryBudget

MAX_INT64 = 9.223372036854775807e18


class Groups:
    """Classes of the series of a vector: `codes` of the series, `count` of classes, `labels` of these."""

    def __init__(self, vector: VectorValue, labels: tuple[str, ...], without: bool) -> None:
        self.vector = vector
        wanted = vector.labels.drop((*labels, NAME)) if without else vector.labels.keep(labels)
        self.codes: Codes
        self.codes, first = wanted.classes()
        self.count = len(first)
        self.labels = wanted.take(first)
        self.members = np.zeros((self.count, vector.here.shape[1]), np.int64)
        np.add.at(self.members, self.codes, vector.here)

    def made(self, values: Floats) -> VectorValue:
        """Return one series a class, at the steps where the class has a member."""
        dropped = np.zeros(self.count, np.bool_)
        np.logical_or.at(dropped, self.codes, self.vector.dropped)
        return VectorValue(self.labels, values, self.members > 0, dropped)

    def total(self, values: Floats) -> Floats:
        """Return the sums of the values that are there."""
        return grouped_sum(np.where(self.vector.here, values, 0.0), self.codes, self.count)

    def mean(self) -> Floats:
        """Return the means; sums beyond the floats are avoided."""
        with np.errstate(all="ignore"):
            total = self.total(self.vector.values)
            if np.isfinite(total).all():
                return total / self.members
            scaled = self.total(self.vector.values / self.members[self.codes])
            return np.where(np.isfinite(total), total / self.members, scaled)


def aggregate(name: str, vector: VectorValue, labels: tuple[str, ...], without: bool) -> VectorValue:
    """Aggregate without a parameter: sum, avg, min, max, count, group, stddev, stdvar."""
    vector = vector.present()
    if not vector.labels.count:
        return empty_vector(vector.here.shape[1])
    groups = Groups(vector, labels, without)
    match name:
        case "sum":
            return groups.made(groups.total(vector.values))
        case "avg":
            return groups.made(groups.mean())
        case "count":
            return groups.made(groups.members.astype(np.float64))
        case "group":
            return groups.made(np.ones(groups.members.shape))
        case "min" | "max":
            return groups.made(_extreme(groups, name == "max"))
    with np.errstate(all="ignore"):
        least = _extreme(groups, False)  # values count from it, so that equal ones have no variance
        apart = vector.values - np.where(np.isfinite(least), least, 0.0)[groups.codes]
        mean = groups.total(apart) / groups.members
        spread = groups.total((apart - mean[groups.codes]) ** 2) / groups.members
        return groups.made(np.sqrt(spread) if name == "stddev" else spread)


def _extreme(groups: Groups, most: bool) -> Floats:
    """Return the greatest or least value of each class; NaN only if all are."""
    none = -np.inf if most else np.inf
    here = groups.vector.here & ~np.isnan(groups.vector.values)
    found = np.full((groups.count, here.shape[1]), none)
    (np.maximum if most else np.minimum).at(found, groups.codes, np.where(here, groups.vector.values, none))
    numbers = np.zeros(found.shape, np.int64)
    np.add.at(numbers, groups.codes, here)
    return np.where(numbers > 0, found, np.nan)


def _ranks(groups: Groups, descending: bool, budget: QueryBudget) -> Ints:
    """Return the place of each value within its class and step, from 0; NaN comes last. Equal values go by their
    labels, as in the shards, which name only the first of many."""
    vector = groups.vector
    ranks = np.zeros(vector.values.shape, np.int64)
    by_labels: list[Ints] = []
    starts_of = np.zeros(groups.count + 1, np.int64)
    for step in range(vector.values.shape[1]):
        budget.check()
        here = vector.here[:, step]
        values = np.where(here, vector.values[:, step], np.nan)
        keys = (-values if descending else values, np.isnan(values), ~here, groups.codes)
        order = np.lexsort((*by_labels, *keys))
        if not by_labels and _has_ties(values[order], here[order], groups.codes[order]):
            by_labels = [np.argsort(vector.labels.sort_order())]
            order = np.lexsort((*by_labels, *keys))
        sizes = np.bincount(groups.codes, minlength=groups.count)
        starts_of[1:] = np.cumsum(sizes)
        ranks[order, step] = np.arange(len(order)) - starts_of[groups.codes[order]]
    return ranks


def _has_ties(values: Floats, here: Bools, codes: Codes) -> bool:
    """Return True if two ordered values of one class are equal, or both NaN."""
    nan = np.isnan(values)
    equal = (values[1:] == values[:-1]) | (nan[1:] & nan[:-1])
    return bool((equal & here[1:] & here[:-1] & (codes[1:] == codes[:-1])).any())


def _places(groups: Groups) -> Ints:
    """Return the number of members of its class before each value, at each step."""
    order = np.argsort(groups.codes, kind="stable")
    codes, here = groups.codes[order], groups.vector.here[order]
    before: Ints = np.cumsum(here, axis=0) - here
    places: Ints = np.empty_like(before)
    places[order] = before - before[np.searchsorted(codes, codes)]
    return places


def choose(
    name: str, vector: VectorValue, k: Floats, labels: tuple[str, ...], without: bool, budget: QueryBudget
) -> VectorValue:
    """Keep k series of each class at each step: topk, bottomk, limitk. Raises PromqlError unless k is an integer."""
    if np.isnan(k).any():
        raise PromqlError("Parameter value is NaN")
    if (k >= MAX_INT64).any() or (k < -MAX_INT64).any():
        far = float(k[(k >= MAX_INT64) | (k < -MAX_INT64)][0])
        raise PromqlError(f"Scalar value {format_value(far)} {'overflows' if far > 0 else 'underflows'} int64")
    vector = vector.present()
    if not vector.labels.count:
        return vector
    groups = Groups(vector, labels, without)
    ranks = _places(groups) if name == "limitk" else _ranks(groups, name == "topk", budget)
    here = vector.here & (ranks < np.trunc(k)[None, :])
    made = VectorValue(vector.labels, vector.values, here, vector.dropped)
    if vector.here.shape[1] == 1 and name != "limitk":
        order = np.lexsort((ranks[:, 0], groups.codes))
        made = VectorValue(
            vector.labels.take(order), vector.values[order], here[order], vector.dropped[order], ordered=True
        )
    return made.present()


def quantile(
    vector: VectorValue, q: Floats, labels: tuple[str, ...], without: bool, budget: QueryBudget
) -> VectorValue:
    """Return the quantile of each class at each step."""
    vector = vector.present()
    if not vector.labels.count:
        return empty_vector(vector.here.shape[1])
    groups = Groups(vector, labels, without)
    order = np.argsort(groups.codes, kind="stable")
    values = np.full(groups.members.shape, np.nan)
    for step in range(vector.here.shape[1]):
        budget.check()
        here = vector.here[order, step]
        values[:, step] = _quantile_of_groups(
            vector.values[order, step][here], groups.codes[order][here], groups.count, float(q[step])
        )
    return groups.made(values)


def _quantile_of_groups(values: Floats, codes: Codes, count: int, q: float) -> Floats:
    if np.isnan(q):
        return np.full(count, np.nan)
    if q < 0 or q > 1:
        return np.full(count, -np.inf if q < 0 else np.inf)
    order = np.lexsort((values, ~np.isnan(values), codes))  # NaN is less than any number
    ordered = np.append(values[order], np.nan)
    sizes = np.bincount(codes, minlength=count)
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    rank = q * np.maximum(sizes - 1, 0)
    low = np.floor(rank).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(sizes - 1, 0))
    with np.errstate(all="ignore"):
        found: Floats = ordered[starts + low] * (1 - (rank - low)) + ordered[starts + high] * (rank - low)
    return found


def count_values(
    vector: VectorValue, label: str, labels: tuple[str, ...], without: bool, budget: QueryBudget
) -> VectorValue:
    """Count equal values, with the value as a label; as in Prometheus, `without` removes that one, too. Raises
    PromqlError for an invalid label, and LimitExceeded."""
    if not label:
        raise PromqlError(f"invalid label name {label!r} in count_values")
    series, steps = np.nonzero(vector.here)
    kept = vector.labels.drop((*labels, NAME)) if without else vector.labels.keep(labels)
    charge_cells(budget, len(series), 1 + len(kept.columns))
    distinct, places = np.unique(vector.values[series, steps].view(np.int64), return_inverse=True)
    texts = []
    for value in distinct.view(np.float64).tolist():
        texts.append(format_value(value))
        budget.charge_text(len(texts[-1]))
    named = kept.take(series)
    if not (without and label in {*labels, NAME}):
        named = named.with_column(label, with_shared_values([LabelColumn(places, texts)])[0])
    codes, first = named.classes()
    charge_cells(budget, len(first), vector.here.shape[1])
    values = np.zeros((len(first), vector.here.shape[1]))
    np.add.at(values, (codes, steps), 1.0)
    dropped = np.zeros(len(first), np.bool_)
    np.logical_or.at(dropped, codes, vector.dropped[series])
    return VectorValue(named.take(first), values, values > 0, dropped)
