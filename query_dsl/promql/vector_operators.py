"""Operators between scalars and instant vectors, with the matching of vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from artimon.compute.cells import Bools, Floats
from query_dsl.promql.label_sets import NAME, LabelSets, concatenate
from query_dsl.promql.promql_values import (
    METADATA,
    SAME_LABELS,
    VectorValue,
    charge_cells,
    empty_vector,
    merge_equal,
    unite,
)
from query_dsl.promql.tree import Matching, PromqlError
from query_dsl.results.label_table import Codes
from query_dsl.results.result_cells import Rows
from query_dsl.stores.query_limits import QueryBudget

ARITHMETIC: Mapping[str, Callable[[Floats, Floats], Floats]] = MappingProxyType(
    {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": np.divide,
        "%": np.fmod,
        "^": np.power,
        "atan2": np.arctan2,
    }
)
COMPARISONS: Mapping[str, Callable[[Floats, Floats], Bools]] = MappingProxyType(
    {
        "==": np.equal,
        "!=": np.not_equal,
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
    }
)
SETS = ("and", "or", "unless")
NOT_UNIQUE = "multiple matches for labels: grouping labels must ensure unique matches"


def compute(op: str, left: Floats, right: Floats) -> Floats:
    """Return the arithmetic of floats, or 1 and 0 for a comparison."""
    with np.errstate(all="ignore"):
        if op in COMPARISONS:
            return COMPARISONS[op](left, right).astype(np.float64)
        return ARITHMETIC[op](left, right)


def with_scalar(op: str, vector: VectorValue, scalar: Floats, swapped: bool, as_bool: bool) -> VectorValue:
    """Apply an operator to a vector and a scalar; `swapped`: the scalar is on the left."""
    a, b = (scalar[None, :], vector.values) if swapped else (vector.values, scalar[None, :])
    if op in COMPARISONS and not as_bool:
        kept = vector.here & COMPARISONS[op](a, b)
        return vector.with_values(vector.values, kept, drop=False)
    return vector.with_values(np.broadcast_to(compute(op, a, b), vector.values.shape))


# --- matching


def _signatures(left: LabelSets, right: LabelSets, matching: Matching) -> tuple[Codes, Codes, int]:
    """Return the class of each series on both sides by the labels that must match, and the number of classes."""
    both = concatenate((left, right))
    wanted = both.keep(matching.labels) if matching.on else both.drop((*matching.labels, NAME))
    codes, first = wanted.classes()
    return codes[: left.count], codes[left.count :], len(first)


def combine_sets(op: str, left: VectorValue, right: VectorValue, matching: Matching) -> VectorValue:
    """Apply and, or, unless."""
    left, right = left.present(), right.present()
    mine, theirs, count = _signatures(left.labels, right.labels, matching)
    steps = left.here.shape[1]
    if op == "or":
        here = right.here & ~_any(left.here, mine, count, steps)[theirs]
        return unite(left, VectorValue(right.labels, right.values, here, right.dropped).present())
    partner = _any(right.here, theirs, count, steps)[mine]
    here = left.here & (partner if op == "and" else ~partner)
    return VectorValue(left.labels, left.values, here, left.dropped).present()


def _any(here: Bools, codes: Codes, count: int, steps: int) -> Bools:
    out = np.zeros((count, steps), np.bool_)
    if _are_distinct(codes):
        out[codes] = here
    else:
        np.logical_or.at(out, codes, here)
    return out


def _are_distinct(codes: Codes) -> bool:
    """Return True if no two series have the same class."""
    return int(np.bincount(codes).max(initial=0)) <= 1


def combine(
    op: str, left: VectorValue, right: VectorValue, matching: Matching, as_bool: bool, budget: QueryBudget
) -> VectorValue:
    """Apply arithmetic or a comparison to pairs of series that match. Raises PromqlError if they are ambiguous, and
    LimitExceeded."""
    left, right = left.present(), right.present()
    many, one = (right, left) if matching.group == "right" else (left, right)
    steps = left.here.shape[1]
    if not many.labels.count or not one.labels.count:
        return empty_vector(steps)
    many_codes, one_codes, count = _signatures(many.labels, one.labels, matching)
    _check_unique(one, one_codes, count, matching)
    sizes = np.bincount(one_codes, minlength=count)
    charge_cells(budget, int(sizes[many_codes].sum()), steps)
    rows, partners = _pairs(many_codes, one_codes, sizes)
    many, one = many.take(rows), one.take(partners)
    here = many.here & one.here
    if not matching.group:
        _check_one_to_one(here, many_codes[rows], count)
    a, b = many.values, one.values
    if matching.group == "right":
        a, b = b, a
    values = compute(op, a, b)
    dropped = many.dropped
    if op in COMPARISONS and not as_bool:
        with np.errstate(all="ignore"):
            here &= COMPARISONS[op](a, b)
        values = a
    labels = _result_labels(op, many.labels, one.labels, matching)
    if as_bool:
        dropped = np.ones_like(dropped)
    united = merge_equal(VectorValue(labels, values, here, dropped), NOT_UNIQUE if matching.group else SAME_LABELS)
    return united.present()


def _pairs(many: Codes, one: Codes, sizes: Rows) -> tuple[Rows, Rows]:
    """Return all pairs of rows of equal classes; `sizes`: rows of `one` in each class."""
    order = np.argsort(one, kind="stable")
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    times = sizes[many]
    rows = np.repeat(np.arange(len(many)), times)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    return rows, order[starts[many[rows]] + within]


def _check_unique(one: VectorValue, codes: Codes, count: int, matching: Matching) -> None:
    """Raise PromqlError if two series of the side that must be unique match at one step."""
    if _are_distinct(codes):
        return
    held = np.zeros((count, one.here.shape[1]), np.int64)
    np.add.at(held, codes, one.here)
    if not (held > 1).any():
        return
    code, step = np.argwhere(held > 1)[0]
    rows = np.flatnonzero((codes == code) & one.here[:, step])[:2]
    found = ", ".join(_text(labels) for labels in one.labels.take(rows).dicts())
    labels = one.labels.take(rows[:1])
    group = labels.keep(matching.labels) if matching.on else labels.drop((*matching.labels, NAME))
    side = "left" if matching.group == "right" else "right"
    raise PromqlError(
        f"found duplicate series for the match group {_text(group.dicts()[0])} on the {side} hand-side of the"
        f" operation: [{found}];many-to-many matching not allowed: matching labels must be unique on one side"
    )


def _text(labels: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _check_one_to_one(here: Bools, codes: Codes, count: int) -> None:
    if _are_distinct(codes):
        return
    held = np.zeros((count, here.shape[1]), np.int64)
    np.add.at(held, codes, here)
    if (held > 1).any():
        raise PromqlError("multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)")


def _result_labels(op: str, many: LabelSets, one: LabelSets, matching: Matching) -> LabelSets:
    """Return the labels of the results: those of the many side, reduced for one-to-one matching."""
    labels = many if op in COMPARISONS else many.drop(METADATA)
    if not matching.group:
        labels = labels.keep(matching.labels) if matching.on else labels.drop(matching.labels)
    for name in matching.include:
        labels = labels.with_column(name, one.column(name))
    return labels
