"""Transforms of raw samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from query_dsl.functions.registry import Args, Argument
from query_dsl.functions.step import Evaluation, S, Step
from query_dsl.functions.transforms_labels import set_label
from query_dsl.results.query_result import texts_of
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import DOUBLE, INTEGER, Bools, Example, Floats, Ints, SeriesKey
from query_dsl.tree.query_errors import QueryError

MAX_NEW_SERIES = 10_000
"""Maximum number of series that one step may add."""


def shift_samples(found: RawSeries, args: Args, _context: Evaluation) -> RawSeries:
    """Move all times `d` later, including start times and ends."""
    ms = args["d"]
    births = None if found.births is None else found.births + ms
    ended = np.where(found.ended_ms > 0, found.ended_ms + ms, 0)
    return found.like(times=found.times + ms, births=births, ended_ms=ended)


def clip_samples(found: RawSeries, args: Args, context: Evaluation) -> RawSeries:
    """Keep samples in (start, end]."""
    start, end = (args[name].resolve(context.now_ms) for name in ("start", "end"))
    return found.keep((found.times > start) & (found.times <= end))


def limited(found: S, args: Args, context: Evaluation) -> S:
    """Keep the first n series, on a grid or of raw samples."""
    if args["n"] < len(found):
        context.note(f"limit: the first {args['n']} of {len(found)} series")
    return found.take(np.arange(min(args["n"], len(found))))


def integrate_samples(found: RawSeries, args: Args, context: Evaluation) -> RawSeries:
    """Integrate by left rectangles from the oldest sample of each series; DOUBLE."""
    found = context.numeric_only(found, "integrate")
    values, times = floats_of(found), found.times
    out = np.empty(found.samples, np.float64)
    with np.errstate(all="ignore"):
        areas = values[:-1] * np.diff(times) / 1000.0 if found.samples else values
        for i in range(len(found)):
            part = found.span(i)
            if part.stop > part.start:
                steps = np.concatenate(([float(args["initial"])], areas[part.start : part.stop - 1]))
                out[part] = np.cumsum(steps)
    return found.as_computed(types=np.full(len(found), DOUBLE, np.uint8), cells=out.view(np.int64))


def floats_of(found: RawSeries) -> Floats:
    """Return values as float64, (samples,); arbitrary for STRING."""
    cells = np.ascontiguousarray(found.cells)
    return np.where(found.types[found.owner] == DOUBLE, cells.view(np.float64), cells.astype(np.float64))


def _dedup(found: RawSeries, _args: Args, _context: Evaluation) -> RawSeries:
    """Keep the last sample of each time."""
    return found.keep(~_same_as_next(found, found.times))


def _same_as_next(found: RawSeries, values: Ints) -> Bools:
    out = np.zeros(found.samples, np.bool_)
    out[:-1] = (values[1:] == values[:-1]) & (found.owner[1:] == found.owner[:-1])
    return out


def _equal_to_next(found: RawSeries) -> Bools:
    """Mask (samples,): True if the next sample of the series has an equal value; NaN equals NaN, 0.0 equals -0.0."""
    return _same_as_next(found, comparable_cells(found))


def comparable_cells(found: RawSeries) -> Ints:
    """Return cells (samples,) that are equal where values within a series are equal."""
    cells = np.ascontiguousarray(found.cells)
    values = cells.view(np.float64)
    double = found.types[found.owner] == DOUBLE
    cells = np.where(double & (values == 0.0), 0, cells)
    with np.errstate(invalid="ignore"):
        return np.where(double & np.isnan(values), np.float64("nan").view(np.int64), cells)


def _compact(found: RawSeries, args: Args, _context: Evaluation) -> RawSeries:
    """Keep the first sample of each run of equal values and the last of the series; with `ranges` of each run."""
    equal = _equal_to_next(found)
    first = np.ones(found.samples, np.bool_)
    first[1:] = ~equal[:-1]
    if args["ranges"]:
        return found.keep(first | ~equal)
    last = np.zeros(found.samples, np.bool_)
    last[found.starts[1:][found.counts > 0] - 1] = True
    return found.keep(first | last)


def split_series(found: RawSeries, part: Ints, texts: Sequence[str], label: str, name: str, hint: str) -> RawSeries:
    """Split series: sample k goes to the series of its row with label texts[part[k]]; no sample is lost."""
    places, owner = np.unique(found.owner * np.int64(len(texts) or 1) + part, return_inverse=True)
    if len(places) > MAX_NEW_SERIES + len(found):
        raise QueryError(
            f"{name} would make {len(places)} series of {len(found)}: at most {MAX_NEW_SERIES} more; {hint}"
        )
    rows = (places // (len(texts) or 1)).astype(np.intp)
    keys = [
        set_label(found.keys[row], label, texts[number], name)
        for row, number in zip(rows.tolist(), (places % (len(texts) or 1)).tolist(), strict=True)
    ]
    return found.reassigned(owner.astype(np.int64), rows, keys)


def _split(found: RawSeries, args: Args, _context: Evaluation) -> RawSeries:
    """Start a new series after each gap longer than `gap`, numbered from 0."""
    breaks = np.zeros(found.samples, np.int64)
    breaks[1:] = (np.diff(found.times) > args["gap"]) & (found.owner[1:] == found.owner[:-1])
    run = np.cumsum(breaks)
    begin = found.starts[:-1][found.owner]
    part = run - run[begin] if found.samples else run
    texts = [str(i) for i in range(int(part.max(initial=0)) + 1)]
    return split_series(found, part, texts, args["label"], "split", "use a longer gap")


def _modulo(found: RawSeries, args: Args, _context: Evaluation) -> RawSeries:
    """Take times modulo the period, with one series per quotient."""
    period = args["period"]
    numbers, part = np.unique(found.times // period, return_inverse=True)
    texts = [str(number) for number in numbers.tolist()]
    cut = split_series(found, part.astype(np.int64), texts, args["label"], "modulo", "use a longer period")
    births = None if cut.births is None else cut.times % period - (cut.times - cut.births)
    return cut.like(times=cut.times % period, births=births, ended_ms=np.zeros(len(cut), np.int64))


def _value_split(found: RawSeries, args: Args, _context: Evaluation) -> RawSeries:
    """Split each series by value."""
    cells, owner = comparable_cells(found), found.owner
    texts: list[str] = []
    part = np.zeros(found.samples, np.int64)
    for kind in np.unique(found.types).tolist():
        mine = found.types[owner] == kind
        known, numbers = np.unique(cells[mine], return_inverse=True)
        part[mine] = numbers + len(texts)
        if len(texts) + len(known) > MAX_NEW_SERIES + len(found):
            count = len(texts) + len(known)
            raise QueryError(f"value_split: {count} different values: at most {MAX_NEW_SERIES} series can be made")
        texts += texts_of(kind, known, found.strings)
    return split_series(found, part, texts, args["label"], "value_split", "round the values, or take another variable")


def _mode(found: RawSeries, _args: Args, _context: Evaluation) -> RawSeries:
    """Keep the most frequent values of each series, each at its first time."""
    owner, cells = found.owner, comparable_cells(found)
    order = np.lexsort((np.arange(found.samples), cells, owner))
    sorted_owner, sorted_cells = owner[order], cells[order]
    new = np.ones(found.samples, np.bool_)
    new[1:] = (sorted_owner[1:] != sorted_owner[:-1]) | (sorted_cells[1:] != sorted_cells[:-1])
    starts = np.flatnonzero(new)
    sizes = np.diff(np.append(starts, found.samples))
    most = np.zeros(len(found), np.int64)
    np.maximum.at(most, sorted_owner[starts], sizes)
    keep = np.zeros(found.samples, np.bool_)
    keep[order[starts[sizes == most[sorted_owner[starts]]]]] = True
    return found.keep(keep)


def _merge(found: RawSeries, _args: Args, _context: Evaluation) -> RawSeries:
    """Merge series with equal names and labels; INTEGER and DOUBLE become DOUBLE."""
    numbers: dict[SeriesKey, int] = {}
    places = np.array([numbers.setdefault(key, len(numbers)) for key in found.keys], np.int64)
    if len(numbers) == len(found):
        return found
    found = _unify_types(found, places, list(numbers))
    rows = np.unique(places, return_index=True)[1]
    ended = np.zeros(len(numbers), np.int64)
    np.maximum.at(ended, places, found.ended_ms)
    goes_on = np.zeros(len(numbers), np.bool_)
    goes_on[places[found.ended_ms == 0]] = True
    made = found.like(ended_ms=np.where(goes_on, 0, ended)[places])
    return made.reassigned(places[found.owner], rows, list(numbers))


def _unify_types(found: RawSeries, places: Ints, keys: list[SeriesKey]) -> RawSeries:
    """Convert the series of each place to a common type; QueryError if there is none."""
    low, high = np.full(len(keys), 255, np.uint8), np.zeros(len(keys), np.uint8)
    np.minimum.at(low, places, found.types)
    np.maximum.at(high, places, found.types)
    mixed = low != high
    if not mixed.any():
        return found
    wrong = mixed[places] & ~np.isin(found.types, (INTEGER, DOUBLE))
    if wrong.any():
        name = keys[int(places[np.flatnonzero(wrong)[0]])].name
        raise QueryError(f"merge: the series of {name} have incompatible types: cast them first")
    whole = mixed[places] & (found.types == INTEGER)
    cells = np.where(whole[found.owner], found.cells.astype(np.float64).view(np.int64), found.cells)
    return found.like(types=np.where(whole, DOUBLE, found.types).astype(np.uint8), cells=cells)


_LABEL = "label that distinguishes the new series"
_ROW = (1.0, 1.0, 5.0)


def _entry(
    name: str, summary: str, args: str, run: Any, *arguments: Argument, row: tuple[float | None, ...] = _ROW
) -> Step:
    return Step(
        name=name,
        summary=summary,
        example=f"samples('temperature').transform(\"{name}\"{args})",
        case=Example((_ROW,), row),
        case_args=args.removeprefix(", "),
        arguments=arguments,
        family="transform",
        on_samples=run,
    )


ENTRIES: tuple[Step, ...] = (
    _entry(
        "dedup",
        "Of samples of one series at one time only the last one; equal neighbours stay. Of any type.",
        "",
        _dedup,
    ),
    _entry(
        "compact",
        "Of each run of equal values only the first sample, and the last sample of the series; with ranges=True also "
        "the last of each run. NaN equals NaN. Of any type.",
        "",
        _compact,
        Argument("ranges", "flag", "True keeps the last sample of each run, too", False),
        row=(1.0, None, 5.0),
    ),
    _entry(
        "split",
        "A new series after every gap longer than `gap`; a label counts them from 0. Of any type.",
        ', "5m"',
        _split,
        Argument("gap", "duration", "the longest gap inside a series"),
        Argument("label", "label", _LABEL, "split"),
    ),
    _entry(
        "modulo",
        "Times modulo the period, in ms since the epoch; a series for each quotient, which becomes a label. Of "
        "any type.",
        ', "1d"',
        _modulo,
        Argument("period", "duration", "for example a day, to overlay days"),
        Argument("label", "label", _LABEL, "quotient"),
    ),
    _entry(
        "merge",
        "Series that have become equal in name and labels as one, samples in the order of time; INTEGER with DOUBLE "
        "gives DOUBLE, other types stay.",
        "",
        _merge,
    ),
    _entry(
        "value_split",
        "A series for each value, whose text becomes a label; samples keep their times and values. Of any type.",
        "",
        _value_split,
        Argument("label", "label", _LABEL, "value"),
        row=(1.0, 1.0, None),
    ),
    _entry(
        "mode",
        "The most frequent values of each series, each at the time when it came first; several if they are equally "
        "frequent. Of any type.",
        "",
        _mode,
        row=(1.0, None, None),
    ),
)
