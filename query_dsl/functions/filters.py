"""Filters select series of a result; series and their order stay unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from artimon.model.select import NAME, Matcher
from artimon.model.values import type_of
from query_dsl.functions.filters_kernels import COMPARISONS, best_rows, check_comparison, comparable, compare, summarize
from query_dsl.functions.operators_kernels import mixed_comparison
from query_dsl.functions.registry import Args, Argument
from query_dsl.functions.staleness import FILTERS as PRESENCE_FILTERS
from query_dsl.functions.staleness import note_if_empty
from query_dsl.functions.step import Evaluation, Step, StepCall
from query_dsl.results.matrix import Matrix
from query_dsl.results.raw_series import RawSeries
from query_dsl.results.result_cells import INTEGER as INTEGER_TYPE
from query_dsl.results.result_cells import Bools, Cells, Example, SeriesKey, canonical_order, of_type, take
from query_dsl.tree.entry_table import read_only_table
from query_dsl.tree.query_errors import QueryError, similar_hint
from query_dsl.tree.selector import accepts, matcher_text, parse_selector

RANKS = ("last", "mean", "max", "min")
NUMERIC = ("min", "max", "mean")
"""Summaries that require numbers."""


def match_keys(keys: Sequence[SeriesKey], matchers: Sequence[Matcher]) -> Bools:
    """Mask (series,) of the keys that all matchers accept; each distinct label value is tested once."""
    out = np.ones(len(keys), np.bool_)
    for matcher in matchers:
        seen: dict[str, bool] = {}
        for row, key in enumerate(keys):
            value = key.get(matcher.label)
            if value not in seen:
                seen[value] = accepts(matcher, value)
            out[row] &= seen[value]
    return out


def _match_arguments(keys: Sequence[SeriesKey], args: Args, context: Evaluation) -> Bools:
    """Do the same for the selector in the arguments; add a note with the reason if no series is left."""
    matchers = parse_selector(args["selector"], of_all=False).matchers
    fits = match_keys(keys, matchers)
    if len(keys) and not fits.any():
        context.note(f"filter: none of {len(keys)} series fits {args['selector']}{_explain_mismatch(keys, matchers)}")
    return fits


def _explain_mismatch(keys: Sequence[SeriesKey], matchers: Sequence[Matcher]) -> str:
    for matcher in matchers:
        if not match_keys(keys, (matcher,)).any():
            carried = {label for key in keys for label, _ in key.labels} | {NAME}
            if matcher.label not in carried:
                return f": none has the label {matcher.label!r:.80}{similar_hint(matcher.label, carried)}"
            values = {key.get(matcher.label) for key in keys} - {""}
            hint = similar_hint(matcher.value, values) or f"; there are: {', '.join(sorted(values)[:5]) or 'no values'}"
            return f": none has {matcher_text(matcher)}{hint}"
    return ""


def _select(asked: StepCall) -> Matrix:
    found = asked.child()
    return found.take(_match_arguments(found.keys, asked.args, asked.context))


def _select_samples(found: RawSeries, args: Args, context: Evaluation) -> RawSeries:
    return found.take(np.flatnonzero(_match_arguments(found.keys, args, context)))


def _against(name: str) -> Callable[[StepCall], Matrix]:
    """Make the filter that compares the summary `name` of a series with the given value."""

    def run(asked: StepCall) -> Matrix:
        op, value = asked.args["op"], asked.args["value"]
        check_comparison(f"filter {name}", op, value)
        found = asked.child()
        if name in NUMERIC and isinstance(value, str):
            raise QueryError(f'filter {name} takes a number, not the text {value!r:.80}: for texts use "last"')
        if name in NUMERIC or op not in ("==", "!="):
            found = asked.context.numeric_only(found, f"filter {name}")
        found = _comparable(found, op, value, asked)
        return note_if_empty(found.take(satisfies(found.column, name, op, value, found.strings)), found, asked, name)

    return run


def _comparable(found: Matrix, op: str, value: float | bool | str, asked: StepCall) -> Matrix:
    """Leave out the series that `value` cannot be compared with. Raises QueryError if it can be with none."""
    fits = comparable(found.types, value)
    if fits.all():
        return found
    if not fits.any():
        text, kind = (value, int(found.types[0])) if isinstance(value, str) else ("", int(type_of(value)))
        raise mixed_comparison(op, kind, text)
    asked.context.note(f"filter {asked.entry.name}: {int((~fits).sum())} series left out: texts and numbers are unlike")
    return found.take(fits)


def satisfies(column: Cells, name: str, op: str, value: float | bool | str, strings: tuple[str, ...]) -> Bools:
    """Mask (series,) of the series that satisfy `name op value`; a series without values never does."""
    if name == "any":
        return np.asarray(compare(column, op, value, strings).any(axis=1))
    if name == "all":
        fits = compare(column, op, value, strings) | ~column.present
        return np.asarray(fits.all(axis=1) & column.present.any(axis=1))
    return compare(summarize(column, name), op, value, strings)[:, 0]


def _size(asked: StepCall) -> Matrix:
    found, op, n = asked.child(), asked.args["op"], asked.args["n"]
    counts = found.present.sum(axis=1, keepdims=True).astype(np.int64)
    sizes = of_type(INTEGER_TYPE, counts, np.ones(counts.shape, np.bool_))
    return note_if_empty(found.take(compare(sizes, op, n, ())[:, 0]), found, asked, "size")


def _size_samples(found: RawSeries, args: Args, _context: Evaluation) -> RawSeries:
    counts = found.counts[:, None]
    sizes = of_type(INTEGER_TYPE, counts, np.ones(counts.shape, np.bool_))
    return found.take(np.flatnonzero(compare(sizes, args["op"], args["n"], ())[:, 0]))


def _best(greatest: bool) -> Callable[[StepCall], Matrix]:
    def run(asked: StepCall) -> Matrix:
        found = asked.context.numeric_only(asked.child(), "filter top" if greatest else "filter bottom")
        by_name = canonical_order(found.keys)
        rows = by_name[best_rows(take(found.column, by_name), asked.args["rank"], asked.args["k"], greatest)]
        return found.take(np.sort(rows))

    return run


_OP = Argument("op", "choice", "comparison; texts allow == and != only", choices=COMPARISONS)
_VALUE = Argument("value", "value", "a number, true or false, or a text")
_RANK = Argument("rank", "choice", "value of a series in the range to rank by", "last", choices=RANKS)
_K = Argument("k", "integer", "number of series to keep", least=1, unit="series")
_GIVEN = ((1.0, None, 5.0),)


def _comparison(name: str, summary_text: str, op: str, value: str, stays: bool = True) -> Step:
    expect: tuple[float | None, ...] = _GIVEN[0] if stays else ()
    return Step(
        name=name,
        summary=summary_text,
        example=f'fetch(\'temperature\').filter("{name}", "{op}", {value})',
        case=Example(_GIVEN, expect),
        case_args=f'"{op}", {value}',
        arguments=(_OP, _VALUE),
        family="filter",
        run=_against(name),
    )


FILTERS: Mapping[str, Step] = read_only_table(
    Step(
        name="fits",
        summary="Series whose name and labels, as they are in the result, fit a selector. Of any type.",
        example="fetch('temperature').filter('{rack=~\"r1.*\"}')",
        case=Example(_GIVEN, _GIVEN[0]),
        case_args='\'{rack="",__name__="x"}\'',
        arguments=(Argument("selector", "selector", "conditions as in fetch"),),
        family="filter",
        run=_select,
        on_samples=_select_samples,
    ),
    _comparison("last", "Series whose newest value in the range meets the comparison; STRING by == and !=.", ">", "4"),
    _comparison("first", "Series whose oldest value in the range meets the comparison; STRING too.", "<", "4"),
    _comparison(
        "any", "Series with a value that meets the comparison; STRING too. False for an empty series.", "<", "2"
    ),
    _comparison(
        "all",
        "Series of which all present values meet the comparison; STRING too. False for an empty series.",
        ">=",
        "1",
    ),
    _comparison("min", "Series whose smallest value in the range meets the comparison; STRING is left out.", ">=", "1"),
    _comparison(
        "max",
        "Series whose greatest value in the range meets the comparison; STRING is left out.",
        "<",
        "5",
        stays=False,
    ),
    _comparison("mean", "Series whose mean over the range meets the comparison; STRING is left out.", "==", "3.0"),
    Step(
        name="size",
        summary="Series whose number of values in the range meets the comparison, of any type.",
        example='fetch(\'temperature\').filter("size", ">=", 5)',
        case=Example(_GIVEN, _GIVEN[0]),
        case_args='"==", 2',
        arguments=(_OP, Argument("n", "integer", "number of values", least=0, unit="values")),
        family="filter",
        run=_size,
        on_samples=_size_samples,
    ),
    Step(
        name="top",
        summary="The k series with the greatest value, of all; NaN ranks below every number, ties go by name "
        "and labels. STRING is left out.",
        example='fetch(\'queue.length\').filter("top", 5, rank="max")',
        case=Example(((1.0, None, 5.0), (2.0, 3.0, None)), (1.0, None, 5.0)),
        case_args="1",
        arguments=(_K, _RANK),
        family="filter",
        run=_best(True),
    ),
    Step(
        name="bottom",
        summary="The k series with the least value, of all; NaN comes after every number, ties go by name "
        "and labels. STRING is left out.",
        example="fetch('disk.free').filter(\"bottom\", 5)",
        case=Example(((2.0, 3.0, None), (1.0, None, 5.0)), (2.0, 3.0, None)),
        case_args="1",
        arguments=(_K, _RANK),
        family="filter",
        run=_best(False),
    ),
    *PRESENCE_FILTERS,
)
