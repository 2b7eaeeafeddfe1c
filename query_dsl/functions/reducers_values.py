"""Reducers that derive new series from a class: frequencies of values, quantiles of histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

import numpy as np

from artimon.compute.checkpoint import checkpoint
from query_dsl.functions.reducers_base import GIVEN, ClassMembers, Reduced, Reducer
from query_dsl.functions.registry import Args, Argument
from query_dsl.results.label_table import LabelTable, first_rows, renumber
from query_dsl.results.query_result import texts_of
from query_dsl.results.result_cells import DOUBLE, INTEGER, Bools, Example, Floats, Ints, SeriesKey, doubles, of_type
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import series_text

MAX_SERIES = 10_000
MAX_CELLS = 5_000_000
"""Maximum number of values (series x buckets) that count_values makes: 40 MB."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf)")
TINY = 1e-12
"""Relative tolerance (of the sum) for equal bucket counts, because sums of rates are inexact."""


def count_values(members: ClassMembers, args: Args) -> Reduced:
    """Count the members with each value: one series per class and distinct value, missing where no member has it."""
    label = args["label"]
    _refuse_own_label(members, label)
    n = members.column.cells.shape[1]
    found: dict[tuple[int, str], Ints] = {}
    for kind in sorted(set(members.column.types.tolist())):
        rows = members.column.types == kind
        texts, cells = _texts(kind, members.column.cells[rows], members.strings, members.column.present[rows])
        codes, columns = _places(members.codes[rows], members.column.present[rows])
        pairs, count = renumber(codes * len(texts) + cells, len(members.classes) * len(texts))
        if len(found) + count > MAX_SERIES:
            raise QueryError(
                f"count_values would make more than {MAX_SERIES} series: {len(texts)} values in "
                f"{len(members.classes)} classes; round the values first, or choose fewer series"
            )
        if (len(found) + count) * n > MAX_CELLS:
            raise QueryError(
                f"count_values would make {len(found) + count} series of {n} buckets, more than {MAX_CELLS:,} values: "
                "round the values first, or ask for a shorter range"
            )
        checkpoint()
        counts = np.bincount(pairs * n + columns, minlength=count * n).reshape(count, n)
        for pair, at in enumerate(first_rows(pairs, count).tolist()):
            place = int(codes[at]), texts[int(cells[at])]
            found[place] = found[place] + counts[pair] if place in found else counts[pair]
    keys = [_with_label(members.classes[code], label, text) for code, text in found]
    table = np.array(list(found.values()), np.int64).reshape(len(found), n)
    own = np.array([code for code, _ in found], np.int64)
    return Reduced(of_type(INTEGER, table, table > 0), (), keys, own)


def _refuse_own_label(members: ClassMembers, label: str) -> None:
    if label.startswith("__"):
        raise QueryError(f"count_values: labels that begin with __ are reserved: choose another than {label!r}")
    if any(key.get(label) for key in members.classes):
        raise QueryError(f"count_values: the classes have the label {label!r} already: choose another for the values")


def _places(codes: Ints, present: Bools) -> tuple[Ints, Ints]:
    """Return the class and the column of each present value."""
    rows, columns = np.nonzero(present)
    return codes[rows], columns


def _texts(kind: int, cells: Ints, strings: tuple[str, ...], present: Bools) -> tuple[list[str], Ints]:
    """Return the distinct values as texts, and the index into them for each present value."""
    values = cells[present]
    if kind == DOUBLE:
        floats = values.view(np.float64) + 0.0  # -0.0 is 0.0
        values = np.where(np.isnan(floats), np.nan, floats).view(np.int64)  # one bit pattern for all NaN
    known, codes = np.unique(values, return_inverse=True)
    return texts_of(kind, known, strings), codes


def _with_label(key: SeriesKey, label: str, text: str) -> SeriesKey:
    return SeriesKey(key.name, tuple(sorted([*key.labels, (label, text)]))) if text else key


def histogram_quantile(members: ClassMembers, args: Args) -> Reduced:
    """Quantile of cumulative buckets with upper bounds in the label `le`, as defined by Prometheus."""
    return _of_histograms(members, args, "histogram_quantile", partial(_quantiles, args["q"]))


def histogram_fraction(members: ClassMembers, args: Args) -> Reduced:
    """Share of the values of a histogram in (lower, upper]."""
    return _of_histograms(members, args, "histogram_fraction", partial(_fractions, args["lower"], args["upper"]))


def _of_histograms(
    members: ClassMembers, args: Args, name: str, run: Callable[[Floats, Floats, Bools], Floats]
) -> Reduced:
    """Apply `run` to the bounds (k, size), cumulative counts (k, size, n) and masks of histograms of equal size."""
    bounds, members = _bounded(members, args["le"], name)
    buckets, present, codes, bounds = _coalesced(members, bounds)
    n = buckets.shape[1]
    out, some = np.full((len(members.classes), n), np.nan), np.zeros((len(members.classes), n), np.bool_)
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    sizes = np.diff(np.append(starts, len(codes)))
    owners = codes[starts]
    _note_endless(members, owners, bounds[starts + sizes - 1], name)
    with np.errstate(all="ignore"):
        for size in np.unique(sizes).tolist():
            chosen = sizes == size
            rows = starts[chosen][:, None] + np.arange(size)
            out[owners[chosen]] = run(bounds[rows], buckets[rows], present[rows])
            some[owners[chosen]] = present[rows].any(axis=1)
    return Reduced(doubles(out, some))


def _bounded(members: ClassMembers, label: str, name: str) -> tuple[Floats, ClassMembers]:
    """Parse upper bounds; return them and the members that have one."""
    column = LabelTable(members.keys).column(label)
    parsed = [float(value) if _NUMBER.fullmatch(value) else math.nan for value in column.values]
    bounds = np.array(parsed)[column.codes]
    unread = np.isnan(bounds)
    if unread.any():
        first = members.keys[int(np.argmax(unread))]
        shown = series_text(first.name, dict(first.labels))
        members.note(f"{name}: {int(unread.sum())} series without a number in {label} left out, such as {shown}")
    return bounds[~unread], members.only(~unread)


def _coalesced(members: ClassMembers, bounds: Floats) -> tuple[Floats, Bools, Ints, Floats]:
    """Return counts, presence, class and bound of buckets, sorted by class and bound; equal bounds are summed."""
    order = np.lexsort((bounds, members.codes))
    codes, bounds = members.codes[order], bounds[order]
    present = members.column.present[order]
    values = np.where(present, members.floats[order], 0.0)
    if not len(codes):
        return values, present, codes, bounds
    other = (codes[1:] != codes[:-1]) | (bounds[1:] != bounds[:-1])
    starts = np.flatnonzero(np.append(True, other))
    return (
        np.add.reduceat(values, starts, axis=0),
        np.logical_or.reduceat(present, starts, axis=0),
        codes[starts],
        bounds[starts],
    )


def _note_endless(members: ClassMembers, owners: Ints, last: Floats, name: str) -> None:
    """Add a note with the classes that lack the +Inf bucket."""
    lacking = owners[last != math.inf]
    if len(lacking):
        key = members.classes[int(lacking[0])]
        members.note(
            f'{name}: {len(lacking)} classes without a bucket le="+Inf" are NaN, such as '
            f"{series_text(key.name, dict(key.labels))}"
        )


def _quantiles(q: float, bounds: Floats, counts: Floats, present: Bools) -> Floats:
    """Return quantiles (k, n) of bounds (k, size) and cumulative counts (k, size, n), some of them missing."""
    k, size, n = counts.shape
    counts = _monotonic(counts, present)
    total = counts[:, -1]
    rank = q * total
    out = np.full((k, n), math.nan)
    found, begun = np.zeros((k, n), np.bool_), np.zeros((k, n), np.bool_)
    before, below = np.zeros((k, n)), np.zeros((k, n))
    for place in range(size - 1):
        checkpoint()
        bound, count, here = bounds[:, place, None], counts[:, place], present[:, place]
        inside = np.where(begun, below + (bound - below) * ((rank - before) / (count - before)), bound * (rank / count))
        value = np.where(~begun & (bound <= 0), bound, inside)
        hit = here & ~found & (count >= rank)
        out[hit] = value[hit]
        found |= hit
        begun |= here
        before, below = np.where(here, count, before), np.where(here, bound, below)
    out = np.where(found, out, below)  # in the +Inf bucket: the bound below it
    known = present[:, -1] & (bounds[:, -1, None] == math.inf) & begun & (total != 0) & ~np.isnan(total)
    return np.where(known, out, math.nan)


def _fractions(lower: float, upper: float, bounds: Floats, counts: Floats, present: Bools) -> Floats:
    """Return the shares (k, n) of the counts in (lower, upper]."""
    counts = _monotonic(counts, present)
    total = counts[:, -1]
    shares = (_count_below(upper, bounds, counts, present) - _count_below(lower, bounds, counts, present)) / total
    known = present[:, -1] & (bounds[:, -1, None] == math.inf) & (total != 0)
    return np.where(known, np.maximum(shares, 0.0), math.nan)


def _count_below(value: float, bounds: Floats, counts: Floats, present: Bools) -> Floats:
    """Return the counts (k, n) of the values up to `value`, which lie evenly inside a bucket."""
    out, before, below = (np.zeros(counts[:, 0].shape) for _ in range(3))
    begun = np.zeros(out.shape, np.bool_)
    for place in range(counts.shape[1]):
        checkpoint()
        bound, here = bounds[:, place, None], present[:, place]
        low = np.where(begun, below, np.minimum(bound, 0.0))
        share = np.where(bound <= value, 1.0, np.clip((value - low) / (bound - low), 0.0, 1.0))
        out = np.where(here & (share > 0), before + (counts[:, place] - before) * share, out)
        before, below = np.where(here, counts[:, place], before), np.where(here, bound, below)
        begun |= here
    return out


def _monotonic(counts: Floats, present: Bools) -> Floats:
    """Make counts non-decreasing, and equal to the previous count within TINY."""
    out = counts.copy()
    before, begun = np.zeros(counts[:, 0].shape), np.zeros(counts[:, 0].shape, np.bool_)
    for place in range(counts.shape[1]):
        checkpoint()
        here, count = present[:, place], counts[:, place]
        trifle = np.abs(count - before) < TINY * (np.abs(count) + np.abs(before))
        lower = begun & ((count < before) | trifle)
        before = np.where(here & ~lower, count, before)
        out[:, place] = before
        begun |= here
    return out


ENTRIES = (
    Reducer(
        name="count_values",
        summary="One series per distinct value, the value as a label: the number of members that have it (INTEGER), "
        "missing where none has; at most 10000 series.",
        example='fetch(\'build.version\').count_values("version", by=["dc"])',
        case=Example(GIVEN, (1.0, None, None)),
        case_args="label='v'",
        run=count_values,
        one_per_class=False,
        arguments=(Argument("label", "label", "the label that gets the value as a text"),),
        min_count=0,
        total=True,
        strings=True,
        unit="series",
    ),
    Reducer(
        name="histogram_quantile",
        summary="Quantile (DOUBLE) of a histogram of cumulative buckets, as Prometheus defines it: classes are without "
        'the label of the upper bounds, le="+Inf" is needed, values lie evenly inside a bucket.',
        example="fetch('latency.bucket').rate(\"5m\").histogram_quantile(0.9, without=[])",
        case=Example(GIVEN, (float("nan"), None, float("nan"))),
        case_args="q=0.5, le='i'",
        run=histogram_quantile,
        arguments=(
            Argument("q", "number", "the quantile: 0.5 is the median", least=0, most=1, unit="share"),
            Argument("le", "label", "the label of the upper bounds", "le"),
        ),
        carried="le",
        split="le",
        unit="that of the upper bounds",
    ),
    Reducer(
        name="histogram_fraction",
        summary="Share (DOUBLE, 0 to 1) of the values of a histogram above `lower` and up to `upper`, as those within "
        'a limit of latency: classes are without the label of the upper bounds, le="+Inf" is needed, values lie evenly '
        "inside a bucket.",
        example="fetch('latency.bucket').rate(\"5m\").histogram_fraction(0, 0.3, without=[])",
        case=Example(GIVEN, (float("nan"), None, float("nan"))),
        case_args="lower=0, upper=1, le='i'",
        run=histogram_fraction,
        arguments=(
            Argument("lower", "number", "values above it count", unit="that of the upper bounds"),
            Argument("upper", "number", "values up to it count", unit="that of the upper bounds"),
            Argument("le", "label", "the label of the upper bounds", "le"),
        ),
        carried="le",
        split="le",
        unit="share",
    ),
)
