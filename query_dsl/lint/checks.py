"""Checks of a query: what is wrong at which place, and what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher, Series
from artimon.model.values import Kind
from query_dsl.evaluation.windows import computed_text, gauges_text
from query_dsl.functions.equivalence_classes import class_key
from query_dsl.functions.join import classifier, pair_rows, series_name
from query_dsl.lint.catalogue import Catalogue
from query_dsl.lint.outline import Grouped, Joined, Other, Part, Selection, Windowed, below_labels, selections, walk
from query_dsl.results.result_cells import SeriesKey
from query_dsl.stores.empty_selection import unknown_label
from query_dsl.tree.nodes import Span
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.selector import accepts, matcher_text
from query_dsl.tree.times import format_duration

MAX_GROUPS = 500
"""Series of an answer above which a reduction by labels is reported: a chart draws 200."""
_SPECIAL = re.compile(r"[\\.+*?()\[\]{}|^$]")
_ANCHORED = re.compile(r"\^.*|.*(?<!\\)\$", re.DOTALL)
_PLAIN_OPERATORS = {"=~": "=", "!~": "!="}
_VALUES = frozenset(("last", "first", "min", "max", "mean", "avg", "median", "quantile"))
"""Window functions whose result is a value of the counter itself; those of PromQL have the suffix `_over_time`."""
_COUNTS = frozenset(("count", "group", "count_values", "count_distinct"))
"""Reductions that do not use the values."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Warning about a part of a query. `position`: first character in the text; None if unknown."""

    code: str
    message: str
    position: int | None = None
    length: int = 1

    def to_dict(self) -> dict[str, str | int | None]:
        """Return a dict that is ready for JSON."""
        return {"code": self.code, "message": self.message, "position": self.position, "length": self.length}

    def shown(self, text: str) -> str:
        """Return the message above the line of the text, with carets under the place."""
        return str(QueryError(self.message, self.position, text, self.length))


def text_findings(text: str, outline: Part) -> Iterator[Finding]:
    """Yield the findings that need no store."""
    for part in walk(outline):
        match part:
            case Selection():
                yield from _patterns(text, part)
            case Windowed() if part.is_for_counters and _is_computed(part.child):
                yield _at(part.span, "rate-of-sum", computed_text(part.function))


def _patterns(text: str, part: Selection) -> Iterator[Finding]:
    """Check the regular expressions of a selector."""
    for matcher in part.as_written or part.matchers:
        if matcher.op not in _PLAIN_OPERATORS:
            continue
        told = matcher_text(matcher)
        if (matcher.op, matcher.value) == ("=~", ".*"):
            said = f'accepts every series, also without the label: leave it out, or write {matcher.label}=~".+"'
        elif not _SPECIAL.search(matcher.value):
            plain = matcher_text(replace(matcher, op=_PLAIN_OPERATORS[matcher.op]))
            said = f"is a plain value: write {plain}, which is found faster"
        elif _ANCHORED.fullmatch(matcher.value):
            said = "matches the whole value without ^ and $: leave them out"
        else:
            continue
        yield _at(_place(text, part, matcher), "plain-regex", f"{told} {said}")


@dataclass(frozen=True, slots=True)
class KnownChecks:
    """Checks of one outline that need the series of a store."""

    text: str
    outline: Part
    catalogue: Catalogue
    _keys: dict[int, list[SeriesKey] | None] = field(default_factory=dict)
    """Keys by the id of the part."""

    def findings(self) -> Iterator[Finding]:
        """Yield the findings. Raises SelectError."""
        yield from self.counters(self.outline, False)
        inner = {id(below) for part in walk(self.outline) if isinstance(part, Grouped) for below in walk(part.child)}
        for part in walk(self.outline):
            match part:
                case Selection():
                    yield from self.selection(part)
                case Windowed():
                    yield from self.window(part)
                case Grouped():
                    yield from self.groups(part, id(part) in inner)
                case Joined():
                    yield from self.join(part)

    def selection(self, part: Selection) -> Iterator[Finding]:
        """Check that series match, and that they have the labels which are compared."""
        found = self.catalogue.find(part.matchers)
        if not found.is_whole:
            return
        if not found.series:
            yield _at(part.span, "no-series", self.catalogue.explain(part.as_written or part.matchers))
            return
        for matcher in part.matchers:
            if matcher.label not in (NAME, *found.labels) and accepts(matcher, ""):
                told = f"{matcher_text(matcher)} changes nothing: {unknown_label(matcher.label, found.labels)}"
                yield _at(_place(self.text, part, matcher), "unknown-label", told)

    def counters(self, part: Part, is_rated: bool) -> Iterator[Finding]:
        """Find counters whose values are used without a rate."""
        match part:
            case Selection():
                series = self.catalogue.find(part.matchers).series
                if not is_rated and series and all(one.kind == Kind.COUNTER for one in series):
                    told = f"{_named(series[0])} is a counter, which only grows: take its rate or increase"
                    yield _at(part.span, "raw-counter", told)
            case Windowed(child=child, function=function):
                yield from self.counters(child, is_rated or function.removesuffix("_over_time") not in _VALUES)
            case Grouped(child=child, function=function):
                yield from self.counters(child, is_rated or function in _COUNTS)
            case Joined(left=left, right=right):
                yield from self.counters(left, is_rated)
                yield from self.counters(right, is_rated or part.is_filter)
            case Other(children=below):
                for one in below:
                    yield from self.counters(one, is_rated or part.reads_raw)

    def window(self, part: Windowed) -> Iterator[Finding]:
        """Check the kind of the series of a window function, and the width of its windows."""
        below = below_labels(part.child)
        if not isinstance(below, Selection):
            return
        found = self.catalogue.find(below.matchers)
        gauges = [one for one in found.series if one.kind == Kind.GAUGE]
        if part.is_for_counters and gauges:
            yield _at(part.span, "gauge-rate", gauges_text(part.function, len(gauges), _named(gauges[0])))
        least_ms = part.samples * found.period_ms
        if part.width_ms is not None and part.width_ms < least_ms:
            width, period, least = map(format_duration, (part.width_ms, found.period_ms, least_ms))
            few = "fewer than two samples" if part.samples > 1 else "no sample"
            told = f"{part.function} over {width}: samples come every {period}, so that a window can have {few}"
            yield _at(part.span, "short-window", f"{told}: write {least} or more")

    def groups(self, part: Grouped, is_inner: bool) -> Iterator[Finding]:
        """Check the labels of a reduction: known ones, and not too many values."""
        keys = self.keys(part.child)
        if keys and part.by:
            labels = sorted({label for key in keys for label, _ in key.labels})
            for label in part.by:
                if label not in (NAME, *labels):
                    yield _at(part.span, "unknown-label", f"{part.function}: {unknown_label(label, labels)}")
        if is_inner or part.keeps_members:
            return
        classes = self.keys(part)
        if classes is not None:
            count, of = len(classes), "its labels"
        else:
            values = [
                (self.catalogue.count_values(label, one.matchers, MAX_GROUPS + 1), label)
                for one in selections(part.child)
                for label in (part.by or ())
            ]
            count, of = max(values, default=(0, ""))
        if count > MAX_GROUPS:
            told = f"{part.function} returns over {MAX_GROUPS} series, one for each value of {of}"
            yield _at(part.span, "many-groups", f"{told}: reduce by other labels, or add topk")

    def join(self, part: Joined) -> Iterator[Finding]:
        """Check that series of both sides pair, and not several with several."""
        left, right = self.keys(part.left), self.keys(part.right)
        if not left or not right:
            return
        match = replace(part.match, group_left=(), group_right=()) if part.is_filter else part.match
        try:
            pairs = pair_rows(left, right, match, part.op)
        except QueryError as problem:
            yield _at(part.span, "join-many", problem.message)
            return
        if not len(pairs.left) and match.fill is None:
            told = f"{part.op}: no series pair: the left has such as {series_name(left[0])}, the right "
            told += f"{series_name(right[0])}: compare fewer labels, by on or ignoring"
            yield _at(part.span, "join-nothing", told)

    def keys(self, part: Part) -> list[SeriesKey] | None:
        """Return the names and labels of the series of a part; None if they are not known."""
        if id(part) not in self._keys:
            self._keys[id(part)] = self.read_keys(part)
        return self._keys[id(part)]

    def read_keys(self, part: Part) -> list[SeriesKey] | None:
        """Compute the same from the keys of the parts below."""
        match part:
            case Selection():
                found = self.catalogue.find(part.matchers)
                return found.keys if found.is_whole else None
            case Windowed(child=child):
                return self.keys(child)
            case Grouped(child=child):
                keys = None if part.keeps_members else self.keys(child)
                labels_of = classifier(part.by, part.without)
                return None if keys is None else list(dict.fromkeys(class_key(labels_of(key)) for key in keys))
            case Joined():
                return self.paired(part)
            case Other(children=(child,)) if part.keeps_labels:
                return self.keys(child)
        return None

    def paired(self, part: Joined) -> list[SeriesKey] | None:
        """Return the series of an operator that keeps every pair."""
        left, right = self.keys(part.left), self.keys(part.right)
        if not part.keeps_all or left is None or right is None:
            return None
        try:
            return pair_rows(left, right, part.match, part.op).keys
        except QueryError:
            return None


def _is_computed(part: Part) -> bool:
    """Return True for a reduction, or an operator between series, below nodes that keep the labels."""
    part = below_labels(part)
    while isinstance(part, Windowed) and part.function.removesuffix("_over_time") in _VALUES:
        part = below_labels(part.child)
    return isinstance(part, Grouped | Joined) and not (isinstance(part, Grouped) and part.keeps_members)


def _place(text: str, part: Selection, matcher: Matcher) -> Span | None:
    """Find a matcher in the text of its selector."""
    if part.span is None or matcher.label == NAME:
        return part.span
    found = re.compile(rf"{re.escape(matcher.label)}\s*{re.escape(matcher.op)}").search(text, part.span[0])
    return (found.start(), found.end() - found.start()) if found else part.span


def _named(series: Series) -> str:
    return canonical(series.name, series.labels)


def _at(span: Span | None, code: str, message: str) -> Finding:
    return Finding(code, message, *(span or (None, 1)))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in the order of the text, equal ones once."""
    return sorted(dict.fromkeys(findings), key=lambda one: (one.position is None, one.position or 0, one.code))
